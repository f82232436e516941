"""mixed-burst: how long a person waits for reads while something writes in the background."""

from dataclasses import dataclass, field

import numpy as np

from blkreel.traces.schema import OPS

from ..metrics import COLUMNS as METRIC_COLUMNS
from ..metrics import RUN_COLUMNS, SECOND_NS, MetricsAccumulator, Partial
from ..summary import KEPT_UP_SHARE, figures, mb_per_s
from ..timeline import Timeline
from .directory import Runs, Test, arrays
from .parts import (
    Content,
    by_state,
    geometric_mean,
    in_state,
    over_repeats,
    ratio,
    series,
    table,
    with_spread,
)
from .sensors import sensors_of
from .tally import COLUMNS, POWER_COLUMNS, Tally, energy_note

MIXED, BASELINE = "mixed", "baseline"
PERCENTILES = ("p50_ns", "p90_ns", "p99_ns")
TAIL_POINTS = 80


@dataclass
class Burst:
    """One numbered burst as it went, of the I/Os whose completion was seen. due_ns: its first deadline, −1 for none."""

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
    sums: Tally
    timeline: Timeline
    keep_up: dict
    reads: dict[int, Burst] = field(default_factory=dict)
    writes: dict[int, Burst] = field(default_factory=dict)

    @property
    def read_makespan_ns(self) -> int:
        return sum(burst.makespan_ns for burst in self.reads.values())


def _measure(step, trace):
    sums, metrics = Tally(sensors_of(step.directory)), MetricsAccumulator()
    bursts = {OPS["read"]: {}, OPS["write"]: {}}
    for columns in arrays(trace, METRIC_COLUMNS + RUN_COLUMNS):
        sums.feed({name: columns[name] for name in COLUMNS})
        metrics.feed(columns)
        for op, found in bursts.items():
            mine = (columns["op"] == op) & (columns["latency_ns"] >= 0)
            _add_bursts(found, {name: column[mine] for name, column in columns.items()})
    reads, writes = bursts[OPS["read"]], bursts[OPS["write"]]
    source = (trace.metadata.get("run") or {}).get("source") or {}
    keep_up = writer_keep_up(writes, source.get("streams") or [], sums.end_ns)
    partial = metrics.finish()
    return Measured(partial, sums, partial.timeline, keep_up, reads, writes)


def _add_bursts(found, rows):
    """rows: of one op, whose completion was seen."""
    for number in np.unique(rows["burst"][rows["burst"] >= 0]).tolist():
        mine = {name: column[rows["burst"] == number] for name, column in rows.items()}
        submit_ns, due_ns = int(mine["submit_ns"].min()), int(mine["due_ns"].min())
        complete_ns = int((mine["submit_ns"] + mine["latency_ns"]).max())
        burst = found.setdefault(number, Burst(submit_ns, complete_ns, due_ns))
        burst.submit_ns, burst.due_ns = min(burst.submit_ns, submit_ns), min(burst.due_ns, due_ns)
        burst.complete_ns = max(burst.complete_ns, complete_ns)
        burst.ops += len(mine["submit_ns"])
        burst.bytes += int(mine["length_bytes"].sum())


def writer_keep_up(bursts: dict[int, Burst], streams: list[dict], end_ns: int | None) -> dict:
    """Whether each write burst ended before the next was due, and 99 % of what was offered was written.

    Offered is what the plan wants until the run ends: bursts that were due, as they are planned, whether their I/Os
    were issued or not. The last one, whose time was not over when the run ended, is not counted. Without a plan of
    bursts in the run's account, `state` is "unplanned".
    """
    planned = next((each["bursts"] for each in streams if each.get("bursts") and each.get("op") == "write"), None)
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


def content(test: Test, runs: Runs) -> Content:
    """Roles mixed and baseline, labels state, repeat."""
    found = {role: by_state(runs.measured(role, _measure)) for role in (MIXED, BASELINE)}
    everything = [each.sums for states in found.values() for own in states.values() for _, each in own]
    shown = Content(figures={"states": {}}, method=[*METHOD, energy_note(everything)])
    for state in dict.fromkeys(state for states in found.values() for state in states):
        _add_state(shown, state, {role: {step.repeat: (step, each) for step, each in found[role].get(state, [])}
                                  for role in found})
    return shown


def _add_state(shown, state, found):
    mixed, baseline = found[MIXED], found[BASELINE]
    rows = [row for repeat, (_, each) in sorted(mixed.items()) for row in _burst_rows(repeat, each, baseline)]
    figures = {role: _role_figures([each for _, each in own.values()]) for role, own in found.items() if own}
    slowdowns = [_slowdown(rows, repeat) for repeat in sorted(mixed)]
    figures |= over_repeats("slowdown", slowdowns) if slowdowns else {"slowdown": None}
    figures["bursts"] = {
        str(row["burst"]) if row["repeat"] == 1 else f"{row['burst']}-{row['repeat']}":
        {key: row[key] for key in ("repeat", "burst", "makespan_ns", "baseline_ns", "slowdown")} for row in rows}
    figures["writer"] = [{"repeat": repeat, **each.keep_up} for repeat, (_, each) in sorted(mixed.items())]
    shown.figures["states"][state] = figures
    for title, columns, those in (("Reads, writes and the wait", _SUMMARY, _summary_rows(figures)),
                                  ("Share of waiting", _WAITING, _waiting_rows(figures)),
                                  ("Writer", _WRITER, figures["writer"]), ("Read bursts", _BURSTS, rows)):
        shown.tables.append(table(in_state(title, state), columns, those))
    for repeat, (step, each) in sorted(mixed.items()):
        if each.keep_up["state"] == "fell behind":
            where = f" in repeat {repeat}" if len(mixed) > 1 else ""
            late, count = each.keep_up["late_bursts"], each.keep_up["bursts"]
            shown.reasons.append({"level": "qualified", "steps": [step.id], "text": (
                f"writer fell behind{where}: {late} of {count} write bursts had "
                "not ended when the next was due")})
    for role, own in found.items():
        if own:
            repeat = min(own)
            shown.series.append(_timeline(in_state(f"Over time, {role}", state), own[repeat][1].timeline,
                                          state=state, role=role))
            shown.series += _tails(state, role, [each for _, each in own.values()])


def _burst_rows(repeat, each, baseline):
    """One row a read burst; beside it the same burst without a writer, of the same repeat, or where that is missing of
    the first that is there."""
    own = baseline.get(repeat) or (baseline[min(baseline)] if baseline else None)
    for number in sorted(each.reads):
        burst = each.reads[number]
        alone = own[1].reads.get(number) if own else None
        yield {"repeat": repeat, "burst": number, "at_ns": burst.submit_ns - each.sums.begin_ns, "ops": burst.ops,
               "bytes": burst.bytes, "makespan_ns": burst.makespan_ns,
               "mb_s": mb_per_s(burst.bytes, burst.makespan_ns),
               "baseline_ns": alone and alone.makespan_ns,
               "slowdown": ratio(burst.makespan_ns, alone and alone.makespan_ns),
               "why": {} if alone else dict.fromkeys(("baseline_ns", "slowdown"), "no baseline")}


def _slowdown(rows, repeat):
    """Geometric mean over the bursts of one repeat; None where a burst has no counterpart."""
    return geometric_mean([row["slowdown"] for row in rows if row["repeat"] == repeat])


def _role_figures(repeats: list[Measured]):
    pooled = repeats[0].partial
    for each in repeats[1:]:
        pooled = pooled + each.partial
    numbers = figures(pooled)
    powers = [each.sums.power_figures() for each in repeats]
    shown = {
        **over_repeats("wait_ns", [each.read_makespan_ns or None for each in repeats]),
        **over_repeats("read_service_ns", [each.partial.read.service_ns or None for each in repeats]),
        **over_repeats("read_burst_mb_s", [_burst_rate(each.reads) for each in repeats]),
        **over_repeats("write_burst_mb_s", [_burst_rate(each.writes) for each in repeats]),
        **over_repeats("write_service_ns", [each.partial.write.service_ns or None for each in repeats]),
        **over_repeats("average_w", [power["average_w"] for power in powers]),
        **over_repeats("mb_per_j", [power["mb_per_j"] for power in powers]), "n": len(repeats),
        "read_bursts": sum(len(each.reads) for each in repeats),
        "write_bursts": sum(len(each.writes) for each in repeats)}
    for kind in ("read", "write"):
        shown[f"{kind}_latency"] = numbers[kind]["latency"]
        shown[f"{kind}_waiting"] = numbers[kind]["waiting"]
    return shown


def _burst_rate(bursts):
    return mb_per_s(sum(burst.bytes for burst in bursts.values()), sum(burst.makespan_ns for burst in bursts.values()))


def _summary_rows(shown):
    for_role = {MIXED: "with the writer", BASELINE: "reads alone"}
    rows = []
    for role, words in for_role.items():
        if role in shown:
            mine = {key: shown[key] for key in shown if key.startswith("slowdown")} if role == MIXED else {}
            rows.append({"run": words, **shown[role], **mine})
    return rows


def _waiting_rows(shown):
    rows = []
    for role in (MIXED, BASELINE):
        for kind in ("read", "write"):
            own = shown.get(role, {}).get(f"{kind}_latency")
            if not own or not own["n"]:
                continue
            waiting = shown[role][f"{kind}_waiting"]
            row = {"run": f"{role}, {kind}s", "mean_ns": own["mean_ns"], "ops": own["n"], "max_ns": own["max_ns"],
                   "latency_p99_ns": own["p99_ns"], **waiting}
            row["why"] = {key: f"n too small (n={own['n']:,})" for key in (*PERCENTILES, "latency_p99_ns")
                          if row[key] is None}
            rows.append(row)
    return rows


def _tails(state, role, repeats: list[Measured]):
    """Of reads and of writes, over all repeats: the share of them that took at least so long."""
    for name in ("read", "write"):
        counts = getattr(repeats[0].partial, name).latency
        for each in repeats[1:]:
            counts = counts + getattr(each.partial, name).latency
        points, total = counts.tail(TAIL_POINTS), counts.count
        if points:
            yield series(in_state(f"Latency of {name}s, {role}", state), ("latency", "ns"),
                         ("share at least as slow", ""),
                         [(f"{name}s", [value for value, _ in points], [beyond / total for _, beyond in points])],
                         what="tail", state=state, role=role, kind=name, n=total)


def _timeline(title, line: Timeline, **of):
    per_mb_s = 1000 / line.width_ns
    seconds = [index * line.width_ns / SECOND_NS for index in range(line.used)]
    return series(f"{title}: MB/s in bins of {line.width_ns / 1e6:g} ms", ("time", "s"), ("Throughput", "MB/s"),
                  [(name, seconds, (line.bytes[kind, :line.used] * per_mb_s).tolist())
                   for kind, name in enumerate(("reads", "writes")) if line.bytes[kind].any()],
                  what="timeline", width_ns=line.width_ns, **of)


_SUMMARY = [("run", "", ""), *with_spread([
    ("wait_ns", "Wait time", "ns"), ("read_service_ns", "Total service time", "ns"),
    ("read_burst_mb_s", "Reads", "MB/s"), ("write_burst_mb_s", "Writes", "MB/s"), ("slowdown", "Slowdown", ""),
    *POWER_COLUMNS]), ("n", "n", "")]
_WAITING = [("run", "", ""), ("p50_ns", "half of the waiting in I/Os up to", "ns"), ("p90_ns", "90 %", "ns"),
            ("p99_ns", "99 %", "ns"), ("mean_ns", "Latency, mean", "ns"), ("latency_p99_ns", "p99", "ns"),
            ("max_ns", "maximum", "ns"), ("ops", "I/Os", "")]
_WRITER = [("repeat", "Repeat", ""), ("state", "Writer", ""), ("bursts", "Bursts", ""), ("late_bursts", "Late", ""),
           ("offered_bytes", "Offered", "bytes"), ("written_share", "Written / offered", "")]
_BURSTS = [("repeat", "Repeat", ""), ("burst", "Burst", ""), ("at_ns", "At", "ns"), ("makespan_ns", "Took", "ns"),
           ("mb_s", "Throughput", "MB/s"), ("baseline_ns", "Alone", "ns"), ("slowdown", "Slowdown", "")]

METHOD = [
    ("Burst", "Each I/O carries the number of its burst. Makespan of a burst = max(complete) − min(submit) of its "
     "I/Os."),
    ("Wait time", "Sum of the makespans of the read bursts: how long a person would sit there."),
    ("Total service time", "Sum of the latencies of the reads; with two outstanding it is about twice the wait."),
    ("Throughput of reads and writes", "Bytes of the bursts / sum of their makespans; time between bursts is not "
     "counted."),
    ("Slowdown", "Geometric mean, over the read bursts, of makespan with the writer / makespan without. Bursts are "
     "paired by number, runs by repeat; a repeat without baseline of its own is held against the first baseline "
     "there is."),
    ("Writer keep-up", "Each write burst has to end before the next one is due, and 99 % of the bytes offered have to "
     "be written. Offered are the bursts whose whole period lay in the run, as planned, issued or not; otherwise the "
     "writer “fell behind”, which qualifies the run."),
    ("Share of waiting", "Latency-weighted percentiles: smallest x with Σ(l where l ≤ x) ≥ p Σ l."),
    ("Repeats", "Times and rates are geometric means over the repeats, the smallest and largest beside them; "
     "percentiles are pooled I/O by I/O."),
]
