"""The data of compare commands, which no trace has: read from the drive in the state that the run starts from."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from blkreel.common.errors import BlkreelError
from blkreel.common.progress import Progress
from blkreel.common.system import closing_descriptor
from blkreel.common.units import format_bytes
from blkreel.replay.drive.claim import Claim
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.write_support import has_compare
from blkreel.replay.plan.plan import Plan, TracePlan
from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace_survey import COLUMNS, select

from .verify import reader

MOST_BYTES = 256 << 20  # of all drives of a run
_READ_BYTES = 1 << 20
_PAGE_BYTES = 4096


def compared_blocks(plan: Plan, *, passthrough: bool) -> list[BlockSet]:
    """Of each drive, the blocks of the compares that it gets, each block once. Reads a trace that has any.

    Raises BlkreelError beyond MOST_BYTES.
    """
    blocks = [_blocks_on(target, plan) if passthrough else BlockSet() for target in plan.targets]
    size_bytes = sum(block_set.bytes for block_set in blocks)
    if size_bytes > MOST_BYTES:
        raise BlkreelError(
            f"the compare commands of the trace need {format_bytes(size_bytes)} of data in memory, more than "
            f"{format_bytes(MOST_BYTES)}",
            "replay a part of the trace (blkreel slice), or omit --passthrough, which leaves them out")
    return blocks


def _blocks_on(target: Target, plan: Plan) -> BlockSet:
    blocks = BlockSet()
    parts = [(trace_plan, drive) for trace_plan in plan.trace_plans for drive in trace_plan.drives
             if drive.target == target and drive.survey.ios.get("compare")]
    if not parts or target.is_nil or not has_compare(target):
        return blocks
    for trace_plan, drive in parts:
        for offset_bytes, length_bytes in _compares(trace_plan, drive.device):
            start, end = drive.mapping.map(offset_bytes, length_bytes)
            for copy in range(drive.mapping.copies):
                shift_bytes = copy * drive.mapping.stride_bytes
                blocks.add(start + shift_bytes, end + shift_bytes)
    return blocks.grown(target.block_bytes)


def _compares(plan: TracePlan, device: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for batch in plan.trace.batches(COLUMNS):
        io, _, _ = select(batch, device, 0)
        is_compare = io["op"] == OPS["compare"]
        yield io["offset_bytes"][is_compare], io["length_bytes"][is_compare]


@contextmanager
def compare_data(blocks: BlockSet, claim: Claim, progress: Progress) -> Iterator[int | None]:
    """A descriptor of memory with the data of these blocks of a drive, as native/target/compares.h has it; None without
    blocks. Reads past the page cache. Raises BlkreelError if a block cannot be read."""
    if not blocks.bytes:
        yield None
        return
    ranges = list(blocks.ranges())
    start, end = (np.concatenate([batch[column] for batch in ranges]) for column in (0, 1))
    header_bytes = 8 * (1 + 3 * len(start))
    at = -(-header_bytes // _PAGE_BYTES) * _PAGE_BYTES + np.cumsum(end - start) - (end - start)
    header = np.concatenate([[len(start)], np.column_stack([start, end, at]).ravel()]).astype(np.int64)
    with closing_descriptor(os.memfd_create("compares", os.MFD_CLOEXEC)) as memory:
        os.ftruncate(memory, int(at[0]) + blocks.bytes)
        os.pwrite(memory, header.tobytes(), 0)
        with reader(claim, _READ_BYTES) as read, progress("reading the data of compares", blocks.bytes) as task:
            done_bytes = 0
            for first, last, at_bytes in zip(start.tolist(), end.tolist(), at.tolist(), strict=True):
                for offset in range(first, last, _READ_BYTES):
                    data = read(offset, min(_READ_BYTES, last - offset))
                    os.pwrite(memory, data, at_bytes + offset - first)
                    done_bytes += len(data)
                task.update(done_bytes)
        yield memory
