"""The account of a run: the metadata key `run` of its records."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from blkreel.common.emulated import EmulatedUse
from blkreel.common.verdict import Verdict
from blkreel.replay.background.account import BackgroundAccount
from blkreel.replay.background.phases import PhaseTimes
from blkreel.replay.engine.spans import ReadTimesAccount
from blkreel.replay.fidelity.host_effect import HostEffectAccount
from blkreel.replay.simulated.fitted import FittedAccount
from blkreel.replay.telemetry.account import TelemetryAccount
from blkreel.traces.format.metadata_types import Lateness

from .compute_curve import ComputePoint
from .directory import BASELINE
from .zero_latency import ZeroLatency

WITHOUT = ("writes",)


class Slowdown(TypedDict):
    """Times of the reads beside the writes over their times in the baseline. load_time: only at dependent pace."""

    load_time: float | None
    read_wait: float | None


class BaselineAccount(TypedDict):
    """path: relative to the directory of the run. without: what it leaves out, writes or background.
    load_time_ns, read_wait_ns: as `reads` of the baseline's account; of a run with a background load_time_ns is that of
    all workload I/O. verdict: its level. reason: the text of its first reason, which is one of the worst; None without
    one. withheld: keys of the baseline's metrics that must not be used. phases: the slowdown (load time at dependent
    pace, else read wait) at each phase of the background that was simulated, with that of the run; `slowdown` is their
    geometric mean.
    """

    path: str
    without: list[str]
    load_time_ns: int
    read_wait_ns: int
    verdict: str
    reason: str | None
    withheld: list[str]
    slowdown: Slowdown
    phases: list[float] | None


class PrefillAccount(TypedDict, total=False):
    """Blocks written before the run. by_state: present if the drive's state `trace` had written them."""

    extents: int
    bytes: int
    by_state: bool


class RunFacts(TypedDict):
    """The account without its verdict. Operations are counted in I/Os, times are in ns."""

    label: str
    simulated: bool  # on simulated drives: the figures are those of their models
    drive: dict[str, Any]  # common.device.describe() of the first drive
    map: dict[str, Any]  # of the first drive
    state: dict[str, Any]  # of the first drive, before the run
    drives: list[dict[str, Any]] | None  # None with one drive
    source: dict[str, Any]
    pace: dict[str, Any]
    idle: dict[str, Any]
    without: list[str]  # kinds of I/Os of the trace that the run leaves out
    prefill: PrefillAccount | None
    payload: dict[str, int] | None  # None if the plan writes nothing
    polled: bool  # completions were polled for
    passthrough: bool  # I/Os were NVMe commands, without the block layer
    unwritten_bytes: int
    planned_ops: int
    issued_ops: int
    completed_ops: int
    moved_bytes: int
    written_bytes: int  # of those; accounts of earlier versions do not have it
    error_ops: int
    errors: dict[str, int]  # by kind: `write EIO`
    first_error: str | None
    as_planned: bool  # complete, and the I/Os issued are those of the plan
    altered: dict[str, int]
    write_flags: dict[str, dict[str, int]]  # trace_bytes and issued_bytes of writes with each of WRITE_FLAGS
    dropped: dict[str, int]
    hazards: int
    left_out: int
    plan_ns: int | None
    wall_ns: int
    own_wall_ns: int | None  # of workload I/O
    reads: ReadTimesAccount | None  # None without a read
    baseline: BaselineAccount | None  # of a run without the writes, or without the background
    background: list[BackgroundAccount] | None
    fitted: FittedAccount | None  # of a run beside a background on the file of a fitted drive
    other_phases: list[PhaseTimes] | None  # of the background, on simulated drives
    zero_latency: ZeroLatency | None  # of a complete run with a dependent pace
    compute_curve: list[ComputePoint] | None  # alone, on one simulated drive at dependent pace
    drift_ns: int
    lateness: Lateness | None
    underruns: int
    record_stalls: int
    certificate: Mapping[str, Any]
    host_effect: HostEffectAccount | None  # None of a killed run and on a virtual clock
    engine: dict[str, Any]
    foreign_ios: int | None  # external I/O
    page_cache: bool
    emulated: list[EmulatedUse]  # of the drives that are emulated
    telemetry: TelemetryAccount | None
    partial: str | None  # why the run is not complete
    started_at: str
    environment: dict[str, Any]
    seed: int


class RunAccount(RunFacts):
    latency_log: NotRequired[str | None]  # a file in the run's directory, of a run that is not valid
    verdict: Verdict


def baseline_account(baseline: RunAccount, reads: ReadTimesAccount | None,
                     is_dependent: bool, load_time_ns: int | None = None,
                     other_phases: Sequence[PhaseTimes] = ()) -> BaselineAccount | None:
    """The entry `baseline` of a run. reads: of the run. load_time_ns: of all workload I/O of a run with a background,
    which is the same in the baseline; None of a run whose baseline has its reads only. None if one of them completed no
    read."""
    before = baseline["reads"]
    if before is None or reads is None:
        return None
    alone_ns = before["load_time_ns"] if load_time_ns is None else load_time_of(baseline)
    beside_ns = reads["load_time_ns"] if load_time_ns is None else load_time_ns
    load_times = [_ratio(each_ns, alone_ns) for each_ns in (
        beside_ns, *(each["load_time_ns"] for each in other_phases))] if is_dependent else []
    read_waits = [_ratio(each_ns, before["wait_ns"]) for each_ns in (
        reads["wait_ns"], *(each["read_wait_ns"] for each in other_phases))]
    slowdown: Slowdown = {"load_time": _mean(load_times), "read_wait": _mean(read_waits)}
    phases = [ratio for ratio in (load_times or read_waits) if ratio] if other_phases else None
    without = list(WITHOUT) if load_time_ns is None else ["background"]
    verdict = baseline["verdict"]
    return {"path": BASELINE, "without": without, "load_time_ns": alone_ns, "read_wait_ns": before["wait_ns"],
            "verdict": verdict["level"], "reason": next((reason["text"] for reason in verdict["reasons"]), None),
            "withheld": verdict["withheld"], "slowdown": slowdown, "phases": phases}


def load_time_of(account: RunFacts) -> int:
    """From the first submit of workload I/O, of all I/O if none is marked, to the last completion."""
    own_wall_ns = account["own_wall_ns"]
    return account["wall_ns"] if own_wall_ns is None else own_wall_ns


def _mean(ratios: Sequence[float | None]) -> float | None:
    """Their geometric mean; None without ratios, or if one is unknown."""
    known = [ratio for ratio in ratios if ratio]
    return math.exp(sum(map(math.log, known)) / len(known)) if known and len(known) == len(ratios) else None


def _ratio(with_writes_ns: int, without_ns: int) -> float | None:
    return with_writes_ns / without_ns if without_ns else None
