"""mixed-burst: wait time for read bursts during writes in the background."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.over_time import MOST_POINTS, Panel, coarser, time_rows
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.charts.tail import Tail, tail_chart
from blkreel.analysis.metrics.accumulator import COLUMNS as METRIC_COLUMNS
from blkreel.analysis.metrics.accumulator import SECOND_NS, MetricsAccumulator, Partial
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import run_columns_of
from blkreel.analysis.metrics.partials.formulas import mb_per_s
from blkreel.analysis.metrics.partials.keep_up import KEPT_UP_SHARE
from blkreel.analysis.metrics.partials.timeline import Timeline
from blkreel.analysis.report.columns import WITHHELD
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, ranking, state_section
from blkreel.benchmarks.charts.drives import DriveResults
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
    withhold,
    without,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics import Array
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note
from blkreel.common import units
from blkreel.common.binning import sum_of
from blkreel.common.verdict import step_reason
from blkreel.traces.format.exposure import Exposure, exposure_of
from blkreel.traces.format.metadata_types import Stream
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace import Trace

from .report import Report

MIXED, BASELINE = "mixed", "baseline"
# The reads of each role, in the words of a replay with --background.
ROLES = {MIXED: "beside the writer", BASELINE: "alone"}
PERCENTILES = ("p50_ns", "p90_ns", "p99_ns")
TAIL_POINTS = 80


@dataclass
class Burst:
    """A numbered burst, of the I/Os whose completion was seen. due_ns: its first deadline, −1 for none."""

    submit_ns: int
    complete_ns: int
    due_ns: int
    ops: int = 0
    bytes: int = 0

    @property
    def makespan_ns(self) -> int:
        return self.complete_ns - self.submit_ns


@dataclass
class Measured:
    """reads, writes: bursts by number."""

    partial: Partial
    stats: StepStats
    timeline: Timeline | None
    keep_up: dict[str, Any]
    exposure: Exposure
    reads: dict[int, Burst] = field(default_factory=dict)
    writes: dict[int, Burst] = field(default_factory=dict)

    @property
    def read_makespan_ns(self) -> int:
        return sum(burst.makespan_ns for burst in self.reads.values())


def _measure(directory: Path, trace: Trace) -> Measured:
    stats, metrics = StepStats.of(directory, trace), MetricsAccumulator(file_bytes=trace.footer.size_bytes)
    bursts: dict[int, dict[_BurstKey, Burst]] = {OPS["read"]: {}, OPS["write"]: {}}
    for columns in arrays(trace, [*METRIC_COLUMNS, *run_columns_of(trace), "stream"]):
        stats.feed({name: columns[name] for name in COLUMNS})
        metrics.feed({name: column for name, column in columns.items() if name != "stream"})
        for op, of_op in bursts.items():
            selected = (columns["op"] == op) & (columns["latency_ns"] >= 0)
            _add_bursts(of_op, {name: column[selected] for name, column in columns.items()})
    reads, writes = numbered(bursts[OPS["read"]]), numbered(bursts[OPS["write"]])
    streams = trace.account.source.streams
    planned = next((stream.get("number", index) for index, stream in enumerate(streams) if _plans_bursts(stream)), None)
    of_plan = writes if planned is None else {number: burst for (stream, number), burst in bursts[OPS["write"]].items()
                                              if stream == planned}
    keep_up = writer_keep_up(of_plan, streams, stats.end_ns)
    partial = metrics.finish()
    return Measured(partial, stats, partial.timeline, keep_up, exposure_of(trace), reads, writes)


_BurstKey = tuple[int, int]  # stream, number in it


def numbered(bursts: dict[_BurstKey, Burst]) -> dict[int, Burst]:
    """By the numbers of their stream; bursts of several streams by their order in time."""
    if len({stream for stream, _ in bursts}) <= 1:
        return {number: burst for (_, number), burst in bursts.items()}
    return dict(enumerate(sorted(bursts.values(), key=lambda burst: burst.submit_ns)))


def _plans_bursts(stream: Stream) -> bool:
    return bool(stream.get("bursts")) and stream.get("op") == "write"


def _add_bursts(bursts: dict[_BurstKey, Burst], rows: dict[str, Array]) -> None:
    """rows: of one op, whose completion was seen."""
    keys = np.unique(np.column_stack([rows["stream"], rows["burst"]])[rows["burst"] >= 0], axis=0)
    for stream, number in keys.tolist():
        is_burst = (rows["stream"] == stream) & (rows["burst"] == number)
        selected = {name: column[is_burst] for name, column in rows.items()}
        submit_ns, due_ns = int(selected["submit_ns"].min()), int(selected["due_ns"].min())
        complete_ns = int((selected["submit_ns"] + selected["latency_ns"]).max())
        burst = bursts.setdefault((stream, number), Burst(submit_ns, complete_ns, due_ns))
        burst.submit_ns, burst.due_ns = min(burst.submit_ns, submit_ns), min(burst.due_ns, due_ns)
        burst.complete_ns = max(burst.complete_ns, complete_ns)
        burst.ops += len(selected["submit_ns"])
        burst.bytes += int(selected["length_bytes"].sum())


def writer_keep_up(bursts: dict[int, Burst], streams: list[Stream], end_ns: int | None) -> dict[str, Any]:
    """Whether each write burst ended before the next was due, and 99 % of what was offered was written.

    Offered are the planned bursts that were due before the run ended, issued or not, without the last one if its period
    was not over. Without a plan of bursts in the run's account, `state` is "unplanned".
    """
    planned = next((stream["bursts"] for stream in streams if _plans_bursts(stream)), None)
    if not bursts:
        return {"state": "none"}
    if planned is None or end_ns is None:
        return {"state": "unplanned"}
    every_ns = planned["every_ns"]
    first = min(bursts)
    begin_ns = bursts[first].due_ns - first * every_ns
    over = max(0, (end_ns - begin_ns) // every_ns)
    if (count := planned.get("count")) is not None:
        over = min(over, count)
    late = [number for number in range(over)
            if number not in bursts or bursts[number].bytes < planned["bytes"]
            or bursts[number].complete_ns > begin_ns + (number + 1) * every_ns]
    offered = over * planned["bytes"]
    written = sum(bursts[number].bytes for number in range(over) if number in bursts)
    numerator, denominator = KEPT_UP_SHARE
    behind = late or written * denominator < offered * numerator
    return {"state": "fell behind" if behind else "kept up", "bursts": over, "late_bursts": len(late),
            "offered_bytes": offered, "written_bytes": written, "written_share": ratio(written, offered)}


def report(test: Test, runs: Runs) -> Content:
    """Roles mixed and baseline, labels state, repeat."""
    by_role = {role: by_state(runs.measured(role, _measure)) for role in (MIXED, BASELINE)}
    everything = [run.stats for states in by_role.values() for own in states.values() for _, run in own]
    content = Content(figures={"states": {}}, method=[*METHOD, energy_note(everything)])
    for state in dict.fromkeys(state for states in by_role.values() for state in states):
        _add_state(content, state, {role: {step.repeat: (step, run) for step, run in by_role[role].get(state, [])}
                                  for role in by_role})
    return content


def _add_state(content: Content, state: str, by_role: dict[str, dict[int, tuple[BenchmarkStep, Measured]]]) -> None:
    mixed, baseline = by_role[MIXED], by_role[BASELINE]
    rows = [row for repeat, (_, run) in sorted(mixed.items()) for row in _burst_rows(repeat, run, baseline)]
    figures: Figures = {role: _role_figures([run for _, run in own.values()]) for role, own in by_role.items() if own}
    # None if a burst has no counterpart.
    slowdowns = [geometric_mean([row["slowdown"] for row in rows if row["repeat"] == repeat])
                 for repeat in sorted(mixed)]
    figures |= over_repeats("slowdown", slowdowns) if slowdowns else {"slowdown": None}
    figures = withhold(figures, _OF_BOTH, [run.stats for own in by_role.values() for _, run in own.values()])
    figures["bursts"] = {
        str(row["burst"]) if row["repeat"] == 1 else f"{row['burst']}-{row['repeat']}":
        without(row, "at_ns", "ops", "bytes", "mb_s", *([] if row["why"] else ["why"])) for row in rows}
    figures["writer"] = [{"repeat": repeat, **run.keep_up, "read_beside_writes": run.exposure.beside_share}
                         for repeat, (_, run) in sorted(mixed.items())]
    content.figures["states"][state] = figures
    for title, columns, table_rows in (("Reads, writes and the wait", _SUMMARY, _summary_rows(figures)),
                                       ("Share of waiting", _WAITING, _waiting_rows(figures)),
                                       ("Writer", _WRITER, figures["writer"]), ("Read bursts", _BURSTS, rows)):
        content.tables.append(figure_table(in_state(title, state), columns, table_rows))
    for repeat, (step, run) in sorted(mixed.items()):
        if run.keep_up["state"] == "fell behind":
            where = f" in repeat {repeat}" if len(mixed) > 1 else ""
            late, count = run.keep_up["late_bursts"], run.keep_up["bursts"]
            content.reasons.append(step_reason(
                "writer_fell_behind", "qualified", f"writer fell behind{where}: {late} of {count} write bursts had "
                "not ended when the next was due", [step.id]))
    for role, own in by_role.items():
        if own:
            timeline = own[min(own)][1].timeline
            if timeline is not None:
                content.series.append(_timeline(in_state(f"Over time, {role}", state), timeline, state=state,
                                                role=role))
            content.series += _tails(state, role, [run for _, run in own.values()])


def _burst_rows(repeat: int, run: Measured, baseline: dict[int, tuple[BenchmarkStep, Measured]]) -> Iterator[Figures]:
    """A row per read burst, with the same burst alone: of the same repeat, or if that is missing, of the
    first repeat that has one."""
    own = baseline.get(repeat) or (baseline[min(baseline)] if baseline else None)
    for number in sorted(run.reads):
        burst = run.reads[number]
        alone = own[1].reads.get(number) if own else None
        row = {"repeat": repeat, "burst": number, "at_ns": burst.submit_ns - run.stats.begin_ns, "ops": burst.ops,
               "bytes": burst.bytes, "makespan_ns": burst.makespan_ns,
               "mb_s": mb_per_s(burst.bytes, burst.makespan_ns),
               "baseline_ns": alone.makespan_ns if alone else None,
               "slowdown": ratio(burst.makespan_ns, alone.makespan_ns if alone else None),
               "why": {} if alone else dict.fromkeys(("baseline_ns", "slowdown"), "no baseline")}
        yield withhold(withhold(row, dict.fromkeys(("makespan_ns", "mb_s", *_OF_BOTH), ("read_wait",)), [run.stats]),
                       dict.fromkeys(("baseline_ns", *_OF_BOTH), ("read_wait",)), [own[1].stats] if own else ())


def _role_figures(repeats: list[Measured]) -> Figures:
    numbers = figures(sum_of(repeat.partial for repeat in repeats))
    steps = [repeat.stats for repeat in repeats]
    content = withhold({
        **without(steps_over_repeats(steps, "average_w", "mb_per_j"), "why"),
        **over_repeats("read_wait_ns", [repeat.read_makespan_ns or None for repeat in repeats]),
        **over_repeats("read_service_time_ns", [repeat.partial.read.service_ns or None for repeat in repeats]),
        **over_repeats("read_burst_mb_s", [_burst_rate(repeat.reads) for repeat in repeats]),
        **over_repeats("write_burst_mb_s", [_burst_rate(repeat.writes) for repeat in repeats]),
        **over_repeats("write_service_ns", [repeat.partial.write.service_ns or None for repeat in repeats]),
        "read_bursts": sum(len(repeat.reads) for repeat in repeats),
        "write_bursts": sum(len(repeat.writes) for repeat in repeats)}, _OF_ROLE, steps)
    for kind in ("read", "write"):
        latency = numbers[kind]["latency"]
        percentiles = {key: [f"{kind}_{key.removesuffix('_ns')}"] for key in latency if key.startswith("p")}
        content[f"{kind}_latency"] = withhold(latency, percentiles, steps)
        content[f"{kind}_waiting"] = numbers[kind]["waiting"]
    return content


def _burst_rate(bursts: dict[int, Burst]) -> float | None:
    return mb_per_s(sum(burst.bytes for burst in bursts.values()), sum(burst.makespan_ns for burst in bursts.values()))


def _summary_rows(figures: Figures) -> list[Figures]:
    rows = []
    for role, words in ROLES.items():
        if role in figures:
            selected = {key: figures[key] for key in figures if key.startswith("slowdown")} if role == MIXED else {}
            rows.append({"run": words, **figures[role], **selected})
    return rows


def _waiting_rows(figures: Figures) -> list[Figures]:
    rows = []
    for role in (MIXED, BASELINE):
        for kind in ("read", "write"):
            own = figures.get(role, {}).get(f"{kind}_latency")
            if not own or not own["n"]:
                continue
            waiting = figures[role][f"{kind}_waiting"]
            row = {"run": f"{role}, {kind}s", "mean_ns": own["mean_ns"], "ops": own["n"], "max_ns": own["max_ns"],
                   "latency_p99_ns": own["p99_ns"], **waiting}
            row["why"] = {key: f"n too small (n={own['n']:,})" for key in (*PERCENTILES, "latency_p99_ns")
                          if row[key] is None}
            if "p99_ns" in own.get("why", {}):
                row["why"]["latency_p99_ns"] = own["why"]["p99_ns"]
            rows.append(row)
    return rows


def _tails(state: str, role: str, repeats: list[Measured]) -> Iterator[FigureSeries]:
    """The share of reads, and of writes, that took at least a time, over all repeats."""
    for name in ("read", "write"):
        counts = sum_of(getattr(repeat.partial, name).latency for repeat in repeats)
        points, total = counts.tail(TAIL_POINTS), counts.count
        if points:
            yield figure_series(in_state(f"Latency of {name}s, {role}", state), ("latency", "ns"),
                         ("share at least as slow", ""),
                         [(f"{name}s", [value for value, _ in points], [beyond / total for _, beyond in points])],
                         what="tail", state=state, role=role, kind=name, n=total)


def _timeline(title: str, line: Timeline, **of: Any) -> FigureSeries:
    per_mb_s = 1000 / line.width_ns
    seconds = [index * line.width_ns / SECOND_NS for index in range(line.used)]
    return figure_series(f"{title}: MB/s in bins of {line.width_ns / 1e6:g} ms", ("time", "s"), ("Throughput", "MB/s"),
                  [(name, seconds, (line.bytes[kind, :line.used] * per_mb_s).tolist())
                   for kind, name in enumerate(("reads", "writes")) if line.bytes[kind].any()],
                  what="timeline", width_ns=line.width_ns, **of)


_RUN = metric.text("run", "")
_WEIGHTED = "smallest x with Σ(l where l ≤ x) ≥ p Σ l"
WAIT = metric.duration("read_wait_ns", "Wait time", "Σ over the read bursts of max(complete) − min(submit)")
SERVICE_TIME = metric.duration("read_service_time_ns", "Total service time", "Σ latency of the reads")
SLOWDOWN = metric.number("slowdown", "Slowdown", "", "geometric mean over the read bursts of makespan beside the "
                         "writer / makespan alone", "lower")
THROUGHPUTS = [metric.rate("read_burst_mb_s", "Reads", "bytes of the read bursts / Σ of their makespans"),
               metric.rate("write_burst_mb_s", "Writes", "bytes of the write bursts / Σ of their makespans")]
WAITING = [metric.duration("p50_ns", "half of the waiting in I/Os up to", _WEIGHTED),
           metric.duration("p90_ns", "90 %", _WEIGHTED), metric.duration("p99_ns", "99 %", _WEIGHTED)]
BURSTS = [metric.duration("makespan_ns", "Beside", "max(complete) − min(submit) of its reads"),
          metric.duration("baseline_ns", "Alone", "the same burst alone", ""),
          metric.number("slowdown", "Slowdown", "", "beside / alone", "lower")]
# As of withhold(): of one run, and of one beside another.
_OF_ROLE = {WAIT.key: ("read_wait",), SERVICE_TIME.key: ("read_service_time",), "read_burst_mb_s": ("read_wait",),
            "write_burst_mb_s": ("write_wait",), "write_service_ns": ("write_service_time",)}
_OF_BOTH = {SLOWDOWN.key: ("read_wait",)}
_SUMMARY = [_RUN, *metric.with_spread([WAIT, SERVICE_TIME, *THROUGHPUTS, SLOWDOWN, *metric.POWER]), metric.REPEATS]
_WAITING = [_RUN, *WAITING, metric.MEAN_LATENCY, metric.duration("latency_p99_ns", "p99"), metric.MAX_LATENCY,
            metric.OPS]
_WRITER = [metric.REPEAT, metric.text("state", "Writer"), metric.count("bursts", "Bursts"),
           metric.count("late_bursts", "Late write bursts"), metric.size("offered_bytes", "Offered"),
           metric.share("written_share", "Background reached", "bytes written / bytes offered"),
           metric.share("read_beside_writes", "Read beside writes", "share of the bytes read while it wrote", "")]
_BURSTS = [metric.REPEAT, metric.count("burst", "Burst"), metric.duration("at_ns", "At", better=""), BURSTS[0],
           metric.THROUGHPUT, *BURSTS[1:]]

METHOD = [
    ("Burst", "Each I/O carries the number of its burst. Makespan of a burst = max(complete) − min(submit) of its "
     "I/Os."),
    ("Wait time", "Sum of the makespans of the read bursts: the time that a user waits."),
    ("Total service time", "Sum of the latencies of the reads: with two outstanding, about twice the wait."),
    ("Throughput of reads and writes", "Bytes of the bursts / sum of their makespans; time between bursts is not "
     "counted."),
    ("Slowdown", "Geometric mean, over the read bursts, of makespan beside the writer / makespan alone. Bursts are "
     "paired by number, runs by repeat; a repeat without a baseline is compared with the first baseline."),
    ("Writer keep-up", "Each write burst must end before the next one is due, and 99 % of the bytes offered must be "
     "written; otherwise the writer “fell behind”, which qualifies the run. Offered are the planned bursts whose whole "
     "period is in the run, issued or not."),
    ("Share of waiting", "Latency-weighted percentiles: smallest x with Σ(l where l ≤ x) ≥ p Σ l."),
    ("Repeats", "Times and rates are geometric means over the repeats, with the smallest and the largest; "
     "percentiles are pooled I/O by I/O."),
]


_PERCENTILES = {"p50": 0.5, "p90": 0.1, "p99": 0.01, "p99.9": 0.001}  # name -> share beyond


def sections(context: ChartContext) -> Iterator[Section]:
    for state_context in context.by_state():
        charts = [_slowdown_chart(state_context), _throughput(state_context), _timeline_chart(state_context),
                  *_tail_charts(state_context), _bursts(state_context), _waiting(state_context),
                  efficiency(state_context, "efficiency", "Efficiency",
                             [(words, state_context.at(role), "read_burst_mb_s") for role, words in ROLES.items()])]
        yield state_section(state_context, "Reads during writes", charts)


def _slowdown_chart(context: ChartContext) -> Chart | None:
    columns = [SLOWDOWN, *(replace(figure, key=key, title=title, path=(role, figure.key)) for figure, key, title,
                           role in (
        (WAIT, "read_wait_ns", "Wait beside the writer", MIXED), (WAIT, "alone_ns", "Wait alone", BASELINE),
        (SERVICE_TIME, "service_ns", "Service time beside the writer", MIXED),
        (SERVICE_TIME, "service_alone_ns", "Service time alone", BASELINE)))]
    table = context.table(context.titled("Wait time and slowdown"), columns, context.at())

    def text_of(drive: DriveResults) -> str:
        wait, slower = drive.value(*context.at(MIXED, WAIT.key)).value, drive.value(*context.at("slowdown")).value
        words = units.duration(wait)
        return f"{words} · {units.digits(slower)} ×" if slower is not None else words

    return ranking(context, "slowdown", "Wait time, alone and beside a writer", Axis("wait", "ns", "auto"),
                   [(ROLES[role], context.at(role, WAIT.key)) for role in (BASELINE, MIXED)],
                   table, WAIT, order_part=1, text_of=text_of,
                   text="Time that a user waits for the read bursts; × is the geometric mean of their slowdowns.")


def _throughput(context: ChartContext) -> Chart | None:
    reads = THROUGHPUTS[0]
    path = context.at(MIXED, reads.key)
    table = context.table(context.titled("Throughput of bursts"),
                          [*THROUGHPUTS, metric.REPEATS, *metric.POWER], context.at(MIXED))
    keep = [_kept_up(drive, context.state) for drive in context.drives]
    writer_words = {drive.key: words for drive, words in zip(context.drives, keep, strict=True)}
    parts = [(words, lambda drive, words=words: path if writer_words[drive.key] == words else (
        "nothing",)) for words in dict.fromkeys(keep)]
    behind = [key for key, words in writer_words.items() if words == "writer fell behind"]
    where = "every drive" if len(behind) == len(writer_words) > 1 else ", ".join(behind)
    notes = [f"On {where} the writer fell behind: fewer writes than planned ran during the reads."] if behind else []
    return ranking(context, "read-throughput", "Read throughput under background writes", MB_S, parts,
                   _with_writer(table, writer_words, context), reads, notes=notes, order_path=lambda drive: path,
                   text_of=lambda drive: reads.value_unit.text(drive.value(*path).value or 0))


def _kept_up(drive: DriveResults, state: str) -> str:
    states = {writer["state"] for writer in _writers(drive, state)}
    return "writer fell behind" if "fell behind" in states else "writer kept up" if states == {"kept up"} else "no plan"


def _writers(drive: DriveResults, state: str) -> list[dict[str, Any]]:
    return [writer for test in drive.tests
            for writer in (test["figures"]["states"].get(state) or {}).get("writer") or ()]


def _with_writer(table: Table, writer_words: dict[str, str], context: ChartContext) -> Table:
    rows, drives = [], {drive.key: drive for drive in context.drives}
    for row in table.rows:
        key = row.values["drive"]
        writers = _writers(drives[key], context.state)
        shares = [writer["written_share"] for writer in writers if writer.get("written_share") is not None]
        late = sum(writer.get("late_bursts") or 0 for writer in writers)
        rows.append(replace(row, values={**row.values, "writer": writer_words[key], "late_bursts": late,
                                         "written_share": min(shares, default=None)}))
    more = (Column("writer", "Writer", formula="kept up: each write burst ended before the next was due, and 99 % of "
                   "the bytes offered were written"),
            Column("late_bursts", "Late write bursts", "count", better="lower"),
            Column("written_share", "Written / offered", "share", formula="of the repetition with the least"))
    return Table(table.caption, (*table.columns, *more), tuple(rows))


def _timeline_chart(context: ChartContext) -> Chart | None:
    roles = (MIXED,) if context.several else (MIXED, BASELINE)
    drawn = [(drive, role, series) for drive in context.drives for role in roles
             for series in drive.series("timeline", state=context.state, role=role)[:1]]
    if not drawn:
        return None
    most = min(400, MOST_POINTS // (len(drawn) + 1))
    panels, widest_s = [], 0.0
    for drive, role, series in drawn:
        lines = {line["name"]: line for line in series["lines"]}
        bins = max(len(line["x"]) for line in lines.values())
        rates = {key: dict(coarser(lines[name]["x"], lines[name]["y"], most)) if name in lines else {}
                 for key, name in (("read", "reads"), ("write", "writes"))}
        begins = sorted({begin for by_begin in rates.values() for begin in by_begin})
        width_s = series["of"]["width_ns"] / 1e9 * max(1, -(-bins // most))
        widest_s = max(widest_s, width_s)
        wait = drive.value(*context.at(role, WAIT.key)).value
        panels.append(Panel(
            drive.key, drive.name if context.several else ROLES[role],
            [{"t": t, **{key: float(f"{by_begin.get(t, 0):.4g}") for key, by_begin in rates.items()}} for t in begins],
            begins[-1] + width_s, caption=f"wait {units.duration(wait)}" if wait is not None else ""))
    table = Table(f"MB/s in bins of up to {widest_s:.3g} s", (
        Column("drive", "Drive"), Column("from_s", "From", "number", "s"), Column("read_mb_s", "Reads", "rate"),
        Column("write_mb_s", "Writes", "rate")), tuple(
            Row({"drive": panel.entry, "of": panel.title, "from_s": step["t"], "read_mb_s": step["read"],
                 "write_mb_s": step["write"]}, panel.entry, group=panel.title)
            for panel in panels for step in panel.steps))
    return context.chart(
        "timeline", "Reads over background writes", table,
        time_rows("Throughput of reads over that of writes, over time, one row per drive", panels, "MB/s"),
        text="Reads (orange, outlined) in front of writes (blue), one scale for all rows. The strip at the bottom "
             "zooms all rows.", wide=True, zooms=True,
        notes=("The first repetition is drawn.",) * any(len(drive.tests) > 1 for drive in context.drives))


def _tail_charts(context: ChartContext) -> Iterator[Chart]:
    """Read latency: with one drive both runs in one chart, with several a chart for each."""
    groups: list[tuple[tuple[str, ...], str, str]] = [
        ((MIXED,), "read-tail", "Read latency beside the writer"), ((BASELINE,), "read-tail-alone",
              "Read latency alone"), ((MIXED,), "write-tail", "Write latency")]
    if not context.several:
        groups = [((MIXED, BASELINE), "read-tail", "Read latency"), ((MIXED,), "write-tail", "Write latency")]
    for roles, id_, title in groups:
        kind = "write" if id_.startswith("write") else "read"
        tails, metric_rows, hidden = [], [], []
        for drive in context.drives:
            for role in roles:
                for series in drive.series("tail", state=context.state, role=role, kind=kind)[:1]:
                    (line,) = series["lines"]
                    row = MetricRow(drive, context.at(role, f"{kind}_latency"), {"of": role})
                    metric_rows.append(row)
                    values = {name: drive.value(*row.base, f"{name.replace('.', '_')}_ns") for name in _PERCENTILES}
                    if any(value.why == WITHHELD for value in values.values()):
                        hidden.append(drive.key)
                        continue
                    percentiles = [(name, share, values[name].value) for name, share in _PERCENTILES.items()
                                   if values[name].value is not None]
                    tails.append(Tail(drive.key, ROLES[role], series["of"]["n"],
                                      list(zip(line["x"], line["y"], strict=True)), percentiles))
        if not metric_rows:
            continue
        rank = "nearest rank x[⌈n p⌉ − 1] of the sorted complete − submit; only where n (1 − p) ≥ 10"
        table = metric_table(context.titled(f"{title}: percentiles"), metric_rows, [
            *(metric.duration(f"{name.replace('.', '_')}_ns", name, rank) for name in _PERCENTILES),
            metric.MEAN_LATENCY, metric.MAX_LATENCY, metric.count("n", "I/Os")],
            context.at("{of}", f"{kind}_latency"), (Column("of", "Run"),))
        yield context.chart(
            id_, title, _with_reasons(table), tail_chart(
                f"{title}: share of I/Os that took at least a time", tails,
                context.style([ROLES[role] for role in roles]), f"{kind} latency") if tails else None, "lower",
            "Further left is better. Faint where fewer than 10 I/Os lie beyond: too few for a percentile.",
            [f"Without a curve, because a value is withheld: {', '.join(dict.fromkeys(hidden))}."] * bool(hidden))


def _with_reasons(table: Table) -> Table:
    """Missing percentiles with the reason."""
    def why(row: Row) -> dict[str, str]:
        n = row.values.get("n")
        return {key: f"n too small (n={n:,})" if reason == "not measured" and key.startswith("p") and n else reason
                for key, reason in row.why.items()}
    return replace(table, rows=tuple(replace(row, why=why(row)) for row in table.rows))


def _bursts(context: ChartContext) -> Chart | None:
    metric_rows, points = [], []
    for drive in context.drives:
        test = drive.tests[0]
        bursts = (test["figures"]["states"].get(context.state) or {}).get("bursts") or {}
        first = min((burst["repeat"] for burst in bursts.values()), default=None)
        for key, burst in bursts.items():
            if burst["repeat"] != first:
                continue
            if burst["slowdown"] is not None:
                points.append(Point(drive.key, "", burst["burst"] + 1, burst["slowdown"]))
            metric_rows.append(MetricRow(DriveResults(drive.key, (test,)), context.at("bursts", key), {"burst": key}))
    if not metric_rows:
        return None
    table = metric_table(context.titled("Read bursts"), metric_rows, BURSTS, context.at("bursts", "{burst}"),
                         (Column("burst", "Burst", formula="in order, from 0; after a dash the repeat"),))
    title = "Slowdown of each read burst"
    return context.chart("bursts", title, table, curves(
        title, points, context.style(), Axis("read burst", kind="count"),
        Axis("times as long as alone", "×", "auto")), "lower",
        "The smaller the differences between bursts, the more predictable the drive.")


def _waiting(context: ChartContext) -> Chart | None:
    title = "Distribution of the waiting over reads"
    table = context.table(context.titled(title), WAITING, context.at("{of}", "read_waiting"), list(ROLES),
                          Column("of", "Run"))
    if not any(row.values.get("p50_ns") for row in table.rows):
        return None
    return context.chart("waiting", title, table, better="lower",
                         text="Latency-weighted percentiles: each read has its latency as weight.")


REPORT = Report(report, sections, lambda drive: drive.of_state(0, MIXED, WAIT.key), WAIT)
