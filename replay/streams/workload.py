"""A run of generated streams instead of a trace: each has its own pace, all share one clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.replay.drive.target import Target
from blkreel.replay.engine.engine import MAX_DEPTH, Batch, Lane
from blkreel.replay.plan.extents import MappedBlocks
from blkreel.replay.plan.mapping import IDENTITY
from blkreel.replay.plan.pace import ALL_IDLE, IdlePolicy, Pace
from blkreel.replay.plan.plan import LEAD_NS, DrivePlan, Plan, PlannedCounts, due_ns
from blkreel.replay.plan.survey import Survey
from blkreel.traces.format.schema import OP_NAMES, OPS


@dataclass(frozen=True)
class StreamSurvey:
    """Facts about a generated stream. extent: (start, end) of its offsets. reads: whether it reads.

    ios: their number, None if endless. written_bytes, discarded_bytes: maximum; of an endless stream (bounded False)
    only 0 or not. end_ns: due time of its last I/O, None without due times or end.
    """

    extent: tuple[int, int]
    ios: int | None
    reads: bool
    written_bytes: int
    discarded_bytes: int
    bounded: bool = True
    end_ns: int | None = None


@dataclass(frozen=True)
class Stream:
    """batches(): its I/Os in order, as plan_batch() makes them, the same at every call.

    At a timed pace `due_ns` counts from the start of the run, -1 for at once; at the pace `dependent` they have
    dependencies. `target`, in a run on several drives, is an index. thread: index of the issuing thread. background:
    it ends when all other streams have ended, and may be endless. survey: facts that make a pass over it unnecessary.
    """

    number: int
    pace: Pace
    batches: Callable[[], Iterator[Batch]]
    thread: int = 0
    background: bool = False
    survey: StreamSurvey | None = None


@dataclass(frozen=True)
class WorkloadPlan(Plan):
    """duration: of the plan in ns, None if it depends on the drives. about: the account's `source`; `path` is the name.

    pace: of the first stream. is_open: whether the run may end before its streams do.
    """

    streams: tuple[Stream, ...]
    drives: tuple[DrivePlan, ...]
    pace: Pace
    duration: int | None
    about: dict[str, Any]
    idle: IdlePolicy = ALL_IDLE
    stop_ns: int | None = None
    is_open: bool = False

    @property
    def paces(self) -> list[Pace]:
        return [stream.pace for stream in self.streams]

    @property
    def duration_ns(self) -> int | None:
        return self.duration

    def lanes(self, counts: PlannedCounts | None = None) -> list[Lane]:
        max_depth = MAX_DEPTH // len(self.streams)
        return [Lane(self._batches(stream), min(max_depth, stream.pace.depth), stream.thread, stream.background)
                for stream in self.streams]

    def pace_account(self, counts: PlannedCounts | None = None) -> dict[str, Any]:
        return {**self.pace.account(),
                "streams": {str(stream.number): stream.pace.account() for stream in self.streams[1:]},
                "threads": {"count": len({stream.thread for stream in self.streams}), "by": "streams", "note": None},
                "dependencies": None, "dependencies_known": None, "dependencies_inferred": None, "anchored": None,
                "read_ahead": None}

    def source(self) -> dict[str, Any]:
        names = ("sha256", "device", "ios", "unfinished", "lost", "devices", "command", "capture_layer",
                 "source_format", "source_lacks")
        return {**dict.fromkeys(names), "rows": None if self.is_open else self.total_ios,
                "duration_ns": self.duration, "programs": [], **self.about}

    def _batches(self, stream: Stream) -> Iterator[Batch]:
        for batch in stream.batches():
            number = np.full(len(batch["op"]), stream.number, np.int16)
            yield {**batch, "due_ns": _due_ns(stream, batch), "stream": number}


def plan_workload(streams: list[Stream], targets: list[Target], *, about: dict[str, Any], prefill: bool = True,
                  stop_ns: int | None = None) -> WorkloadPlan:
    """Survey the streams, with one pass over each that has no survey; opens no drive.

    All blocks that a stream reads are written before the run, even if another stream writes them, because the order of
    streams is not known beforehand. stop_ns: latest end of the run. Raises UsageError for an I/O outside its target.
    """
    for target in targets:
        if target.drive.zoned == "host-managed":
            raise UsageError(f"{target.path} is zoned, and generated I/O does not keep to its write pointers",
                             "replay a trace of a zoned drive: blkreel replay")
    surveys = [Survey(device=index) for index in range(len(targets))]
    first_ns, last_ns = LEAD_NS, 0
    for stream in streams:
        if stream.survey is not None:
            _add_survey(stream, stream.survey, targets[0], surveys[0])
            last_ns = max(last_ns, LEAD_NS + (stream.survey.end_ns or 0))
            continue
        for batch in stream.batches():
            for survey, target in zip(surveys, targets, strict=True):
                _add_batch(stream, batch, target, survey)
            due = _due_ns(stream, batch)
            due = due[due >= 0]
            if len(due):
                first_ns, last_ns = min(first_ns, int(due.min())), max(last_ns, int(due.max()))
    timed = all(stream.pace.timed for stream in streams)
    duration = max(0, last_ns - first_ns) if timed else None
    if stop_ns is not None:
        duration = stop_ns if duration is None else min(stop_ns, duration)
    none, drives = MappedBlocks(), []
    for survey, target in zip(surveys, targets, strict=True):
        blocks = MappedBlocks(survey.read_first.grown(target.block_bytes))
        written, unwritten = (blocks, none) if prefill else (none, blocks)
        drives.append(DrivePlan(target, survey, IDENTITY, written, unwritten, survey.device))
    return WorkloadPlan(tuple(streams), tuple(drives), streams[0].pace, duration, about,
                        stop_ns=None if stop_ns is None else LEAD_NS + stop_ns,
                        is_open=stop_ns is not None or any(stream.background for stream in streams))


def _add_survey(stream: Stream, stream_survey: StreamSurvey, target: Target, survey: Survey) -> None:
    start, end = stream_survey.extent
    if start < 0 or end > target.size_bytes:
        raise _outside(stream, target)
    survey.generated_ios += stream_survey.ios or 0
    survey.bounded &= stream_survey.bounded
    for name, length_bytes in (("write", stream_survey.written_bytes), ("discard", stream_survey.discarded_bytes)):
        if length_bytes:
            survey.bytes[name] = survey.bytes.get(name, 0) + length_bytes
    if stream_survey.reads:
        survey.read_first.add(np.array([start]), np.array([end]))


def _add_batch(stream: Stream, batch: Batch, target: Target, survey: Survey) -> None:
    on_target = batch.get("target", np.zeros(len(batch["op"]), np.int16)) == survey.device
    start, length, op = (batch[name][on_target] for name in ("offset_bytes", "length_bytes", "op"))
    if len(op) and ((start < 0).any() or int((start + length).max()) > target.size_bytes):
        raise _outside(stream, target)
    for code in np.unique(op).tolist():
        name, is_op = OP_NAMES[code], op == code
        survey.ios[name] = survey.ios.get(name, 0) + int(is_op.sum())
        survey.bytes[name] = survey.bytes.get(name, 0) + int(length[is_op].sum())
    reads = op == OPS["read"]
    survey.read_first.add(start[reads], start[reads] + length[reads])


def _outside(stream: Stream, target: Target) -> UsageError:
    return UsageError(f"stream {stream.number} reaches past the end of {target.path}",
                      "choose a larger drive: blkreel drives lists their sizes")


def _due_ns(stream: Stream, batch: Batch) -> np.ndarray:
    return np.where(batch["due_ns"] < 0, -1, due_ns(stream.pace, batch["due_ns"]))
