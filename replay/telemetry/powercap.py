"""Power of the processor's rails, from the energy counters of RAPL (Documentation/power/powercap/powercap.rst)."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from .source import Found, Missing, Sensor, number_in, slug, text_in

_SOURCE = "powercap"
_JOULES = 1e-6  # energy_uj


def rails(sys_root: Path, clock_ns: Callable[[], int] = time.monotonic_ns) -> Found:
    """`power_w.package-0` and the rails in it. They are the processor's, or the whole board's (`psys`); no drive's."""
    found, names = Found(), set()
    for zone in sorted((sys_root / "class/powercap").glob("*:*")):
        own = text_in(zone / "name")
        if not own or not (zone / "energy_uj").exists():
            continue
        parent = text_in(zone.resolve().parent / "name")
        rail = f"{parent} {own}" if zone.name.count(":") > 1 and parent else own
        name = f"power_w.{slug(rail)}"
        # A processor may have the same counters twice, as registers and as memory.
        if name in names:
            continue
        names.add(name)
        if os.access(zone / "energy_uj", os.R_OK):
            found.sources.append(Rapl(Sensor(name, "W", _SOURCE, rail), zone, clock_ns))
        else:
            found.missing.append(Missing(name, "W", f"{zone / 'energy_uj'} is for root only; run it with sudo"))
    return found


class Rapl:
    """The mean power since the reading before, from a counter of energy that wraps around."""

    def __init__(self, sensor: Sensor, zone: Path, clock_ns: Callable[[], int] = time.monotonic_ns):
        self.sensors = [sensor]
        self._zone, self._clock_ns = zone, clock_ns
        self._before: tuple[int, float] | None = None

    def like(self, sensor: Sensor) -> "Rapl":
        """The same counter under another name."""
        return Rapl(sensor, self._zone, self._clock_ns)

    def read(self):
        now_ns, energy = self._clock_ns(), number_in(self._zone / "energy_uj")
        before, self._before = self._before, (now_ns, energy)
        if before is None or now_ns <= before[0]:
            return {}
        used = energy - before[1]
        if used < 0:
            # At 500 W the 2^32 units of 61 uJ of the smallest counter last nine minutes: it wraps once at most.
            used += number_in(self._zone / "max_energy_range_uj")
        if used < 0:
            raise ValueError(f"{self._zone / 'energy_uj'} went back by more than its range")
        return {self.sensors[0].name: used * _JOULES / (now_ns - before[0]) * 1e9}
