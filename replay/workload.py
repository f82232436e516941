"""A run that comes from a rule instead of a trace: several streams, each at a pace of its own, on one clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from blkreel.traces.block_set import BlockSet
from blkreel.traces.errors import UsageError
from blkreel.traces.schema import OP_NAMES, OPS

from .engine import MAX_DEPTH, Lane
from .idle import ORIGINAL, IdlePolicy
from .mapping import IDENTITY
from .pace import Pace
from .placed import PlacedBlocks
from .plan import LEAD_NS, DrivePlan, Plan, due_ns
from .survey import CHANGING
from .target import Target


@dataclass(frozen=True)
class Outline:
    """Of a stream by a rule. extent: (start, end) of where it stays. reads: whether it reads there.

    ios: how many, None without end. written_bytes, discarded_bytes: at most, or, where it is not bounded, 0 for none
    and anything else for some. end_ns: when its last I/O is due, None where nothing is or it has no end.
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
    """batches(): its I/Os in their order, as streams.plan_batch() makes them, the same at every call.

    Where the pace is timed, `due_ns` counts from the start of the run, or is −1 for at once; where it is `dependent`,
    they have anchors. `target`, in a run on several drives, is the index of one. thread: which of the issuing
    threads has it. background: it ends when all others have; it may be without end. outline: what is known of it
    without going through it.
    """

    number: int
    pace: Pace
    batches: Callable[[], Iterator[dict[str, np.ndarray]]]
    thread: int = 0
    background: bool = False
    outline: Outline | None = None


@dataclass
class Counted:
    """What streams do to one drive: of a trace, the survey tells the same.

    ruled_ios: of streams by a rule, which tells how many but not of which kind. bounded: whether `bytes` are at most
    what comes; otherwise only which of them are 0 is known.
    """

    ios: dict[str, int] = field(default_factory=dict)
    ruled_ios: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    removed_ns: int = 0
    left_out: int = 0
    rounded: int = 0
    bounded: bool = True

    @property
    def total_ios(self) -> int:
        return sum(self.ios.values()) + self.ruled_ios

    def changes_the_drive(self) -> bool:
        return any(self.ios.get(name) or self.bytes.get(name) for name in CHANGING)

    def take(self, outline: Outline) -> None:
        self.ruled_ios += outline.ios or 0
        self.bounded &= outline.bounded
        for name, length_bytes in (("write", outline.written_bytes), ("discard", outline.discarded_bytes)):
            if length_bytes:
                self.bytes[name] = self.bytes.get(name, 0) + length_bytes

    def add(self, op, length_bytes) -> None:
        for code in np.unique(op).tolist():
            name, here = OP_NAMES[code], op == code
            self.ios[name] = self.ios.get(name, 0) + int(here.sum())
            self.bytes[name] = self.bytes.get(name, 0) + int(length_bytes[here].sum())


@dataclass(frozen=True)
class WorkloadPlan(Plan):
    """about: what the run says of where its I/Os come from; `path` names the workload."""

    streams: tuple[Stream, ...]
    drives: tuple[DrivePlan, ...]
    duration: int | None
    about: dict
    idle: IdlePolicy = ORIGINAL
    stop_ns: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the run may rightly end before its streams do."""
        return self.stop_ns is not None or any(stream.background for stream in self.streams)

    @property
    def pace(self) -> Pace:
        return self.streams[0].pace

    @property
    def stream_paces(self) -> dict[int, Pace]:
        return {stream.number: stream.pace for stream in self.streams[1:]}

    @property
    def paces(self) -> list[Pace]:
        return [stream.pace for stream in self.streams]

    @property
    def duration_ns(self) -> int | None:
        return self.duration

    def lanes(self) -> list[Lane]:
        most = MAX_DEPTH // len(self.streams)
        return [Lane(self._batches(stream), min(most, stream.pace.depth), stream.thread, stream.background)
                for stream in self.streams]

    def pace_account(self) -> dict:
        return {**self.pace.account(),
                "streams": {str(number): pace.account() for number, pace in self.stream_paces.items()},
                "threads": {"count": len({stream.thread for stream in self.streams}), "by": "streams", "note": None},
                "dependencies": None, "dependencies_known": None, "anchored": None}

    def source(self) -> dict:
        names = ("sha256", "device", "unfinished", "lost", "devices", "command", "capture_layer", "source_format")
        return {**dict.fromkeys(names), "rows": None if self.is_open else self.total_ios,
                "duration_ns": self.duration, "programs": [], **self.about}

    def forget_blocks(self) -> None:
        for drive in self.drives:
            for placed in (drive.prefill, drive.unwritten):
                placed.forget()

    def _batches(self, stream):
        for batch in stream.batches():
            number = np.full(len(batch["op"]), stream.number, np.int16)
            yield {**batch, "due_ns": _due_ns(stream, batch), "stream": number}


def plan_workload(streams: list[Stream], targets: list[Target], *, about: dict, prefill: bool = True,
                  stop_ns: int | None = None) -> WorkloadPlan:
    """Count what the streams do, in one pass over each that has no outline; touches no drive.

    What any of them reads is written once beforehand, whatever another writes: which of the two comes first is not
    decided before the run. stop_ns: when the run ends at the latest. Raises UsageError where an I/O lies outside its
    target.
    """
    counted, read = [Counted() for _ in targets], [BlockSet() for _ in targets]
    first_ns, last_ns = LEAD_NS, 0
    for stream in streams:
        if stream.outline is not None:
            _take_outline(stream, targets[0], counted[0], read[0])
            last_ns = max(last_ns, LEAD_NS + (stream.outline.end_ns or 0))
            continue
        for batch in stream.batches():
            of_target = batch.get("target", np.zeros(len(batch["op"]), np.int16))
            for index, target in enumerate(targets):
                here = of_target == index
                start, length, op = (batch[name][here] for name in ("offset_bytes", "length_bytes", "op"))
                if len(op) and ((start < 0).any() or int((start + length).max()) > target.size_bytes):
                    raise _outside(stream, target)
                counted[index].add(op, length)
                reads = op == OPS["read"]
                read[index].add(start[reads], start[reads] + length[reads])
            due = _due_ns(stream, batch)
            due = due[due >= 0]
            if len(due):
                first_ns, last_ns = min(first_ns, int(due.min())), max(last_ns, int(due.max()))
    timed = all(stream.pace.timed for stream in streams)
    duration = max(0, last_ns - first_ns) if timed else None
    if stop_ns is not None:
        duration = stop_ns if duration is None else min(stop_ns, duration)
    none, drives = PlacedBlocks(), []
    for index, target in enumerate(targets):
        blocks = PlacedBlocks(read[index].grown(target.block_bytes))
        written, unwritten = (blocks, none) if prefill else (none, blocks)
        drives.append(DrivePlan(target, counted[index], IDENTITY, written, unwritten, index))
    return WorkloadPlan(tuple(streams), tuple(drives), duration, about,
                        stop_ns=None if stop_ns is None else LEAD_NS + stop_ns)


def _take_outline(stream, target, counted, read) -> None:
    outline = stream.outline
    start, end = outline.extent
    if start < 0 or end > target.size_bytes:
        raise _outside(stream, target)
    counted.take(outline)
    if outline.reads:
        read.add(np.array([start]), np.array([end]))


def _outside(stream, target) -> UsageError:
    return UsageError(f"stream {stream.number} reaches past the end of {target.path}",
                      "choose a larger drive: blkreel drives lists their sizes")


def _due_ns(stream, batch):
    return np.where(batch["due_ns"] < 0, -1, due_ns(stream.pace, batch["due_ns"]))
