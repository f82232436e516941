"""What a run's account tells of its telemetry, the key `telemetry`."""

from collections.abc import Sequence

import numpy as np

from blkreel.traces.telemetry_file import Telemetry

from .series import integral
from .smart_formats import THROTTLED_TIMES, UNITS

_SIGNIFICANT = 6


def empty_account(missing: dict[str, str] | None = None) -> dict:
    return {"temperature_c": None, "power": None, "throttled": None, "link": None, "smart": None, "drives": None,
            "missing": missing or {}, "notes": {}}


def account_of(telemetry: Telemetry, wall_ns: int, meter: dict | None, others: Sequence[str] = ()) -> dict:
    """wall_ns: how long the run was. meter: {"meter", "rail"} of `power_w`, None where there is none.

    others: the names of the run's second and further drives, which are told of under `drives`.
    """
    return {
        **_of_drive(telemetry, wall_ns, ""),
        "power": _power(telemetry, wall_ns, meter),
        "drives": {name: _of_drive(telemetry, wall_ns, f".{name}") for name in others} or None,
        "missing": {name: entry["missing"] for name, entry in telemetry.sensors.items() if entry["missing"]},
        "notes": {name: entry["notes"] for name, entry in telemetry.sensors.items() if entry["notes"]},
    }


def _of_drive(telemetry, wall_ns, suffix):
    smart = _smart_series(telemetry, suffix)
    return {
        "temperature_c": _temperature(telemetry, wall_ns, suffix),
        "throttled": _throttled(telemetry, smart, suffix),
        "link": _link(telemetry, wall_ns, suffix),
        "smart": _smart(telemetry, smart, suffix),
    }


def _temperature(telemetry, wall_ns, suffix):
    time_ns, value = telemetry.series(f"temperature_c{suffix}")
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


def _throttled(telemetry, smart, suffix):
    """How often the drive throttled itself while it was watched; where it was throttled all the time, once."""
    _, value = telemetry.series(f"throttle_events{suffix}")
    if not len(value):
        return None
    all_the_time = any(_change(smart[name]) > 0 for name in THROTTLED_TIMES if name in smart)
    return max(int(value[-1]), int(all_the_time))


def _link(telemetry, wall_ns, suffix):
    """The slowest and narrowest that the link was."""
    least = {}
    for key, name in (("least_speed_gts", "link_speed_gts"), ("least_width", "link_width")):
        time_ns, value = telemetry.series(f"{name}{suffix}")
        during = value[(time_ns >= 0) & (time_ns <= wall_ns)]
        if len(during):
            least[key] = float(during.min())
    return least or None


def _smart_series(telemetry, suffix) -> dict[str, np.ndarray]:
    """field -> its values, of those that were asked for at least twice."""
    found = {field: telemetry.series(f"smart{suffix}.{field}")[1] for field in UNITS}
    return {field: value for field, value in found.items() if len(value) > 1}


def _smart(telemetry, smart, suffix):
    """changed: field -> by how much, of those that did. critical_warning: every bit of it that was ever set.

    took_ns: the longest that a question took.
    """
    if not smart:
        return None
    changes = {field: _change(value) for field, value in smart.items()}
    warned = smart.get("critical_warning", np.zeros(1)).astype(np.int64)
    return {"changed": {field: change for field, change in changes.items() if change},
            "critical_warning": int(np.bitwise_or.reduce(warned)),
            "took_ns": None if suffix else (telemetry.smart.get("after") or {}).get("took_ns")}


def _change(value) -> float:
    return float(value[-1] - value[0])


def _rounded(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT}g}")
