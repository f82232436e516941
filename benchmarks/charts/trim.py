"""Charts of trim: latency that a discard adds to concurrent reads, and time to discard a whole drive."""

from collections.abc import Iterator

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Point
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.trim import DISCARDED, SIZES, SLOPES, WHOLE_DRIVE
from blkreel.common.units import digits

from .chart_context import ChartContext, ranking, section
from .drives import DriveResults, Value
from .tables import MetricRow, metric_table, plain

_EXTENT = Axis("discarded extent", "block", "log2")


def headline_text(value: float) -> str:
    return f"{digits(value)} s/GB"


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return next((drive.value("extents", run, "added_s_per_gb") for run in drive.keys("extents")), None), False


def sections(context: ChartContext) -> Iterator[Section]:
    yield section("extents", "Extents discarded beside reads", (*_by_size(context), _slopes(context)))
    yield section("whole", "The whole drive discarded", (_whole(context),))


def _runs(context: ChartContext) -> Iterator[tuple[DriveResults, str, str, int | None]]:
    """(drive, key in its figures, state, repeat) of each run of extents."""
    for drive in context.drives:
        for index in drive.keys("extents"):
            yield (drive, index, drive.value("extents", index, "state").value or "",
                   drive.value("extents", index, "repeat").value)


def _by_size(context: ChartContext) -> Iterator[Chart]:
    runs = [(drive, index, state) for drive, index, state, repeat in _runs(context) if repeat in (1, None)]
    states = list(dict.fromkeys(state for _, _, state in runs))
    for key, id_, title, what in (
            ("added_ns", "trim", "Latency added to reads, by size of the discard", "added latency"),
            ("took_ns", "trim-own", "Time of the discard itself, by size", "time of the discard")):
        for group in ([[state] for state in states] if context.several else [states]):
            points, metric_rows = [], []
            for drive, index, state in runs:
                if state not in group:
                    continue
                for size in sorted(drive.keys("extents", index, "by_size"), key=int):
                    base = ("extents", index, "by_size", size)
                    metric_rows.append(MetricRow(drive, base, {"state": state, "run": index, "extent": int(size)}))
                    if (value := drive.value(*base, key).value) is not None:
                        points.append(Point(drive.key, state, int(size), value))
            if not metric_rows:
                continue
            table = metric_table(
                title, metric_rows, SIZES, ("extents", "{run}", "by_size", "{extent}"),
                (Column("state", "State"), Column("run", "Run"), Column("extent", "Extent", "count", formula="bytes")))
            several = context.several and len(states) > 1
            name = f"{id_}-{group[0]}".replace("+", "-") if several else id_
            axis = Axis(what, "ns", "log" if points and min(point.y for point in points) > 0 else "linear")
            yield Chart(name, f"{title}, state {group[0]}" if several else title, table,
                        curves(title, points, context.style(group), _EXTENT, axis), "lower",
                        notes=tuple(context.missing_note({point.entry for point in points}, "this figure")))


def _slopes(context: ChartContext) -> Chart | None:
    states = list(dict.fromkeys(state for _, _, state, _ in _runs(context)))
    where = {(drive.key, state): index for drive, index, state, repeat in _runs(context) if repeat in (1, None)}
    metric_rows = [MetricRow(drive, ("extents", index), {"state": state, "run": index})
              for drive, index, state, _ in _runs(context)]
    if not metric_rows:
        return None
    table = metric_table("Slopes", metric_rows, SLOPES, ("extents", "{run}"),
                         (Column("state", "State"), Column("run", "Run")))
    parts = [(f"state {state}" if state else "", lambda drive, state=state: (
        "extents", where.get((drive.key, state), "none"), "added_s_per_gb")) for state in states]

    def text_of(drive: DriveResults) -> str:
        return " · ".join(f"{plain(value, 'number')} s/GB" for state in states if (value := drive.value(
            "extents", where.get((drive.key, state), "none"), "added_s_per_gb").value) is not None)

    return ranking(context, "trim-slope", "Latency added to reads, per GB discarded", Axis("s/GB", "", "auto"), parts,
                   table, better="lower", form="number", text_of=text_of,
                   text="The slope of added latency against size.")


def _whole(context: ChartContext) -> Chart | None:
    states = list(dict.fromkeys(state for drive in context.drives for state in drive.keys("whole")))
    if not states:
        return None
    metric_rows = [MetricRow(drive, ("whole", state), {"state": state}) for drive in context.drives for state in states
              if drive.holds("whole", state)]
    table = metric_table("Discard of the whole drive", metric_rows, [*WHOLE_DRIVE, DISCARDED, metric.REPEATS],
                         ("whole", "{state}"), (Column("state", "State"),))
    return ranking(context, "trim-whole", "Discard of the whole drive", Axis("s/GB", "", "auto"),
                   [(state or "all", ("whole", state, "s_per_gb")) for state in states], table, better="lower",
                   form="number", unit="s/GB")
