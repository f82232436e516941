"""qd1: latency and rates at queue depth 1, also by block size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section, Table
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.metrics.definitions.metric import number_unit
from blkreel.analysis.metrics.partials.distributions import ValueCounts
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, ranking, section, slug
from blkreel.benchmarks.charts.drives import DriveResults, FigurePath, Value
from blkreel.benchmarks.charts.tables import MetricRow, metric_table, plain
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
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
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note, sensors_of, step_stats
from blkreel.common import units
from blkreel.traces.format.trace import Trace

from .depth_sweep import ROLE as SWEEP
from .depth_sweep import sweep, sweep_charts, sweep_series, sweep_tables
from .report import Report

ROLES = ("qd1", "blocks")
PERCENTILES = {"p99_ns": (99, 100), "p99_99_ns": (9999, 10_000)}


@dataclass
class Measured:
    """One step: its stats, and how its latencies are distributed."""

    stats: StepStats
    latency: ValueCounts = field(default_factory=ValueCounts)


def _measure(directory: Path, trace: Trace) -> Measured:
    run = Measured(StepStats(sensors_of(directory)))
    for columns in arrays(trace, COLUMNS):
        run.stats.feed(columns)
        mask = (columns["latency_ns"] >= 0) & (columns["op"] < 2)
        run.latency.add(columns["latency_ns"][mask])
    return run


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
    content.method = [*METHOD, energy_note([run.stats for states in measured.values() for own in states.values()
                                          for _, run in own])]
    return content


def _rows(measured: list[tuple[BenchmarkStep, Measured]]) -> list[Figures]:
    groups: dict[tuple[str, str, int | None], list[Measured]] = {}
    for step, run in measured:
        key = (str(step.labels.get("access", "")), str(step.labels.get("op", "")), _block(step))
        groups.setdefault(key, []).append(run)
    return [_row(*key, groups[key]) for key in sorted(groups, key=lambda key: (*key[:2], key[2] or 0))]


def _block(step: BenchmarkStep) -> int | None:
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
    for figure in metric.select(METRICS, "mb_s", "kiops", "mean_ns"):
        lines: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row["block"] is not None and row[figure.key] is not None:
                name_of = " ".join(filter(None, (row["access"], row["op"])))
                lines.setdefault(name_of, []).append((row["block"], row[figure.key]))
        if lines:
            yield figure_series(in_state(f"{figure.title} by block size", state), ("block size", "bytes"),
                         (figure.title, figure.unit), [(line, [x for x, _ in points], [y for _, y in points])
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


Kinds = dict[str, dict[str, str]]  # words of an I/O -> key of a drive -> key of the I/O in its figures
_RATES = metric.select(METRICS, "kiops", "mb_s")
_LATENCIES = metric.select(METRICS, "mean_ns", "p99_ns", "p99_99_ns", "max_ns", "ops")
_POWER = metric.select(METRICS, "average_w", "kiops_per_w", "mb_per_j")


def sections(context: ChartContext) -> Iterator[Section]:
    for state in context.states():
        if kinds := _kinds(context, state, "qd1"):
            yield section(f"qd1-{slug(state)}", context.titled("One outstanding", state), (
                *_rates(context, state, kinds), *_tails(context, state, kinds), *_power(context, state, kinds)))
        yield section(f"blocks-{slug(state)}", context.titled("By block size", state), _by_block(context, state))
        yield section(f"sweep-{slug(state)}", context.titled("By queue depth", state),
                      sweep_charts(context, state, ("states", state, "sweep"), "qd1-"))


def _kinds(context: ChartContext, state: str, role: str) -> Kinds:
    """{words of an I/O: {drive: its key in the figures}}, in the order measured."""
    kinds: Kinds = {}
    for drive in context.drives:
        for index in drive.keys("states", state, role):
            words = drive.value("states", state, role, index, "io").value
            kinds.setdefault(words, {})[drive.key] = index
    return kinds


def _at(state: str, role: str, where: dict[str, str], *path: str) -> Callable[[DriveResults], FigurePath]:
    """The path of a figure in a drive's row of that kind."""
    return lambda drive: ("states", state, role, where.get(drive.key, "none"), *path)


def _table(context: ChartContext, state: str, role: str, kinds: Kinds, figures: Sequence[metric.BenchmarkMetric],
           caption: str) -> Table:
    by_key = {drive.key: drive for drive in context.drives}
    metric_rows = [MetricRow(by_key[key], ("states", state, role, index), {"io": index}, words)
              for words, where in kinds.items() for key, index in where.items()]
    return metric_table(caption, metric_rows, figures, ("states", state, role, "{io}"), (Column("io", "I/O"),))


def _rates(context: ChartContext, state: str, kinds: Kinds) -> Iterator[Chart | None]:
    """Random I/Os in kIOPS, sequential I/Os in MB/s."""
    for words, where in kinds.items():
        random = words.startswith("random")
        key, form, axis = ("kiops", "number", Axis("kIOPS", "", "auto")) if random else ("mb_s", "rate", MB_S)
        if not context.several:
            continue
        yield ranking(context, context.named(f"qd1-{slug(words)}", state), context.titled(_titled(words), state), axis,
                      [("", _at(state, "qd1", where, key))],
                      _table(context, state, "qd1", {words: where}, _RATES, words), better="higher", form=form,
                      unit="kIOPS" if random else "")
    if not context.several:
        yield Chart(context.named("qd1-rates", state), context.titled("Rates, one outstanding", state),
                    _table(context, state, "qd1", kinds, _RATES, "Rates, one outstanding"), better="higher")


def _tails(context: ChartContext, state: str, kinds: Kinds) -> Iterator[Chart | None]:
    """Mean, p99 and p99.99 of each kind of I/O, joined by a line."""
    for words, where in kinds.items():
        table = _table(context, state, "qd1", {words: where}, _LATENCIES, f"Latency, {words}")
        yield ranking(context, context.named(f"qd1-qos-{slug(words)}", state),
                      context.titled(f"Slow {_plural(words)}", state), Axis("latency", "ns", "auto"),
                      [(name, _at(state, "qd1", where, key)) for key, name in (
                          ("mean_ns", "mean"), ("p99_ns", "p99"), ("p99_99_ns", "p99.99"))], table, better="lower",
                      form="time", order_part=1,
                      text_of=partial(_slowest, at=_at(state, "qd1", where)),
                      notes=_too_small(table))


def _slowest(drive: DriveResults, at: Callable[[DriveResults], FigurePath]) -> str:
    """The highest percentile with enough I/Os."""
    for key, name in (("p99_99_ns", "p99.99"), ("p99_ns", "p99"), ("mean_ns", "mean")):
        value = drive.value(*at(drive), key).value
        if value is not None:
            return f"{name} {plain(value, 'time')}"
    return ""


def _too_small(table: Table) -> tuple[str, ...]:
    small = {row.values["drive"] for row in table.rows if "n too small" in row.why.get("p99_99_ns", "")}
    return (f"n too small for p99.99: {', '.join(sorted(small))}.",) if small else ()


def _power(context: ChartContext, state: str, kinds: Kinds) -> Iterator[Chart | None]:
    for words, where in kinds.items():
        if words.startswith("random") and context.several:
            table = _table(context, state, "qd1", {words: where}, [_RATES[0], *_POWER], f"Efficiency, {words}")
            chart = ranking(context, context.named(f"qd1-kiops-w-{slug(words)}", state),
                            context.titled(f"kIOPS per watt, {_plural(words)}", state), Axis("kIOPS/W", "", "auto"),
                            [("", _at(state, "qd1", where, "kiops_per_w"))], table, better="higher", form="number",
                            unit="kIOPS/W")
            if chart and chart.spec:
                yield chart
    first = context.drives[0].key
    points = [(words, ("states", state, "qd1", where[first]), "mb_s") for words, where in kinds.items()
              if len(set(where.values())) == 1 and first in where]
    if points:
        yield efficiency(context, context.named("qd1-efficiency", state),
                         context.titled("Efficiency, one outstanding", state), points)
    if not context.several:
        table = _table(context, state, "qd1", kinds, [*_RATES, *_POWER], "Efficiency, one outstanding")
        if any(row.values.get("kiops_per_w") is not None for row in table.rows):
            yield Chart(context.named("qd1-kiops-w", state), context.titled("kIOPS per watt", state), table,
                        better="higher")


def _by_block(context: ChartContext, state: str) -> Iterator[Chart]:
    kinds: dict[str, list[tuple[DriveResults, FigurePath, int]]] = {}
    for where in _kinds(context, state, "blocks").values():
        for drive in context.drives:
            if drive.key not in where:
                continue
            base = ("states", state, "blocks", where[drive.key])
            access, op, block = (drive.value(*base, key).value for key in ("access", "op", "block"))
            if block:
                kinds.setdefault(f"{access} {op}".strip(), []).append((drive, base, block))
    groups = [[kind] for kind in kinds] if context.several else [list(kinds)]
    for key, title, axis, better in (("mb_s", "Throughput", MB_S, "higher"),
                                     ("mean_ns", "Mean latency", Axis("mean latency", "ns", "auto"), "lower")):
        for group in groups:
            points, metric_rows = [], []
            for kind in group:
                for drive, io_path, block in sorted(kinds[kind], key=lambda point: point[2]):
                    metric_rows.append(MetricRow(drive, io_path, {"io": io_path[-1], "block": block}))
                    if (value := drive.value(*io_path, key).value) is not None:
                        points.append(Point(drive.key, kind, block, value))
            if not points:
                continue
            table = metric_table(f"{title} by block size", metric_rows,
                                 [*_RATES, *_LATENCIES] if key == "mb_s" else _LATENCIES,
                                 ("states", state, "blocks", "{io}"),
                                 (Column("io", "I/O"), Column("block", "Block", "block")))
            stem = f"qd1-blocks-{'rate' if key == 'mb_s' else 'latency'}"
            id_ = f"{stem}-{slug(group[0])}" if context.several else stem
            words = f"{title} by block size" + (f", {group[0]}s" if context.several else "")
            yield Chart(context.named(id_, state), context.titled(words, state), table,
                        curves(words, points, context.style(group), Axis("block size", "block", "log2"), axis),
                        better)


def _titled(words: str) -> str:
    return f"{_plural(words)[:1].upper()}{_plural(words)[1:]}, one outstanding"


def _plural(words: str) -> str:
    """random read 4K → random reads of 4K."""
    head, _, block = words.rpartition(" ")
    return f"{head}s of {block}" if head else f"{words}s"


def _headline(drive: DriveResults) -> Value | None:
    return next((drive.value("states", state, "qd1", index, "kiops") for state in drive.states()
                 for index in drive.keys("states", state, "qd1")), None)


REPORT = Report(report, sections, _headline, "higher", number_unit("kIOPS"))
