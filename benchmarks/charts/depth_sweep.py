"""Charts of depth sweeps: throughput and latency by queue depth."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.metrics.definitions.metric import MB_S as MB_S_UNIT
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.depth_sweep import APART, METRICS, SWEEP_METRICS

from .chart_context import MB_S, ChartContext, efficiency, ranking, state_section
from .drives import DriveResults, FigurePath, Value
from .tables import MetricRow, metric_table

_DEPTH = Axis("queue depth", "", "log2")
_METRICS = [*metric.select(METRICS, "mb_s", "iops", "mean_ns", "max_ns", "little"), *metric.POWER]


headline_text = MB_S_UNIT.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return drive.of_state(0, "best_mb_s"), True


def sections(context: ChartContext) -> Iterator[Section]:
    for state in context.states():
        yield state_section(state, "By queue depth", sweep_charts(context, state, ("states", state)))


def sweep_charts(context: ChartContext, state: str, base: FigurePath, prefix: str = "") -> Iterator[Chart | None]:
    """Charts of the sweep whose figures lie at `base`; also part of qd1. prefix: of their ids."""
    def title(words: str) -> str:
        return context.titled(words, state)

    depths = sorted({int(depth) for drive in context.drives for depth in drive.keys(*base, "depths")})
    metric_rows = [MetricRow(drive, (*base, "depths", str(depth)), {"depth": depth}) for drive in context.drives
              for depth in depths if drive.holds(*base, "depths", str(depth))]
    if not metric_rows:
        return
    table = metric_table(title("By queue depth"), metric_rows, _METRICS, (*base, "depths", "{depth}"),
                         (Column("depth", "Depth", "count"),))
    for key, id_, words, axis, better in (
            ("mb_s", "depth-sweep", "Throughput by queue depth", MB_S, "higher"),
            ("mean_ns", "depth-latency", "Mean latency by queue depth", Axis("mean latency", "ns", "auto"), "lower"),
            ("max_ns", "depth-maximum", "Longest latency by queue depth", Axis("longest latency", "ns", "auto"),
             "lower")):
        points = []
        for drive in context.drives:
            lowest = drive.value(*base, "lowest_depth_with_95_percent").value if key == "mb_s" else None
            for depth in depths:
                if (value := drive.value(*base, "depths", str(depth), key).value) is not None:
                    points.append(Point(drive.key, "", depth, value, "95 %" if depth == lowest else None))
        ringed = any(point.ring for point in points)
        yield Chart(context.named(prefix + id_, state), title(words), table,
                    curves(words, points, context.style(), _DEPTH, axis), better,
                    "The ring is the lowest depth with 95 % of the drive's best." if ringed else
                    "Each is a single I/O, and not a statistic of the depth." if key == "max_ns" else "")
    yield from _at_depths(context, state, base, prefix, title, depths)
    id_ = context.named(f"{prefix}lowest-depth", state)
    of_sweep = metric_table(title("Of the sweep"), context.metric_rows(*base), SWEEP_METRICS, base)
    if context.several:
        yield ranking(context, id_, title("Lowest depth with 95 % of the best"), Axis("queue depth", "", "log2"),
                      [("", (*base, "lowest_depth_with_95_percent"))], of_sweep, better="lower", form="count")
    else:
        yield Chart(id_, title("Of the sweep"), of_sweep)
    yield efficiency(context, context.named(f"{prefix}depth-efficiency", state), title("Efficiency by queue depth"),
                     [(f"depth {depth}", (*base, "depths", str(depth)), "mb_s")
                      for depth in ((depths[0], depths[-1]) if context.several else depths)])


def _at_depths(context: ChartContext, state: str, base: FigurePath, prefix: str, title: Callable[[str], str],
               depths: Sequence[int]) -> Iterator[Chart | None]:
    compared = [depth for depth in APART if depth in depths] or depths[-1:]
    if not context.several:
        return
    words = " and ".join(map(str, compared))
    table = metric_table(title(f"Depth {words}"), context.metric_rows(*base, "depths"), [
        replace(each, key=f"{each.key}_at_{depth}", title=f"{each.title} at {depth}", path=(str(depth), each.key))
        for each in (metric.THROUGHPUT, metric.IOPS, metric.MEAN_LATENCY) for depth in compared],
        (*base, "depths"))
    yield ranking(context, context.named(f"{prefix}depth-apart", state), title(f"Throughput at depth {words}"), MB_S,
                    [(f"depth {depth}", (*base, "depths", str(depth), "mb_s")) for depth in compared], table,
                    better="higher", form="rate", order_part=len(compared) - 1)
