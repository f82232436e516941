"""trim: latency that discards add to concurrent reads, and the time for a whole drive."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Axis
from blkreel.analysis.metrics.accumulator import SECOND_NS
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import ChartContext, points_of, ranking, section
from blkreel.benchmarks.charts.drives import DriveResults
from blkreel.benchmarks.charts.tables import MetricRow, metric_table
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    by_state,
    figure_series,
    figure_table,
    in_state,
    over_repeats,
    ratio,
    without,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics import Array
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
    """One entry per discarded extent. added_ns: NaN where no background I/O met it. alone_ns: the responses of the
    background I/Os that met none."""

    bytes: Array
    took_ns: Array
    added_ns: Array
    alone_ns: Array
    background_ops: int


def _measure(directory: Path, trace: Trace) -> Measured:
    discards, background = [], []
    for columns in arrays(trace, [*COLUMNS, "due_ns"]):
        has_latency = columns["latency_ns"] >= 0
        due_ns = np.where(columns["due_ns"] >= 0, columns["due_ns"], columns["submit_ns"])
        complete_ns = columns["submit_ns"] + columns["latency_ns"]
        is_discard = has_latency & (columns["op"] == OPS["discard"])
        is_background = has_latency & (columns["op"] < 2)
        discards.append(np.column_stack([columns["submit_ns"], complete_ns, columns["length_bytes"]])[is_discard])
        background.append(np.column_stack([due_ns, complete_ns])[is_background])
    submit_ns, complete_ns, length_bytes = np.concatenate([*discards, np.empty((0, 3), np.int64)]).T
    due_ns, done_ns = np.concatenate([*background, np.empty((0, 2), np.int64)]).T
    added_ns, alone_ns = added_latency(submit_ns, complete_ns, due_ns, done_ns)
    return Measured(length_bytes, complete_ns - submit_ns, added_ns, alone_ns, len(due_ns))


def _pooled(runs: Sequence[Measured]) -> Measured:
    return Measured(np.concatenate([run.bytes for run in runs]), np.concatenate([run.took_ns for run in runs]),
                    np.concatenate([run.added_ns for run in runs]), np.concatenate([run.alone_ns for run in runs]),
                    sum(run.background_ops for run in runs))


def _median(values: Array) -> int | None:
    """By nearest rank."""
    return int(np.sort(values)[-(-len(values) // 2) - 1]) if len(values) else None


def added_latency(submit_ns: Array, complete_ns: Array, due_ns: Array, done_ns: Array) -> tuple[Array, Array]:
    """(by how much the slowest background I/O that met each discard exceeds the median, the responses of that median).

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
    alone_ns = response_ns[~met]
    median_ns = _median(alone_ns)
    return slowest - (np.nan if median_ns is None else median_ns), alone_ns


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
    for state, own in by_state(runs.measured(EXTENTS, _measure)).items():
        title, pooled = own[0][0].title, _pooled([run for _, run in own])
        sizes = _sizes(pooled)
        rows.append({**_row([run for _, run in own], pooled), "state": state or None,
                     "by_size": {str(row["bytes"]): without(row, "bytes", "why") for row in sizes}})
        lines += _points(in_state(title, state), pooled)
        content.tables.append(figure_table(in_state(f"By size: {title}", state),
                                           [metric.size("bytes", "Extent"), *SIZES], sizes))
    whole = _by_contents(runs.measured(WHOLE, step_stats))
    wholes = [{"state": state, "bytes": own[0].without_data.bytes, "n": len(own),
               # ns a byte are s a GB
               **over_repeats("s_per_gb", [ratio(stats.makespan_ns, stats.without_data.bytes) for stats in own]),
               **over_repeats("took_ns", [stats.makespan_ns or None for stats in own])} for state, own in whole.items()]
    content.figures = {
        "extents": {str(row["state"] or "run"): row for row in rows},
        "whole": {row["state"]: without(row, "state") for row in wholes}}
    content.tables = [
        figure_table("Added latency by discarded size",
                     [metric.STATE, *metric.with_spread(SLOPES), *_OF_EXTENTS, metric.REPEATS], rows),
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


def _row(runs: Sequence[Measured], pooled: Measured) -> Figures:
    """Slopes of the lines through the extents of all repeats, and those of each repeat."""
    of_repeats, slopes = [_slopes(run) for run in runs], _slopes(pooled)
    met, sizes = int((~np.isnan(pooled.added_ns)).sum()), len(np.unique(pooled.bytes))
    why: dict[str, str] = {}
    if slopes["added_s_per_gb"] is None:
        no_slope = "no background I/O met a discard" if not met else "fewer than two sizes met"
        why |= dict.fromkeys(("added_s_per_gb", "added_median_s_per_gb"), no_slope)
    if slopes["own_s_per_gb"] is None:
        why |= dict.fromkeys(("own_s_per_gb", "own_median_s_per_gb"), "fewer than two sizes")
    row: Figures = {"n": len(runs)}
    for metric_of_row in SLOPES:
        row |= over_repeats(metric_of_row.key, [of_repeat[metric_of_row.key] for of_repeat in of_repeats])
    return {**row, **slopes, "extents": len(pooled.bytes), "sizes": sizes, "met": met,
            "background_median_ns": _median(pooled.alone_ns), "background_ops": pooled.background_ops, "why": why}


def _slopes(run: Measured) -> Figures:
    added, own = slope(run.bytes, run.added_ns), slope(run.bytes, run.took_ns)
    return {"added_s_per_gb": added and added[0], "added_at_nothing_ns": added and added[1] * SECOND_NS,
            "added_median_s_per_gb": median_slope(run.bytes, run.added_ns), "own_s_per_gb": own and own[0],
            "own_at_nothing_ns": own and own[1] * SECOND_NS,
            "own_median_s_per_gb": median_slope(run.bytes, run.took_ns)}


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


def _points(title: str, run: Measured) -> list[tuple[str, list[float], list[float]]]:
    order = np.argsort(run.bytes, kind="stable")
    added = [(int(size), float(value)) for size, value in zip(run.bytes[order], run.added_ns[order], strict=True)
             if not np.isnan(value)]
    return [(f"{title}: added to reads", [x for x, _ in added], [y for _, y in added]),
            (f"{title}: of the discard", run.bytes[order].tolist(), run.took_ns[order].tolist())]


_LINE = "least-squares line with a constant through one point for each extent"
_THEIL = "median of the slopes between all pairs of different sizes (Theil, Sen)"
_EXTENTS = [metric.count("extents", "Extents"), metric.count("met", "Met by reads")]
SLOPES = [
    metric.number("added_s_per_gb", "Added to reads", "s/GB", _LINE, "lower"),
    metric.number("added_median_s_per_gb", "by medians", "s/GB", _THEIL, "lower"),
    metric.number("own_s_per_gb", "Of the discard", "s/GB", _LINE, "lower"),
    metric.number("own_median_s_per_gb", "by medians", "s/GB", _THEIL, "lower")]
_OF_EXTENTS = [*_EXTENTS, metric.duration("background_median_ns", "Reads undisturbed, median", "nearest rank")]
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
    ("Slope", "Least squares with a constant through one point per extent of all repeats, (bytes, added latency), in "
     "s/GB; at least two sizes (D). Also the median of the slopes between all pairs of different sizes (Theil, Sen), "
     "which single outliers do not move, and both for the discards' own latency."),
    ("Discard of the whole drive", "Makespan of all its discards, max(complete) − min(submit), / bytes discarded."),
]


_EXTENT = Axis("discarded extent", "block", "log2")


def sections(context: ChartContext) -> Iterator[Section]:
    yield section("extents", "Extents discarded beside reads", (*_by_size(context), _slopes_chart(context)))
    yield section("whole", "The whole drive discarded", (_whole(context),))


def _runs(context: ChartContext) -> list[tuple[DriveResults, str, str]]:
    """(drive, key in its figures, state) of each state with extents."""
    return [(drive, key, drive.value("extents", key, "state").value or "")
            for drive in context.drives for key in drive.keys("extents")]


def _by_size(context: ChartContext) -> Iterator[Chart]:
    runs = _runs(context)
    states = list(dict.fromkeys(state for _, _, state in runs))
    for key, id_, title, what in (
            ("added_ns", "trim", "Latency added to reads, by size of the discard", "added latency"),
            ("took_ns", "trim-own", "Time of the discard itself, by size", "time of the discard")):
        for group in ([[state] for state in states] if context.several else [states]):
            rows = [(state, int(size), MetricRow(drive, ("extents", index, "by_size", size),
                                                 {"state": state, "run": index, "extent": int(size)}))
                    for drive, index, state in runs if state in group
                    for size in sorted(drive.keys("extents", index, "by_size"), key=int)]
            if not rows:
                continue
            points = points_of(rows, key)
            table = metric_table(
                title, [row for _, _, row in rows], SIZES, ("extents", "{run}", "by_size", "{extent}"),
                (Column("state", "State"), Column("run", "Run"), Column("extent", "Extent", "count", formula="bytes")))
            several = context.several and len(states) > 1
            name = f"{id_}-{group[0]}".replace("+", "-") if several else id_
            axis = Axis(what, "ns", "log" if points and min(point.y for point in points) > 0 else "linear")
            yield Chart(name, f"{title}, state {group[0]}" if several else title, table,
                        curves(title, points, context.style(group), _EXTENT, axis), "lower",
                        notes=tuple(context.missing_note({point.entry for point in points}, "this figure")))


def _slopes_chart(context: ChartContext) -> Chart | None:
    states = list(dict.fromkeys(state for _, _, state in _runs(context)))
    where = {(drive.key, state): index for drive, index, state in _runs(context)}
    metric_rows = [MetricRow(drive, ("extents", index), {"state": state, "run": index})
                   for drive, index, state in _runs(context)]
    if not metric_rows:
        return None
    table = metric_table("Slopes", metric_rows, [*SLOPES, *_OF_EXTENTS, metric.REPEATS], ("extents", "{run}"),
                         (Column("state", "State"), Column("run", "Run")))
    parts = [(f"state {state}" if state else "", lambda drive, state=state: (
        "extents", where.get((drive.key, state), "none"), "added_s_per_gb")) for state in states]

    def text_of(drive: DriveResults) -> str:
        return " · ".join(SLOPES[0].value_unit.text(value) for state in states if (value := drive.value(
            "extents", where.get((drive.key, state), "none"), "added_s_per_gb").value) is not None)

    return ranking(context, "trim-slope", "Latency added to reads, per GB discarded", Axis("s/GB", "", "auto"), parts,
                   table, SLOPES[0], text_of=text_of, text="The slope of added latency against size.")


def _whole(context: ChartContext) -> Chart | None:
    states = list(dict.fromkeys(state for drive in context.drives for state in drive.keys("whole")))
    if not states:
        return None
    table = context.table("Discard of the whole drive", [*WHOLE_DRIVE, DISCARDED, metric.REPEATS],
                          ("whole", "{state}"), states)
    return ranking(context, "trim-whole", "Discard of the whole drive", Axis("s/GB", "", "auto"),
                   [(state or "all", ("whole", state, "s_per_gb")) for state in states], table,
                   WHOLE_DRIVE[0])


REPORT = Report(report, sections, lambda drive: next((
    drive.value("extents", run, "added_s_per_gb") for run in drive.keys("extents")), None), SLOPES[0])
