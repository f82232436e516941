"""trim: latency that discards add to concurrent reads, and the time for a whole drive."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.metrics.accumulator import SECOND_NS
from blkreel.analysis.metrics.definitions.metric import number_unit
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import ChartContext, ranking, section
from blkreel.benchmarks.charts.drives import DriveResults
from blkreel.benchmarks.charts.tables import MetricRow, metric_table, plain
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    by_state,
    figure_series,
    figure_table,
    over_repeats,
    without,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics import Array
from blkreel.benchmarks.step_metrics.sensors import sensors_of
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, step_stats
from blkreel.common.binning import grouped
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace import Trace

from .report import Report

EXTENTS, WHOLE = "extents", "whole"
GB = 10**9
_MOST_PAIRED = 2000


@dataclass(frozen=True)
class Measured:
    """One entry per discarded extent. added_ns: NaN where no background I/O met it."""

    stats: StepStats
    bytes: Array
    took_ns: Array
    added_ns: Array
    median_ns: int | None
    background_ops: int


def _measure(directory: Path, trace: Trace) -> Measured:
    stats = StepStats(sensors_of(directory))
    discards, background = [], []
    for columns in arrays(trace, [*COLUMNS, "due_ns"]):
        stats.feed({name: columns[name] for name in COLUMNS})
        has_latency = columns["latency_ns"] >= 0
        due_ns = np.where(columns["due_ns"] >= 0, columns["due_ns"], columns["submit_ns"])
        complete_ns = columns["submit_ns"] + columns["latency_ns"]
        is_discard = has_latency & (columns["op"] == OPS["discard"])
        is_background = has_latency & (columns["op"] < 2)
        discards.append(np.column_stack([columns["submit_ns"], complete_ns, columns["length_bytes"]])[is_discard])
        background.append(np.column_stack([due_ns, complete_ns])[is_background])
    submit_ns, complete_ns, length_bytes = np.concatenate([*discards, np.empty((0, 3), np.int64)]).T
    due_ns, done_ns = np.concatenate([*background, np.empty((0, 2), np.int64)]).T
    added_ns, median_ns = added_latency(submit_ns, complete_ns, due_ns, done_ns)
    return Measured(stats, length_bytes, complete_ns - submit_ns, added_ns, median_ns, len(due_ns))


def added_latency(submit_ns: Array, complete_ns: Array, due_ns: Array, done_ns: Array) -> tuple[Array, int | None]:
    """(by how much the slowest background I/O that met each discard exceeds the median, that median).

    A background I/O meets a discard where [due, done) overlaps [submit, complete) of it. The median, by nearest rank,
    is of the responses of those that met none. NaN for a discard that nothing met, or where every I/O met one.
    """
    order = np.argsort(due_ns, kind="stable")
    due_ns, done_ns = due_ns[order], done_ns[order]
    response_ns = done_ns - due_ns
    longest_ns = int(response_ns.max()) if len(response_ns) else 0
    met, slowest = np.zeros(len(due_ns), bool), np.full(len(submit_ns), np.nan)
    for index, (begin, end) in enumerate(zip(submit_ns.tolist(), complete_ns.tolist(), strict=True)):
        low, high = np.searchsorted(due_ns, [begin - longest_ns, end])
        selected = done_ns[low:high] > begin
        if selected.any():
            slowest[index] = response_ns[low:high][selected].max()
        met[low:high] |= selected
    alone = np.sort(response_ns[~met])
    if not len(alone):
        return np.full(len(submit_ns), np.nan), None
    median_ns = int(alone[-(-len(alone) // 2) - 1])
    return slowest - median_ns, median_ns


def slope(count_bytes: Array, duration_ns: Array) -> tuple[float, float] | None:
    """(s/GB, s at nothing) of the least-squares line through (bytes, ns); None of fewer than two sizes."""
    has_duration = ~np.isnan(duration_ns)
    x, y = count_bytes[has_duration] / GB, duration_ns[has_duration] / SECOND_NS
    if len(np.unique(x)) < 2:
        return None
    distance = x - x.mean()
    slope = float(distance @ y) / float(distance @ distance)
    return slope, float(y.mean() - slope * x.mean())


def median_slope(count_bytes: Array, duration_ns: Array) -> float | None:
    """Median of the slopes between all pairs of different sizes (Theil, Sen), in s/GB: odd extents do not move it."""
    has_duration = ~np.isnan(duration_ns)
    x, y = count_bytes[has_duration][:_MOST_PAIRED] / GB, duration_ns[has_duration][:_MOST_PAIRED] / SECOND_NS
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    if not apart.any():
        return None
    first, second = first[apart], second[apart]
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def report(test: Test, runs: Runs) -> Content:
    """Role extents, labels state and repeat if there are any; role whole, labels state and before."""
    content, rows, lines = Content(method=list(METHOD)), [], []
    extents = by_state(runs.measured(EXTENTS, _measure))
    for state, step, run in [(state, *pair) for state, own in extents.items() for pair in own]:
        sizes = _sizes(run)
        rows.append({**_slopes(step, run), "state": state or None,
                     "by_size": {str(row["bytes"]): without(row, "bytes", "why") for row in sizes}})
        lines += _points(step, run)
        content.tables.append(figure_table(f"By size: {step.title}", [metric.size("bytes", "Extent"), *SIZES], sizes))
    whole = _by_contents(runs.measured(WHOLE, step_stats))
    wholes = [{"state": state, "bytes": own[0].without_data.bytes, "n": len(own),
               **over_repeats("s_per_gb", [_s_per_gb(stats) for stats in own]),
               **over_repeats("took_ns", [stats.makespan_ns or None for stats in own])} for state, own in whole.items()]
    content.figures = {
        "extents": {_key(row): row for row in rows},
        "whole": {row["state"]: without(row, "state") for row in wholes}}
    content.tables = [
        figure_table("Added latency by discarded size", [metric.STATE, metric.REPEAT, *SLOPES], rows),
        figure_table("Discard of the whole drive", _WHOLE, wholes), *content.tables]
    if lines:
        content.series.append(figure_series("Latency by size of the discarded extent", ("extent", "bytes"),
                                            ("Latency", "ns"), lines))
    return content


def _by_contents(measured: list[tuple[BenchmarkStep, StepStats]]) -> dict[str, list[StepStats]]:
    """Measurements of whole drives by their contents: the state, and for a drive that had just been discarded also the
    state before, if there are several. Usable parts of different sizes are never pooled."""
    wholes = [(state, str(step.labels.get("before", "")), stats)
              for state, own in by_state(measured, "before").items() for step, stats in own]
    before: dict[str, set[str]] = {}
    for state, was, _ in wholes:
        before.setdefault(state, set()).add(was)
    return grouped((f"{state} after {was}" if len(before[state]) > 1 else state, stats) for state, was, stats in wholes)


def _key(row: Figures) -> str:
    """A run's name in the figures: its state, and which repeat it is from the second on."""
    name = str(row["state"] or "run")
    return name if row["repeat"] == 1 else f"{name}-{row['repeat']}"


def _s_per_gb(stats: StepStats) -> float | None:
    count_bytes = stats.without_data.bytes
    return stats.makespan_ns / count_bytes if count_bytes else None  # ns a byte are s a GB


def _slopes(step: BenchmarkStep, run: Measured) -> Figures:
    added, own = slope(run.bytes, run.added_ns), slope(run.bytes, run.took_ns)
    met, sizes = int((~np.isnan(run.added_ns)).sum()), len(np.unique(run.bytes))
    why: dict[str, str] = {}
    if added is None:
        no_slope = "no background I/O met a discard" if not met else "fewer than two sizes met"
        why |= dict.fromkeys(("added_s_per_gb", "added_median_s_per_gb"), no_slope)
    if own is None:
        why |= dict.fromkeys(("own_s_per_gb", "own_median_s_per_gb"), "fewer than two sizes")
    return {"repeat": step.repeat, "added_s_per_gb": added and added[0],
            "added_at_nothing_ns": added and added[1] * SECOND_NS,
            "added_median_s_per_gb": median_slope(run.bytes, run.added_ns), "own_s_per_gb": own and own[0],
            "own_at_nothing_ns": own and own[1] * SECOND_NS,
            "own_median_s_per_gb": median_slope(run.bytes, run.took_ns), "extents": len(run.bytes), "sizes": sizes,
            "met": met, "background_median_ns": run.median_ns, "background_ops": run.background_ops, "why": why}


def _sizes(run: Measured) -> list[Figures]:
    rows = []
    for size in np.unique(run.bytes).tolist():
        selected = run.bytes == size
        added = run.added_ns[selected]
        added = added[~np.isnan(added)]
        rows.append({"bytes": size, "extents": int(selected.sum()), "met": len(added),
                     "added_ns": float(np.median(added)) if len(added) else None,
                     "added_max_ns": float(added.max()) if len(added) else None,
                     "took_ns": float(np.median(run.took_ns[selected])),
                     "why": {} if len(added) else dict.fromkeys(("added_ns", "added_max_ns"), "nothing met it")})
    return rows


def _points(step: BenchmarkStep, run: Measured) -> list[tuple[str, list[float], list[float]]]:
    order = np.argsort(run.bytes, kind="stable")
    added = [(int(size), float(value)) for size, value in zip(run.bytes[order], run.added_ns[order], strict=True)
             if not np.isnan(value)]
    return [(f"{step.title}: added to reads", [x for x, _ in added], [y for _, y in added]),
            (f"{step.title}: of the discard", run.bytes[order].tolist(), run.took_ns[order].tolist())]


_LINE = "least-squares line with a constant through one point for each extent"
_THEIL = "median of the slopes between all pairs of different sizes (Theil, Sen)"
_EXTENTS = [metric.count("extents", "Extents"), metric.count("met", "Met by reads")]
SLOPES = [
    metric.number("added_s_per_gb", "Added to reads", "s/GB", _LINE, "lower"),
    metric.number("added_median_s_per_gb", "by medians", "s/GB", _THEIL, "lower"),
    metric.number("own_s_per_gb", "Of the discard", "s/GB", _LINE, "lower"),
    metric.number("own_median_s_per_gb", "by medians", "s/GB", _THEIL, "lower"), *_EXTENTS,
    metric.duration("background_median_ns", "Reads undisturbed, median", "nearest rank")]
SIZES = [
    *_EXTENTS, metric.duration("added_ns", "Added to reads, median", "of its extents: longest response of a read that "
                               "met it, less the median response of the reads that met none"),
    metric.duration("added_max_ns", "longest", "of its extents"),
    metric.duration("took_ns", "Discard took, median", "complete − submit of the discard")]
WHOLE_DRIVE = [
    metric.number("s_per_gb", "Cost", "s/GB", f"{metric.MAKESPAN} of its discards / bytes", "lower"),
    metric.duration("took_ns", "Took", metric.MAKESPAN)]
DISCARDED = metric.size("bytes", "Discarded")
_WHOLE = [metric.STATE, DISCARDED, *metric.with_spread(WHOLE_DRIVE), metric.REPEATS]

METHOD = [
    ("Added latency", "For each discarded extent: the longest response (complete − due) of a background read that met "
     "it, less the median response of the reads that met no discard. A read meets a discard if its [due, complete) "
     "overlaps [submit, complete) of the discard (D). Extents that no read met have no point: no read was delayed."),
    ("Slope", "Least squares with a constant through one point per extent, (bytes, added latency), in s/GB; at least "
     "two sizes (D). Also the median of the slopes between all pairs of different sizes (Theil, Sen), which single "
     "outliers do not move, and both for the discards' own latency."),
    ("Discard of the whole drive", "Makespan of all its discards, max(complete) − min(submit), / bytes discarded."),
]


_EXTENT = Axis("discarded extent", "block", "log2")


def sections(context: ChartContext) -> Iterator[Section]:
    yield section("extents", "Extents discarded beside reads", (*_by_size(context), _slopes_chart(context)))
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


def _slopes_chart(context: ChartContext) -> Chart | None:
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
    table = context.table("Discard of the whole drive", [*WHOLE_DRIVE, DISCARDED, metric.REPEATS],
                          ("whole", "{state}"), states)
    return ranking(context, "trim-whole", "Discard of the whole drive", Axis("s/GB", "", "auto"),
                   [(state or "all", ("whole", state, "s_per_gb")) for state in states], table, better="lower",
                   form="number", unit="s/GB")


REPORT = Report(report, sections, lambda drive: next((
    drive.value("extents", run, "added_s_per_gb") for run in drive.keys("extents")), None), "lower",
    number_unit("s/GB"))
