"""The zones of a zoned drive, as the drive reports them: include/uapi/linux/blkzoned.h of the kernel."""

import errno
import fcntl
import os
import struct
from dataclasses import dataclass

import numpy as np

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.system import closing_descriptor

from .target import Target

_BLKREPORTZONE = 0xC0101282
_HEADER = struct.Struct("=QII")  # first sector, number of zones, flags
_ZONE = np.dtype([("start", "=u8"), ("length", "=u8"), ("pointer", "=u8"), ("type", "u1"), ("condition", "u1"),
                  ("pad", "V6"), ("capacity", "=u8"), ("reserved", "V24")])
_AT_A_TIME = 4096
_HAS_CAPACITY = 1  # a flag of the report, since Linux 5.9
_SEQUENTIAL = 2  # BLK_ZONE_TYPE_SEQWRITE_REQ
_READ_ONLY, _FULL, _OFFLINE = 13, 14, 15
_SECTOR_BYTES = 512


@dataclass(frozen=True)
class Zones:
    """All zones have zone_bytes, the last one perhaps less. The arrays have an entry for each zone.

    is_sequential: the zone takes writes only at its write pointer. end_bytes: where its capacity ends. pointer_bytes:
    its write pointer; the end for a zone that takes no writes, and for one without a pointer. most_active: zones that
    may be partly written or open at a time; 0: no limit.
    """

    zone_bytes: int
    is_sequential: np.ndarray
    end_bytes: np.ndarray
    pointer_bytes: np.ndarray
    most_active: int = 0

    @property
    def start_bytes(self) -> np.ndarray:
        return np.arange(len(self.end_bytes), dtype=np.int64) * self.zone_bytes

    @property
    def has_pointers(self) -> bool:
        return bool(self.is_sequential.any())


def zones_of(target: Target) -> Zones | None:
    """The zones as they are now; None for a target without zones.

    Raises UsageError for a partition, BlkreelError if the drive does not report.
    """
    if not target.drive.zone_bytes or target.block is None:
        return None
    if target.partition:
        raise UsageError(f"{target.path} is a partition of a zoned drive", f"name the drive: {target.drive.path}")
    try:
        with closing_descriptor(os.open(target.path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            zones = _reported(descriptor, target.size_bytes // _SECTOR_BYTES)
        most_active = int((target.block / "queue/max_active_zones").read_text())
    except (OSError, ValueError) as error:
        remedy = "run it with sudo" if getattr(error, "errno", 0) in (errno.EACCES, errno.EPERM) else "see: dmesg"
        raise BlkreelError(f"the zones of {target.path} cannot be read: {error}", remedy) from None
    end = (zones["start"] + zones["capacity"]).astype(np.int64) * _SECTOR_BYTES
    is_sequential = zones["type"] == _SEQUENTIAL
    writable = is_sequential & ~np.isin(zones["condition"], (_READ_ONLY, _FULL, _OFFLINE))
    pointer = np.where(writable, zones["pointer"].astype(np.int64) * _SECTOR_BYTES, end)
    return Zones(target.drive.zone_bytes, is_sequential, end, pointer, most_active)


def _reported(descriptor: int, sectors: int) -> np.ndarray:
    buffer, parts, sector = bytearray(_HEADER.size + _AT_A_TIME * _ZONE.itemsize), [], 0
    while sector < sectors:
        _HEADER.pack_into(buffer, 0, sector, _AT_A_TIME, 0)
        fcntl.ioctl(descriptor, _BLKREPORTZONE, buffer, True)
        _, count, flags = _HEADER.unpack_from(buffer)
        if not count:
            raise OSError(errno.EIO, f"no zone reported at sector {sector}")
        part = np.frombuffer(bytes(buffer), _ZONE, count, _HEADER.size)
        if not flags & _HAS_CAPACITY:
            part = part.copy()
            part["capacity"] = part["length"]
        parts.append(part)
        sector = int(part["start"][-1] + part["length"][-1])
    return np.concatenate(parts)
