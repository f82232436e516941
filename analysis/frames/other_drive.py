"""Which stutters would be gone on another drive, from a replay of the trace at dependent pace."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from blkreel.common.errors import UsageError
from blkreel.common.verdict import Verdict
from blkreel.traces.format.trace import Trace

from .stutters import CAUSE_NAMES, IO, FrameWait, Stutter, with_waits


@dataclass(frozen=True)
class OtherDrive:
    """The latency of each I/O of the trace in a run; -1: not replayed. verdict: of the run."""

    label: str
    verdict: Verdict
    latency_ns: npt.NDArray[np.int64]
    trace_latency_ns: npt.NDArray[np.int64]

    def time_ns(self, stutter: Stutter) -> int | None:
        """The time of a stutter with the latencies of this drive; None if an I/O that it waited for has none.

        Each wait grows or shrinks by the difference of the two latencies; what the program computes stays.
        """
        waits = []
        for wait in stutter.waits:
            latency, before = int(self.latency_ns[wait.row]), int(self.trace_latency_ns[wait.row])
            if latency < 0 or before < 0:
                return None
            changed_ns = max(0, wait.waited_ns + latency - before)
            waits.append(FrameWait(wait.row, wait.tid, wait.begin_ns, wait.begin_ns + changed_ns))
        return with_waits(stutter, sorted(waits, key=lambda wait: (wait.begin_ns, wait.end_ns))).time_ns

    def gone(self, stutters: Sequence[Stutter]) -> int | None:
        """How many of the stutters by I/O would be none; None of an invalid run."""
        if self.verdict["level"] == "invalid":
            return None
        times = [(self.time_ns(stutter), stutter.limit_ns) for stutter in stutters if stutter.cause == CAUSE_NAMES[IO]]
        return sum(time_ns is not None and time_ns <= limit_ns for time_ns, limit_ns in times)


def other_drive(trace: Trace, run: Trace) -> OtherDrive:
    """Raises UsageError unless `run` is a replay of `trace` at dependent pace."""
    account, pace = run.account, run.account.pace.name
    again = f"blkreel replay {trace.name} DRIVE --pace dependent -o RUN"
    if not run.is_run:
        raise UsageError(f"{run.path} is a trace, not a replay", f"replay the trace of the frames: {again}")
    if pace != "dependent":
        raise UsageError(f"{run.path}: replayed at {pace} pace, which does not show how long the application waits",
                         f"replay at dependent pace: {again}")
    if not isinstance(trace.path, Path) or account.source.sha256 != _sha256(trace.path):
        raise UsageError(f"{run.path}: a replay of another trace", f"replay the trace of the frames: {again}")
    latency_ns = np.full(trace.rows, -1, np.int64)
    for batch in run.batches(["source_row", "latency_ns"]):
        row, latency = batch["source_row"].to_numpy(), batch["latency_ns"].to_numpy()
        of_trace = (row >= 0) & (row < trace.rows)
        latency_ns[row[of_trace]] = latency[of_trace]
    before = trace.table(["latency_ns"])["latency_ns"].to_numpy()
    label = account.label or account.drive.get("name") or Path(str(run.path)).stem
    return OtherDrive(label, account.verdict, latency_ns, before)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
