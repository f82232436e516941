"""From a trace to the plan: the same I/Os with times and places of the target, batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blkreel.traces.errors import UsageError
from blkreel.traces.reader import Trace

from .extents import Extents
from .idle import IdleCompressor, IdlePolicy
from .mapping import Mapping, choose_mapping
from .pace import Pace
from .streams import plan_batch
from .survey import CHANGING, COLUMNS, Survey, choose_device, select, survey
from .target import Target

# The first I/O waits so long after the start: the engine must have found its stride.
LEAD_NS = 1_000_000


@dataclass(frozen=True)
class TracePlan:
    """prefill: what is written beforehand, in the target's bytes; empty where nothing needs it or it was declined.

    unwritten: what would be read although nothing had written it, in the target's bytes.
    """

    trace: Trace
    target: Target
    pace: Pace
    idle: IdlePolicy
    mapping: Mapping
    survey: Survey
    prefill: Extents
    unwritten: Extents

    @property
    def total_ios(self) -> int:
        return self.survey.total_ios

    @property
    def duration_ns(self) -> int | None:
        """From the first issue to the last; None where the drive sets the pace."""
        return self.survey.duration_ns if self.pace.timed else None

    @property
    def changed_bytes(self) -> int:
        """What the trace itself writes and discards."""
        return sum(self.survey.bytes.get(name, 0) for name in CHANGING)

    @property
    def discarded_bytes(self) -> int:
        return self.survey.bytes.get("discard", 0)

    @property
    def writes(self) -> bool:
        """Whether anything on the target changes, by the trace or by what is written beforehand."""
        return self.survey.changes_the_drive() or len(self.prefill) > 0

    def batches(self) -> Iterator[dict[str, np.ndarray]]:
        """The plan, in the order of the trace. Can be called again; gives the same."""
        compressor = IdleCompressor(self.idle)
        row = 0
        extra = [name for name in ("stream", "burst") if name in self.trace.schema.names]
        for batch in self.trace.batches(COLUMNS + extra):
            io, rows, _ = select(batch, self.survey.device, row)
            index = rows - row
            row += batch.num_rows
            if not len(rows):
                continue
            due_ns = compressor.move(io["submit_ns"], io["latency_ns"]) - self.survey.first_submit_ns + LEAD_NS
            start, end = self._placed(io["offset_bytes"], io["length_bytes"])
            columns = plan_batch(start, end - start, io["op"], due_ns=due_ns if self.pace.timed else -1,
                                 flags=io["flags"] & 0xFFFF, source_row=rows,
                                 **{name: batch[name].to_numpy()[index] for name in extra})
            yield {**columns, "captured_ns": io["submit_ns"], "captured_latency_ns": io["latency_ns"]}

    def _placed(self, offset_bytes, length_bytes):
        """Where the I/Os go; grown outward where the target's blocks are larger than the source's."""
        start = np.where(length_bytes > 0, self.mapping.move(offset_bytes), 0)
        block_bytes = self.target.block_bytes
        return start // block_bytes * block_bytes, -(-(start + length_bytes) // block_bytes) * block_bytes


def plan_trace(trace: Trace, target: Target, *, pace: Pace, idle: IdlePolicy, wanted_map: str | None = None,
               device: int | None = None, prefill: bool = True, on_rows=lambda rows: None) -> TracePlan:
    """Read the trace through and decide everything about its replay; touches no drive.

    Raises TraceError, UsageError, or BlkreelError where the trace does not fit.
    """
    if target.block is None and target.path.samefile(trace.path):
        raise UsageError(f"{target.path} is the trace itself", "name the drive, or a scratch file, to replay on")
    found = survey(trace, choose_device(trace, device), idle, target.block_bytes, on_rows)
    mapping = choose_mapping(wanted_map, found.touched, target, trace.path)
    read_first = mapping.move_extents(found.read_first).aligned(target.block_bytes)
    return TracePlan(trace, target, pace, idle, mapping, found,
                     read_first if prefill else Extents.none(), Extents.none() if prefill else read_first)
