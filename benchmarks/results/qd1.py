"""qd1: latency and rates at queue depth 1, also by block size."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from blkreel.analysis.metrics.partials.distributions import ValueCounts
from blkreel.benchmarks import metric
from blkreel.benchmarks.step_metrics.sensors import sensors_of
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note, step_stats
from blkreel.common import units
from blkreel.traces.format.trace import Trace

from .depth_sweep import ROLE as SWEEP
from .depth_sweep import sweep, sweep_series, sweep_tables
from .directory import Runs, Step, Test
from .document import (
    Content,
    Figures,
    FigureSeries,
    by_state,
    figure_series,
    figure_table,
    in_state,
    percentile_or_reason,
    pooled,
    steps_over_repeats,
)

ROLES = ("qd1", "blocks")
PERCENTILES = {"p99_ns": (99, 100), "p99_99_ns": (9999, 10_000)}


@dataclass
class Measured:
    """One step: its stats, and how its latencies are distributed."""

    stats: StepStats
    latency: ValueCounts = field(default_factory=ValueCounts)


def _measure(directory: Path, trace: Trace) -> Measured:
    measured = Measured(StepStats(sensors_of(directory)))
    for columns in arrays(trace, COLUMNS):
        measured.stats.feed(columns)
        seen = (columns["latency_ns"] >= 0) & (columns["op"] < 2)
        measured.latency.add(columns["latency_ns"][seen])
    return measured


def report(test: Test, runs: Runs) -> Content:
    """Roles qd1 and blocks, labels state, access, op, block, repeat; and role depth, label depth, where there is a
    sweep as well."""
    measured = {role: by_state(runs.measured(role, _measure), "access", "op", "block") for role in ROLES}
    sweeps = by_state(runs.measured(SWEEP, step_stats, number="depth"), "depth")
    content = Content(figures={"states": {}})
    for state in dict.fromkeys([*measured[ROLES[0]], *measured[ROLES[1]], *sweeps]):
        figures: Figures = {}
        content.figures["states"][state] = figures
        for role, title in zip(ROLES, ("One outstanding", "By block size"), strict=True):
            rows = _rows(measured[role].get(state, []))
            figures[role] = {row["io"].replace(" ", "-"): row for row in rows}
            if rows:
                content.tables.append(figure_table(in_state(title, state), METRICS, rows))
        content.series += _curves(state, figures["blocks"].values())
        if state in sweeps:
            rows, of_sweep = sweep(test, sweeps[state])
            figures["sweep"] = of_sweep
            content.tables += sweep_tables(state, rows, of_sweep)
            content.series += sweep_series(state, rows)
    content.method = [*METHOD, energy_note([each.stats for states in measured.values() for own in states.values()
                                          for _, each in own])]
    return content


def _rows(measured: list[tuple[Step, Measured]]) -> list[Figures]:
    groups: dict[tuple[str, str, int | None], list[Measured]] = {}
    for step, each in measured:
        key = (str(step.labels.get("access", "")), str(step.labels.get("op", "")), _block(step))
        groups.setdefault(key, []).append(each)
    return [_row(*key, groups[key]) for key in sorted(groups, key=lambda key: (*key[:2], key[2] or 0))]


def _block(step: Step) -> int | None:
    block = step.labels.get("block")
    return block if isinstance(block, int) else None


def _row(access: str, op: str, block: int | None, repeats: list[Measured]) -> Figures:
    latency = pooled(repeat.latency for repeat in repeats)
    row = steps_over_repeats([repeat.stats for repeat in repeats], "kiops", "mb_s", "average_w", "kiops_per_w",
                             "mb_per_j")
    count = latency.count
    named = [access, op, units.binary_size(block) if block else ""]
    return {"io": " ".join(filter(None, named)), "access": access, "op": op, "block": block, **row,
            "mean_ns": latency.total / count if count else None, "max_ns": latency.maximum, "ops": count,
            **{key: percentile_or_reason(latency, key, fraction, row["why"]) for key, fraction in PERCENTILES.items()}}


def _curves(state: str, rows: Iterable[Figures]) -> Iterator[FigureSeries]:
    for each in metric.select(METRICS, "mb_s", "kiops", "mean_ns"):
        lines: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row["block"] is not None and row[each.key] is not None:
                name_of = " ".join(filter(None, (row["access"], row["op"])))
                lines.setdefault(name_of, []).append((row["block"], row[each.key]))
        if lines:
            yield figure_series(in_state(f"{each.title} by block size", state), ("block size", "bytes"),
                         (each.title, each.unit), [(line, [x for x, _ in points], [y for _, y in points])
                                                   for line, points in lines.items()])


_NEAREST = "nearest rank of complete − submit; shown only where at least 10 I/Os lie beyond"
METRICS = [
    metric.text("io", "I/O"), *metric.with_spread([
        metric.number("kiops", "kIOPS", "1000/s", f"thousands of I/Os / {metric.MAKESPAN}", "higher"),
        metric.THROUGHPUT]),
    metric.MEAN_LATENCY, metric.duration("p99_ns", "p99", _NEAREST), metric.duration("p99_99_ns", "p99.99", _NEAREST),
    metric.MAX_LATENCY, *metric.with_spread([
        metric.POWER[0],
        metric.number("kiops_per_w", "kIOPS/W", "1000/s/W", "thousands of I/Os / joules", "higher"), metric.POWER[1]]),
    metric.OPS, metric.REPEATS]

METHOD = [
    ("Rates", "I/Os and bytes / makespan of the step, max(complete) − min(submit)."),
    ("Percentiles", "Nearest rank of complete − submit, nothing interpolated; shown only where at least 10 I/Os lie "
     f"beyond (n (1 − p) ≥ 10): p99 from {units.digits(1000)} I/Os on, p99.99 from {100_000:,}. Repeats are pooled "
     "I/O by I/O."),
    ("kIOPS/W", "kIOPS / average power, the same as thousands of I/Os / joules."),
    ("Lowest depth with 95 %", "The lowest depth of the sweep whose throughput is at least 95 % of that of the best "
     "depth; given only if each depth of the test was measured."),
    ("Repeats", "Rates are geometric means over the repeats, with the smallest and the largest."),
]
