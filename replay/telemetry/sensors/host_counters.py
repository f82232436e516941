"""Counters of the machine over a run: time stolen by a hypervisor, thermal throttling, waiting for a processor."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Indexes in the line `cpu` of /proc/stat: user, nice, system, irq, softirq; steal.
_BUSY, _STEAL = (1, 2, 3, 6, 7), (8,)
# /proc/stat counts in steps of this length.
STEP_NS = 10**9 // int(os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True)
class HostCounters:
    """steal_ns: processor time that a hypervisor took. throttled: thermal throttling events of the processors, None if
    they do not report them. machine_waited_ns: time in which any task waited for a processor, None without PSI.
    counted_ns: when they were read, on the monotonic clock; in differences the period that the others are of.
    """

    steal_ns: int
    throttled: int | None
    machine_waited_ns: int | None
    counted_ns: int

    def since(self, before: "HostCounters") -> dict[str, int | None]:
        """The differences, by name; None if one of the values is."""
        return {name: None if None in (value, getattr(before, name)) else value - getattr(before, name)
                for name, value in vars(self).items()}


@dataclass(frozen=True)
class OtherWork:
    """Processor time since boot, of all processors: used by other processes than this one and its ended children, and
    taken by a hypervisor."""

    others_ns: int
    steal_ns: int


def read_other_work(proc: Path = Path("/proc")) -> OtherWork:
    own = os.times()
    own_s = own.user + own.system + own.children_user + own.children_system
    busy_ns = _cpu_ns(proc, _BUSY)
    return OtherWork(busy_ns and busy_ns - round(own_s * 1e9), _cpu_ns(proc, _STEAL))


def read_counters(proc: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> HostCounters:
    return HostCounters(_cpu_ns(proc, _STEAL), throttled(sys_root), _waited_ns(proc), time.monotonic_ns())


def _cpu_ns(proc: Path, indexes: tuple[int, ...]) -> int:
    """The sum of these times of all processors since boot; 0 if they cannot be read."""
    try:
        words = (proc / "stat").read_text().split("\n", 1)[0].split()
        return sum(int(words[index]) for index in indexes) * STEP_NS
    except (OSError, ValueError, IndexError):
        return 0


def throttled(sys_root: Path) -> int | None:
    """Thermal throttling events of all cores and their packages since boot; None if they do not report them."""
    counts = []
    for path in (sys_root / "devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        try:
            counts.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return sum(counts) if counts else None


def _waited_ns(proc: Path) -> int | None:
    with suppress(OSError, ValueError):
        for line in (proc / "pressure/cpu").read_text().splitlines():
            if line.startswith("some "):
                return int(line.rpartition("total=")[2]) * 1000
    return None
