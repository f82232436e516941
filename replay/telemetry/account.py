"""What a run's account tells of its telemetry, the key `telemetry`."""

import numpy as np

from blkreel.traces.telemetry_file import Telemetry

from .series import integral
from .smart_formats import THROTTLED_TIMES, UNITS

_SIGNIFICANT = 6


def empty_account(missing: dict[str, str] | None = None) -> dict:
    return {"temperature_c": None, "power": None, "throttled": None, "link": None, "smart": None,
            "missing": missing or {}, "notes": {}}


def account_of(telemetry: Telemetry, wall_ns: int, meter: dict | None) -> dict:
    """wall_ns: how long the run was. meter: {"meter", "rail"} of `power_w`, None where there is none."""
    return {
        "temperature_c": _temperature(telemetry, wall_ns),
        "power": _power(telemetry, wall_ns, meter),
        "throttled": _throttled(telemetry),
        "link": _link(telemetry, wall_ns),
        "smart": _smart(telemetry),
        "missing": {name: entry["missing"] for name, entry in telemetry.sensors.items() if entry["missing"]},
        "notes": {name: entry["notes"] for name, entry in telemetry.sensors.items() if entry["notes"]},
    }


def _temperature(telemetry, wall_ns):
    time_ns, value = telemetry.series("temperature_c")
    if not len(value):
        return None
    # The last one before the start, and the first one after the end, stand for both.
    first = max(int(np.searchsorted(time_ns, 0, "right")) - 1, 0)
    last = min(int(np.searchsorted(time_ns, wall_ns, "left")), len(value) - 1)
    during = value[first:max(last, first) + 1]
    return {"start": float(value[first]), "max": float(during.max()), "end": float(value[last])}


def _power(telemetry, wall_ns, meter):
    time_ns, value = telemetry.series("power_w")
    if meter is None or not len(value):
        return None
    entry = telemetry.sensors["power_w"]
    energy_j, covered_ns = integral(time_ns, value, 0, wall_ns, entry["gaps"])
    if not covered_ns:
        return None
    gaps = [gap for gap in entry["gaps"] if gap[0] < wall_ns and gap[1] > 0]
    return {**meter, "rate_hz": entry["rate_hz"], "average_w": _rounded(energy_j / covered_ns * 1e9),
            "energy_j": _rounded(energy_j), "gaps": len(gaps), "covered_ns": covered_ns}


def _throttled(telemetry):
    """How often the drive throttled itself while it was watched; where it was throttled all the time, once."""
    _, value = telemetry.series("throttle_events")
    if not len(value):
        return None
    events = int(value[-1])
    times = (_change(telemetry.smart, name) or 0 for name in THROTTLED_TIMES)
    return max(events, int(any(time > 0 for time in times)))


def _link(telemetry, wall_ns):
    """The slowest and narrowest that the link was."""
    least = {}
    for key, name in (("least_speed_gts", "link_speed_gts"), ("least_width", "link_width")):
        time_ns, value = telemetry.series(name)
        during = value[(time_ns >= 0) & (time_ns <= wall_ns)]
        if len(during):
            least[key] = float(during.min())
    return least or None


def _smart(telemetry):
    """changed: field -> by how much, of those that did. took_ns: the longest that a question took."""
    if not telemetry.smart.get("before") or not telemetry.smart.get("after"):
        return None
    changes = {name: _change(telemetry.smart, name) for name in telemetry.smart["after"] if name in UNITS}
    return {"changed": {name: change for name, change in changes.items() if change},
            "critical_warning": _warnings(telemetry), "took_ns": telemetry.smart["after"].get("took_ns")}


def _warnings(telemetry) -> int:
    """The bits of every warning that the drive gave, before, during or after."""
    warned = [smart.get("critical_warning", 0) for smart in telemetry.smart.values()]
    return int(np.bitwise_or.reduce(np.array([*warned, *telemetry.series("smart.critical_warning")[1]], np.int64)))


def _change(smart, name):
    before, after = ((smart.get(when) or {}).get(name) for when in ("before", "after"))
    return None if before is None or after is None else after - before


def _rounded(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT}g}")
