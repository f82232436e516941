"""From a trace to a plan: the same I/Os with due times and offsets on the targets, by batch and by lane."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.replay.drive.target import Target
from blkreel.replay.engine.engine import DEPENDENCY_REACH, MAX_DEPTH, OMITTED, Batch, Lane
from blkreel.replay.engine.spans import LateEnd, RunSpan
from blkreel.traces.format.metadata_types import Thread, computed_at_least, missing_ios, of_recording
from blkreel.traces.format.read_ahead import ReadAheadCount, ReadAheadInTime
from blkreel.traces.format.schema import FLAGS, OPS, USE_COLUMNS, USER_COLUMNS, WAKE_COLUMNS, WRITE_FLAGS
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.trace_survey import COLUMNS, flags_with_flush_rows, select
from blkreel.traces.samples import called, workload_names

from . import dependencies
from .batch import plan_batch
from .dependencies import LongSleeps, ThreadTimes
from .events import Events, is_event
from .extents import MappedBlocks
from .history import THREAD_TIMES, History
from .infer import Inferred
from .mapping import Mapping
from .pace import ALL_IDLE, IdleCompressor, IdlePolicy, InFlightLimits, Pace
from .survey import CHANGING, Survey, TraceSurvey
from .zoned import WritePointers, ZonePlan, mapped

# Time from the start to the first I/O, for the engine to get ready.
LEAD_NS = 1_000_000
_BATCH_ROWS = 131_072
_MOST_PROCESSORS = 1 << 16  # a trace that says more is wrong
# Flags that describe the replay of a run are not planned, nor is how a program issued the I/O.
_PLANNED_FLAGS = 0xFFFF | sum(FLAGS[name] for name in WRITE_FLAGS)
# Metadata of the trace that the account of a run copies.
_SOURCE_METADATA = ("lost", "devices", "command", "capture_layer", "source_format", "source_lacks", "times_step_ns")


@dataclass(frozen=True)
class Sharding:
    """Which issuing thread gets each I/O. threads: how many, numbered as the shards. note: why fewer than requested.

    by_region(target, offset_bytes) or by_thread(tid) gives the shard of each I/O; both None with one thread.
    """

    threads: int = 1
    by_region: Callable[[np.ndarray | int, np.ndarray], np.ndarray] | None = None
    by_thread: Callable[[np.ndarray], np.ndarray] | None = None
    by: str | None = None
    note: str | None = None

    def account(self) -> dict[str, Any]:
        return {"count": self.threads, "by": self.by, "note": self.note}


SINGLE = Sharding()


@dataclass
class PlannedCounts:
    """What was counted in the batches of a plan so far, by lane: lanes() fills it, pace_account() reads it."""

    dependencies: dict[int, Counter[str]] = field(default_factory=dict)
    read_ahead: dict[int, ReadAheadCount] = field(default_factory=dict)
    read_ahead_in_time: dict[int, ReadAheadInTime] = field(default_factory=dict)
    thread_times: dict[int, ThreadTimes] = field(default_factory=dict)
    sleeps: dict[int, LongSleeps] = field(default_factory=dict)

    def by_clock(self, late: LateEnd) -> dict[str, int]:
        """Keys of the entry `pace` of the run's account, on the last I/Os of the run."""
        asleep_ns = sum(self.sleeps.values(), LongSleeps()).before(late.row) if late.ios else 0
        # What the thread computed is part of the load.
        by_clock = 2 * asleep_ns >= late.pause_ns > 0
        return {"by_clock_ios": late.ios, "by_clock_ns": late.late_ns} if by_clock else {}

    def load_time_ns(self, span: RunSpan) -> int:
        """Of a run that was counted here, as metadata_types.Run.load_time_ns. span: finds the late end."""
        return span.load_time_ns - self.by_clock(span.late_end).get("by_clock_ns", 0)


@dataclass(frozen=True)
class DrivePlan:
    """What a run does to one drive. device: the number of the device of the trace.

    prefill: blocks of the target to be written before the run; empty if not needed or declined.
    zones: of a drive with write pointers. unwritten: blocks of the target that the run reads although nothing has
    written them. background_prefill: as prefill, of the backgrounds. background_writes: whether they change data on the
    drive; the length of the run decides how much.
    """

    target: Target
    survey: Survey
    mapping: Mapping
    prefill: MappedBlocks = field(default_factory=MappedBlocks)
    unwritten: MappedBlocks = field(default_factory=MappedBlocks)
    device: int = 0
    zones: ZonePlan | None = None
    background_prefill: tuple[MappedBlocks, ...] = ()
    background_writes: bool = False

    @property
    def total_ios(self) -> int:
        return self.survey.total_ios * self.mapping.copies

    @property
    def changed_bytes(self) -> int:
        """Bytes that the plan writes and discards, without the prefill."""
        return sum(self.survey.bytes.get(name, 0) for name in CHANGING) * self.mapping.copies

    @property
    def max_bytes(self) -> tuple[int | None, int | None]:
        """Maximum bytes that the plan writes and discards; None if only the run's time limits them."""
        written_bytes = self.changed_bytes - self.survey.bytes.get("discard", 0) * self.mapping.copies
        discarded_bytes = self.discarded_bytes(self.survey.ios, self.survey.bytes) * self.mapping.copies
        if self.background_writes:
            return None, None
        if self.survey.bounded:
            return written_bytes, discarded_bytes
        return (None if written_bytes else 0), (None if discarded_bytes else 0)

    def discarded_bytes(self, ios: dict[str, int], moved_bytes: dict[str, int]) -> int:
        """Of I/Os by operation, with the zones that they reset."""
        if self.zones is None:
            return moved_bytes.get("discard", 0)
        return (moved_bytes.get("discard", 0) + ios.get("zone_reset", 0) * self.zones.zones.zone_bytes
                + ios.get("zone_reset_all", 0) * self.target.size_bytes)

    @property
    def changes_drive(self) -> bool:
        """Whether the plan or a background changes data on the drive."""
        return self.survey.changes_drive() or self.background_writes

    @property
    def writes(self) -> bool:
        """Whether the plan or its prefill changes data on the drive."""
        resets = self.zones is not None and len(self.zones.resets) > 0
        return self.changes_drive or resets or any(
            len(blocks) > 0 for blocks in (self.prefill, *self.background_prefill))

    def forget_blocks(self) -> None:
        """Free the block sets that only the preparation needs."""
        for blocks in (self.prefill, self.unwritten, *self.background_prefill):
            blocks.forget()
        self.survey.read_first.forget()
        if not self.mapping.holds(self.survey.touched):
            self.survey.touched.forget()


class Plan(ABC):
    """Interface of all plans. drives: in the order of the engine's targets."""

    drives: tuple[DrivePlan, ...]
    pace: Pace
    idle: IdlePolicy
    # Kinds of I/Os of the source that the plan leaves out.
    without: tuple[str, ...] = ()
    # Latest time of an issue, and whether the run may end before its plan.
    stop_ns: int | None = None
    is_open: bool = False

    @property
    def foreground(self) -> "Plan":
        """The plan whose I/O is measured; another plan's for one with a background."""
        return self

    @property
    def trace_plans(self) -> tuple["TracePlan", ...]:
        """Of each trace whose rows are issued."""
        return ()

    @abstractmethod
    def lanes(self, counts: PlannedCounts | None = None) -> list[Lane]:
        """The I/Os, the same at every call. counts: what is counted as the batches are taken."""

    @abstractmethod
    def pace_account(self, counts: PlannedCounts | None = None) -> dict[str, Any]:
        """The entry `pace` of the run's account. counts: of the lanes that were run."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """The entry `source` of the run's account."""

    def idle_account(self) -> dict[str, Any]:
        """The entry `idle` of the run's account."""
        return {"name": self.idle.name, "cap_ns": self.idle.cap_ns, "removed_ns": self.survey.removed_ns}

    @property
    @abstractmethod
    def paces(self) -> list[Pace]:
        """Of all lanes."""

    @property
    @abstractmethod
    def duration_ns(self) -> int | None:
        """From the first issue to the last; None if it depends on the drives."""

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(drive.target for drive in self.drives)

    @property
    def target(self) -> Target:
        """The first drive, usually the only one."""
        return self.targets[0]

    @property
    def survey(self) -> Survey:
        return self.drives[0].survey

    @property
    def mapping(self) -> Mapping:
        return self.drives[0].mapping

    @property
    def total_ios(self) -> int:
        return sum(drive.total_ios for drive in self.drives)

    @property
    def changes_a_drive(self) -> bool:
        return any(drive.changes_drive for drive in self.drives)

    @property
    def writes(self) -> bool:
        return any(drive.writes for drive in self.drives)

    @property
    def source_threads(self) -> dict[str, Thread]:
        """Names and processes of the threads of the trace, as its metadata has them."""
        return {}

    def source_sha256(self) -> str | None:
        """SHA-256 of the trace file, None without a file. Takes seconds for a long trace."""
        return None

    def prepared_as(self, drive: DrivePlan) -> dict[str, Any] | None:
        """Identifies the blocks that the state `trace` writes for this plan; None for a plan without a trace."""
        sha256 = self.source_sha256()
        return {"sha256": sha256, "device": drive.device, "map": drive.mapping.account(),
                "bytes": drive.prefill.bytes} if sha256 else None

    def forget_blocks(self) -> None:
        """Free the block sets of all drives. The plan cannot be prepared for again."""
        for drive in self.drives:
            drive.forget_blocks()

    def batches(self, counts: PlannedCounts | None = None) -> Iterator[Batch]:
        """All lanes, one after the other."""
        for lane in self.lanes(counts):
            yield from lane.batches


@dataclass(frozen=True)
class TracePlan(Plan):
    """stream_paces: paces of single streams. observed: whether the trace has dependencies (`waited_on`).

    without: ("writes",) for a plan of the reads only, at the times that they have beside the writes.
    """

    trace: Trace
    drives: tuple[DrivePlan, ...]
    pace: Pace
    idle: IdlePolicy
    trace_survey: TraceSurvey
    stream_paces: dict[int, Pace] = field(default_factory=dict)
    observed: bool = False
    sharding: Sharding = SINGLE
    without: tuple[str, ...] = ()

    @property
    def trace_plans(self) -> tuple["TracePlan", ...]:
        return (self,)

    @property
    def paces(self) -> list[Pace]:
        return [self.pace, *self.stream_paces.values()]

    @property
    def duration_ns(self) -> int | None:
        if self.stream_paces or not self.pace.timed:
            return None
        return round(self.trace_survey.duration_ns / self.pace.factor)

    def lanes(self, counts: PlannedCounts | None = None) -> list[Lane]:
        """A lane for each shard at the run's pace, then one for each stream with a pace of its own."""
        counts = PlannedCounts() if counts is None else counts
        threads = self.sharding.threads
        max_depth = MAX_DEPTH // (threads + len(self.stream_paces))
        lanes = [Lane(self._batches(counts, shard, self.pace, shard), thread=shard, processors=self.processors,
                      depth=min(max_depth, share(self.pace.depth, threads, shard) if self.pace.saturating
                                else self.pace.depth)) for shard in range(threads)]
        for number, (stream, pace) in enumerate(self.stream_paces.items(), threads):
            lanes.append(Lane(self._batches(counts, number, pace, None, stream), min(max_depth, pace.depth),
                              number % threads))
        return lanes

    @property
    def processors(self) -> int:
        """That the rows of the plan share, as the threads did; 0: what they waited for a processor is in their delays.

        Only for all rows in one lane, at the captured times.
        """
        has_times = self.observed and all(name in self.trace.schema.names for name in THREAD_TIMES)
        alone = (self.sharding.threads == self.mapping.copies == 1 and not self.stream_paces
                 and self.idle == ALL_IDLE)
        count = self.trace.metadata.get("cpu_count") or 0
        return count if 0 < count <= _MOST_PROCESSORS and self.pace.dependent and has_times and alone else 0

    def pace_account(self, counts: PlannedCounts | None = None) -> dict[str, Any]:
        planned = PlannedCounts() if counts is None else counts
        dependent = any(pace.dependent for pace in self.paces)
        streams = {str(stream): pace.account() for stream, pace in self.stream_paces.items()}
        anchors: Counter[str] = sum(planned.dependencies.values(), Counter())
        rows = sum(anchors[kind] for kind in ("waited", "followed", "caused", "absolute"))
        return {**self.pace.account(), "streams": streams, "threads": self.sharding.account(),
                "dependencies": ("observed" if self.observed else "inferred") if dependent else None,
                "processors": self.processors or None,
                "dependencies_known": round(anchors["waited"] / rows, 4) if rows and self.observed else None,
                "dependencies_inferred": round(anchors["waited"] / rows, 4) if rows and not self.observed else None,
                "anchored": {kind: anchors[kind] for kind in dependencies.KINDS} if dependent else None,
                "read_ahead": self._read_ahead_account(planned, anchors["used"]) if dependent else None,
                **sum(planned.thread_times.values(), ThreadTimes()).shares(
                    any(count.workload_ios for count in planned.read_ahead.values()))}

    def _read_ahead_account(self, planned: PlannedCounts, uses: int) -> dict[str, Any]:
        count: ReadAheadCount = sum(planned.read_ahead.values(), ReadAheadCount())
        in_time = sum(lane.ios(count.workload_ios > 0) for lane in planned.read_ahead_in_time.values())
        mapped = (self.trace.metadata.get("ledger") or {}).get("uses_mapped") or 0  # of a slice: of the whole recording
        return {**count.account(), "in_time_ios": in_time if self.observed else None,
                "used_by_mapping_ios": min(mapped, uses)}

    @property
    def commands_unseen(self) -> int | None:
        """Commands that programs passed to the drives of the capture, without a row in the trace."""
        count = (of_recording(self.trace.metadata).get("ledger") or {}).get("commands_unseen")
        return count if isinstance(count, int) else None

    def _least_computed_ns(self, span_ns: int) -> int | None:
        """What the captured command computed at least within a span of this length. None: unknown.

        The rest of the capture may have been before and after.
        """
        computed = computed_at_least(self.trace.metadata)
        return max(0, computed[0] - max(0, computed[1] - span_ns)) if computed else None

    def source(self) -> dict[str, Any]:
        trace, metadata = self.trace, of_recording(self.trace.metadata)
        span_ns = self.trace_survey.last_submit_ns - self.trace_survey.first_submit_ns
        programs = {thread.get("comm") for thread in trace.threads.values()}
        return {"path": called(trace.path), "sha256": None, "rows": trace.rows, "device": self.drives[0].device,
                "duration_ns": span_ns, "least_computed_ns": self._least_computed_ns(span_ns),
                "ios": sum(drive.survey.total_ios for drive in self.drives),
                "unfinished": sum(drive.survey.unfinished for drive in self.drives),
                "programs": sorted(programs - {None, ""}), "commands_unseen": self.commands_unseen,
                "missing_ios": missing_ios(metadata), "uses_lost": (metadata.get("ledger") or {}).get("uses_lost"),
                "emulated": metadata.get("emulated"),
                **workload_names(trace.path, metadata), **{name: metadata.get(name) for name in _SOURCE_METADATA}}

    @property
    def source_threads(self) -> dict[str, Thread]:
        return self.trace.threads

    def source_sha256(self) -> str | None:
        if not isinstance(self.trace.path, Path):
            return None
        try:
            with open(self.trace.path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None  # removed meanwhile; path, rows and capture still identify it

    def forget_blocks(self) -> None:
        super().forget_blocks()
        self.trace.cache.clear()

    def _batches(self, counts: PlannedCounts, lane: int, pace: Pace, shard: int | None,
                 stream: int | None = None) -> Iterator[Batch]:
        """One lane. Each lane reads the trace for itself, since lanes advance at different speeds."""
        waits: dependencies.Observed | Inferred | None = None
        if pace.dependent:
            reach = DEPENDENCY_REACH // self.mapping.copies
            waits = (dependencies.Observed(self.trace.metadata.get("threads"), History(reach),
                                           self.trace.footer.size_bytes, pace.compute, self.processors)
                     if self.observed else
                     Inferred(reach=reach, file_bytes=self.trace.footer.size_bytes, compute=pace.compute))
            counts.dependencies[lane] = waits.counts
            counts.read_ahead[lane] = ReadAheadCount()
            if isinstance(waits, dependencies.Observed):
                counts.read_ahead_in_time[lane] = waits.in_time
                counts.thread_times[lane] = waits.thread_times
                counts.sleeps[lane] = waits.sleeps
        limits = InFlightLimits() if pace.paced else None
        pointers = [drive.zones.write_pointers() if drive.zones else None for drive in self.drives]
        with_threads = pace.dependent or self.sharding.by_thread is not None
        for io, source_row, submit_ns in self.rows(with_threads, pace.dependent and self.has_events):
            if pace.saturating:
                io["idle_removed_ns"] = np.zeros(len(submit_ns), np.int64)
            elif pace.name == "scaled":
                io["idle_removed_ns"] = _divided(io["idle_removed_ns"], pace.factor)
            mask = self.selected(io, pace, stream)
            if shard is not None and self.sharding.by_thread:
                mask &= self.sharding.by_thread(io["tid"]) == shard
            if not mask.all():
                io = {name: column[mask] for name, column in io.items()}
                source_row, submit_ns = source_row[mask], submit_ns[mask]
            if not len(submit_ns):
                continue
            if waits:
                counts.read_ahead[lane].add(*_of_ios(io, only_reads=bool(self.without)))
            columns = self._mapped(io, source_row, due_ns(pace, submit_ns), waits, pointers)
            if self.without and waits:
                columns = self._omit_writes(columns)
            if limits:
                columns["in_flight"] = self.mapping.copies * limits.of(columns["captured_ns"],
                                                                       columns["captured_latency_ns"])
            for batch in self.mapping.tiled(columns):
                if shard is not None and self.sharding.by_region:
                    in_shard = self.sharding.by_region(batch.get("target", 0), batch["offset_bytes"]) == shard
                    batch = {name: column[in_shard] for name, column in batch.items()}
                if len(batch["op"]):
                    yield batch

    def _omit_writes(self, columns: Batch) -> Batch:
        """Writes become rows that take no time, so that the rows that waited for them keep their think times."""
        is_read = columns["op"] == OPS["read"]
        block_bytes = np.array([drive.target.block_bytes for drive in self.drives])[columns.get("target", 0)]
        return columns | {
            "op": np.where(is_read, columns["op"], OPS["read"]).astype(np.int8),
            "offset_bytes": np.where(is_read, columns["offset_bytes"], 0),
            "length_bytes": np.where(is_read, columns["length_bytes"], block_bytes),
            "flags": np.where(is_read, columns["flags"], OMITTED).astype(np.int32)}

    @property
    def has_events(self) -> bool:
        """Whether the trace has the first uses of the pages that were read, or which thread woke another one."""
        names = set(self.trace.schema.names)
        return self.observed and (names >= set(USE_COLUMNS) or names >= set(WAKE_COLUMNS))

    def rows(self, with_threads: bool = False,
             with_events: bool = False) -> Iterator[tuple[Batch, np.ndarray, np.ndarray]]:
        """(columns, source_row, submit_ns) of the I/Os of the devices, from 0 ns on, after the idle policy.

        The columns include idle_removed_ns: the idle time before the I/O that the policy removes.
        with_threads: include the columns of dependencies. The thread is always included. with_events: also rows for the
        first uses of pages and for wake-ups, as Events makes them, for which source_row is the last row before.
        """
        compressor = IdleCompressor(self.idle)
        names = [name for name in ("stream", "burst") if name in self.trace.schema.names]
        names += dependencies.COLUMNS if with_threads else ("tid",)
        if with_threads:
            names += [name for name in dependencies.OPTIONAL_COLUMNS if name in self.trace.schema.names]
        lost_uses = (self.trace.metadata.get("ledger") or {}).get("uses_lost")
        events = Events(complete=not lost_uses) if with_events else None
        if events:
            names += [name for name in (*USE_COLUMNS, *USER_COLUMNS, *WAKE_COLUMNS) if name in self.trace.schema.names]
        devices = [drive.device for drive in self.drives]
        # All lanes share the memory that one lane would take for its batches.
        batch_rows = _BATCH_ROWS // (self.sharding.threads + len(self.stream_paces))
        row = 0
        for batch in self.trace.batches(COLUMNS + names, batch_rows):
            io, rows, _ = select(batch, devices, row)
            index = rows - row
            row += batch.num_rows
            if len(rows):
                io |= {name: batch[name].to_numpy()[index] for name in names}
                submit_ns = compressor.move(io["submit_ns"], io["latency_ns"])
                io["idle_removed_ns"] = io["submit_ns"] - submit_ns
                if events:
                    io, rows, submit_ns = events.merged(io, rows, submit_ns)
                yield io, rows, submit_ns - self.trace_survey.first_submit_ns

    def selected(self, io: Batch, pace: Pace, stream: int | None = None) -> np.ndarray:
        """Mask of the rows of a lane: of the stream, or of all streams at the run's pace, without those left out.

        At dependent pace the latter stay, as rows that take no time.
        """
        mask = np.ones(len(io["op"]), bool)
        if self.without and not pace.dependent:
            mask &= io["op"] == OPS["read"]
        if stream is not None:
            mask &= io["stream"] == stream
        elif self.stream_paces:
            mask &= ~np.isin(io["stream"], list(self.stream_paces))
        return mask

    def _mapped(self, io: Batch, source_row: np.ndarray, due_ns: np.ndarray,
                waits: dependencies.Observed | Inferred | None, pointers: list[WritePointers | None]) -> Batch:
        optional: Batch = {name: io[name] for name in ("stream", "burst") if name in io}
        start, length, target = np.empty_like(due_ns), np.empty_like(due_ns), np.zeros(len(due_ns), np.int16)
        flags = io["flags"] & _PLANNED_FLAGS
        for index, drive in enumerate(self.drives):
            on_drive = io["device"] == drive.device
            target[on_drive] = index
            flushes = drive.survey.ios.get("flush", 0)
            flags[on_drive] &= ~flags_with_flush_rows(self.trace.metadata, drive.device, flushes)
            op = io["op"][on_drive]
            extent = io["offset_bytes"][on_drive], io["length_bytes"][on_drive]
            # A drive without zones gets no zone management, and its map may have no place for it.
            start[on_drive], end = (mapped(drive.mapping, op, *extent) if drive.target.drive.zoned
                                    else drive.mapping.map(*extent))
            length[on_drive] = end - start[on_drive]
            if at := pointers[index]:
                start[on_drive] = at.take(op, start[on_drive], length[on_drive], source_row[on_drive])
        if len(self.drives) > 1:
            optional["target"] = target
        flags = np.where(is_event(io), OMITTED, flags).astype(np.int32)
        if waits:
            # With N copies of each row, distances are N times as large.
            optional |= {name: column * (self.mapping.copies if name in dependencies.DISTANCES else 1)
                         for name, column in waits.columns(io, source_row, due_ns).items()}
        return plan_batch(start, length, io["op"], due_ns=due_ns, flags=flags,
                          source_row=source_row, captured_ns=io["submit_ns"],
                          captured_latency_ns=io["latency_ns"], idle_removed_ns=io["idle_removed_ns"], tid=io["tid"],
                          **optional)


def _of_ios(io: Batch, *, only_reads: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """flags and blocked_ns of the rows that are issued."""
    is_io = ~is_event(io)
    if only_reads:
        is_io &= io["op"] == OPS["read"]
    return io["flags"][is_io], io["blocked_ns"][is_io] if "blocked_ns" in io else None


def due_ns(pace: Pace, submit_ns: np.ndarray) -> np.ndarray:
    if pace.saturating:
        return np.full(len(submit_ns), -1, np.int64)
    if pace.name == "scaled":
        submit_ns = _divided(submit_ns, pace.factor)
    return submit_ns + LEAD_NS


def _divided(time_ns: np.ndarray, factor: float) -> np.ndarray:
    """Exact to the nanosecond for 104 days."""
    return np.asarray(np.rint(time_ns / factor).astype(np.int64))


def share(total: int, parts: int, part: int) -> int:
    """The size of one of `parts` nearly equal parts of a total, at least 1."""
    return max(1, total // parts + (part < total % parts))
