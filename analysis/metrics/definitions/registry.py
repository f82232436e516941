"""Every metric of a run or trace, defined once.

The JSON document, the tables, tooltips, `--figure`, `--fail-if`, the ranking and the table of metrics in docs/method.md
are made from METRICS. A metric that derives from the sums of a Partial is one more entry here, and its test. Which
metrics a comparison leads with: headline.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from blkreel.analysis.metrics.partials import formulas
from blkreel.analysis.metrics.partials.alignment import BLOCK_BYTES
from blkreel.analysis.metrics.partials.distributions import PERCENTILES, Distribution
from blkreel.analysis.metrics.partials.formulas import mb_per_s, ratio
from blkreel.analysis.metrics.partials.partial import ClassPartial, Partial
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.analysis.metrics.write_amplification import LARGEST_UNCERTAINTY, write_amplification
from blkreel.common.printable import within_sentence

from .metric import (
    ALL_PACES,
    BYTES,
    COUNT,
    IOPS,
    MB_S,
    NS,
    NUMBER,
    OPEN_LOOP,
    SHARE,
    TEXT,
    TIMED,
    UNITS,
    UNTIMED,
    Better,
    Metric,
    Unit,
    Value,
    column_name,
    number_unit,
)

_ROWS = {"read": "reads", "write": "writes", "other": "others"}  # in recompute
_SHORT = {"read_throughput": "Reads", "write_throughput": "Writes", "read_wait": "Read wait",
          "write_wait": "Write wait", "read_service_time": "Read service", "read_p50": "Read p50",
          "read_p99": "Read p99", "read_latency_mean": "Read mean", "read_response_p99": "Response p99",
          "write_p99": "Write p99", "lateness_p99": "Lateness p99"}
_SAME_RANK = {"read_throughput": "read_wait", "write_throughput": "write_wait"}


@dataclass(frozen=True)
class ClassMetric:
    """A metric that each class of I/O has. Its key and path begin with the class; {x} in recompute is its rows."""

    key: str
    path: str
    label: str
    unit: Unit
    formula: str
    compute: Callable[[ClassPartial], Value]
    recompute: str = ""
    better: Better = ""
    paces: tuple[str, ...] = ALL_PACES
    group: str = "work"
    pooled: bool = False
    optional: bool = False
    listed: bool = True
    missing: str = "nothing moved"
    use: str = ""  # without the class

    @property
    def column(self) -> str:
        """Its name as a column of a table by class, with the unit."""
        return column_name(self.key, self.unit)

    def of(self, op: str) -> Metric:
        def compute(partial: Partial) -> Value:
            return self.compute(partial.classes()[op])

        key = f"{op}_{self.key}"
        label = within_sentence(self.label)
        return Metric(key, f"{op}.{self.path}", f"{op.capitalize()} {label}", self.unit, self.formula, compute,
                      self.better, self.paces, self.recompute.replace("{x}", _ROWS[op]), op, self.label,
                      _SHORT.get(key, ""), self.group, self.pooled, self.optional, self.listed and bool(self.group),
                      self.missing, self.use and f"{op}_{self.use}", _SAME_RANK.get(key, ""))


_WORK = [
    ClassMetric("ops", "ops", "I/Os", COUNT, "I/Os whose completion was seen", lambda part: part.ops, "len({x})"),
    ClassMetric("bytes", "bytes", "Bytes", BYTES, "Σ bytes of these", lambda part: part.bytes,
                "{x}.length_bytes.sum()"),
    ClassMetric("wait", "wait_ns", "Wait", NS,
                "measure of the union of [s, complete): time with at least one outstanding or waiting for a full "
                "queue. s: due where the queue was full (flag 65536), at most 60 s before submit; else submit",
                lambda part: part.wait_ns, "wait({x})", "lower"),
    ClassMetric("throughput", "throughput_mb_s", "Throughput", MB_S, "bytes / wait",
                lambda part: mb_per_s(part.bytes, part.wait_ns), "{x}.length_bytes.sum() / wait({x}) * 1000", "higher"),
    ClassMetric("burst_throughput", "bursts.throughput_mb_s", "Throughput of bursts", MB_S,
                "Σ bytes of the bursts / Σ of their makespans: idle time between bursts is not counted",
                lambda part: mb_per_s(int(part.bursts.bytes.sum()), part.bursts.makespan_ns),
                "bursts({x}).bytes.sum() / makespan(bursts({x})) * 1000", "higher", UNTIMED, use="wait"),
    ClassMetric("busy_throughput", "throughput_by_busy_mb_s", "Throughput by busy time", MB_S, "bytes / busy time",
                lambda part: mb_per_s(part.bytes, part.busy_ns), "{x}.length_bytes.sum() / busy({x}) * 1000",
                "higher"),
    ClassMetric("iops", "iops", "IOPS", IOPS, "I/Os / makespan", lambda part: per_second(part.ops, part.makespan_ns),
                "len({x}) / ({x}.complete_ns.max() - {x}.submit_ns.min()) * 1e9", "higher", UNTIMED,
                use="wait"),
    ClassMetric("service_time", "service_ns", "Service time", NS,
                "Σ (complete − submit): with two outstanding it is about twice the time a person waits",
                lambda part: part.service_ns, "{x}.latency_ns.sum()", "lower"),
    ClassMetric("busy_time", "busy_ns", "Busy time", NS,
                "measure of the union of [submit, complete): time with at least one outstanding",
                lambda part: part.busy_ns, "busy({x})", "lower"),
    ClassMetric("makespan", "makespan_ns", "Makespan", NS, "max(complete) − min(submit)",
                lambda part: part.makespan_ns, "{x}.complete_ns.max() - {x}.submit_ns.min()", "lower",
                UNTIMED, use="wait"),
    ClassMetric("mean_busy_depth", "mean_busy_depth", "Mean busy depth", NUMBER, "service time / busy time",
                lambda part: ratio(part.service_ns, part.busy_ns), "{x}.latency_ns.sum() / busy({x})"),
    ClassMetric("burst_time", "bursts.makespan_ns", "Time of bursts", NS, "Σ makespans of the bursts",
                lambda part: part.bursts.makespan_ns, "makespan(bursts({x}))", "lower", UNTIMED, use="wait"),
    ClassMetric("bursts", "bursts.count", "Bursts", COUNT,
                "a new burst starts where submit − max(earlier complete) > gap", lambda part: len(part.bursts),
                "len(bursts({x}))"),
    ClassMetric("stray_bursts", "bursts.strays.count", "Stray bursts", COUNT,
                "bursts of fewer than 16 I/Os and under 1 MiB", lambda part: int(part.bursts.strays.sum()),
                "len(strays({x}))"),
    ClassMetric("stray_ops", "bursts.strays.ops", "I/Os in stray bursts", COUNT, "I/Os of these",
                lambda part: int(part.bursts.ops[part.bursts.strays].sum()), "strays({x}).ops.sum()", group=""),
    ClassMetric("stray_bytes", "bursts.strays.bytes", "Bytes in stray bursts", BYTES, "Σ bytes of these",
                lambda part: int(part.bursts.bytes[part.bursts.strays].sum()), "strays({x}).bytes.sum()", group=""),
    ClassMetric("stray_makespan", "bursts.strays.makespan_ns", "Makespan of stray bursts", NS, "Σ of their makespans",
                lambda part: part.bursts.only(part.bursts.strays).makespan_ns, "makespan(strays({x}))", group=""),
    ClassMetric("unseen_ops", "unseen_ops", "I/Os without completion", COUNT,
                "I/Os whose completion was never seen: in no other metric", lambda part: part.unseen_ops,
                optional=True),
    ClassMetric("error_ops", "error_ops", "I/Os that failed", COUNT, "I/Os with a status other than 0",
                lambda part: part.error_ops, "({x}.status != 0).sum()", optional=True),
]


def _percentile(values: Callable[[Any], Distribution], name: str) -> Callable[[Any], Value]:
    return lambda of: formulas.percentile(values(of), name)


def _waiting(name: str) -> ClassMetric:
    return ClassMetric(
        f"waiting_{name}", f"waiting.{name}_ns", f"Latency-weighted {name}", NS,
        "smallest x with Σ(l where l ≤ x) ≥ p Σ l: the share p of all waiting was in I/Os up to x",
        lambda part: formulas.waiting_percentile(part.latency, name),
        f"(lambda l: l[l.cumsum() >= -(-l.sum() * {PERCENTILES[name][0]} // 100)].iloc[0])"
        "({x}.latency_ns.sort_values())", "lower", group="waiting", pooled=True)


def _consistency(name: str, label: str, unit: Unit, formula: str, better: Better = "higher") -> ClassMetric:
    return ClassMetric(f"consistency_{name}", f"consistency.{name}", label, unit, formula,
                       lambda part: getattr(part.consistency, name), better=better,
                       group="consistency" if better else "", optional=True,
                       missing="fewer than 2 whole seconds, or no deviation")


@dataclass(frozen=True)
class DistributionMetrics:
    """A distribution, with a metric each for its count, mean, percentiles and largest value.

    key: what those of percentiles begin with. values: of a ClassPartial or a Partial. rows: its values in pandas.
    """

    key: str
    path: str
    label: str
    formula: str
    values: Callable[[Any], Distribution]
    rows: str
    group: str
    paces: tuple[str, ...] = ALL_PACES
    missing: str = ""

    def parts(self) -> Iterator[tuple[str, str, str, Unit, str, Callable[[Any], Value], str]]:
        """(key, path, label, unit, formula, compute, recompute) of each."""
        own = self.path.replace(".", "_")
        values, rows = self.values, self.rows
        yield (f"{own}_n", f"{self.path}.n", f"{self.label} n", COUNT, "I/Os", lambda of: values(of).count,
               f"len({rows})")
        yield (f"{own}_mean", f"{self.path}.mean_ns", f"{self.label} mean", NS, f"mean of {self.formula}",
               lambda of: ratio(values(of).total, values(of).count), f"({rows}).mean()")
        for name, (numerator, denominator) in PERCENTILES.items():
            yield (f"{self.key}{name}", f"{self.path}.{name}_ns", f"{self.label} {name.replace('_', '.')}", NS,
                   f"nearest rank, x[⌈n p⌉ − 1], of {self.formula}", _percentile(values, name),
                   f"percentile({rows}, {numerator * 1000 // denominator})")
        yield (f"{own}_max", f"{self.path}.max_ns", f"{self.label} max", NS, f"largest {self.formula}",
               lambda of: values(of).maximum, f"({rows}).max()")

    def of_classes(self) -> Iterator[ClassMetric]:
        for key, path, label, unit, formula, compute, recompute in self.parts():
            yield ClassMetric(key, path, label, unit, formula, compute, recompute, "lower" if unit is NS else "",
                              self.paces, self.group, True, False, unit is NS, self.missing,
                              key.removeprefix(self.key) if self.key else "")

    def of_all(self) -> Iterator[Metric]:
        for key, path, label, unit, formula, compute, recompute in self.parts():
            yield Metric(key, path, label, unit, formula, compute, "", self.paces, recompute, label=label,
                         short=_SHORT.get(key, ""), group=self.group, pooled=True, missing=self.missing)


_LATENESS = "(t.submit_ns - t.due_ns)[(t.due_ns >= 0){}]"
_FULL = '(t["flags"] & 65536 {} 0)'
CLASS_DISTRIBUTIONS = (
    DistributionMetrics("", "latency", "Latency", "complete − submit", lambda part: part.latency, "{x}.latency_ns",
                        "latency"),
    DistributionMetrics("response_", "response", "Response",
                        "complete − due: a stall is charged to every I/O that it delays", lambda part: part.response,
                        "({x}.complete_ns - {x}.due_ns)[{x}.due_ns >= 0]", "response", OPEN_LOOP, "no due times"),
    DistributionMetrics("queue_", "queue", "In scheduler", "time in the plug and the scheduler of the kernel",
                        lambda part: part.queue, "{x}.queue_ns[{x}.queue_ns >= 0]", "queue", missing="not recorded"),
)
DISTRIBUTIONS = (
    DistributionMetrics("lateness_", "lateness", "Issue lateness",
                        "submit − due of all timed I/Os: how late the replay itself was",
                        lambda partial: partial.lateness, _LATENESS.format(""), "lateness", TIMED, "no due times"),
    DistributionMetrics("lateness_host_", "lateness.host", "Issue lateness by the host",
                        "submit − due of I/Os that found room in the queue (flag 65536 not set)",
                        lambda partial: partial.lateness_host, _LATENESS.format(" & " + _FULL.format("==")), "lateness",
                        TIMED, "no due times"),
    DistributionMetrics("lateness_device_", "lateness.device", "Issue lateness by the drive",
                        "submit − due of I/Os that found the queue full (flag 65536 set)",
                        lambda partial: partial.lateness_device, _LATENESS.format(" & " + _FULL.format("!=")),
                        "lateness", TIMED, "no due times"),
)

CLASS_METRICS = (
    *_WORK,
    *(metric for distribution in CLASS_DISTRIBUTIONS for metric in distribution.of_classes()),
    *map(_waiting, ("p50", "p90", "p99")),
    _consistency("seconds", "Whole seconds", COUNT, "number of whole seconds since the first submit", ""),
    _consistency("mean_iops", "IOPS, mean of the whole seconds", IOPS, "mean of the completions in each whole second"),
    _consistency("score", "Consistency", NUMBER, "mean / population standard deviation of the IOPS of whole seconds"),
    _consistency("downside_score", "Consistency, dips only", NUMBER,
                 "q / √(mean(min(0, x − q)²)), q: upper quartile of the IOPS of whole seconds, by nearest rank"),
    _consistency("first_percentile_over_upper_quartile", "Slowest 1 % of seconds / upper quartile", NUMBER,
                 "first percentile / upper quartile of the IOPS of whole seconds, by nearest rank"),
    _consistency("share_under_half_upper_quartile", "Share of seconds under half the upper quartile", SHARE,
                 "seconds with fewer completions than half the upper quartile / all whole seconds", "lower"),
)

_ALL = (
    Metric("ops", "all.ops", "I/Os", COUNT, "I/Os whose completion was seen",
           lambda partial: sum(part.ops for part in partial.classes().values()), recompute="len(t)"),
    Metric("iops", "all.iops", "IOPS", IOPS, "I/Os / makespan",
           lambda partial: per_second(sum(part.ops for part in partial.classes().values()), partial.makespan_ns),
           "higher", UNTIMED, "len(t) / (t.complete_ns.max() - t.submit_ns.min()) * 1e9", short="IOPS", listed=True,
           use="read_wait", same_rank="throughput"),
    Metric("unseen_ops", "all.unseen_ops", "I/Os without completion", COUNT,
           "I/Os whose completion was never seen: in no other metric",
           lambda partial: sum(part.unseen_ops for part in partial.classes().values())),
    Metric("error_ops", "all.error_ops", "I/Os that failed", COUNT, "I/Os with a status other than 0",
           lambda partial: sum(part.error_ops for part in partial.classes().values()),
           recompute="(t.status != 0).sum()"),
    Metric("data_bytes", "all.data_bytes", "Data", BYTES, "bytes read + bytes written", lambda partial: _data(partial),
           recompute="data.length_bytes.sum()"),
    Metric("service_time", "all.service_ns", "Service time", NS, "Σ (complete − submit)",
           lambda partial: _service(partial), "lower", recompute="t.latency_ns.sum()"),
    Metric("busy_time", "all.busy_ns", "Busy time", NS,
           "measure of the union of [submit, complete): time with at least one I/O outstanding",
           lambda partial: partial.busy_ns, "lower", recompute="busy(t)"),
    Metric("makespan", "all.makespan_ns", "Makespan", NS, "max(complete) − min(submit)",
           lambda partial: partial.makespan_ns, "lower", UNTIMED, "t.complete_ns.max() - t.submit_ns.min()",
           listed=True, use="read_wait"),
    Metric("mean_busy_depth", "all.mean_busy_depth", "Mean busy depth", NUMBER, "service time / busy time",
           lambda partial: ratio(_service(partial), partial.busy_ns), recompute="t.latency_ns.sum() / busy(t)",
           short="Mean depth"),
    Metric("busy_throughput", "all.data_rate_by_busy_mb_s", "Data rate by busy time", MB_S,
           "(bytes read + bytes written) / busy time", lambda partial: mb_per_s(_data(partial), partial.busy_ns),
           "higher", recompute="data.length_bytes.sum() / busy(t) * 1000", listed=True),
    Metric("throughput", "all.data_rate_by_wall_mb_s", "Data rate by wall time", MB_S,
           "(bytes read + bytes written) / makespan", lambda partial: mb_per_s(_data(partial), partial.makespan_ns),
           "higher", UNTIMED, "data.length_bytes.sum() / (t.complete_ns.max() - t.submit_ns.min()) * 1000",
           short="Throughput", listed=True, use="read_wait"),
)

_NO_LOAD_TIME = "no load time: the run stores none"
_NO_ZERO_LATENCY = "the run stores no load time of its plan on a drive without latency"
_NO_AMPLIFICATION = "the drive has no counter of media writes, or the run wrote too little for its steps"
_ONLY_DEPENDENT = ("dependent",)
_DAY_NS = 86_400 * 10**9


def _nothing(partial: Partial) -> Value:
    """Of metrics that the records alone do not give."""
    return None


def _of_times(compute: Callable[[int, int], Value]) -> Callable[[Partial, RunTimes], Value]:
    """Of load time and zero-latency load time, where both are known."""
    return lambda partial, times: (None if times.load_ns is None or times.zero_latency_ns is None else
                                   compute(times.load_ns, times.zero_latency_ns))


def _read_share(partial: Partial, times: RunTimes) -> Value:
    # Of the whole run, because the idle time is: the workload may load for a part of it only.
    return None if times.load_ns is None else ratio(partial.read.wait_ns, partial.makespan_ns - partial.idle_ns)


def _read_ahead_share(partial: Partial, times: RunTimes) -> Value:
    return ratio(times.read_ahead_ios, times.load_ios) if times.read_ahead_ios is not None and times.load_ios else None


def _amplification(times: RunTimes) -> float | None:
    amplification = write_amplification(times.writes)
    return amplification.value if amplification else None


def _media_per_day(partial: Partial, times: RunTimes) -> Value:
    factor = _amplification(times)
    return round(factor * partial.write.bytes * _DAY_NS / times.captured_ns) if factor and times.captured_ns else None


def _slowdown_by_writes(partial: Partial, times: RunTimes) -> Value:
    if times.with_writes_load_ns is not None and times.without_writes_load_ns:
        return times.with_writes_load_ns / times.without_writes_load_ns
    if times.load_ns is None and times.without_writes_read_wait_ns:
        wait_ns = times.with_writes_read_wait_ns
        return (partial.read.wait_ns if wait_ns is None else wait_ns) / times.without_writes_read_wait_ns
    return None


_NO_BASELINE = "no baseline run, an invalid one, or too few reads beside writes"

# From the account of the run: `run` in recompute.
_LOAD_TIME = '(run["own_wall_ns"] or run["wall_ns"]) - (run["pace"].get("by_clock_ns") or 0)'
_RUN = (
    Metric("load_time", "run.load_time_ns", "Load time", NS,
           "last completion − first submit of workload I/O; of all I/O if none is marked; without I/Os that a sleep by "
           "the clock put behind all others", _nothing, "lower", _ONLY_DEPENDENT, _LOAD_TIME, short="Load time",
           listed=True, missing=_NO_LOAD_TIME, use="read_wait", of_run=lambda partial, times: times.load_ns),
    Metric("added_by_drive", "run.added_by_drive_ns", "Added by the drive", NS,
           "load time − load time of the same plan on a drive without latency", _nothing, "lower", _ONLY_DEPENDENT,
           f'{_LOAD_TIME} - run["zero_latency"]["load_time_ns"]', short="Added", listed=True,
           missing=_NO_ZERO_LATENCY, use="read_wait", same_rank="load_time",
           of_run=_of_times(lambda load_ns, zero_ns: load_ns - zero_ns)),
    Metric("compute_share", "run.compute_share", "Compute share", SHARE,
           "load time of the same plan on a drive without latency / load time", _nothing, "", _ONLY_DEPENDENT,
           f'run["zero_latency"]["load_time_ns"] / ({_LOAD_TIME})', short="Compute", listed=True,
           missing=_NO_ZERO_LATENCY, of_run=_of_times(lambda load_ns, zero_ns: ratio(zero_ns, load_ns))),
    Metric("largest_speedup", "run.largest_speedup", "Largest speedup by any drive", NUMBER,
           "load time / load time of the same plan on a drive without latency", _nothing, "", _ONLY_DEPENDENT,
           f'({_LOAD_TIME}) / run["zero_latency"]["load_time_ns"]', short="At most", listed=True,
           missing=_NO_ZERO_LATENCY, of_run=_of_times(ratio)),
    Metric("read_share", "run.read_share", "Read share of the active time", SHARE,
           "read wait / (makespan − idle time): idle time has nothing outstanding for longer than the burst gap",
           _nothing, "", _ONLY_DEPENDENT, "wait(reads) / (t.complete_ns.max() - t.submit_ns.min() - idle(t))",
           short="Read share", listed=True, missing=_NO_LOAD_TIME, of_run=_read_share),
    Metric("read_ahead_share", "run.read_ahead_share", "Share of read-ahead", SHARE,
           "workload I/Os with the flag read_ahead / workload I/Os; of all I/Os if none is marked", _nothing, "",
           _ONLY_DEPENDENT, 'run["pace"]["read_ahead"]["read_ahead_ios"] / run["pace"]["read_ahead"]["ios"]',
           short="Read-ahead", listed=True, missing="the run does not store its read-ahead", of_run=_read_ahead_share),
    Metric("slowdown_by_writes", "run.slowdown_by_writes", "Slowdown by writes", NUMBER,
           "load time (dependent pace) or read wait / the same in the baseline run: of the reads, without the writes "
           "of the trace; of all workload I/O, without the background",
           _nothing, "lower", ALL_PACES[1:], short="Slowdown", listed=True, optional=True,
           missing=_NO_BASELINE, of_run=_slowdown_by_writes),
    Metric("load_time_alone", "run.load_time_alone_ns", "Load time alone", NS,
           "load time of the baseline run, without the writes or without the background", _nothing, "lower",
           _ONLY_DEPENDENT, short="Alone", optional=True, missing=_NO_BASELINE, use="load_time",
           of_run=lambda partial, times: times.without_writes_load_ns),
    Metric("read_wait_alone", "run.read_wait_alone_ns", "Read wait alone", NS,
           "read wait of the baseline run, without the writes or without the background", _nothing, "lower",
           ALL_PACES[1:], short="Wait alone", optional=True, missing=_NO_BASELINE,
           of_run=lambda partial, times: times.without_writes_read_wait_ns),
    Metric("background_reached", "run.background_reached", "Background reached", SHARE,
           "bytes that the background wrote during the workload / bytes that were due in that time; the least of "
           "several backgrounds", _nothing, "higher", ALL_PACES[1:], short="Backgr.", optional=True,
           missing="no background, or nothing due", of_run=lambda partial, times: times.background_done and ratio(
               times.background_done, times.background_due or 0)),
    Metric("write_amplification", "run.write_amplification", "Write amplification", NUMBER,
           "bytes that the drive wrote to its media / bytes that it was written, by its own counters before and after "
           f"the run; shown if their steps leave it uncertain by at most {100 * LARGEST_UNCERTAINTY:.0f} %",
           _nothing, "lower", ALL_PACES[1:], short="WAF", listed=True, pooled=True, optional=True,
           missing=_NO_AMPLIFICATION, of_run=lambda partial, times: _amplification(times)),
    Metric("media_writes_per_day", "run.media_writes_per_day_bytes", "Media writes per day of this workload", BYTES,
           "write amplification * bytes written * 24 h / duration of the trace", _nothing, "lower", ALL_PACES[1:],
           short="Per day", listed=True, pooled=True, optional=True, missing=_NO_AMPLIFICATION,
           of_run=_media_per_day),
)

_WRITER = (
    Metric("writer_state", "writer.state", "Writer", TEXT,
           "fell behind: less than 99 % of the bytes were written by the time the last write was due, and the lag is "
           "above 100 ms and the mean distance of planned bursts; or a planned burst was due before all earlier ones "
           "had ended; or less than 99 % of the offered bytes were written. Else kept up, unplanned or none",
           lambda partial: formulas.writer_state(partial.write, partial.keep_up)),
    Metric("written_on_time", "writer.written_on_time", "Written on time", SHARE,
           "bytes written by the time the last write was due, to the millisecond / bytes due",
           lambda partial: formulas.written_on_time(partial.write, partial.keep_up), "higher", TIMED,
           "(lambda w: w[w.complete_ns // 10**6 <= w.due_ns.max() // 10**6].length_bytes.sum() / w.length_bytes.sum())"
           "(writes[writes.due_ns >= 0])", short="On time", missing="no writes with due times"),
    Metric("writer_lag", "writer.lag_ns", "Lag of the last write", NS, "last completion of a write − last due time",
           lambda partial: partial.keep_up.lag_ns if partial.keep_up.bytes else None, "lower", TIMED,
           "max(0, writes[writes.due_ns >= 0].complete_ns.max() - writes.due_ns.max())",
           missing="no writes with due times"),
    Metric("offered_bytes", "writer.offered_bytes", "Offered writes", BYTES, "bytes that the plan wanted written",
           lambda partial: formulas.offered_bytes(partial.write)),
    Metric("written_share", "writer.written_share", "Share written", SHARE, "bytes written / offered bytes",
           lambda partial: ratio(partial.write.bytes, formulas.offered_bytes(partial.write)), "higher"),
    Metric("planned_write_bursts", "writer.planned_bursts", "Planned write bursts", COUNT,
           "a planned burst starts where due − max(earlier due) > gap", lambda partial: partial.write.planned_bursts),
    Metric("late_write_bursts", "writer.late_bursts", "Late write bursts", COUNT,
           "planned write bursts that were due before all earlier ones had ended",
           lambda partial: partial.write.late_bursts, "lower"),
)


def _alignment(index: int) -> Iterator[Metric]:
    """Of writes on blocks of one size."""
    size = BLOCK_BYTES[index]
    name = f"{size // 1024} KiB"
    yield Metric(f"write_unaligned_{size // 1024}k", f"write.alignment.unaligned_{size // 1024}k",
                 f"Writes not aligned to {name}", SHARE, f"writes that begin or end within a block of {name} / writes",
                 lambda partial: ratio(int(partial.alignment.unaligned[index]), partial.alignment.writes),
                 recompute=f"((writes.offset_bytes % {size} + writes.length_bytes % {size}) > 0).mean()", op="write",
                 missing="no writes")
    yield Metric(f"write_repeated_{size // 1024}k", f"write.alignment.repeated_{size // 1024}k",
                 f"Writes again into a block of {name}", SHARE,
                 f"writes that begin in the block of {name} in which the previous write to the drive ended / writes",
                 lambda partial: ratio(int(partial.alignment.repeated[index]), partial.alignment.writes),
                 recompute="((writes.offset_bytes + writes.length_bytes - 1).groupby(writes.device).shift()"
                           f" // {size} == writes.offset_bytes // {size}).mean()", op="write", missing="no writes")


def per_second(count: int, duration_ns: int) -> float | None:
    return count * 10**9 / duration_ns if duration_ns else None


def _data(partial: Partial) -> int:
    return partial.read.bytes + partial.write.bytes


def _service(partial: Partial) -> int:
    return sum(part.service_ns for part in partial.classes().values())


METRICS: dict[str, Metric] = {metric.key: metric for metric in (
    *_ALL,
    *(metric.of(op) for op in _ROWS for metric in CLASS_METRICS),
    *(metric for index in range(len(BLOCK_BYTES)) for metric in _alignment(index)),
    *_WRITER,
    *_RUN,
    *(metric for distribution in DISTRIBUTIONS for metric in distribution.of_all()),
)}
BY_PATH = {metric.path: metric for metric in METRICS.values()}


def find(name: str) -> Metric | None:
    """The metric of a key or a path."""
    return METRICS.get(name) or BY_PATH.get(name)


def class_metrics(group: str) -> list[ClassMetric]:
    return [metric for metric in CLASS_METRICS if metric.group == group]


def figures(partial: Partial, times: RunTimes | None = None) -> dict[str, Any]:
    """All metrics of one run, or of runs pooled I/O by I/O, in the tree of the JSON document. times: of the same runs.

    Times are integers in ns; rates are MB/s with MB = 10^6 bytes. What cannot be given is None: a percentile from too
    few I/Os is listed under `too_small` of its distribution. `error`: how far a percentile may be off, as a part of it.
    """
    tree: dict[str, Any] = {}
    times = times or RunTimes()
    for metric in METRICS.values():
        *above, leaf = metric.path.split(".")
        node = tree
        for name in above:
            node = node.setdefault(name, {})
        node[leaf] = metric.value(partial, times)
    distributions = [(distribution.path, distribution.values(partial)) for distribution in DISTRIBUTIONS]
    for op, part in partial.classes().items():
        tree[op]["iops_1s"] = [bins.document for bins in part.seconds.runs]
        distributions += [(f"{op}.{class_distribution.path}", class_distribution.values(part))
                          for class_distribution in CLASS_DISTRIBUTIONS]
    for path, values in distributions:
        value_at(tree, path).update(too_small=formulas.too_small(values), error=values.error)
    return tree


@cache
def metric_of(key: str, symbol: str, better: Better) -> Metric:
    """The metric of a key. One of a benchmark has its key as title."""
    unit = next((unit for unit in UNITS if symbol and unit.symbol == symbol), None) or number_unit(symbol)
    return METRICS.get(key) or Metric(key, key, key.rpartition("/")[2].replace("_", " ").capitalize(), unit, "",
                                      _nothing, better)


def value_at(figures: Any, path: str) -> Any:
    """The value or branch under a dotted path. Raises KeyError where there is none."""
    for name in path.split("."):
        if not isinstance(figures, dict):
            raise KeyError(path)
        figures = figures[name]
    return figures
