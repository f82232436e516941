"""One drive of a run: its state before the run, the kernel's I/O counters, and its part of the account."""

from collections.abc import Callable
from typing import Any

from blkreel.common.device import describe
from blkreel.common.emulated import EmulatedUse, EmulatedUses
from blkreel.common.system import io_max
from blkreel.replay.drive import external_io
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.claim import held_targets
from blkreel.replay.plan.plan import DrivePlan
from blkreel.replay.telemetry.sensors.sysfs import link_of
from blkreel.traces.format.metadata_types import ArrayUse
from blkreel.traces.format.schema import WRITES, ZONE_MANAGEMENT

from .records import IoTotals

_COUNTED_AS_WRITES = (*WRITES, "write_zeroes", "compare", *ZONE_MANAGEMENT)  # by the kernel


class RunDrive:
    """state: before the run. external_ios: I/Os that blkreel did not issue, None if not counted.

    passthrough: the I/Os are commands. is_counted: whether the kernel counts them.
    """

    def __init__(self, plan: DrivePlan, passthrough: bool = False):
        self._plan = plan
        self.is_counted = not passthrough or external_io.counts_commands(plan.target)
        self.state = drive_state.load(plan.target)
        self._external_bytes = drive_state.written_by_others(plan.target, self.state)
        # Computed before the run, since blocks that the run writes do not count as filled.
        self.unwritten_bytes = 0 if self.state.covers_blocks(plan.unwritten) else plan.unwritten.bytes
        self.external_ios: int | None = None
        self.was_prepared = not len(plan.prefill)
        self._before: external_io.DiskCount | None = None
        self._after: external_io.DiskCount | None = None
        self.emulated: list[EmulatedUse] = []
        self.arrays: list[ArrayUse] = []

    def is_prepared(self, required: Callable[[], dict[str, Any] | None]) -> bool:
        """Whether the state `trace` wrote all blocks that this plan reads.

        required: called only if a cheap comparison does not already say no.
        """
        state = self.state
        if state.trace and state.covers(0):
            cheap = {"map": self._plan.mapping.account(), "bytes": self._plan.prefill.bytes}
            if all(state.trace.get(name) == value for name, value in cheap.items()):
                self.was_prepared = state.trace == required()
        return self.was_prepared

    def state_account(self) -> dict[str, Any]:
        """The state before the run. by_others_bytes: written by others since it was prepared, None if not counted."""
        return {**self.state.account(), "by_others_bytes": self._external_bytes}

    def begin(self) -> None:
        self._emulated_uses = EmulatedUses([self._plan.target.drive.backing_file])
        self._before = external_io.count_around(self._plan.target, held_targets())
        self.arrays = external_io.arrays_at_work(self._plan.target)

    def end(self) -> None:
        self._after = external_io.count_around(self._plan.target, held_targets())
        self.emulated = self._emulated_uses.end()
        self.arrays += [use for use in external_io.arrays_at_work(self._plan.target) if use not in self.arrays]

    def count_external(self, issued: IoTotals) -> None:
        """Compare the kernel's counters of begin() and end() with the issued I/Os."""
        ios, size = issued.ios, issued.bytes
        if not self.is_counted:
            ios = size = dict.fromkeys(ios, 0)
        self.external_ios = external_io.foreign_ios(
            self._before, self._after, read_ios=ios["read"], read_bytes=size["read"],
            write_ios=sum(ios[name] for name in _COUNTED_AS_WRITES),
            write_bytes=sum(size[name] for name in _COUNTED_AS_WRITES))

    def describe(self) -> dict[str, Any]:
        target = self._plan.target
        description: dict[str, Any] = describe(target.drive)
        if limits := io_max(f"{target.drive.major}:{target.drive.minor}"):
            description["io_max"] = limits
        if target.partition:
            description |= {"partition": target.partition, "partition_size_bytes": target.size_bytes}
        return description

    def map(self) -> dict[str, Any]:
        return self._plan.mapping.account()

    def account(self) -> dict[str, Any]:
        """The account of one of several drives; the account of the run has the sums."""
        target, prefill = self._plan.target, self._plan.prefill
        return {**self.describe(), "source_device": self._plan.device, "map": self.map(),
                "state": self.state_account(),
                "prefill": {"extents": len(prefill), "bytes": prefill.bytes, "by_state": self.was_prepared}
                if len(prefill) else None,
                "unwritten_bytes": self.unwritten_bytes, "foreign_ios": self.external_ios,
                "planned_ops": self._plan.total_ios, "nr_requests": target.drive.queue_depth or None,
                "scheduler": target.drive.scheduler or None,
                "link": link_of(target.disk_block) if target.disk_block else None}
