"""A measured run that a drive is fitted to, and the same load on a simulated drive.

At dependent pace the load is repeated in a closed loop: each I/O is submitted when those that it waits for are done on
the simulated drive, so that reads and the programs that they wait for keep step as on the drive. Without the trace, or
at another pace, the I/Os are submitted when they were.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.common.device import drive_units
from blkreel.common.errors import BlkreelError, TraceError, UsageError
from blkreel.common.progress import Progress
from blkreel.replay.background.plan import plan_beside
from blkreel.replay.background.spec import parse_background
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import Batch
from blkreel.replay.engine.spans import RunSpan
from blkreel.replay.fidelity.queue_metrics import READ, WRITE
from blkreel.replay.plan.dependencies import is_observed
from blkreel.replay.plan.mapping import Part
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT, ORIGINAL, IdlePolicy
from blkreel.replay.plan.plan import Plan, PlannedCounts, TracePlan
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run.records import foreground_of
from blkreel.replay.run.simulate import simulate
from blkreel.replay.simulated.fitted import many_writes
from blkreel.replay.simulated.spec import PREFIX, SimulatedDrive
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.trace import Trace

from .model import MIN_LATENCY_NS

# Fewer reads have no p99.
MIN_READS = 100
# A drive programs what it has acknowledged, and cleans up, for some time after a write.
_SETTLES_NS = 500_000_000
_LARGEST_DRIVE_BYTES = 1 << 53
_UNIT = "serial, image or description"
_IDENTITY = ("model", "firmware", "size_bytes", _UNIT)


@dataclass(frozen=True)
class Ios:
    """Completed I/Os; times in ns."""

    op: np.ndarray
    length_bytes: np.ndarray
    submit_ns: np.ndarray
    latency_ns: np.ndarray


@dataclass(frozen=True)
class MeasuredRun(Ios):
    """In the order of submission.

    trace: the records. account: of the run. row: of the records. beside_write: whether a write was in flight when the
    I/O was submitted. near_write: whether a write, flush or discard was, or had ended less than 0.5 s before.
    latency_ns: at the drive, without the turnaround of the replay if that is known.
    """

    trace: Trace
    account: Run
    row: np.ndarray
    beside_write: np.ndarray
    near_write: np.ndarray

    @property
    def has_background(self) -> bool:
        return bool(self.account.background)

    @property
    def has_contention(self) -> bool:
        """Whether writes, of a background or its own, are enough to change what its reads take."""
        return self.has_background or many_writes(int((self.op == READ).sum()), int((self.op == WRITE).sum()))

    @property
    def workload(self) -> str:
        """What the run replayed: the checksum of the trace, or its path."""
        return str(self.account.source.sha256 or self.account.source.path)

    @property
    def load_time_ns(self) -> int | None:
        """Of a run that can be repeated: of one whole device at dependent pace, each I/O once."""
        account = self.account
        pace, copies = account.pace, account.map.get("copies") or 1
        is_usual = pace.name == DEPENDENT.name and not pace.compute and not pace.streams
        if not is_usual or account.drives or copies > 1 or account.without or account.partial:
            return None
        return account.load_time_ns

    @cached_property
    def plan_alone(self) -> Plan | None:
        """Of the load without a background; None if it cannot be repeated."""
        source = self._source if self.load_time_ns else None
        with suppress(BlkreelError):
            return self._foreground(source, None, None) if source and is_observed(source) else None
        return None

    @cached_property
    def plan(self) -> Plan | None:
        """As replayed, beside its backgrounds; None if it cannot be repeated."""
        if not self.has_background or self.plan_alone is None:
            return self.plan_alone
        source, backgrounds = self._source, self.account.background
        with suppress(BlkreelError):  # the trace of a background may be gone
            return plan_beside(lambda part, map_name: self._foreground(source, part, map_name), self._target,
                               [parse_background(background.spec) for background in backgrounds],
                               lead_ns=backgrounds[0].lead_ns, map_name=None, prefill=True,
                               seed=1).at_phase(backgrounds[0].phase)
        return None

    def _foreground(self, source: Any, part: Part | None, map_name: str | None) -> TracePlan:
        idle = IdlePolicy(self.account.idle.name, self.account.idle.cap_ns)
        return plan_trace(source, self._target, pace=DEPENDENT, idle=idle, map_name=map_name, prefill=False,
                          device=self.account.source.device, part=part)

    @cached_property
    def recorded_plan(self) -> TracePlan:
        """Of the records, at their times."""
        return plan_trace(self.trace, self._target, pace=ORIGINAL, idle=ALL_IDLE, prefill=False)

    @property
    def _target(self) -> Any:
        return find_target(f"{PREFIX}{self.account.drive['size_bytes']},clock=virtual")

    @cached_property
    def _source(self) -> Trace | None:
        """The trace that was replayed, if it is still there and the same."""
        source = self.account.source
        try:
            trace = open_trace(source.path or "")
            with open(Path(str(trace.path)), "rb") as file:
                return trace if hashlib.file_digest(file, "sha256").hexdigest() == source.sha256 else None
        except (BlkreelError, OSError):
            return None


def read_run(path: str) -> MeasuredRun:
    """Raises UsageError for a trace that is not a run, and for a run that a drive cannot be fitted to."""
    trace = open_trace(path)
    if not trace.is_run:
        raise UsageError(f"{path} is a capture: it tells what a program did, not what a drive can do",
                         f"replay it on the drive, then fit the run: blkreel replay {path} --on DEVICE -o RUN")
    if (drives := len(trace.metadata.get("devices") or [])) != 1:
        raise UsageError(f"{path} is a run on {drives} drives", "fit runs on one drive")
    if not 0 < trace.account.drive.get("size_bytes", 0) <= _LARGEST_DRIVE_BYTES:
        raise UsageError(f"{path} has no size of its drive: run.drive.size_bytes is not one of a drive",
                         "replay the trace again on the drive")
    if trace.account.verdict["level"] == "invalid":
        raise UsageError(f"{path} is invalid, so its times are not those of the drive",
                         f"see why: blkreel report {path} --why")
    table = trace.table(["submit_ns", "latency_ns", "length_bytes", "op", "status"])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    row = np.flatnonzero((columns["latency_ns"] >= 0) & (columns["status"] == 0))
    columns = {name: column[row] for name, column in columns.items()}
    columns["latency_ns"] = _at_drive(columns["latency_ns"], trace.account.pace.turnaround_ns or 0)
    if (columns["op"] == READ).sum() < MIN_READS:
        raise UsageError(f"{path} has fewer than {MIN_READS} completed reads", "fit runs of a longer trace")
    op, submit_ns, latency_ns = columns["op"], columns["submit_ns"], columns["latency_ns"]
    return MeasuredRun(op, columns["length_bytes"], submit_ns, latency_ns, trace, trace.account, row,
                       beside_write(op, submit_ns, latency_ns),
                       _beside(op != READ, submit_ns, latency_ns + _SETTLES_NS))


def _at_drive(latency_ns: np.ndarray, turnaround_ns: int) -> np.ndarray:
    """Without the turnaround, which is what the issuing thread's latencies have before and behind the drive: a program
    that the drive is to predict has it in its own time between two I/Os."""
    at_drive: np.ndarray = np.maximum(latency_ns - turnaround_ns, np.minimum(latency_ns, int(MIN_LATENCY_NS)))
    return at_drive


def beside_write(op: np.ndarray, submit_ns: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
    """Whether a write that was submitted before was still in flight, for each I/O in the order of submission."""
    return _beside(op == WRITE, submit_ns, latency_ns)


def beside_any(ios: Ios) -> np.ndarray:
    """Whether an I/O that was submitted before was still in flight, for each I/O in the order of submission."""
    return _beside(np.ones(len(ios.op), bool), ios.submit_ns, ios.latency_ns)


def _beside(mask: np.ndarray, submit_ns: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
    ends_ns = np.maximum.accumulate(np.where(mask, submit_ns + latency_ns, np.iinfo(np.int64).min))
    before_ns = np.concatenate([[np.iinfo(np.int64).min], ends_ns[:-1]])
    beside: np.ndarray = before_ns > submit_ns
    return beside


def with_baselines(paths: Sequence[str]) -> list[MeasuredRun]:
    """The runs of the directories, each with the run alone that a run beside a background has. Raises UsageError for
    one that is named twice, a copy, and a run alone that is named beside its run."""
    runs = []
    for path in paths:
        run = read_run(path)
        runs.append(run)
        baseline = run.account.baseline
        if run.has_background and baseline and baseline.verdict != "invalid":
            alone = run.trace.path.parent / baseline.path
            if isinstance(alone, Path) and not alone.exists():
                raise UsageError(f"{alone} does not exist: {path} is fitted together with its baseline",
                                 f"copy it, too, or replay again into {path} with --baseline")
            runs.append(read_run(str(alone)))
    known: dict[str, MeasuredRun] = {}
    for run in runs:
        if (first := known.setdefault(run.trace.footer.identity, run)) is not run:
            raise UsageError(f"{run.trace.path} and {first.trace.path} are one run", "name each run once, and no "
                             "baseline of a run that is named: it is fitted too")
    return runs


def same_drive(runs: Sequence[MeasuredRun]) -> Mapping[str, Any]:
    """The drive of the runs. Raises UsageError if they are of several."""
    drives: list[Mapping[str, Any]] = [
        {**run.account.drive, _UNIT: ", ".join(drive_units([dict(run.account.drive)], run.account.emulated))}
        for run in runs]
    for run, drive in zip(runs, drives, strict=True):
        for key in _IDENTITY:
            if drive.get(key) != drives[0].get(key):
                raise UsageError(f"{runs[0].trace.path} and {run.trace.path} are runs on different drives: {key} "
                                 f"{drives[0].get(key)!r} and {drive.get(key)!r}", "fit the runs of one drive")
    return drives[0]


def simulated_latencies(run: MeasuredRun, drive: SimulatedDrive, progress: Progress) -> np.ndarray:
    """Latencies in ns of the run's completed I/Os on the drive, submitted when they were."""
    latency_ns = np.full(run.trace.rows, -1, np.int64)

    def take(rows: Batch) -> None:
        latency_ns[rows["source_row"]] = rows["complete_ns"] - rows["submit_ns"]

    _simulate(run, run.recorded_plan, drive, take, progress)
    simulated: np.ndarray = latency_ns[run.row]
    return simulated


def repeated_ios(run: MeasuredRun, drive: SimulatedDrive, progress: Progress) -> Ios:
    """The I/Os of the run on the drive: in a closed loop if it can be repeated, else submitted when they were."""
    if (plan := run.plan) is None:
        return Ios(run.op, run.length_bytes, run.submit_ns, simulated_latencies(run, drive, progress))
    parts: list[list[np.ndarray]] = []

    def take(rows: Batch) -> None:
        parts.append([rows["op"], rows["length_bytes"], rows["submit_ns"], rows["complete_ns"] - rows["submit_ns"]])

    _simulate(run, plan, drive, take, progress)
    return Ios(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def repeated_load_time(run: MeasuredRun, plan: Plan, drive: SimulatedDrive, progress: Progress) -> int:
    """Load time in ns of a plan of the run on the drive."""
    span, counts = RunSpan(finds_late_end=True), PlannedCounts()

    def take(rows: Batch) -> None:
        span.add(foreground_of(rows)[0])

    _simulate(run, plan, drive, take, progress, counts)
    return counts.load_time_ns(span)


def _simulate(run: MeasuredRun, plan: Plan, drive: SimulatedDrive, take: Any, progress: Progress,
              counts: PlannedCounts | None = None) -> None:
    if not simulate(plan, drive, take, progress, "simulating the run", counts=counts):
        raise TraceError(f"{run.trace.path}: its I/Os cannot be simulated", "check it: blkreel check RUN")
