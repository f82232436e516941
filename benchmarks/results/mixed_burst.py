"""mixed-burst: wait time for read bursts during writes in the background."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.analysis.metrics.accumulator import COLUMNS as METRIC_COLUMNS
from blkreel.analysis.metrics.accumulator import SECOND_NS, MetricsAccumulator, Partial
from blkreel.analysis.metrics.definitions.formulas import mb_per_s
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import run_columns_of
from blkreel.analysis.metrics.partials.keep_up import KEPT_UP_SHARE
from blkreel.analysis.metrics.partials.timeline import Timeline
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.step_metrics import Array
from blkreel.benchmarks.step_metrics.sensors import sensors_of
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, StepStats, arrays, energy_note
from blkreel.common.verdict import step_reason
from blkreel.traces.format.exposure import Exposure, exposure_of
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace import Trace

from .directory import Runs, Step, Test
from .document import (
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
    without,
)

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
    stats, metrics = StepStats(sensors_of(directory)), MetricsAccumulator(file_bytes=trace.footer.size_bytes)
    bursts: dict[int, dict[_BurstKey, Burst]] = {OPS["read"]: {}, OPS["write"]: {}}
    for columns in arrays(trace, [*METRIC_COLUMNS, *run_columns_of(trace), "stream"]):
        stats.feed({name: columns[name] for name in COLUMNS})
        metrics.feed({name: column for name, column in columns.items() if name != "stream"})
        for op, of_op in bursts.items():
            selected = (columns["op"] == op) & (columns["latency_ns"] >= 0)
            _add_bursts(of_op, {name: column[selected] for name, column in columns.items()})
    reads, writes = numbered(bursts[OPS["read"]]), numbered(bursts[OPS["write"]])
    streams = ((trace.metadata.get("run") or {}).get("source") or {}).get("streams") or []
    planned = next((each.get("number", index) for index, each in enumerate(streams) if _plans_bursts(each)), None)
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


def _plans_bursts(stream: dict[str, Any]) -> bool:
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


def writer_keep_up(bursts: dict[int, Burst], streams: list[dict[str, Any]], end_ns: int | None) -> dict[str, Any]:
    """Whether each write burst ended before the next was due, and 99 % of what was offered was written.

    Offered are the planned bursts that were due before the run ended, issued or not, without the last one if its period
    was not over. Without a plan of bursts in the run's account, `state` is "unplanned".
    """
    planned = next((each["bursts"] for each in streams if _plans_bursts(each)), None)
    if not bursts:
        return {"state": "none"}
    if planned is None or end_ns is None:
        return {"state": "unplanned"}
    every_ns = planned["every_ns"]
    first = min(bursts)
    begin_ns = bursts[first].due_ns - first * every_ns
    over = max(0, (end_ns - begin_ns) // every_ns)
    if planned.get("count") is not None:
        over = min(over, planned["count"])
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
    everything = [each.stats for states in by_role.values() for own in states.values() for _, each in own]
    content = Content(figures={"states": {}}, method=[*METHOD, energy_note(everything)])
    for state in dict.fromkeys(state for states in by_role.values() for state in states):
        _add_state(content, state, {role: {step.repeat: (step, each) for step, each in by_role[role].get(state, [])}
                                  for role in by_role})
    return content


def _add_state(content: Content, state: str, by_role: dict[str, dict[int, tuple[Step, Measured]]]) -> None:
    mixed, baseline = by_role[MIXED], by_role[BASELINE]
    rows = [row for repeat, (_, each) in sorted(mixed.items()) for row in _burst_rows(repeat, each, baseline)]
    figures: Figures = {role: _role_figures([each for _, each in own.values()]) for role, own in by_role.items() if own}
    slowdowns = [_slowdown(rows, repeat) for repeat in sorted(mixed)]
    figures |= over_repeats("slowdown", slowdowns) if slowdowns else {"slowdown": None}
    figures["bursts"] = {
        str(row["burst"]) if row["repeat"] == 1 else f"{row['burst']}-{row['repeat']}":
        without(row, "at_ns", "ops", "bytes", "mb_s", "why") for row in rows}
    figures["writer"] = [{"repeat": repeat, **each.keep_up, "read_beside_writes": each.exposure.beside_share}
                         for repeat, (_, each) in sorted(mixed.items())]
    content.figures["states"][state] = figures
    for title, columns, those in (("Reads, writes and the wait", _SUMMARY, _summary_rows(figures)),
                                  ("Share of waiting", _WAITING, _waiting_rows(figures)),
                                  ("Writer", _WRITER, figures["writer"]), ("Read bursts", _BURSTS, rows)):
        content.tables.append(figure_table(in_state(title, state), columns, those))
    for repeat, (step, each) in sorted(mixed.items()):
        if each.keep_up["state"] == "fell behind":
            where = f" in repeat {repeat}" if len(mixed) > 1 else ""
            late, count = each.keep_up["late_bursts"], each.keep_up["bursts"]
            content.reasons.append(step_reason(
                "writer_fell_behind", "qualified", f"writer fell behind{where}: {late} of {count} write bursts had "
                "not ended when the next was due", [step.id]))
    for role, own in by_role.items():
        if own:
            timeline = own[min(own)][1].timeline
            if timeline is not None:
                content.series.append(_timeline(in_state(f"Over time, {role}", state), timeline, state=state,
                                                role=role))
            content.series += _tails(state, role, [each for _, each in own.values()])


def _burst_rows(repeat: int, each: Measured, baseline: dict[int, tuple[Step, Measured]]) -> Iterator[Figures]:
    """A row per read burst, with the same burst without a writer: of the same repeat, or if that is missing, of the
    first repeat that has one."""
    own = baseline.get(repeat) or (baseline[min(baseline)] if baseline else None)
    for number in sorted(each.reads):
        burst = each.reads[number]
        alone = own[1].reads.get(number) if own else None
        yield {"repeat": repeat, "burst": number, "at_ns": burst.submit_ns - each.stats.begin_ns, "ops": burst.ops,
               "bytes": burst.bytes, "makespan_ns": burst.makespan_ns,
               "mb_s": mb_per_s(burst.bytes, burst.makespan_ns),
               "baseline_ns": alone.makespan_ns if alone else None,
               "slowdown": ratio(burst.makespan_ns, alone.makespan_ns if alone else None),
               "why": {} if alone else dict.fromkeys(("baseline_ns", "slowdown"), "no baseline")}


def _slowdown(rows: list[Figures], repeat: int) -> float | None:
    """Geometric mean over the bursts of one repeat; None if a burst has no counterpart."""
    return geometric_mean([row["slowdown"] for row in rows if row["repeat"] == repeat])


def _role_figures(repeats: list[Measured]) -> Figures:
    pooled = repeats[0].partial
    for each in repeats[1:]:
        pooled = pooled + each.partial
    numbers = figures(pooled)
    content = {
        **without(steps_over_repeats([each.stats for each in repeats], "average_w", "mb_per_j"), "why"),
        **over_repeats("read_wait_ns", [each.read_makespan_ns or None for each in repeats]),
        **over_repeats("read_service_time_ns", [each.partial.read.service_ns or None for each in repeats]),
        **over_repeats("read_burst_mb_s", [_burst_rate(each.reads) for each in repeats]),
        **over_repeats("write_burst_mb_s", [_burst_rate(each.writes) for each in repeats]),
        **over_repeats("write_service_ns", [each.partial.write.service_ns or None for each in repeats]),
        "read_bursts": sum(len(each.reads) for each in repeats),
        "write_bursts": sum(len(each.writes) for each in repeats)}
    for kind in ("read", "write"):
        content[f"{kind}_latency"] = numbers[kind]["latency"]
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
            rows.append(row)
    return rows


def _tails(state: str, role: str, repeats: list[Measured]) -> Iterator[FigureSeries]:
    """The share of reads, and of writes, that took at least a time, over all repeats."""
    for name in ("read", "write"):
        counts = getattr(repeats[0].partial, name).latency
        for each in repeats[1:]:
            counts = counts + getattr(each.partial, name).latency
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
          metric.duration("baseline_ns", "Alone", "the same burst without a writer", ""),
          metric.number("slowdown", "Slowdown", "", "beside / alone", "lower")]
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
