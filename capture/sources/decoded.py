"""The common part of the sources whose events the decoder turns into rows."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from blkreel.capture.counters import IN_FLIGHT, completed_ios, read_stat
from blkreel.capture.drives import layer_of
from blkreel.common.device import Drive, block_directory
from blkreel.common.errors import BlkreelError
from blkreel.common.system import find_program
from blkreel.traces.importers.blktrace import Decoder
from blkreel.traces.spool.rows_child import Attached, Totals
from blkreel.traces.spool.spool import Spool

from .source import ThreadNames


class DecodedSource:
    """A Source (source.py) made of a decoder and the tracer that feeds it.

    Times of events are readings of CLOCK_MONOTONIC; those of rows are relative to the moment of attaching.
    """

    reports_late = False

    def __init__(self, name: str, drives: list[Drive], spool: Spool, on_change: Callable[[], None]):
        self.name, self.drives, self.spool = name, drives, spool
        self.attached: Attached | None = None
        self.end: Totals | None = None
        self.error: Exception | None = None
        self.died = False
        self.threads: dict[int, ThreadNames] = {}
        self.decoder: Decoder | None = None
        self._on_change = on_change
        self._counts: list[dict[str, int] | None] = [None] * len(drives)
        # I/Os that ended while the recording was switched on or off.
        self._uncertain = [0] * len(drives)
        self._in_flight: list[tuple[int, int]] = []
        self._stopped = False

    @property
    def events(self) -> int:
        return self.end["events"] if self.end else self.decoder.events if self.decoder else 0

    @property
    def lost(self) -> int:
        if self.end:
            return self.end["lost"]["total"] or 0
        return self.decoder.lost if self.decoder else 0

    def stop(self) -> None:
        raise NotImplementedError

    def _start_decoder(self, arguments: list[str], pass_fds: Sequence[int] = ()) -> Decoder:
        self.decoder = Decoder([*_device_arguments(self.drives), *arguments], self.spool, self._decoder_changed,
                               pass_fds=pass_fds)
        return self.decoder

    def _begin_counting(self, switch_on: Callable[[], None] = lambda: None) -> int:
        """When the capture begins: completions from then on are in the drives' counters. switch_on starts it."""
        self._counts = self._count()
        begun_ns = time.monotonic_ns()
        switch_on()
        self._add_uncertain(self._counts)
        return begun_ns

    def _count(self) -> list[dict[str, int] | None]:
        return [_diskstats(drive) for drive in self.drives]

    def _add_uncertain(self, before: list[dict[str, int] | None]) -> None:
        for number, counts in enumerate(map(_difference, before, self._count())):
            self._uncertain[number] += sum((counts or {}).values())

    def _attach(self, epoch_ns: int) -> None:
        self._in_flight = [_in_flight(drive) for drive in self.drives]
        layers = {layer_of(drive) for drive in self.drives}
        self.attached = {
            "source_format": self.name, "epoch_ns": epoch_ns, "realtime_ns": time.time_ns(),
            "clock_resolution_ns": 1, "capture_layer": "request" if "request" in layers else "bio",
            "queue_time_source": "block_bio_queue"}
        self._on_change()

    def _count_at_stop(self) -> int:
        """When the capture ends: completions up to then are in the drives' counters. The tracer still records."""
        before = self._count()
        stopped_ns = time.monotonic_ns()
        if self.decoder:
            self.decoder.tell(f"stopped {stopped_ns}")
        self._add_uncertain(before)
        self._in_flight = [(min(at_start, now), completed) for (at_start, _), (now, completed)
                           in zip(self._in_flight, map(_in_flight, self.drives), strict=True)]
        self._counts = list(map(_difference, self._counts, before))
        return stopped_ns

    def _stop_decoder(self) -> Totals | None:
        if self.decoder is None:
            return None
        self.decoder.stop()
        return self.decoder.end

    def _take_end(self, lost_total: int | None, helper_cpu_ns: int = 0) -> None:
        """The decoder's totals become those of the source. lost_total: counted by the tracer; None: it has no count."""
        end = self.decoder.end if self.decoder else None
        self.error = self.error or (self.decoder.error if self.decoder else None)
        self.died = self.died or end is None
        if end is None or self.died:
            self.end = None  # the decoder counts what it was given, not what a tracer that died saw
            return
        for drive, entry, counts, uncertain, (in_flight, completed) in zip(
                self.drives, end["drives"], self._counts, self._uncertain, self._in_flight, strict=True):
            entry["diskstats"], entry["uncertain"] = counts, uncertain
            entry["gone"] = not block_directory(drive).exists()
            # Those in flight at both ends, less those that the trace has, and those that completed after the count.
            if layer_of(drive) == "request":
                recent = _in_flight(drive)[1] - completed
                entry["stuck"] = max(0, in_flight - end["in_flight_at_end"] - recent)
        end["lost"]["total"] = None if lost_total is None else max(lost_total, end["lost"]["total"] or 0)
        end["cpu_ns"] += helper_cpu_ns
        self.end = end

    def _decoder_changed(self) -> None:
        """An end that was not requested is a death, or a full disk."""
        if self._stopped or not self.decoder:
            return
        if self.decoder.error:
            self.error, self.died = self.decoder.error, True
            self._on_change()
        elif self.decoder.end:
            self.end = self.decoder.end
            self._on_change()


def _device_arguments(drives: list[Drive]) -> list[str]:
    arguments = ["--only"]
    for drive in drives:
        arguments += ["--device" if layer_of(drive) == "request" else "--bio", f"{drive.major}:{drive.minor}"]
    return arguments


def _diskstats(drive: Drive) -> dict[str, int] | None:
    fields = read_stat(Path(f"/sys/block/{drive.name}/stat"))
    return None if fields is None else completed_ios(fields)


def _in_flight(drive: Drive) -> tuple[int, int]:
    """I/Os in flight and I/Os completed, without flushes, by the kernel's counters."""
    fields = read_stat(Path(f"/sys/block/{drive.name}/stat")) or [0] * 12
    return fields[IN_FLIGHT], sum(count for op, count in completed_ios(fields).items() if op != "flush")


def _difference(before: dict[str, int] | None, after: dict[str, int] | None) -> dict[str, int] | None:
    if before is None or after is None:
        return None
    return {name: after[name] - before[name] for name in after}


def children_cpu_ns() -> int:
    """CPU time of all children of this process that have ended."""
    times = os.times()
    return int((times.children_user + times.children_system) * 1e9)


def require(program: str, package: str) -> str:
    """The path of a program. Raises BlkreelError with the package that contains it."""
    path = find_program(program)
    if not path:
        raise BlkreelError(f"{program} is not installed", f"apt-get install {package}")
    return path
