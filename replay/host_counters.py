"""What the machine counted of itself while a run went on: time taken by a hypervisor, processors slowed by heat."""

import os
from dataclasses import dataclass
from pathlib import Path

_STEAL = 8  # of the words of the line `cpu` in /proc/stat


@dataclass(frozen=True)
class HostCounters:
    """steal_ns: time in which a hypervisor gave the processors to others. throttled: how often heat slowed one down,
    None where the processors do not tell. machine_waited_ns: time in which anything waited for a processor, None
    where the kernel keeps no such account (PSI).
    """

    steal_ns: int
    throttled: int | None
    machine_waited_ns: int | None

    def since(self, before: "HostCounters") -> dict:
        """As a run's metadata tells it."""
        return {name: None if None in (value, getattr(before, name)) else value - getattr(before, name)
                for name, value in vars(self).items()}


def read_counters(proc: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> HostCounters:
    return HostCounters(_steal_ns(proc), throttled(sys_root), _waited_ns(proc))


def _steal_ns(proc):
    try:
        words = (proc / "stat").read_text().split("\n", 1)[0].split()
        return int(words[_STEAL]) * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0


def throttled(sys_root: Path) -> int | None:
    """How often heat has slowed a processor down since the start; None where they do not tell.

    Per core: its own count and that of its package, which every core of it repeats; the greatest is enough."""
    counts = []
    for path in (sys_root / "devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        try:
            counts.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return sum(counts) if counts else None


def _waited_ns(proc):
    try:
        for line in (proc / "pressure/cpu").read_text().splitlines():
            if line.startswith("some "):
                return int(line.rpartition("total=")[2]) * 1000
    except (OSError, ValueError):
        pass
    return None
