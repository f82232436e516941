"""One drive of a run: its state before, the kernel's count of its I/O, and how the run tells of it."""

from collections.abc import Callable

from blkreel.traces.device import describe

from . import drive_state, foreign
from .environment import link_of
from .plan import DrivePlan
from .records import Moved


class RunDrive:
    """state: as it was found. foreign_ios: how many were not ours, None while that is not known."""

    def __init__(self, plan: DrivePlan):
        self._plan = plan
        self.state = drive_state.load(plan.target)
        self._others_bytes = drive_state.written_by_others(plan.target, self.state)
        # As it was found: what is written since does not fill what was empty.
        self.unwritten_bytes = 0 if self.state.covers_blocks(plan.unwritten) else plan.unwritten.bytes
        self.foreign_ios: int | None = None
        self.was_prepared = not len(plan.prefill)
        self._before = self._after = None

    def prepared_for(self, wanted: Callable[[], dict | None]) -> bool:
        """Whether the state `trace` has written what this plan reads. wanted: asked for only where it may be."""
        state = self.state
        if state.trace and state.covers(0):
            # Most traces that are another one are so by what is cheap to compare.
            cheap = {"map": self._plan.mapping.account(), "bytes": self._plan.prefill.bytes}
            if all(state.trace.get(name) == value for name, value in cheap.items()):
                self.was_prepared = state.trace == wanted()
        return self.was_prepared

    def state_account(self) -> dict:
        """The state as it was found. by_others_bytes: what others wrote since, None where nobody counted."""
        return {**self.state.account(), "by_others_bytes": self._others_bytes}

    def begin(self) -> None:
        self._before = foreign.count_of(self._plan.target)

    def end(self) -> None:
        self._after = foreign.count_of(self._plan.target)

    def count_foreign(self, moved: Moved) -> None:
        """Hold what the kernel counted between begin() and end() against what was issued here."""
        ios, size = moved.ios, moved.bytes
        self.foreign_ios = foreign.foreign_ios(
            self._before, self._after, read_ios=ios["read"], read_bytes=size["read"],
            write_ios=ios["write"] + ios["write_zeroes"], write_bytes=size["write"] + size["write_zeroes"])

    def describe(self) -> dict:
        target = self._plan.target
        entry = describe(target.drive)
        if target.partition:
            entry |= {"partition": target.partition, "partition_size_bytes": target.size_bytes}
        return entry

    def map(self) -> dict:
        return self._plan.mapping.account()

    def account(self) -> dict:
        """Of one among several drives; the run's own account holds the sums."""
        target, prefill = self._plan.target, self._plan.prefill
        return {**self.describe(), "source_device": self._plan.device, "map": self.map(),
                "state": self.state_account(),
                "prefill": {"extents": len(prefill), "bytes": prefill.bytes, "by_state": self.was_prepared}
                if len(prefill) else None,
                "unwritten_bytes": self.unwritten_bytes, "foreign_ios": self.foreign_ios,
                "planned_ops": self._plan.total_ios, "nr_requests": target.drive.queue_depth or None,
                "scheduler": target.drive.scheduler or None,
                "link": link_of(target.disk_block) if target.disk_block else None}
