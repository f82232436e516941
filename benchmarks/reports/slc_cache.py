"""slc-cache: size and throughput of the fast part of a drive, and its recovery after rests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.over_time import MOST_POINTS, extremes
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.metrics.definitions.metric import BYTES
from blkreel.analysis.metrics.definitions.metric import MB_S as MB_S_UNIT
from blkreel.analysis.metrics.partials.formulas import mb_per_s
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, ranking, state_section
from blkreel.benchmarks.charts.drives import DriveResults, FigurePath
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
    over_repeats,
    ratio,
    steps_over_repeats,
)
from blkreel.benchmarks.step_metrics import Array
from blkreel.benchmarks.step_metrics.change_point import MIN_SLOWDOWN, MIN_VALUES, Change, find_change
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note
from blkreel.common import units
from blkreel.common.binning import grouped
from blkreel.traces.format.trace import Trace

from .report import Report

ROLE = "fill"
SAMPLE_NS = 500_000_000
MAX_SAMPLES = 2000
ALIKE = 0.2
MAX_PIECES = 1 << 20


class Pieces:
    """Bytes, latency and completion of each write, in the order of issue. Beyond MAX_PIECES neighbors are merged, so
    that memory stays bounded; a piece is then some MiB of terabytes."""

    def __init__(self) -> None:
        self.writes = 1  # in a piece
        self._chunks: list[Array] = []
        self._rows = 0
        self._rest: Array = np.empty((0, 3), np.int64)

    def add(self, length_bytes: Array, latency_ns: Array, complete_ns: Array) -> None:
        rows = np.column_stack([length_bytes, latency_ns, complete_ns]).astype(np.int64)
        rows = np.concatenate([self._rest, rows])
        whole = len(rows) // self.writes * self.writes
        self._rest = rows[whole:]
        self._append(_joined(rows[:whole], self.writes))
        while self._rows > MAX_PIECES:
            every = np.concatenate(self._chunks)
            even = len(every) // 2 * 2
            self._chunks, self._rows = [], 0
            self.writes *= 2
            self._append(_joined(every[:even], 2))
            self._append(every[even:])  # half a piece now and then changes nothing

    def _append(self, pieces: Array) -> None:
        if len(pieces):
            self._chunks.append(pieces)
            self._rows += len(pieces)

    def table(self) -> Array:
        """(bytes, latency_ns, complete_ns) rows; the last piece may be of fewer writes."""
        last_piece = _joined(self._rest, max(1, len(self._rest)))
        return np.concatenate([*self._chunks, last_piece, np.empty((0, 3), np.int64)])


def _joined(rows: Array, together: int) -> Array:
    if together == 1 or not len(rows):
        return rows
    groups = rows.reshape(-1, together, 3)
    return np.column_stack([groups[:, :, 0].sum(axis=1), groups[:, :, 1].sum(axis=1), groups[:, :, 2].max(axis=1)])


@dataclass(frozen=True)
class Measured:
    """fast_bytes, before_mb_s, after_mb_s: None if there is no change. samples: bytes written in each width_ns."""

    stats: StepStats
    change: Change
    fast_bytes: int | None
    before_mb_s: float | None
    after_mb_s: float | None
    samples: Array
    width_ns: int


def _measure(directory: Path, trace: Trace) -> Measured:
    stats, pieces = StepStats.of(directory, trace), Pieces()
    samples, width_ns = np.zeros(0, np.int64), SAMPLE_NS
    for columns in arrays(trace, COLUMNS):
        stats.feed(columns)
        written = (columns["op"] == 1) & (columns["latency_ns"] >= 0)
        length_bytes, latency_ns = columns["length_bytes"][written], columns["latency_ns"][written]
        complete_ns = columns["submit_ns"][written] + latency_ns
        if not len(complete_ns):
            continue
        pieces.add(length_bytes, latency_ns, complete_ns)
        while (int(complete_ns.max()) - stats.begin_ns) // width_ns >= MAX_SAMPLES:
            samples = np.pad(samples, (0, len(samples) % 2)).reshape(-1, 2).sum(axis=1)
            width_ns *= 2
        where = (complete_ns - stats.begin_ns) // width_ns
        samples = np.pad(samples, (0, max(0, int(where.max()) + 1 - len(samples))))
        np.add.at(samples, where, length_bytes)
    length_bytes, latency_ns, complete_ns = pieces.table().T
    change = find_change(latency_ns / length_bytes)
    if change.at is None:
        return Measured(stats, change, None, None, None, samples, width_ns)
    fast_bytes, fast_end_ns = int(length_bytes[:change.at].sum()), int(complete_ns[:change.at].max())
    return Measured(stats, change, fast_bytes,
                    mb_per_s(fast_bytes, fast_end_ns - stats.begin_ns),
                    mb_per_s(int(length_bytes[change.at:].sum()), stats.end_ns - fast_end_ns), samples, width_ns)


def report(test: Test, runs: Runs) -> Content:
    """Labels: state, rest_ns (before the fill; 0 for the first), repeat."""
    measured = runs.measured(ROLE, _measure, number="rest_ns")
    content = Content(figures={"states": {}}, method=[*METHOD, energy_note([run.stats for _, run in measured])])
    for state, own in by_state(measured, "rest_ns").items():
        groups = grouped((step.labels["rest_ns"], run) for step, run in own)
        in_order = [group for rest_ns in sorted(groups) for group in groups[rest_ns]]
        rows = [_row(rest_ns, groups[rest_ns], groups.get(0, []), in_order) for rest_ns in sorted(groups)]
        content.figures["states"][state] = {"fills": {_key(row["rest_ns"]): row for row in rows},
                                          "fast_bytes": next(
                                                (row["fast_bytes"] for row in rows if not row["rest_ns"]), None)}
        content.tables.append(figure_table(in_state("Fast part, by the rest before it", state), METRICS, rows))
        content.series += [_rate(state, rest_ns, groups[rest_ns][0]) for rest_ns in sorted(groups)
                         if len(groups[rest_ns][0].samples)]
    return content


def _key(rest_ns: int) -> str:
    """A fill's name in the figures: first, after-30s."""
    return f"after-{units.setting(rest_ns).replace(' ', '').replace('.', '-')}" if rest_ns else "first"


def _rate(state: str, rest_ns: int, run: Measured) -> FigureSeries:
    title = "First fill" if rest_ns == 0 else f"After a rest of {units.setting(rest_ns)}"
    whole = run.samples[:-1] if len(run.samples) > 1 else run.samples  # the last bin is cut off
    return figure_series(
        f"{in_state(title, state)}: MB/s in bins of {run.width_ns / 1e9:g} s", ("time", "s"), ("Throughput", "MB/s"),
        [("writes", [index * run.width_ns / 1e9 for index in range(len(whole))],
          (whole * (1000 / run.width_ns)).tolist())], what="rate", state=state, rest_ns=rest_ns,
        width_ns=run.width_ns)


def _unchanged(run: Measured, fills: list[Measured]) -> str:
    """Why there is no size, and whether all of the fill was fast or slow by the rates of another fill."""
    extent, with_change = "", [fill for fill in fills if fill.change.at is not None]
    if with_change and run.stats.mb_s:
        for what, speed in (("fast", with_change[0].before_mb_s), ("slow", with_change[0].after_mb_s)):
            if speed and abs(run.stats.mb_s - speed) <= ALIKE * speed:
                extent = f", all of it was {what}"
    return f"no change found{extent}: {run.change.why}"


def _row(rest_ns: int, repeats: list[Measured], first: list[Measured], fills: list[Measured]) -> Figures:
    row = steps_over_repeats([repeat.stats for repeat in repeats], "average_w", "mb_per_j")
    gone = next((repeat for repeat in repeats if repeat.change.at is None), None)
    if gone is not None:
        row["why"] |= dict.fromkeys(("fast_bytes", "before_mb_s", "after_mb_s"), _unchanged(gone, fills))
    fresh = over_repeats("value", [repeat.fast_bytes for repeat in first])["value"] if first else None
    fast = over_repeats("fast_bytes", [repeat.fast_bytes for repeat in repeats])
    return {"rest_ns": rest_ns, **row, **fast, "of_first": ratio(fast["fast_bytes"], fresh) if rest_ns else None,
            **over_repeats("before_mb_s", [repeat.before_mb_s for repeat in repeats]),
            **over_repeats("after_mb_s", [repeat.after_mb_s for repeat in repeats]),
            "mean_mb_s": over_repeats("value", [repeat.stats.mb_s for repeat in repeats])["value"],
            "written_bytes": sum(repeat.stats.writes.bytes for repeat in repeats) // len(repeats)}


REST = metric.duration("rest_ns", "Rest before", better="")
METRICS = [
    REST, *metric.with_spread([
        metric.size("fast_bytes", "Fast part", "bytes written before the change point of ln(latency / bytes)",
                    "higher"),
        metric.rate("before_mb_s", "Throughput in it", "bytes / time up to the change"),
        metric.rate("after_mb_s", "Throughput after it", "bytes / time from there on")]),
    metric.share("of_first", "Of the first", "fast part / that of the first fill"),
    metric.rate("mean_mb_s", "Overall", "bytes / time of the fill"), metric.size("written_bytes", "Written"),
    *metric.with_spread(metric.POWER), metric.REPEATS]

METHOD = [
    ("Size of the fast part", "The bytes written before the change point: the cut of the series of writes with the "
     "least sum of squares of ln(latency / bytes) around the means of both sides, with the highest and lowest half "
     "percent clipped. All cuts are compared, so it is exact to a write, whatever the sampling (D). Of several drops "
     "the first counts. Data that the drive moves out of its cache meanwhile counts as written fast: this is the "
     "amount that a user can write fast, not the size of a memory."),
    ("No change found", f"If the second part is not at least {MIN_SLOWDOWN:g} times as slow; if the difference is "
     "within chance (k (n − k) / n · difference² under 50 variances); if a gradual decline explains "
     f"the writes better than a jump; or if a part has fewer than {MIN_VALUES} writes or half a percent of them (D)."),
    ("Throughput in it, after it", "Bytes / time: from the first submit to the completion of the last fast write, and "
     "from there to the end."),
    ("Rate over time", f"Bytes completed in bins of 0.5 s, for the chart only; their width doubles at {MAX_SAMPLES} "
     "bins."),
]


Fills = dict[int, dict[str, str]]  # rest in ns -> key of a drive -> key of the fill in its figures
_METRICS = metric.select(METRICS, "fast_bytes", "before_mb_s", "after_mb_s", "of_first", "mean_mb_s", "written_bytes",
                         "average_w", "mb_per_j", "n")


def sections(context: ChartContext) -> Iterator[Section]:
    for state_context in context.by_state():
        fills = _fills(state_context)
        first = next(iter(fills), None)
        charts = [_rate_charts(state_context, rest_ns, where) for rest_ns, where in fills.items()]
        if first is not None:
            charts = [_split(state_context, first, fills[first]), charts[0], _sizes(state_context, fills), *charts[1:],
                      *(_split(state_context, rest_ns, where) for rest_ns, where in fills.items()
                        if rest_ns != first and context.several),
                      efficiency(state_context, "efficiency", "Efficiency of the first fill",
                                 [("first fill", state_context.at("fills", "first"), "mean_mb_s")])]
        yield state_section(state_context, "Fast part", charts)


def _fills(context: ChartContext) -> Fills:
    fills: Fills = {}
    for drive in context.drives:
        for index in drive.keys(*context.at("fills")):
            rest_ns = drive.value(*context.at("fills", index, "rest_ns")).value
            if rest_ns is not None:
                fills.setdefault(rest_ns, {})[drive.key] = index
    return dict(sorted(fills.items()))


def _name(rest_ns: int) -> str:
    return "first fill" if rest_ns == 0 else f"after {units.setting(rest_ns)} of rest"


def _suffix(rest_ns: int) -> str:
    return f"-{_key(rest_ns)}" if rest_ns else ""


def _table(context: ChartContext, fills: Fills, caption: str) -> Table:
    metric_rows = [MetricRow(drive, context.at("fills", keys[drive.key]),
                             {"fill": keys[drive.key], "rest_ns": rest_ns})
                   for drive in context.drives for rest_ns, keys in fills.items() if drive.key in keys]
    return metric_table(caption, metric_rows, _METRICS, context.at("fills", "{fill}"),
                        (Column("fill", "Fill"), Column("rest_ns", "Rest before", "time")))


def _split(context: ChartContext, rest_ns: int, fill_keys: dict[str, str]) -> Chart | None:
    """Each drive with free and with exhausted cache; a drive without a change has one speed."""
    def at(key: str) -> Callable[[DriveResults], FigurePath]:
        return lambda drive: context.at("fills", fill_keys.get(drive.key, "none"), key)

    def text_of(drive: DriveResults) -> str:
        fast, slow, whole, size = (drive.value(*at(key)(drive)).value
                                   for key in ("before_mb_s", "after_mb_s", "mean_mb_s", "fast_bytes"))
        if fast is None:
            return f"{MB_S_UNIT.text(whole)} throughout" if whole is not None else ""
        return f"{BYTES.text(size)} at {MB_S_UNIT.text(fast)}, then {MB_S_UNIT.text(slow)}"

    def throughout(drive: DriveResults) -> FigurePath:
        return at("mean_mb_s" if drive.value(*at("before_mb_s")(drive)).value is None else "none")(drive)

    title = f"Cached and exhausted, {_name(rest_ns)}"
    return ranking(context, f"cache-split{_suffix(rest_ns)}", title, Axis("write throughput", "MB/s", "auto"),
                   [("exhausted", at("after_mb_s")), ("cached", at("before_mb_s")), ("no change found", throughout)],
                   _table(context, {rest_ns: fill_keys}, title), _METRICS[1], text_of=text_of,
                   order_path=lambda drive: at("after_mb_s" if drive.value(*at("after_mb_s")(drive)).value is not None
                                            else "mean_mb_s")(drive),
                   text="Write throughput before and after the fast part is full.")


def _rate_charts(context: ChartContext, rest_ns: int, fill_keys: dict[str, str]) -> Chart | None:
    drawn = [(drive, series) for drive in context.drives
             for series in drive.series("rate", state=context.state, rest_ns=rest_ns)[:1]]
    if not drawn:
        return None
    most = min(1000, MOST_POINTS // len(drawn))
    points: list[Point] = []
    for drive, series in drawn:
        written, steps = 0.0, []
        for rate in series["lines"][0]["y"]:
            steps.append((written, rate))
            written += rate * series["of"]["width_ns"] / 1e3
        steps += [(written, steps[-1][1])] if steps else []  # the last step is as long as the others
        thinned = extremes([at for at, _ in steps], [rate for _, rate in steps], most)
        line = [Point(drive.key, "", at, rate) for at, rate in thinned]
        fast = drive.value(*context.at("fills", fill_keys.get(drive.key, "none"), "fast_bytes")).value
        if fast is not None and line:
            index = max((index for index, point in enumerate(line) if point.x <= fast), default=0)
            line.insert(index + 1, Point(drive.key, "", float(fast), line[index].y, BYTES.text(fast)))
        points += line
    title = f"Write rate by bytes written, {_name(rest_ns)}"
    table = Table(title, (Column("drive", "Drive"), Column("written_bytes", "Written before", "size"),
                          Column("mb_s", "Rate", "rate", better="higher")),
                  tuple(Row({"drive": point.entry, "written_bytes": point.x, "mb_s": point.y}, point.entry)
                        for point in points if point.ring is None))
    spec = curves(title, points, context.style(), Axis("written", "bytes"), MB_S, is_stepped=True, dots=False)
    return context.chart(f"cache{_suffix(rest_ns)}", title, table, spec, "higher",
                         "The ring is the end of the fast part." if any(point.ring for point in points) else
                         "No change of speed was found.", wide=True)


def _sizes(context: ChartContext, fills: Fills) -> Chart:
    table = _table(context, fills, "Fast part, by the rest before it")
    points = []
    for drive in context.drives:
        for index, fill_keys in enumerate(fills.values()):
            fast = drive.value(*context.at("fills", fill_keys.get(drive.key, "none"), "fast_bytes")).value
            if fast is not None:
                points.append(Point(drive.key, "", index, float(fast)))
    notes = {row.why["fast_bytes"] for row in table.rows if "fast_bytes" in row.why}
    title = "Size of the fast part, by the rest before it"
    spec = curves(context.titled(title), points, context.style(),
                  Axis("", kind="names", names=tuple(map(_name, fills))), Axis("fast part", "bytes"))
    return context.chart("cache-size", title, table, spec, "higher", "How much of the cache a rest recovers.",
                         sorted(notes)[:3])


REPORT = Report(report, sections, lambda drive: drive.of_state(0, "fast_bytes"), _METRICS[0])
