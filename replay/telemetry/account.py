"""The telemetry summary of a run, the metadata key `run.telemetry` (docs/telemetry.md, "Summary in the run")."""

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any, TypedDict

import numpy as np

from blkreel.common.files.typed_document import document_of
from blkreel.replay.telemetry.sensors.smart_formats import DATA_UNIT_BYTES, THROTTLED_TIMES, UNITS
from blkreel.traces.format import metadata_types
from blkreel.traces.format.metadata_types import DriveTelemetry, Power, Smart, Temperature, WriteCounters
from blkreel.traces.telemetry.file import Telemetry

from .power.samples import integral


class Meter(TypedDict):
    meter: str
    rail: str | None


def account_of(telemetry: Telemetry, wall_ns: int, meter: Meter | None, other_drives: Sequence[str] = (),
               begin_ns: int = 0) -> dict[str, Any]:
    """A document of metadata_types.Telemetry. wall_ns: duration of the run. meter: of `power_w`, None without one.
    other_drives: names of all but the first. begin_ns: of the run on the clock of the samples, later than 0 behind the
    lead of a background."""
    end_ns = begin_ns + wall_ns
    return document_of(metadata_types.Telemetry(
        **_of_drive(telemetry, begin_ns, end_ns, ""), power=_power(telemetry, begin_ns, end_ns, meter),
        drives={name: DriveTelemetry(**_of_drive(telemetry, begin_ns, end_ns, f".{name}")) for name in other_drives},
        missing={name: entry["missing"] for name, entry in telemetry.sensors.items() if entry["missing"]},
        notes={name: entry["notes"] for name, entry in telemetry.sensors.items() if entry["notes"]},
        meter_given=meter is not None))


def _of_drive(telemetry: Telemetry, begin_ns: int, end_ns: int, suffix: str) -> dict[str, Any]:
    """The fields of a DriveTelemetry that are known."""
    values = {field: telemetry.series(f"smart{suffix}.{field}")[1] for field in UNITS}
    # The difference to the start needs two values.
    smart = {field: value for field, value in values.items() if len(value) > 1}
    return {"temperature_c": _temperature(telemetry, begin_ns, end_ns, suffix),
            "throttled": _throttled(telemetry, smart, suffix), "link": _link(telemetry, begin_ns, end_ns, suffix),
            **({"smart": _smart(telemetry, smart, suffix)} if smart else {})}


def _temperature(telemetry: Telemetry, begin_ns: int, end_ns: int, suffix: str) -> Temperature | None:
    time_ns, value = telemetry.series(f"temperature_c{suffix}")
    if not len(value):
        return None
    # The last sample before the start, and the first one after the end, belong to the run.
    first = max(int(np.searchsorted(time_ns, begin_ns, "right")) - 1, 0)
    last = min(int(np.searchsorted(time_ns, end_ns, "left")), len(value) - 1)
    during = value[first:max(last, first) + 1]
    return Temperature(start=float(value[first]), max=float(during.max()), end=float(value[last]))


def _power(telemetry: Telemetry, begin_ns: int, end_ns: int, meter: Meter | None) -> Power | None:
    time_ns, value = telemetry.series("power_w")
    if meter is None or not len(value):
        return None
    entry = telemetry.sensors["power_w"]
    energy_j, covered_ns = integral(time_ns, value, begin_ns, end_ns, entry["gaps"])
    if not covered_ns:
        return None
    gaps = [gap for gap in entry["gaps"] if gap[0] < end_ns and gap[1] > begin_ns]
    return Power(**meter, rate_hz=entry["rate_hz"], average_w=_rounded(energy_j / covered_ns * 1e9),
                 energy_j=_rounded(energy_j), gaps=len(gaps), covered_ns=covered_ns)


def _throttled(telemetry: Telemetry, smart: Mapping[str, np.ndarray], suffix: str) -> int | None:
    """Number of throttling events of the drive during the run; at least 1 if it was throttled all the time."""
    _, value = telemetry.series(f"throttle_events{suffix}")
    if not len(value):
        return None
    all_the_time = any(_change(smart[name]) > 0 for name in THROTTLED_TIMES if name in smart)
    return max(int(value[-1]), int(all_the_time))


def _link(telemetry: Telemetry, begin_ns: int, end_ns: int, suffix: str) -> dict[str, float | None] | None:
    def least(name: str) -> float | None:
        time_ns, value = telemetry.series(f"{name}{suffix}")
        during = value[(time_ns >= begin_ns) & (time_ns <= end_ns)]
        return float(during.min()) if len(during) else None

    lowest = {f"least_{name.removeprefix('link_')}": least(name) for name in ("link_speed_gts", "link_width")}
    return {name: value for name, value in lowest.items() if value is not None} or None


def _smart(telemetry: Telemetry, smart: Mapping[str, np.ndarray], suffix: str) -> Smart:
    changes = {field: _change(value) for field, value in smart.items()}
    warnings = smart.get("critical_warning", np.zeros(1)).astype(np.int64)
    return Smart(changed={field: change for field, change in changes.items() if change},
                 critical_warning=int(np.bitwise_or.reduce(warnings)),
                 took_ns=None if suffix else (telemetry.smart.get("after") or {}).get("took_ns"), writes=_writes(smart))


def _writes(smart: Mapping[str, np.ndarray]) -> WriteCounters | None:
    units, media, host_pages, own_pages = (_counter(smart.get(field)) for field in (
        "data_units_written", "media_bytes_written", "host_program_pages", "ftl_program_pages"))
    if units and media:
        return WriteCounters(unit="B", host=units[0] * DATA_UNIT_BYTES, media=media[0],
                             host_step=units[1] * DATA_UNIT_BYTES, media_step=media[1])
    if host_pages and own_pages:
        return WriteCounters(unit="page", host=host_pages[0], media=host_pages[0] + own_pages[0],
                             host_step=host_pages[1], media_step=host_pages[1] + own_pages[1])
    return None


def _counter(values: np.ndarray | None) -> tuple[int, int] | None:
    """Growth and step. None of a counter that is always 0, which does not count, and of one that went back."""
    if values is None or not values.any() or (np.diff(values) < 0).any():
        return None
    return int(values[-1]) - int(values[0]), gcd(*(int(value) for value in values))


def _change(value: np.ndarray) -> float:
    return float(value[-1] - value[0])


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
