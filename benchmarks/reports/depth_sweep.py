"""depth-sweep-read and depth-sweep-write: throughput and latency by queue depth."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, ranking, state_section
from blkreel.benchmarks.charts.drives import FigurePath
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    FigureSeries,
    FigureTable,
    by_state,
    figure_series,
    figure_table,
    in_state,
    other_labels,
    ratio,
    state_label,
    steps_over_repeats,
    withhold,
    without,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics.step_stats import StepStats, energy_note, step_stats
from blkreel.common.binning import grouped, sum_of

from .report import Report

ROLE = "depth"
APART = (32, 128)
ENOUGH_PERCENT = 95
LITTLE_LIMIT = 0.01


def report(test: Test, runs: Runs) -> Content:
    """Labels: state, depth, repeat."""
    measured = runs.measured(ROLE, step_stats, number="depth")
    content, off = Content(figures={"states": {}}), set()
    for state, own in by_state(measured, "depth").items():
        rows, figures = sweep(test, own)
        content.figures["states"][state] = figures
        content.tables += sweep_tables(state, rows, figures)
        content.series += sweep_series(state, rows)
        for row in rows:
            if row["little"] is not None and abs(row["little"] - 1) > LITTLE_LIMIT:
                off.add(row["depth"])
    little = "It is within 1 % of 1 at each depth here."
    if off:
        little = (f"It is off by more than 1 % at depth {', '.join(map(str, sorted(off)))}: the queue was not kept "
                  "full, or the step was too short for it.")
    content.method = [*METHOD, energy_note([stats for _, stats in measured]), ("Little's law", _LITTLE + little)]
    return content


def sweep(test: Test, measured: list[tuple[BenchmarkStep, StepStats]]) -> tuple[list[Figures], Figures]:
    """(a row for each depth, the figures) of the steps of one state."""
    groups = grouped((step.labels["depth"], stats) for step, stats in measured)
    rows = [_row(depth, groups[depth]) for depth in sorted(groups)]
    first = measured[0][0]
    wanted = {step.labels.get("depth") for step in test.steps
              if step.role == ROLE and state_label(step) == state_label(first)
              and other_labels(step, "depth") == other_labels(first, "depth")}
    best = max((row for row in rows if row["mb_s"] is not None), key=lambda row: float(row["mb_s"]),
               default={"mb_s": None})
    maxima = [row["max_ns"] for row in rows if row["max_ns"] is not None]
    return rows, {
        "depths": {str(row["depth"]): without(row, "depth", "why") for row in rows},
        "mean_of_maxima_ns": sum(maxima) / len(maxima) if maxima else None,
        **{f"best_{key}": value for key, value in best.items() if key.startswith("mb_s")},
        # Of a sweep that lacks a depth, the best may be the missing one.
        "lowest_depth_with_95_percent":
            lowest_enough([(row["depth"], row["mb_s"]) for row in rows]) if wanted == set(groups) else None,
    }


def sweep_tables(state: str, rows: list[Figures], figures: Figures) -> Iterator[FigureTable]:
    """What sweep() gave, as tables of the document."""
    yield figure_table(in_state("By queue depth", state), METRICS, rows)
    apart = [row for row in rows if row["depth"] in APART]
    if apart:
        yield figure_table(in_state("Depth " + " and ".join(str(row["depth"]) for row in apart), state),
                    metric.select(METRICS, "depth", "mb_s", "iops", "mean_ns", "max_ns", "mb_per_j"), apart)
    why = {SWEEP_METRICS[0].key: "depths are missing"} if figures[SWEEP_METRICS[0].key] is None else {}
    yield figure_table(in_state("Of the sweep", state), SWEEP_METRICS, [{**figures, "why": why}])


def sweep_series(state: str, rows: list[Figures]) -> Iterator[FigureSeries]:
    """The rows of sweep(), as series of the document."""
    depths = [row["depth"] for row in rows]
    yield figure_series(in_state("Throughput by queue depth", state), ("queue depth", ""), ("Throughput", "MB/s"),
                 [("throughput", depths, [row["mb_s"] for row in rows])])
    yield figure_series(in_state("Latency by queue depth", state), ("queue depth", ""), ("Latency", "ns"),
                 [("mean", depths, [row["mean_ns"] for row in rows]),
                  ("maximum", depths, [row["max_ns"] for row in rows])])


def _row(depth: int, repeats: list[StepStats]) -> Figures:
    pooled = sum_of(stats.data for stats in repeats)
    service_ns, span_ns = pooled.service_ns, sum(stats.makespan_ns for stats in repeats)
    row = {"depth": depth, **steps_over_repeats(repeats, "mb_s", "iops", "average_w", "mb_per_j"),
           "mean_ns": pooled.mean_ns, "max_ns": pooled.max_ns, "little": ratio(ratio(service_ns, span_ns), depth)}
    return withhold(row, {"mean_ns": ("read_service_time", "write_service_time")}, repeats)


def lowest_enough(points: list[tuple[int, float | None]]) -> int | None:
    """The lowest depth whose throughput is at least 95 % of the best one's."""
    rates = [(depth, rate) for depth, rate in points if rate is not None]
    if not rates:
        return None
    best = max(rate for _, rate in rates)
    return min(depth for depth, rate in rates if 100 * rate >= ENOUGH_PERCENT * best)


METRICS = [
    metric.count("depth", "Depth"), *metric.with_spread([metric.THROUGHPUT, metric.IOPS]), metric.MEAN_LATENCY,
    metric.MAX_LATENCY, metric.number("little", "IOPS × latency / depth", "", "1 if the depth was kept (Little)"),
    *metric.with_spread(metric.POWER), metric.REPEATS]
SWEEP_METRICS = [
    metric.count("lowest_depth_with_95_percent", f"Lowest depth with {ENOUGH_PERCENT} % of the best throughput",
                 f"lowest measured depth with at least {ENOUGH_PERCENT} % of the best depth's throughput", "lower"),
    metric.rate("best_mb_s", "Best throughput", "of the depths measured"),
    metric.duration("mean_of_maxima_ns", "Mean of the maxima",
                    "arithmetic mean over depths of the longest latency of each: an average of single I/Os")]

_LITTLE = "IOPS × mean latency / depth is 1 if the depth was outstanding throughout. "

METHOD = [
    ("Throughput of a depth", "bytes / makespan of the step, max(complete) − min(submit): the depth is kept "
     "outstanding throughout."),
    ("Latency", "complete − submit of each I/O; mean over all I/Os of the depth, and the longest single one."),
    ("Mean of the maxima", "The arithmetic mean, over depths, of the longest latency of each depth: an average of "
     "single I/Os, which says little. The table lists the maxima."),
    ("Lowest depth with 95 %", "The lowest measured depth whose throughput is at least 95 % of that of the best "
     "depth; given only if each depth of the test was measured."),
    ("Repeats", "Rates are geometric means over the repeats; latencies are pooled I/O by I/O, and the maximum is that "
     "of all repeats."),
]


_DEPTH = Axis("queue depth", "", "log2")
_METRICS = [*metric.select(METRICS, "mb_s", "iops", "mean_ns", "max_ns", "little"), *metric.POWER]


def sections(context: ChartContext) -> Iterator[Section]:
    for state_context in context.by_state():
        yield state_section(state_context, "By queue depth", sweep_charts(state_context, state_context.at()))


def sweep_charts(context: ChartContext, base: FigurePath, prefix: str = "") -> Iterator[Chart | None]:
    """Charts of the sweep whose figures lie at `base`; also part of qd1. prefix: of their ids."""
    depths = sorted({int(depth) for drive in context.drives for depth in drive.keys(*base, "depths")})
    table = context.table(context.titled("By queue depth"), _METRICS, (*base, "depths", "{depth}"), depths,
                          Column("depth", "Depth", "count"))
    if not table.rows:
        return
    for figure, id_, words, axis in (
            (metric.THROUGHPUT, "depth-sweep", "Throughput by queue depth", MB_S),
            (metric.MEAN_LATENCY, "depth-latency", "Mean latency by queue depth", Axis("mean latency", "ns", "auto")),
            (metric.MAX_LATENCY, "depth-maximum", "Longest latency by queue depth",
             Axis("longest latency", "ns", "auto"))):
        points = []
        for drive in context.drives:
            lowest = drive.value(*base, SWEEP_METRICS[0].key).value if figure is metric.THROUGHPUT else None
            for depth in depths:
                if (value := drive.value(*base, "depths", str(depth), figure.key).value) is not None:
                    points.append(Point(drive.key, "", depth, value, "95 %" if depth == lowest else None))
        ringed = any(point.ring for point in points)
        yield context.chart(prefix + id_, words, table, curves(words, points, context.style(), _DEPTH, axis),
                            figure.better, "The ring is the lowest depth with 95 % of the drive's best." if ringed else
                            "Each is a single I/O, and not a statistic of the depth." if figure is metric.MAX_LATENCY
                            else "")
    yield _at_depths(context, base, prefix, depths)
    of_sweep = context.table(context.titled("Of the sweep"), SWEEP_METRICS, base)
    if context.several:
        yield ranking(context, f"{prefix}lowest-depth", "Lowest depth with 95 % of the best",
                      Axis("queue depth", "", "log2"), [("", (*base, SWEEP_METRICS[0].key))], of_sweep,
                      SWEEP_METRICS[0])
    else:
        yield context.chart(f"{prefix}lowest-depth", "Of the sweep", of_sweep)
    yield efficiency(context, f"{prefix}depth-efficiency", "Efficiency by queue depth",
                     [(f"depth {depth}", (*base, "depths", str(depth)), "mb_s")
                      for depth in ((depths[0], depths[-1]) if context.several else depths)])


def _at_depths(context: ChartContext, base: FigurePath, prefix: str, depths: Sequence[int]) -> Chart | None:
    compared = [depth for depth in APART if depth in depths] or depths[-1:]
    if not context.several:
        return None
    words = " and ".join(map(str, compared))
    table = context.table(context.titled(f"Depth {words}"), [
        replace(figure, key=f"{figure.key}_at_{depth}", title=f"{figure.title} at {depth}",
                path=(str(depth), figure.key))
        for figure in (metric.THROUGHPUT, metric.IOPS, metric.MEAN_LATENCY) for depth in compared],
        (*base, "depths"))
    return ranking(context, f"{prefix}depth-apart", f"Throughput at depth {words}", MB_S,
                   [(f"depth {depth}", (*base, "depths", str(depth), "mb_s")) for depth in compared], table,
                   metric.THROUGHPUT, order_part=len(compared) - 1)


REPORT = Report(report, sections, lambda drive: drive.of_state(0, "best_mb_s"), SWEEP_METRICS[1])
