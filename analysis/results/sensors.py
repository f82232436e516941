"""What sensors recorded beside a run: power and temperature, or why there is none."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.traces.errors import TraceError
from blkreel.traces.telemetry import read_telemetry

from ..energy import SECOND_NS, Power

POWER, TEMPERATURE = "power_w", "temperature_c"
NO_POWER = "power not measured"
_NONE = (np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class Sensors:
    """power is None where it was not measured, and no_power then says why. meter names source and rate.

    temperature: (time_ns, degrees C), empty where there is none.
    """

    power: Power | None
    no_power: str | None
    meter: str | None
    temperature: tuple[np.ndarray, np.ndarray] = _NONE


def sensors_of(directory: Path) -> Sensors:
    """The sensors of a run's directory. Damaged telemetry is a missing sensor: the records beside it stand."""
    try:
        telemetry = read_telemetry(directory)
    except TraceError as error:
        return Sensors(None, f"{NO_POWER}: {error.message}", None)
    if telemetry is None:
        return Sensors(None, NO_POWER, None)
    temperature = _series(telemetry, TEMPERATURE)
    time_ns, watts = _series(telemetry, POWER)
    told = telemetry.sensors.get(POWER) or {}
    if not len(time_ns):
        missing = told.get("missing")
        return Sensors(None, f"{NO_POWER}: {missing}" if missing else NO_POWER, None, temperature)
    rate_hz = told.get("rate_hz")
    power = Power(time_ns, watts, round(SECOND_NS / rate_hz) if rate_hz else None, told.get("gaps") or ())
    meter = told.get("source") or POWER
    if rate_hz:
        meter += f", {rate_hz:g} samples a second"
    return Sensors(power, None, meter, temperature)


def _series(telemetry, name):
    if name not in telemetry.sensors:
        return _NONE
    time_ns, value = telemetry.series(name)
    order = np.argsort(time_ns, kind="stable")
    return np.asarray(time_ns, np.int64)[order], np.asarray(value, float)[order]
