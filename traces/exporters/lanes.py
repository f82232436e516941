"""Tracks of a timeline: those of a device and of a thread have as many lanes as there are I/Os in flight."""

from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from blkreel.traces.format.trace import Trace

from .export_format import Columns, check_export_state, device_names

# Above all thread ids of a trace: an import or a merge gives threads numbers that no kernel has. Tracks without a
# thread have numbers from here on.
_FIRST_NUMBER = 1 << 31
_TRACK_BYTES, _LANE_BYTES = 800, 260  # of what is stored of a device or thread, and of each of its lanes


@dataclass(frozen=True)
class NewTrack:
    """A track that was used for the first time: a group of lanes, or a lane of a group.

    group: number of the process, or of the device. number: of the lane, unique; None for the group itself. name: of
    the process, device or thread, without a number of the lane. tid: of the lanes of a thread. lane: from 0.
    """

    group: int
    name: str
    number: int | None = None
    tid: int | None = None
    lane: int = 0

    @property
    def is_device(self) -> bool:
        return self.group >= _FIRST_NUMBER

    @property
    def title(self) -> str:
        """The name as it is shown: slices of a track cannot overlap, so that one name has several tracks."""
        return f"{self.name} {self.lane + 1}" if self.lane else self.name


@dataclass
class Tracks:
    """Gives each I/O a lane on the tracks of its device and of its thread."""

    trace: Trace
    _lanes: dict[tuple[int, int], "_Lanes"] = field(default_factory=dict)
    _new: list[NewTrack] = field(default_factory=list)
    _next_number: int = _FIRST_NUMBER
    _stored_bytes: int = 0

    def of_rows(self, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """(group, number) of the lanes on the device's and the thread's tracks: two arrays (rows, 2)."""
        devices = device_names(self.trace, int(columns["device"].max()))
        threads = self.trace.threads
        start_ns = columns["submit_ns"].tolist()
        # A slice without duration ends after its start, or the next one would be inside it.
        end_ns = (columns["submit_ns"] + np.maximum(columns["latency_ns"], 1)).tolist()
        device_lanes, thread_lanes = [], []
        for device, tid, start, end in zip(columns["device"].tolist(), columns["tid"].tolist(), start_ns, end_ns,
                                           strict=True):
            lanes = self._lanes.get((-1, device))
            if lanes is None:
                lanes = self._add((-1, device), self._number(), f"device {devices[device]}", devices[device], None)
            device_lanes.append((lanes.group, self._take(lanes, start, end)))
            if tid < 0:
                thread_lanes.append((0, 0))
                continue
            lanes = self._lanes.get((0, tid))
            if lanes is None:
                thread = threads.get(str(tid), {})
                comm = thread.get("comm") or f"thread {tid}"
                lanes = self._add((0, tid), int(thread.get("pid") or tid), thread.get("process") or comm, comm, tid)
            thread_lanes.append((lanes.group, self._take(lanes, start, end)))
        check_export_state(self.trace, self._stored_bytes + _TRACK_BYTES * len(self._lanes),
                           "threads or I/Os in flight")
        return np.array(device_lanes), np.array(thread_lanes)

    def take_new(self) -> list[NewTrack]:
        """The tracks that were added since the last call, a group before its lanes. A process may be repeated."""
        new, self._new = self._new, []
        return new

    def _add(self, key: tuple[int, int], group: int, group_name: str, name: str, tid: int | None) -> "_Lanes":
        self._new.append(NewTrack(group, group_name))
        self._lanes[key] = lanes = _Lanes(group, name, tid)
        return lanes

    def _take(self, lanes: "_Lanes", start_ns: int, end_ns: int) -> int:
        """The number of the lane of an I/O."""
        lane = lanes.take(start_ns, end_ns)
        if lane == len(lanes.numbers):
            number = lanes.tid if lanes.tid is not None and lane == 0 else self._number()
            self._new.append(NewTrack(lanes.group, lanes.name, number, lanes.tid, lane))
            lanes.numbers.append(number)
            self._stored_bytes += _LANE_BYTES
        return lanes.numbers[lane]

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number - 1


@dataclass(slots=True)
class _Lanes:
    """Lanes of one device or thread. group: its number. numbers: of the lanes."""

    group: int
    name: str
    tid: int | None
    numbers: list[int] = field(default_factory=list)
    _busy: list[tuple[int, int]] = field(default_factory=list)  # (end, lane)
    _free: list[int] = field(default_factory=list)

    def take(self, start_ns: int, end_ns: int) -> int:
        """The lowest lane that is free at the start; a new one if none is. Starts do not step back."""
        while self._busy and self._busy[0][0] <= start_ns:
            heappush(self._free, heappop(self._busy)[1])
        lane = heappop(self._free) if self._free else len(self.numbers)
        heappush(self._busy, (end_ns, lane))
        return lane
