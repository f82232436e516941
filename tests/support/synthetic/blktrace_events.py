"""Binary blktrace events for tests, written from the kernel header, independently of blkreel's reader."""

import struct
from itertools import count

READ, WRITE, FLUSH, SYNC, QUEUE, REQUEUE, ISSUE, COMPLETE, FS, PC, NOTIFY, AHEAD, META, DISCARD, DRV_DATA, FUA = (
    1 << bit for bit in range(16))
WRITE_ZEROES = 1 << 22
ZONE_MANAGEMENT = ["zone_reset", "zone_reset_all", "zone_finish", "zone_open", "zone_close"]
CATEGORIES = {name: 1 << bit for bit, name in enumerate(["zone_append", *ZONE_MANAGEMENT], 16)}
ACTIONS = {"Q": (1, QUEUE), "M": (2, QUEUE), "F": (3, QUEUE), "G": (4, QUEUE), "R": (6, REQUEUE), "D": (7, ISSUE),
           "C": (8, COMPLETE), "P": (9, QUEUE), "U": (10, QUEUE), "I": (12, QUEUE), "X": (13, 0), "A": (15, QUEUE)}
KINDS = {"read": READ, "write": WRITE, "discard": WRITE | DISCARD, "flush": READ | FLUSH}
SDA, SDB = 8 << 20, 8 << 20 | 16


class Recording:
    """The events of one CPU, numbered as blktrace numbers them."""

    def __init__(self, version=7, order="little", cpu=0):
        self.version, self.order, self.cpu = version, order, cpu
        self._parts = []
        self._numbers = count(1)

    @property
    def data(self):
        return b"".join(self._parts)

    def add(self, letter, time_ns, sector=0, sectors=8, kind="read", pid=100, device=SDA, error=0, payload=b"",
            category=0, cgroup=None, skip=0):
        action, of_action = ACTIONS[letter]
        for _ in range(skip):
            next(self._numbers)
        of_kind = KINDS[kind] if isinstance(kind, str) else kind
        return self._event(action, of_action | of_kind | category | FS, next(self._numbers), time_ns, sector,
                           sectors * 512, pid, device, error, payload, cgroup)

    def io(self, sector, queued_ns, issued_ns, completed_ns, **about):
        """One I/O without complications."""
        dispatcher = {**about, "pid": 7}
        self.add("Q", queued_ns, sector, **about).add("G", queued_ns + 1, sector, **about)
        return self.add("D", issued_ns, sector, **dispatcher).add("C", completed_ns, sector, **dispatcher)

    def notice(self, number, time_ns, payload, pid=0):
        return self._event(number, NOTIFY, 0, time_ns, 0, 0, pid, SDA, 0, payload, None)

    def raw(self, data):
        self._parts.append(data)
        return self

    def _event(self, action, category, sequence, time_ns, sector, nbytes, pid, device, error, payload, cgroup):
        sign = "<" if self.order == "little" else ">"
        if cgroup is not None:
            action |= 0x100
            payload = struct.pack(sign + "Q", cgroup) + payload
        full = action | category << 16
        head = struct.pack(sign + "IIQQI", 0x65617400 | self.version, sequence, time_ns, sector, nbytes)
        if self.version == 7:
            tail = struct.pack(sign + "IIIIhH", full, pid, device, self.cpu, error, len(payload))
        else:
            tail = struct.pack(sign + "IQIIhH12x", pid, full, device, self.cpu, error, len(payload))
        self._parts.append(head + tail + payload)
        return self

    def write(self, path):
        path.write_bytes(self.data)
        return path


def big_endian(*numbers):
    """A payload as the kernel writes those of splits and remaps, whatever its own byte order."""
    return b"".join(struct.pack(">Q", number) for number in numbers)
