"""trace: a captured trace, on an empty and on a full drive."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from blkreel.analysis.charts.curves import slope
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Axis
from blkreel.analysis.metrics.accumulator import COLUMNS as METRIC_COLUMNS
from blkreel.analysis.metrics.accumulator import MetricsAccumulator, Partial
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import run_columns_of
from blkreel.analysis.metrics.partials.distributions import Distribution
from blkreel.analysis.metrics.run_times import why_no_slowdown
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, ranking, section, slug
from blkreel.benchmarks.charts.tables import MetricRow, metric_table
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    by_state,
    figure_table,
    other_labels,
    over_repeats,
    percentile_or_reason,
    ratio,
    steps_over_repeats,
    withhold,
)
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note
from blkreel.common.binning import grouped, sum_of
from blkreel.common.verdict import step_reason
from blkreel.traces.format.exposure import Exposure, exposure_of
from blkreel.traces.format.metadata_types import Idle, SlowdownRatios
from blkreel.traces.format.trace import Trace

from .report import Report

ROLE = "trace"
FULL, EMPTY = "full", ("empty", "fresh")
P99 = (99, 100)
NO_SLOWDOWN = SlowdownRatios(load_time=None, read_wait=None)  # without a baseline


@dataclass(frozen=True)
class Measured:
    stats: StepStats
    partial: Partial
    idle: Idle
    sha256: str | None  # of the trace
    slowdown: SlowdownRatios
    exposure: Exposure


def _measure(directory: Path, trace: Trace) -> Measured:
    stats, metrics = StepStats.of(directory, trace), MetricsAccumulator(file_bytes=trace.footer.size_bytes)
    for columns in arrays(trace, METRIC_COLUMNS + run_columns_of(trace)):
        stats.feed({name: columns[name] for name in COLUMNS})
        metrics.feed(columns)
    run = trace.account
    slowdown = run.baseline.slowdown if run.baseline and not why_no_slowdown(trace.metadata) else NO_SLOWDOWN
    return Measured(stats, metrics.finish(), run.idle, run.source.sha256, slowdown, exposure_of(trace))


def report(test: Test, runs: Runs) -> Content:
    """Labels: state, repeat."""
    measured = runs.measured(ROLE, _measure)
    groups = {state: [run for _, run in own] for state, own in by_state(measured).items()}
    sources = grouped((tuple(other_labels(step).items()), run.sha256) for step, run in measured if run.sha256)
    content = Content(method=[*METHOD, energy_note([run.stats for _, run in measured])])
    if any(len(set(own)) > 1 for own in sources.values()):
        content.reasons.append(step_reason("different_traces", "invalid", "its runs are of different traces: the file "
                                           "changed before the test was resumed"))
    states = {state: _of_state(own) for state, own in groups.items()}
    content.figures = {"states": states, "full_over_empty": _full_over_empty(states)}
    rows = [{"state": state, **own} for state, own in states.items()]
    latencies = [{"state": state, "operation": kind, **own[kind]} for state, own in states.items()
                 for kind in ("all", "reads", "writes") if own[kind]["ops"]]
    content.tables = [figure_table("Data rate", _RATES, rows), figure_table("Latency", _LATENCY, latencies)]
    slowed = [row for row in rows if row["slowdown_of_read_wait"] is not None]
    if slowed:
        content.tables.append(figure_table("Slowdown by background writes", _SLOWDOWN, slowed))
    if content.figures["full_over_empty"]:
        content.tables.append(figure_table("Full / empty", _RATIOS, [content.figures["full_over_empty"]]))
    if groups:
        content.method.append(("Idle time", "; ".join(f"{state or 'the run'}: {_idle_words(own[0].idle)}"
                                                    for state, own in groups.items())))
    return content


def _idle_words(idle: Idle) -> str:
    if idle.cap_ns:
        return f"capped at {idle.cap_ns / 1e6:g} ms, {idle.removed_ns / 1e9:.4g} s removed"
    return "removed" if idle.name == "none" else "as in the trace"


_WAITS = ("read_wait", "write_wait")


def _of_state(repeats: list[Measured]) -> Figures:
    pooled, exposure = sum_of(run.partial for run in repeats), sum_of(run.exposure for run in repeats)
    repeats_all = [figures(run.partial)["all"] for run in repeats]
    steps = [run.stats for run in repeats]

    def latency(values: Distribution, *kinds: str) -> Figures:
        return withhold(_latency(values), {"mean_ns": [f"{kind}_service_time" for kind in kinds],
                                           "p99_ns": [f"{kind}_p99" for kind in kinds]}, steps)

    return withhold({
        **steps_over_repeats(steps, "energy_j", "average_w", "mb_per_j"),
        **over_repeats("data_rate_mb_s", [figure["data_rate_by_busy_mb_s"] for figure in repeats_all]),
        **over_repeats("wall_rate_mb_s", [figure["data_rate_by_wall_mb_s"] for figure in repeats_all]),
        **over_repeats("busy_ns", [figure["busy_ns"] or None for figure in repeats_all]),
        "all": latency(pooled.read.latency + pooled.write.latency, "read", "write"),
        "reads": latency(pooled.read.latency, "read"),
        "writes": latency(pooled.write.latency, "write"),
        **over_repeats("slowdown_of_read_wait", [run.slowdown.read_wait for run in repeats]),
        **over_repeats("slowdown_of_load_time", [run.slowdown.load_time for run in repeats]),
        "read_beside_writes": exposure.beside_share, "read_with_a_write_outstanding": exposure.met_share},
        {"data_rate_mb_s": _WAITS, "busy_ns": _WAITS, "wall_rate_mb_s": ("load_time",)}, steps)


def _latency(values: Distribution) -> Figures:
    count = values.count
    why: dict[str, str] = {}
    p99_ns = percentile_or_reason(values, "p99_ns", P99, why)
    return {"ops": count, "mean_ns": ratio(values.total, count), "p99_ns": p99_ns, "max_ns": values.maximum,
            **({"why": why} if why else {})}


def _full_over_empty(states: dict[str, Figures]) -> Figures:
    pair = next(((full, empty) for full in states for empty in states
                 for prefix in EMPTY if full.startswith(FULL) and empty == prefix + full.removeprefix(FULL)), None)
    if pair is None:
        return {}
    full, empty = states[pair[0]], states[pair[1]]
    return {"of": f"{pair[0]} / {pair[1]}",
            "data_rate": ratio(full["data_rate_mb_s"], empty["data_rate_mb_s"]),
            **{f"{kind}_mean": ratio(full[kind]["mean_ns"], empty[kind]["mean_ns"])
               for kind in ("all", "reads", "writes")}}


RATES = [
    metric.rate("data_rate_mb_s", "Average data rate", "bytes read and written / busy time"),
    metric.rate("wall_rate_mb_s", "by wall time", f"the same / {metric.MAKESPAN}"),
    metric.duration("busy_ns", "Busy", "time with at least one I/O outstanding"),
    metric.number("energy_j", "Energy", "J", "integral of power", "lower"), *metric.POWER]
LATENCIES = [metric.MEAN_LATENCY,
             metric.duration("p99_ns", "p99", "nearest rank; only where at least 10 I/Os lie beyond"),
             metric.MAX_LATENCY, metric.OPS]
RATIOS = [metric.number("data_rate", "Average data rate", better="higher"),
          metric.number("all_mean", "Mean latency, all", better="lower"),
          metric.number("reads_mean", "of reads", better="lower"),
          metric.number("writes_mean", "of writes", better="lower")]
_RATES = [metric.STATE, *metric.with_spread(RATES), metric.REPEATS]
_LATENCY = [metric.STATE, metric.text("operation", "Operation"), *LATENCIES]
_RATIOS = [metric.text("of", "States"), *RATIOS]
_SLOWDOWN = [metric.STATE, *metric.with_spread([
    metric.number("slowdown_of_read_wait", "Read wait, with / without writes", better="lower"),
    metric.number("slowdown_of_load_time", "Load time", better="lower")]),
    metric.share("read_beside_writes", "Read beside writes", "share of the bytes read while background writes were "
                 "going on", ""),
    metric.share("read_with_a_write_outstanding", "with one outstanding", better=""), metric.REPEATS]

METHOD = [
    ("Average data rate", "bytes read and written / busy time, the time with at least one I/O outstanding; also the "
     "same bytes / wall time, max(complete) − min(submit)."),
    ("Latency", "complete − submit: of reads, of writes, and of both together (all). p99 is the nearest rank, shown "
     "only where at least 10 I/Os lie beyond it; repeats are pooled I/O by I/O."),
    ("Slowdown by background writes", "the same reads replayed with and without the writes, each from the state on: "
     "the ratio of the time with at least one read outstanding, and at dependent pace of the load time. Not given if "
     "less than 20 % of the bytes were read beside writes, if the writes ended before the reads, or if the run without "
     "the writes is invalid."),
    ("Repeats", "Rates and energies are geometric means over the repeats, with the smallest and the largest."),
]


_KINDS = {"all": "all I/Os", "reads": "reads", "writes": "writes"}


def sections(context: ChartContext) -> Iterator[Section]:
    states = context.states()
    table = context.table("Data rate and energy", [*RATES, metric.REPEATS], ("states", "{state}"), states)
    parts = [(state or "all", state) for state in states]
    rates = [
        ranking(context, "trace-rate", "Average data rate", MB_S,
                [(name, ("states", state, "data_rate_mb_s")) for name, state in parts], table, RATES[0],
                order_part=len(parts) - 1, text="Bytes / time with at least one I/O in flight."),
        _full_empty(context),
        ranking(context, "trace-energy", "Energy of the trace", Axis("energy", "J", "auto"),
                [(name, ("states", state, "energy_j")) for name, state in parts], table, RATES[3],
                order_part=len(parts) - 1),
        efficiency(context, "efficiency", "Efficiency", [(state, ("states", state), "data_rate_mb_s")
                                                        for state in states])]
    yield section("rates", "Data rate and energy", (
        chart for chart in rates if chart and (chart.spec or chart.id != "trace-energy")))
    yield section("latency", "Latency", (
        _latency_chart(context, kind, key, title) for kind in _KINDS
        for key, title in (("mean_ns", "Mean latency"), ("p99_ns", "p99"))))


def _latency_chart(context: ChartContext, kind: str, key: str, title: str) -> Chart | None:
    states = context.states()
    metric_rows = [MetricRow(drive, ("states", state, kind), {"state": state}) for drive in context.drives
              for state in states if drive.value("states", state, kind, "ops").value]
    if not metric_rows:
        return None
    table = metric_table(f"Latency of {_KINDS[kind]}", metric_rows, LATENCIES, ("states", "{state}", kind),
                         (Column("state", "State"),))
    return ranking(context, f"trace-{'mean' if key == 'mean_ns' else 'p99'}-{slug(kind)}", f"{title} of {_KINDS[kind]}",
                   Axis("latency", "ns", "auto"), [(state or "all", ("states", state, kind, key)) for state in states],
                   table, LATENCIES[0], order_part=len(states) - 1)


def _full_empty(context: ChartContext) -> Chart | None:
    base = ("full_over_empty",)
    metric_rows = [MetricRow(drive, base) for drive in context.drives if drive.value(*base, "of").value]
    if not metric_rows:
        return None
    full, empty = metric_rows[0].drive.value(*base, "of").value.split(" / ")
    points = context.slopes(*(("states", state, "data_rate_mb_s") for state in (empty, full)))
    table = metric_table("Full / empty", metric_rows, [replace(ratio, formula=f"{full} / {empty}") for ratio in RATIOS],
                         base)
    return Chart("full-empty", f"From {empty} to {full}", table,
                 slope(f"Average data rate, {empty} and {full}", points, context.style(), (empty, full), MB_S),
                 "higher", "Data rate that remains once the drive is full.")


REPORT = Report(report, sections, lambda drive: drive.of_state(-1, "data_rate_mb_s"), RATES[0])
