"""What the drives of a replay get otherwise than that of the trace, or not at all: stated before the first write."""

from collections.abc import Iterator

import numpy as np

from blkreel.common.units import format_bytes
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.write_support import (
    NO_COMMAND,
    NOT_PASSED,
    atomic_bytes,
    has_compare,
    hints_obstacle,
    verify_bytes,
)
from blkreel.replay.plan.plan import DrivePlan, Plan, TracePlan
from blkreel.replay.prepare.compares import compared_blocks
from blkreel.traces.format.schema import CHECKS, FLAGS, HINTS
from blkreel.traces.format.trace_survey import COLUMNS, select

_AS_COMMANDS = "--passthrough has neither"


def issued_without(plan: Plan, *, passthrough: bool = False) -> Iterator[str]:
    """A sentence for the commands that a trace does not have, for the hints, the atomic writes, and the verify and
    compare commands that a drive of the plan does not get, and for the data of the compares that it gets.

    Raises BlkreelError if these are too much.
    """
    for trace_plan in plan.trace_plans:
        if trace_plan.commands_unseen:
            yield (f"{trace_plan.trace.name}: {trace_plan.commands_unseen:,} commands that programs passed to the "
                   "drive are not in the trace and not issued (such as copy, deallocate, unmap)")
        of_pass = "" if trace_plan is plan.foreground else f" in each pass of {trace_plan.trace.name}"
        for drive in trace_plan.drives:
            sums, target = drive.survey.write_flags, drive.target
            hinted_bytes = sum(sums.get(name, 0) for name in HINTS) * drive.mapping.copies
            if hinted_bytes and (why := _AS_COMMANDS if passthrough else hints_obstacle(target)):
                yield (f"{target.path}: {format_bytes(hinted_bytes)} of writes{of_pass} are issued without their "
                       f"write hint: {why}")
            if "atomic" in sums and not target.is_nil:
                limits = (0, 0) if passthrough else atomic_bytes(target)
                why = _AS_COMMANDS if passthrough else "the drive has none"
                if limits[1]:
                    why = (f"the drive has those of {limits[0]:,} to {limits[1]:,} bytes, powers of two at a multiple "
                           "of it")
                if count := _not_atomic(trace_plan, drive, limits):
                    yield f"{target.path}: {count:,} atomic writes{of_pass} are issued as plain ones: {why}"
            for name in CHECKS:
                count = drive.survey.ios.get(name, 0) * drive.mapping.copies
                if count and not target.is_nil and (why := _check_obstacle(name, target, passthrough)):
                    yield f"{target.path}: {count:,} {name} commands{of_pass} are not issued: {why}"
    for target, blocks in zip(plan.targets, compared_blocks(plan, passthrough=passthrough), strict=True):
        if blocks.bytes:
            yield (f"{target.path}: the data of compare commands, {format_bytes(blocks.bytes)}, are read from the "
                   "drive before the run: its cache may hold them")


def _check_obstacle(name: str, target: Target, passthrough: bool) -> str | None:
    if not passthrough:
        return NOT_PASSED
    return None if (has_compare(target) if name == "compare" else verify_bytes(target)) else NO_COMMAND


def _not_atomic(plan: TracePlan, drive: DrivePlan, limits: tuple[int, int]) -> int:
    """The number of atomic writes of the trace that the drive does not take as such. Reads the trace."""
    count = 0
    for batch in plan.trace.batches(COLUMNS):
        io, _, _ = select(batch, drive.device, 0)
        atomic = io["flags"] & FLAGS["atomic"] != 0
        start, end = drive.mapping.map(io["offset_bytes"][atomic], io["length_bytes"][atomic])
        length = end - start
        possible = (limits[0] <= length) & (length <= limits[1]) & (((length - 1) & (length | start)) == 0)
        count += int(np.count_nonzero(~possible))
    return count * drive.mapping.copies
