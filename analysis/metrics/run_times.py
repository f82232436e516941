"""What is known of a run, mostly times, that its records alone do not give."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from blkreel.traces.format.exposure import Exposure
from blkreel.traces.format.metadata_types import Run

from .write_amplification import WriteCounts


@dataclass(frozen=True)
class RunTimes:
    """From the metadata of a run. `+` pools runs: times add up. None: unknown, also if it is of one of them.

    load_ns: from the first submit of workload I/O (of all I/O if none is marked) to its last completion, at dependent
    pace. zero_latency_ns: the same of the plan on a drive without latency. with_writes_load_ns:
    load time of what the baseline has too, at dependent pace; with_writes_read_wait_ns: read wait, None for that of the
    records. Both are means over the phases of a background that were simulated. without_writes_load_ns,
    without_writes_read_wait_ns: of the reads of the baseline run, which leaves the writes out; None where no slowdown
    is stated (why_no_slowdown()). load_ios: that the load
    time covers, read_ahead_ios: those of them that are read-ahead. captured_ns: duration of the replayed trace. writes:
    by the drive's own counters. background_due, background_done: of the background, bytes due and written (its least
    share of several, in millionths of the bytes due), None without one.
    """

    load_ns: int | None = None
    zero_latency_ns: int | None = None
    with_writes_load_ns: int | None = None
    with_writes_read_wait_ns: int | None = None
    without_writes_load_ns: int | None = None
    without_writes_read_wait_ns: int | None = None
    load_ios: int | None = None
    read_ahead_ios: int | None = None
    captured_ns: int | None = None
    writes: WriteCounts | None = None
    background_due: int | None = None
    background_done: int | None = None

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """metadata: of a run, or of a captured trace, which has no `run`."""
        if not metadata.get("run"):
            return cls()
        run = Run.of(metadata)
        baseline = None if _why_no_slowdown(run, metadata) else run.baseline
        is_dependent = run.pace.name == "dependent"
        # Without the writes of the trace only the reads are the same; without a background all of the workload's I/O.
        compared_ns = run.load_time_ns if run.background else run.reads.load_time_ns
        shares = [background.reached_share for background in run.background if background.reached_share is not None]
        compared_wait_ns = None
        if baseline and baseline.phases:
            compared_ns = round((baseline.slowdown.load_time or 0) * (baseline.load_time_ns or 0))
            compared_wait_ns = round((baseline.slowdown.read_wait or 0) * (baseline.read_wait_ns or 0))
        return cls(run.load_time_ns if is_dependent else None, run.zero_latency.load_time_ns,
                   compared_ns if is_dependent else None, compared_wait_ns,
                   baseline.load_time_ns if baseline and is_dependent else None,
                   baseline.read_wait_ns if baseline else None,
                   run.pace.read_ahead.ios, run.pace.read_ahead.read_ahead_ios, run.source.duration_ns,
                   WriteCounts.of(run), 10**6 if shares else None, round(min(shares) * 10**6) if shares else None)

    def __add__(self, other: Self) -> Self:
        def total(a: Any, b: Any) -> Any:
            return None if a is None or b is None else a + b

        return type(self)(*(total(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))


def why_no_slowdown(metadata: Mapping[str, Any]) -> str:
    """Why a slowdown by writes is not stated of a run or trace; empty if it is, or if nothing is known against it.

    Because one of the times that it is computed from is withheld, or because of the exposure, if that was recorded.
    """
    return _why_no_slowdown(Run.of(metadata), metadata)


def _why_no_slowdown(run: Run, metadata: Mapping[str, Any]) -> str:
    exposure = Exposure.of_metadata(metadata)
    return _why_withheld(run) or (exposure.why_withheld(bool(run.background)) if exposure else "")


def _why_withheld(run: Run) -> str:
    baseline = run.baseline
    if not baseline:
        return ""
    without = f"baseline without the {'background' if run.background else 'writes'}"
    if baseline.verdict == "invalid":
        # Earlier versions did not store the reason.
        reason = baseline.reason or "see why with --why on its directory, RUN/baseline"
        return f"the {without} is invalid: {reason}"
    keys = ["read_wait", *(["load_time"] if run.pace.name == "dependent" else [])]
    for name, own in (("run", run.verdict.get("withheld", [])), (without, baseline.withheld)):
        if withheld := [key.replace("_", " ") for key in keys if key in own]:
            # A load time is withheld also for what the trace does not tell.
            cause = "effect of the host" if "read_wait" in own else "its verdict says why"
            return f"{' and '.join(withheld)} of the {name} withheld: {cause}"
    return ""
