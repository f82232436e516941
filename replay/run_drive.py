"""One drive of a run: its state before, the kernel's count of its I/O, and how the run tells of it."""

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
        # As it was found: what is written since does not fill what was empty.
        self.unwritten_bytes = 0 if self.state.covers(plan.unwritten.limit_bytes) else plan.unwritten.bytes
        self.foreign_ios: int | None = None
        self._before = self._after = None

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
        return {**self.describe(), "source_device": self._plan.device, "map": self.map(), "state": self.state.account(),
                "prefill": {"extents": len(prefill), "bytes": prefill.bytes} if len(prefill) else None,
                "unwritten_bytes": self.unwritten_bytes, "foreign_ios": self.foreign_ios,
                "planned_ops": self._plan.total_ios, "nr_requests": target.drive.queue_depth or None,
                "scheduler": target.drive.scheduler or None,
                "link": link_of(target.disk_block) if target.disk_block else None}
