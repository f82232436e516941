"""Charts of mixed-random and mixed-sequential: throughput and efficiency by share of reads."""

from collections.abc import Iterator, Sequence

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves, slope
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.metrics.definitions.metric import MB_S as MB_S_UNIT
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.mixed import METRICS

from .chart_context import MB_S, ChartContext, efficiency, ranking, section
from .drives import DriveResults, Value
from .tables import MetricRow, metric_table, plain

_READS = Axis("reads", "%")
_KEYS = ("mb_s", "iops", "read_mean_ns", "write_mean_ns", "average_w", "mb_per_j")


headline_text = MB_S_UNIT.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return drive.of_state(-1, "mean", "mb_s"), True


def sections(context: ChartContext) -> Iterator[Section]:
    yield section("means", "Over all mixes", (
        _means(context), *_full_empty(context), efficiency(
            context, "efficiency", "Efficiency over all mixes",
            [(state, ("states", state, "mean"), "mb_s") for state in context.states()])))
    power, mb_per_j = metric.POWER
    yield section("mixes", "By share of reads", (chart for each, axis in (
        (metric.THROUGHPUT, MB_S), (mb_per_j, Axis("efficiency", "MB/J", "auto")), (power, Axis("power", "W")))
        for chart in _by_mix(context, each, axis)))


def _means(context: ChartContext) -> Chart | None:
    states = context.states()
    metric_rows = [MetricRow(drive, ("states", state, "mean"), {"state": state}) for drive in context.drives
              for state in states if drive.holds("states", state, "mean")]
    table = metric_table("Mean of the mixes", metric_rows, [
        metric.rate("mb_s", "Throughput", "arithmetic mean of the throughputs of all mixes"), *metric.POWER,
        metric.REPEATS], ("states", "{state}", "mean"), (Column("state", "State"),))
    return ranking(context, "mean", "Mean of the mixes", MB_S,
                   [(state or "all", ("states", state, "mean", "mb_s")) for state in states], table, better="higher",
                   form="rate", order_part=len(states) - 1)


def _full_empty(context: ChartContext) -> Iterator[Chart]:
    pairs = list(dict.fromkeys((full, pair["empty"]) for drive in context.drives for test in drive.tests
                               for full, pair in test["figures"].get("full_over_empty", {}).items()))
    for full, empty in pairs:
        ends = [("states", empty, "mean", "mb_s"), ("states", full, "mean", "mb_s")]
        points = context.slopes(*ends)
        base = ("full_over_empty", full)
        table = metric_table(f"Throughput, {full} / {empty}", context.metric_rows(*base), [
            metric.number("mean", "Full / empty", "", "mean of the mixes, full / nearly empty", "higher"),
            metric.number("geometric_mean", "by mix", "", "geometric mean over mixes of full / nearly empty",
                          "higher")], base)
        mixes = sorted({mix for drive in context.drives for mix in drive.keys(*base, "mixes")}, key=int)
        yield Chart(_id("full-empty", full, pairs), f"From {empty} to {full}", table,
                    slope(f"Mean throughput of the mixes, {empty} and {full}", points, context.style(), (empty, full),
                          MB_S), "higher", "Throughput that remains once the drive is full.")
        points = [Point(drive.key, "", int(mix), ratio) for drive in context.drives for mix in mixes
                  if (ratio := drive.value(*base, "mixes", mix).value) is not None]
        table = metric_table(f"{full} / {empty}, by mix", context.metric_rows(*base, "mixes"), [
            metric.number(f"of_{mix}", f"{mix} % reads", "", "throughput full / nearly empty", "higher", (mix,))
            for mix in mixes], (*base, "mixes"))
        yield Chart(_id("full-empty-mix", full, pairs), f"{full} / {empty}, by share of reads", table,
                    curves(f"Throughput {full} over {empty}, by share of reads", points, context.style(), _READS,
                           Axis("full / empty")), "higher")


def _id(stem: str, full: str, pairs: list[tuple[str, str]]) -> str:
    return stem if len(pairs) == 1 else f"{stem}-{full.replace('+', '-')}"


def _by_mix(context: ChartContext, each: metric.BenchmarkMetric, axis: Axis) -> Iterator[Chart]:
    key, title = each.key, f"{each.title} by share of reads"
    groups = [[state] for state in context.states()] if context.several else [context.states()]
    for states in groups:
        points, metric_rows = [], []
        for drive in context.drives:
            for state in states:
                for mix in sorted(drive.keys("states", state, "mixes"), key=int, reverse=True):
                    base = ("states", state, "mixes", mix)
                    metric_rows.append(MetricRow(drive, base, {"state": state, "mix": int(mix)}))
                    if (value := drive.value(*base, key)).value is not None:
                        points.append(Point(drive.key, state, int(mix), value.value))
        if not points:
            continue
        labels = (Column("state", "State"), Column("mix", "Reads", "number", "%"))
        table = metric_table(title, metric_rows, metric.select(METRICS, *_KEYS) if key == "mb_s" else [each],
                             ("states", "{state}", "mixes", "{mix}"), labels)
        stem = {"mb_s": "mix", "mb_per_j": "mix-efficiency", "average_w": "mix-power"}[key]
        id_, words = (context.named(stem, states[0]), context.titled(title, states[0])) if context.several else (
            stem, title)
        yield Chart(id_, words, table, curves(words, points, context.style(states), _READS, axis), each.better,
                    _slowest_mix(context, points, states) if key == "mb_s" else "")


def _slowest_mix(context: ChartContext, points: Sequence[Point], states: Sequence[str]) -> str:
    """A sentence for a page of one drive; empty for several."""
    if context.several or not points:
        return ""
    least = min(points, key=lambda point: point.y)
    state = f" in state {least.line}" if len(states) > 1 else ""
    return f"Slowest at {least.x} % reads{state}: {plain(least.y, 'rate')}."
