"""qd1: latency and rates at queue depth 1, also by block size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section, Table
from blkreel.analysis.charts.spec import Axis
from blkreel.analysis.metrics.partials.distributions import ValueCounts
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, points_of, ranking, section, slug
from blkreel.benchmarks.charts.drives import DriveResults, FigurePath, Value
from blkreel.benchmarks.charts.tables import MetricRow, metric_table
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
    steps_over_repeats,
    withhold,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note, step_stats
from blkreel.common import units
from blkreel.common.binning import grouped, sum_of
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
    run = Measured(StepStats.of(directory, trace))
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
    groups = grouped(((str(step.labels.get("access", "")), str(step.labels.get("op", "")), _block(step)), run)
                     for step, run in measured)
    return [_row(*key, groups[key]) for key in sorted(groups, key=lambda key: (*key[:2], key[2] or 0))]


def _block(step: BenchmarkStep) -> int | None:
    block = step.labels.get("block")
    return block if isinstance(block, int) else None


def _row(access: str, op: str, block: int | None, repeats: list[Measured]) -> Figures:
    latency = sum_of(repeat.latency for repeat in repeats)
    row = steps_over_repeats([repeat.stats for repeat in repeats], "kiops", "mb_s", "average_w", "kiops_per_w",
                             "mb_per_j")
    count = latency.count
    named = [access, op, units.binary_size(block) if block else ""]
    row |= {"io": " ".join(filter(None, named)), "access": access, "op": op, "block": block,
            "mean_ns": latency.total / count if count else None, "max_ns": latency.maximum, "ops": count,
            **{key: percentile_or_reason(latency, key, fraction, row["why"]) for key, fraction in PERCENTILES.items()}}
    metrics = {"mean_ns": [f"{op}_service_time"],
               **{key: [f"{op}_{key.removesuffix('_ns')}"] for key in PERCENTILES}}
    return withhold(row, metrics, [repeat.stats for repeat in repeats])


def _curves(state: str, rows: Iterable[Figures]) -> Iterator[FigureSeries]:
    for figure in metric.select(METRICS, "mb_s", "kiops", "mean_ns"):
        lines = grouped((" ".join(filter(None, (row["access"], row["op"]))), (row["block"], row[figure.key]))
                        for row in rows if row["block"] is not None and row[figure.key] is not None)
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
_KIOPS = replace(_RATES[0], unit="kIOPS")  # of a value alone
_LATENCIES = metric.select(METRICS, "mean_ns", "p99_ns", "p99_99_ns", "max_ns", "ops")
_POWER = metric.select(METRICS, "average_w", "kiops_per_w", "mb_per_j")


def sections(context: ChartContext) -> Iterator[Section]:
    for state_context in context.by_state():
        state = state_context.state
        if kinds := _kinds(state_context, "qd1"):
            yield section(f"qd1-{slug(state)}", state_context.titled("One outstanding"), (
                *_rates(state_context, kinds), *_tails(state_context, kinds), *_power(state_context, kinds)))
        yield section(f"blocks-{slug(state)}", state_context.titled("By block size"), _by_block(state_context))
        yield section(f"sweep-{slug(state)}", state_context.titled("By queue depth"),
                      sweep_charts(state_context, state_context.at("sweep"), "qd1-"))


def _kinds(context: ChartContext, role: str) -> Kinds:
    """{words of an I/O: {drive: its key in the figures}}, in the order measured."""
    kinds: Kinds = {}
    for drive in context.drives:
        for index in drive.keys(*context.at(role)):
            words = drive.value(*context.at(role, index, "io")).value
            kinds.setdefault(words, {})[drive.key] = index
    return kinds


def _at(context: ChartContext, where: dict[str, str], *path: str) -> Callable[[DriveResults], FigurePath]:
    """The path of a figure in a drive's row of that kind."""
    return lambda drive: context.at("qd1", where.get(drive.key, "none"), *path)


def _table(context: ChartContext, kinds: Kinds, figures: Sequence[metric.BenchmarkMetric], caption: str) -> Table:
    by_key = {drive.key: drive for drive in context.drives}
    metric_rows = [MetricRow(by_key[key], context.at("qd1", index), {"io": index}, words)
                   for words, where in kinds.items() for key, index in where.items()]
    return metric_table(caption, metric_rows, figures, context.at("qd1", "{io}"), (Column("io", "I/O"),))


def _rates(context: ChartContext, kinds: Kinds) -> Iterator[Chart | None]:
    """Random I/Os in kIOPS, sequential I/Os in MB/s."""
    if not context.several:
        title = "Rates, one outstanding"
        yield context.chart("qd1-rates", title, _table(context, kinds, _RATES, title), better="higher")
        return
    for words, where in kinds.items():
        figure, axis = (_KIOPS, Axis("kIOPS", "", "auto")) if words.startswith("random") else (_RATES[1], MB_S)
        yield ranking(context, f"qd1-{slug(words)}", _titled(words), axis, [("", _at(context, where, figure.key))],
                      _table(context, {words: where}, _RATES, words), figure)


def _tails(context: ChartContext, kinds: Kinds) -> Iterator[Chart | None]:
    """Mean, p99 and p99.99 of each kind of I/O, joined by a line."""
    for words, where in kinds.items():
        table = _table(context, {words: where}, _LATENCIES, f"Latency, {words}")
        yield ranking(context, f"qd1-qos-{slug(words)}", f"Slow {_plural(words)}", Axis("latency", "ns", "auto"),
                      [(name, _at(context, where, key)) for key, name in (
                          ("mean_ns", "mean"), ("p99_ns", "p99"), ("p99_99_ns", "p99.99"))], table, _LATENCIES[0],
                      order_part=1, text_of=partial(_slowest, at=_at(context, where)), notes=_too_small(table))


def _slowest(drive: DriveResults, at: Callable[[DriveResults], FigurePath]) -> str:
    """The highest percentile with enough I/Os."""
    for key, name in (("p99_99_ns", "p99.99"), ("p99_ns", "p99"), ("mean_ns", "mean")):
        value = drive.value(*at(drive), key).value
        if value is not None:
            return f"{name} {units.duration(value)}"
    return ""


def _too_small(table: Table) -> tuple[str, ...]:
    small = {row.values["drive"] for row in table.rows if "n too small" in row.why.get("p99_99_ns", "")}
    return (f"n too small for p99.99: {', '.join(sorted(small))}.",) if small else ()


def _power(context: ChartContext, kinds: Kinds) -> Iterator[Chart | None]:
    for words, where in kinds.items():
        if words.startswith("random") and context.several:
            chart = ranking(context, f"qd1-kiops-w-{slug(words)}", f"kIOPS per watt, {_plural(words)}",
                            Axis("kIOPS/W", "", "auto"), [("", _at(context, where, "kiops_per_w"))],
                            _table(context, {words: where}, [_RATES[0], *_POWER], f"Efficiency, {words}"),
                            replace(_POWER[1], unit="kIOPS/W"))
            if chart and chart.spec:
                yield chart
    first = context.drives[0].key
    points = [(words, context.at("qd1", where[first]), "mb_s") for words, where in kinds.items()
              if len(set(where.values())) == 1 and first in where]
    if points:
        yield efficiency(context, "qd1-efficiency", "Efficiency, one outstanding", points)
    if not context.several:
        table = _table(context, kinds, [*_RATES, *_POWER], "Efficiency, one outstanding")
        if any(row.values.get("kiops_per_w") is not None for row in table.rows):
            yield context.chart("qd1-kiops-w", "kIOPS per watt", table, better="higher")


def _by_block(context: ChartContext) -> Iterator[Chart]:
    kinds: dict[str, list[tuple[int, MetricRow]]] = {}
    for where in _kinds(context, "blocks").values():
        for drive in context.drives:
            if drive.key not in where:
                continue
            base = context.at("blocks", where[drive.key])
            access, op, block = (drive.value(*base, key).value for key in ("access", "op", "block"))
            if block:
                kinds.setdefault(f"{access} {op}".strip(), []).append(
                    (block, MetricRow(drive, base, {"io": base[-1], "block": block})))
    groups = [[kind] for kind in kinds] if context.several else [list(kinds)]
    for figure, stem, title, axis in (
            (_RATES[1], "rate", "Throughput", MB_S),
            (_LATENCIES[0], "latency", "Mean latency", Axis("mean latency", "ns", "auto"))):
        for group in groups:
            rows = [(kind, *row) for kind in group for row in sorted(kinds[kind], key=lambda row: row[0])]
            points = points_of(rows, figure.key)
            if not points:
                continue
            table = metric_table(f"{title} by block size", [row for _, _, row in rows],
                                 [*_RATES, *_LATENCIES] if stem == "rate" else _LATENCIES,
                                 context.at("blocks", "{io}"), (Column("io", "I/O"), Column("block", "Block", "block")))
            id_ = f"qd1-blocks-{stem}" + (f"-{slug(group[0])}" if context.several else "")
            words = f"{title} by block size" + (f", {group[0]}s" if context.several else "")
            yield context.chart(id_, words, table, curves(words, points, context.style(group), Axis(
                "block size", "block", "log2"), axis), figure.better)


def _titled(words: str) -> str:
    return f"{_plural(words)[:1].upper()}{_plural(words)[1:]}, one outstanding"


def _plural(words: str) -> str:
    """random read 4K → random reads of 4K."""
    head, _, block = words.rpartition(" ")
    return f"{head}s of {block}" if head else f"{words}s"


def _headline(drive: DriveResults) -> Value | None:
    return next((drive.value("states", state, "qd1", index, "kiops") for state in drive.states()
                 for index in drive.keys("states", state, "qd1")), None)


REPORT = Report(report, sections, _headline, _KIOPS)
