"""From a trace to the plan: the same I/Os with times and places of the targets, batch by batch and lane by lane."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from blkreel.traces.errors import UsageError
from blkreel.traces.reader import Trace
from blkreel.traces.shipped import called

from . import dependencies, safety, shards
from .engine import ANCHOR_REACH, MAX_DEPTH, MAX_LANES, Lane
from .history import History
from .idle import IdleCompressor, IdlePolicy
from .infer import Inferred
from .mapping import Mapping, choose_mapping
from .pace import Pace
from .placed import PlacedBlocks
from .streams import plan_batch
from .survey import (
    CHANGING,
    COLUMNS,
    Survey,
    TraceSurvey,
    choose_device,
    read_first_on,
    select,
    source_bytes,
    survey_trace,
)
from .target import Target, engine_options

# The first I/O waits so long after the start: the engine must have found its stride.
LEAD_NS = 1_000_000
_BATCH_ROWS = 131_072
# What a run keeps of the metadata of its trace.
_OF_SOURCE = ("lost", "devices", "command", "capture_layer", "source_format")


@dataclass(frozen=True)
class DrivePlan:
    """What a run does to one drive. device: which of the trace's it stands for.

    prefill: what is written beforehand, in the target's bytes; empty where nothing needs it or it was declined.
    unwritten: what would be read although nothing had written it, in the target's bytes.
    """

    target: Target
    survey: Survey
    mapping: Mapping
    prefill: PlacedBlocks = field(default_factory=PlacedBlocks)
    unwritten: PlacedBlocks = field(default_factory=PlacedBlocks)
    device: int = 0

    @property
    def total_ios(self) -> int:
        return self.survey.total_ios * self.mapping.copies

    @property
    def changed_bytes(self) -> int:
        """What the plan itself writes and discards."""
        return sum(self.survey.bytes.get(name, 0) for name in CHANGING) * self.mapping.copies

    @property
    def discarded_bytes(self) -> int:
        return self.survey.bytes.get("discard", 0) * self.mapping.copies

    @property
    def most_bytes(self) -> tuple[int | None, int | None]:
        """What the plan writes and discards at most; None where it does, and nothing but time bounds it."""
        discarded_bytes = self.discarded_bytes
        most = self.changed_bytes - discarded_bytes, discarded_bytes
        return most if self.survey.bounded else tuple(None if some else 0 for some in most)

    @property
    def writes(self) -> bool:
        """Whether anything on the drive changes, by the plan or by what is written beforehand."""
        return self.survey.changes_the_drive() or len(self.prefill) > 0

    def forget_blocks(self) -> None:
        """Free the sets of blocks that only a preparation needs: what is issued from now on needs the map alone."""
        for placed in (self.prefill, self.unwritten):
            placed.forget()
        self.survey.read_first.forget()
        if not self.mapping.holds(self.survey.touched):
            self.survey.touched.forget()


class Plan(ABC):
    """What a run needs to know of any plan. drives: in the order of the engine's targets."""

    drives: tuple[DrivePlan, ...]
    pace: Pace
    idle: IdlePolicy
    # When the run ends at the latest, whatever is left of the plan; and whether it may end before its plan at all.
    stop_ns: int | None = None
    is_open: bool = False

    @abstractmethod
    def lanes(self) -> list[Lane]:
        """What is to be issued. Can be called again; gives the same."""

    @abstractmethod
    def pace_account(self) -> dict:
        """How the I/Os are paced, as the run tells it."""

    @abstractmethod
    def source(self) -> dict:
        """Where the I/Os come from, as the run tells it."""

    @property
    @abstractmethod
    def paces(self) -> list[Pace]:
        """Of all lanes."""

    @property
    @abstractmethod
    def duration_ns(self) -> int | None:
        """From the first issue to the last; None where drives have a say in that."""

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(drive.target for drive in self.drives)

    @property
    def target(self) -> Target:
        """The first drive, which mostly is the only one."""
        return self.targets[0]

    @property
    def survey(self) -> Survey:
        return self.drives[0].survey

    @property
    def mapping(self) -> Mapping:
        return self.drives[0].mapping

    @property
    def prefill(self) -> PlacedBlocks:
        return self.drives[0].prefill

    @property
    def unwritten(self) -> PlacedBlocks:
        return self.drives[0].unwritten

    @property
    def total_ios(self) -> int:
        return sum(drive.total_ios for drive in self.drives)

    @property
    def changed_bytes(self) -> int:
        return sum(drive.changed_bytes for drive in self.drives)

    @property
    def changes_a_drive(self) -> bool:
        return any(drive.survey.changes_the_drive() for drive in self.drives)

    @property
    def writes(self) -> bool:
        return any(drive.writes for drive in self.drives)

    def source_sha256(self) -> str | None:
        """Of what the I/Os come from; None where that is no file. Takes seconds for a long trace."""
        return None

    def prepared_as(self, drive: DrivePlan) -> dict | None:
        """What the state `trace` remembers of the trace that it was made for; None for a plan that is of none."""
        sha256 = self.source_sha256()
        return sha256 and {"sha256": sha256, "device": drive.device, "map": drive.mapping.account(),
                           "bytes": drive.prefill.bytes}

    def forget_blocks(self) -> None:
        """Free what only a preparation needs. The plan cannot be prepared for again."""
        for drive in self.drives:
            drive.forget_blocks()

    def batches(self) -> Iterator[dict[str, np.ndarray]]:
        """All lanes, one after the other."""
        for lane in self.lanes():
            yield from lane.batches


@dataclass(frozen=True)
class TracePlan(Plan):
    """stream_paces: of streams that have one of their own. observed: whether the trace tells what waited for what."""

    trace: Trace
    drives: tuple[DrivePlan, ...]
    pace: Pace
    idle: IdlePolicy
    whole: TraceSurvey
    stream_paces: dict[int, Pace] = field(default_factory=dict)
    observed: bool = False
    sharding: shards.Sharding = shards.ONE
    anchored: dict[int, Counter] = field(default_factory=dict)  # by lane, as far as it has been planned

    @property
    def paces(self) -> list[Pace]:
        return [self.pace, *self.stream_paces.values()]

    @property
    def duration_ns(self) -> int | None:
        if self.stream_paces or not self.pace.timed:
            return None
        return round(self.whole.duration_ns / self.pace.factor)

    def lanes(self) -> list[Lane]:
        """Those of the run's pace, one a shard; then one for each stream with a pace of its own."""
        threads = self.sharding.threads
        most = MAX_DEPTH // (threads + len(self.stream_paces))
        lanes = [Lane(self._batches(shard, self.pace, shard), depth=min(most, share(self.pace.depth, threads, shard)
                      if self.pace.saturating else self.pace.depth), thread=shard) for shard in range(threads)]
        for number, (stream, pace) in enumerate(self.stream_paces.items(), threads):
            lanes.append(Lane(self._batches(number, pace, None, stream), min(most, pace.depth), number % threads))
        return lanes

    def pace_account(self) -> dict:
        dependent = any(pace.dependent for pace in self.paces)
        streams = {str(stream): pace.account() for stream, pace in self.stream_paces.items()}
        counts = sum(self.anchored.values(), Counter())
        rows = sum(counts[kind] for kind in ("waited", "followed", "caused", "absolute"))
        return {**self.pace.account(), "streams": streams, "threads": self.sharding.account(),
                "dependencies": ("observed" if self.observed else "inferred") if dependent else None,
                "dependencies_known": round(counts["waited"] / rows, 4) if rows and self.observed else None,
                "anchored": {kind: counts[kind] for kind in dependencies.KINDS} if dependent else None}

    def source(self) -> dict:
        trace, metadata = self.trace, self.trace.metadata
        programs = {thread.get("comm") for thread in (metadata.get("threads") or {}).values()}
        return {"path": called(trace.path), "sha256": None, "rows": trace.rows, "device": self.drives[0].device,
                "duration_ns": self.whole.last_submit_ns - self.whole.first_submit_ns,
                "unfinished": sum(drive.survey.unfinished for drive in self.drives),
                "programs": sorted(programs - {None, ""}),
                **{name: metadata.get(name) for name in _OF_SOURCE}}

    def source_sha256(self) -> str | None:
        try:
            with open(self.trace.path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None  # it is gone by now; its path, rows and capture still tell which it was

    def forget_blocks(self) -> None:
        super().forget_blocks()
        self.trace.memory.clear()

    def _batches(self, lane: int, pace: Pace, shard: int | None, stream: int | None = None):
        """One lane, which reads the trace for itself: lanes go on at speeds of their own."""
        anchors = None
        if pace.dependent:
            threads = self.trace.metadata.get("threads")
            reach = ANCHOR_REACH // self._copies
            anchors = dependencies.Observed(threads, History(reach)) if self.observed else Inferred(reach=reach)
            self.anchored[lane] = anchors.counts
        for io, source_row, at_ns in self.rows(pace.dependent):
            mine = self._of_stream(io, stream)
            if shard is not None and self.sharding.of_threads:
                mine &= self.sharding.of_threads(io["tid"]) == shard
            if not mine.all():
                io = {name: column[mine] for name, column in io.items()}
                source_row, at_ns = source_row[mine], at_ns[mine]
            if not len(at_ns):
                continue
            columns = self._placed(io, source_row, due_ns(pace, at_ns), anchors)
            for batch in self.mapping.tiled(columns):
                if shard is not None and self.sharding.of_places:
                    here = self.sharding.of_places(batch.get("target", 0), batch["offset_bytes"]) == shard
                    batch = {name: column[here] for name, column in batch.items()}
                if len(batch["op"]):
                    yield batch

    def rows(self, with_threads: bool = False) -> Iterator[tuple[dict, np.ndarray, np.ndarray]]:
        """The I/Os of the chosen devices, their rows in the trace, and when they come, from the first one on."""
        compressor = IdleCompressor(self.idle)
        names = [name for name in ("stream", "burst") if name in self.trace.schema.names]
        if with_threads or self.sharding.of_threads:
            names += dependencies.COLUMNS
        devices = [drive.device for drive in self.drives]
        row = 0
        for batch in self.trace.batches(COLUMNS + names, _BATCH_ROWS // self._readers):
            io, rows, _ = select(batch, devices, row)
            index = rows - row
            row += batch.num_rows
            if len(rows):
                io |= {name: batch[name].to_numpy()[index] for name in names}
                yield io, rows, compressor.move(io["submit_ns"], io["latency_ns"]) - self.whole.first_submit_ns

    def _of_stream(self, io, stream):
        if not self.stream_paces:
            return np.ones(len(io["op"]), bool)
        if stream is not None:
            return io["stream"] == stream
        return ~np.isin(io["stream"], list(self.stream_paces))

    def _placed(self, io, source_row, due_ns, anchors):
        more = {name: io[name] for name in ("stream", "burst") if name in io}
        start, end, target = np.empty_like(due_ns), np.empty_like(due_ns), np.zeros(len(due_ns), np.int16)
        for index, drive in enumerate(self.drives):
            here = io["device"] == drive.device
            target[here] = index
            start[here], end[here] = drive.mapping.place(io["offset_bytes"][here], io["length_bytes"][here])
        if len(self.drives) > 1:
            more["target"] = target
        if anchors:
            # Where each row is issued several times, those that it waits for are so many times as far back.
            more |= {name: column * (self._copies if name in dependencies.ANCHORS else 1)
                     for name, column in anchors.anchor(io, source_row, due_ns).items()}
        return plan_batch(start, end - start, io["op"], due_ns=due_ns, flags=io["flags"] & 0xFFFF,
                          source_row=source_row, captured_ns=io["submit_ns"],
                          captured_latency_ns=io["latency_ns"], **more)

    @property
    def _readers(self) -> int:
        """Lanes that read the trace, each for itself, and share the memory that one would take for its batches."""
        return self.sharding.threads + len(self.stream_paces)

    @property
    def _copies(self) -> int:
        return self.mapping.copies


def due_ns(pace: Pace, at_ns):
    if pace.saturating:
        return np.full(len(at_ns), -1, np.int64)
    if pace.name == "scaled":
        # Exact to the nanosecond for 104 days.
        at_ns = np.rint(at_ns / pace.factor).astype(np.int64)
    return at_ns + LEAD_NS


def share(total: int, parts: int, part: int) -> int:
    """What one of several gets of a total that they divide among them; each gets something."""
    return max(1, total // parts + (part < total % parts))


def plan_trace(trace: Trace, targets: Target | dict[int, Target], *, pace: Pace, idle: IdlePolicy,
               stream_paces: dict[int, Pace] | None = None, wanted_map: str | None = None, device: int | None = None,
               prefill: bool = True, threads: int | str = 1, on_rows=lambda rows: None) -> TracePlan:
    """Read the trace through and decide everything about its replay; touches no drive.

    targets: of each device of the trace that is replayed, or one for its only or the chosen device. threads: how many
    issue, or `auto`. Raises TraceError, UsageError, or BlkreelError where the trace does not fit.
    """
    if isinstance(targets, Target):
        targets = {choose_device(trace, device): targets}
    else:
        for one in targets:
            choose_device(trace, one)
    for target in targets.values():
        if target.block is None and not target.is_nil and target.path.samefile(trace.path):
            raise UsageError(f"{target.path} is the trace itself", "name the drive, or a scratch file, to replay on")
    safety.check_distinct(targets)
    engine_options(list(targets.values()))
    _check_streams(trace, stream_paces or {})
    block_bytes = {one: target.block_bytes for one, target in targets.items()}
    whole = survey_trace(trace, list(targets), idle, block_bytes, on_rows)
    if len(targets) > 1 and (wanted_map or "").startswith("tile"):
        raise UsageError("--map tile goes with one drive", "replay the devices one after the other: --device N")
    drives = tuple(_drive_plan(trace, one, target, whole.by_device[one], wanted_map, prefill, on_rows)
                   for one, target in targets.items())
    stream_paces = dict(stream_paces or {})
    if threads != "auto" and threads + len(stream_paces) > MAX_LANES:
        raise UsageError(f"{threads} threads and {len(stream_paces)} streams with paces of their own are too many",
                         f"{MAX_LANES} of both together are possible")
    waits = any(one.dependent for one in (pace, *stream_paces.values()))
    observed = waits and dependencies.is_observed(trace)
    return shards.sharded(TracePlan(trace, drives, pace, idle, whole, stream_paces, observed), threads)


def _drive_plan(trace, device, target, found, wanted_map, prefill, on_rows) -> DrivePlan:
    mapping = choose_mapping(wanted_map, found.touched, target, trace.path, longest_bytes=found.longest_bytes,
                             source_bytes=source_bytes(trace, device))
    read_first = read_first_on(trace, found, mapping, on_rows)
    none = PlacedBlocks()
    return DrivePlan(target, found, mapping, *((read_first, none) if prefill else (none, read_first)), device=device)


def _check_streams(trace, stream_paces) -> None:
    """Raises UsageError where a stream is named that the trace does not have."""
    if not stream_paces:
        return
    there = set()
    if "stream" in trace.schema.names:
        for batch in trace.batches(["stream"]):
            there.update(np.unique(batch["stream"].to_numpy()).tolist())
    missing = sorted(set(stream_paces) - there)
    if missing:
        listing = f"it has: {', '.join(map(str, sorted(there)))}" if there else "it has none: give the whole one pace"
        raise UsageError(f"{trace.path} has no stream {missing[0]}", listing)
