"""How often heat slowed the machine's processors down, while a run goes on."""

from pathlib import Path

from ..host_counters import throttled
from .source import Found, Missing, Sensor

_NAME = "throttle_events.cpu"


class CpuHeat:
    """Counted since the first reading."""

    def __init__(self, sys_root: Path):
        self.sensors = [Sensor(_NAME, "count", "thermal_throttle")]
        self._sys_root = sys_root
        self._first: int | None = None

    @classmethod
    def found(cls, sys_root: Path) -> Found:
        if throttled(sys_root) is None:
            return Found(missing=[Missing(_NAME, "count", "these processors, or their hypervisor, do not tell it")])
        return Found([cls(sys_root)])

    def read(self):
        count = throttled(self._sys_root)
        if count is None:
            raise ValueError("the processors do not tell any more")
        if self._first is None:
            self._first = count
        return {_NAME: count - self._first}
