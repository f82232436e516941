"""A run of generated streams on a drive instead of a trace: each has its own pace, all share one clock."""

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

    At a timed pace `due_ns` counts from the start of the run. background: it ends when all other streams have ended,
    and may be endless.
    """

    number: int
    pace: Pace
    batches: Callable[[], Iterator[Batch]]
    survey: StreamSurvey
    background: bool = False


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
        return [Lane(self._batches(stream), min(max_depth, stream.pace.depth), background=stream.background)
                for stream in self.streams]

    def pace_account(self, counts: PlannedCounts | None = None) -> dict[str, Any]:
        return {**self.pace.account(),
                "streams": {str(stream.number): stream.pace.account() for stream in self.streams[1:]},
                "threads": {"count": 1, "by": "streams", "note": None},
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
            yield {**batch, "due_ns": due_ns(stream.pace, batch["due_ns"]), "stream": number}


def plan_workload(streams: list[Stream], target: Target, *, about: dict[str, Any],
                  stop_ns: int | None = None) -> WorkloadPlan:
    """Opens no drive and generates no I/O. Blocks that are read are not written before the run.

    stop_ns: latest end of the run. Raises UsageError for a stream outside the target.
    """
    if target.drive.zoned == "host-managed":
        raise UsageError(f"{target.path} is zoned, and generated I/O does not keep to its write pointers",
                         "replay a trace of a zoned drive: blkreel replay")
    survey = Survey(device=0)
    for stream in streams:
        _add_stream(stream, target, survey)
    duration = None
    if all(stream.pace.timed for stream in streams):
        duration = max(stream.survey.end_ns or 0 for stream in streams)
    if stop_ns is not None:
        duration = stop_ns if duration is None else min(stop_ns, duration)
    unwritten = MappedBlocks(survey.read_first.grown(target.block_bytes))
    drive = DrivePlan(target, survey, IDENTITY, MappedBlocks(), unwritten, survey.device)
    return WorkloadPlan(tuple(streams), (drive,), streams[0].pace, duration, about,
                        stop_ns=None if stop_ns is None else LEAD_NS + stop_ns,
                        is_open=stop_ns is not None or any(stream.background for stream in streams))


def _add_stream(stream: Stream, target: Target, survey: Survey) -> None:
    known = stream.survey
    start, end = known.extent
    if start < 0 or end > target.size_bytes:
        raise UsageError(f"stream {stream.number} reaches past the end of {target.path}",
                         "choose a larger drive: blkreel drives lists their sizes")
    survey.generated_ios += known.ios or 0
    survey.bounded &= known.bounded
    for name, length_bytes in (("write", known.written_bytes), ("discard", known.discarded_bytes)):
        if length_bytes:
            survey.bytes[name] = survey.bytes.get(name, 0) + length_bytes
    if known.reads:
        survey.read_first.add(np.array([start]), np.array([end]))
