"""The parts of a results document: tables, series, and metrics over repeats."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, Protocol, TypedDict, TypeVar

from blkreel.analysis.metrics.partials.distributions import Distribution
from blkreel.analysis.report.columns import WITHHELD
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks.metric import BenchmarkMetric
from blkreel.benchmarks.step_metrics.step_stats import StepStats
from blkreel.common.verdict import Reason, Verdict, enough

_T = TypeVar("_T")

Figures = dict[str, Any]  # the metrics of one table row by key, as JSON holds them; each report has its own


class ColumnHead(TypedDict):
    key: str
    title: str
    unit: str


class FigureTable(TypedDict):
    """rows: values by key, and `why`: {key: reason} for values that are missing."""

    title: str
    columns: list[ColumnHead]
    rows: list[Figures]


class Axis(TypedDict):
    title: str
    unit: str


class Line(TypedDict):
    name: str
    x: list[float]
    y: list[float | None]


class FigureSeries(TypedDict):
    """of: what the lines show, for the charts."""

    title: str
    of: dict[str, Any]
    x: Axis
    y: Axis
    lines: list[Line]


class Missing(TypedDict):
    step: str
    title: str
    status: str
    why: str


class Results(TypedDict):
    """The results of one test, or of several tests side by side (kind `test comparison`, with labels and tests)."""

    version: int
    kind: str
    blkreel: str
    test: str | None
    title: str | None
    report: str
    explain: str | None
    quick: bool
    scale: float
    path: NotRequired[str]
    drive: Mapping[str, Any]
    units: NotRequired[list[str]]  # as of drive_units()
    label: str | None
    started_at: str | None
    ended_at: str | None
    seed: int | None
    verdict: Verdict
    simulated: bool  # on simulated drives: the figures are those of their models
    parameters: dict[str, Any]
    parameters_text: dict[str, str]
    inputs: NotRequired[dict[str, str]]  # other than the parameters; without those that are as usual
    figures: dict[str, Any]
    tables: list[FigureTable]
    series: NotRequired[list[FigureSeries]]
    method: list[list[str]]
    missing: list[Missing]
    labels: NotRequired[list[str]]
    tests: NotRequired[list[dict[str, Any]]]


@dataclass
class Content:
    """What one kind of report adds to the document. method: (name, text)."""

    figures: dict[str, Any] = field(default_factory=dict)
    tables: list[FigureTable] = field(default_factory=list)
    series: list[FigureSeries] = field(default_factory=list)
    method: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)


class HasLabels(Protocol):
    @property
    def labels(self) -> dict[str, Any]: ...


def figure_table(title: str, metrics: Sequence[BenchmarkMetric], rows: Sequence[Figures]) -> FigureTable:
    """A table without the columns in which all rows lack both a value and a reason."""
    present = [metric for metric in metrics
               if any(row.get(metric.key) is not None or metric.key in row.get("why", {}) for row in rows)]
    keys = [metric.key for metric in present]
    complete = []
    for row in rows:
        values = {key: row.get(key) for key in keys}
        values |= {repeats: row[repeats] for key in keys if (repeats := f"{key}_repeats") in row}
        why = {key: text for key, text in row.get("why", {}).items() if key in values and values[key] is None}
        complete.append({**values, **({"why": why} if why else {})})
    return {"title": title, "rows": complete,
            "columns": [{"key": metric.key, "title": metric.title, "unit": metric.unit} for metric in present]}


def figure_series(title: str, x: tuple[str, str], y: tuple[str, str],
                  lines: Iterable[tuple[str, Sequence[float], Sequence[float | None]]], **of: Any) -> FigureSeries:
    """x, y: (title, unit). lines: (name, x values, y values), rounded for charts. of: see FigureSeries."""
    return {"title": title, "of": of, "x": {"title": x[0], "unit": x[1]}, "y": {"title": y[0], "unit": y[1]},
            "lines": [{"name": name, "x": [_rounded(value, 10) for value in xs],
                       "y": [None if value is None else _rounded(value, 6) for value in ys]} for name, xs, ys in lines]}


def _rounded(value: float, digits: int) -> float:
    return value if isinstance(value, int) else float(f"{float(value):.{digits}g}")


def state_label(step: HasLabels) -> str:
    return str(step.labels.get("state", ""))


def other_labels(step: HasLabels, *own_labels: str) -> dict[str, str]:
    """Labels of the loops of a recipe that a report does not know: neither state, repeat nor own_labels."""
    return {name: str(value) for name, value in step.labels.items() if name not in ("state", "repeat", *own_labels)}


def by_state(measured: Iterable[tuple["StepT", _T]], *own_labels: str) -> dict[str, list[tuple["StepT", _T]]]:
    """Pairs of (step, value) by the state of the step. Repeats are pooled, states never.

    own_labels: those that the report groups by itself. Steps that differ in another label, of a recipe with loops of
    its own, are never pooled either: `client, block 65536`.
    """
    pairs = list(measured)
    step_labels = [other_labels(step, *own_labels) for step, _ in pairs]
    varying = {name for labels in step_labels for name in labels if len({peer.get(name) for peer in step_labels}) > 1}
    states: dict[str, list[tuple[StepT, _T]]] = {}
    for (step, value), labels in zip(pairs, step_labels, strict=True):
        words = [f"{name} {text}" for name, text in labels.items() if name in varying]
        states.setdefault(", ".join(filter(None, [state_label(step), *words])), []).append((step, value))
    return states


StepT = TypeVar("StepT", bound=HasLabels)


def in_state(title: str, state: str) -> str:
    return f"{title}, state {state}" if state else title


def without(row: Figures, *keys: str) -> Figures:
    return {key: value for key, value in row.items() if key not in keys}


def over_repeats(key: str, values: Sequence[float | None]) -> Figures:
    """One metric over repeats: {key: geometric mean, key_smallest, key_largest, key_repeats: values}; of one repeat
    {key: value}."""
    if len(values) == 1:
        return {key: values[0]}
    present = [value for value in values if value is not None]
    return {key: geometric_mean(values), f"{key}_smallest": min(present) if present else None,
            f"{key}_largest": max(present) if present else None, f"{key}_repeats": list(values)}


def withhold(figures: Figures, metrics: Mapping[str, Sequence[str]], steps: Iterable[StepStats]) -> Figures:
    """The figures of steps without those, and their spread, whose metric the verdict of one of the steps withholds.

    metrics: by the key of a figure, the keys of the metrics of the registry that it stands or falls with.
    """
    withheld, why = {key for stats in steps for key in stats.withheld}, figures.get("why", {})
    hidden = [key for key, names in metrics.items() if key in figures and key not in why and withheld & set(names)]
    if not hidden:
        return figures
    spread = [f"{key}_{part}" for key in hidden for part in ("smallest", "largest", "repeats")]
    return {**without(figures, *spread), **dict.fromkeys(hidden), "why": why | dict.fromkeys(hidden, WITHHELD)}


def steps_over_repeats(repeats: Sequence[StepStats], *keys: str) -> Figures:
    """These StepStats.metrics() over repeats, their number `n`, and `why` there is no power."""
    of_repeats = [stats.metrics() for stats in repeats]
    row: Figures = {"n": len(repeats), "why": dict(next((metrics["why"] for metrics in of_repeats if metrics["why"]),
                                                        {}))}
    for key in keys:
        row |= over_repeats(key, [metrics[key] for metrics in of_repeats])
    return row


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def percentile_or_reason(values: Distribution, key: str, fraction: tuple[int, int], why: dict[str, str]) -> int | None:
    """The percentile, or None with the reason in why[key] if fewer than 10 values lie beyond it."""
    if enough(values.count, fraction):
        return values.percentile(fraction)
    why[key] = f"n too small (n={values.count:,})"
    return None
