"""Power and temperature of a run, or the reason for their absence."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.analysis.metrics.energy import SECOND_NS, Power
from blkreel.benchmarks.step_metrics import Array
from blkreel.common.errors import TraceError
from blkreel.traces.telemetry.file import Telemetry
from blkreel.traces.telemetry.reader import read_telemetry

POWER, TEMPERATURE = "power_w", "temperature_c"
NO_POWER = "power not measured"
_NONE = (np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class Sensors:
    """power: None if it was not measured, with the reason in no_power. meter: source and sampling rate.

    temperature: (time_ns, degrees C), empty if it was not measured.
    """

    power: Power | None
    no_power: str | None
    meter: str | None
    temperature: tuple[Array, Array] = _NONE


def sensors_of(directory: Path) -> Sensors:
    """The sensors of a run's directory. Damaged telemetry counts as missing; the records stay valid."""
    try:
        telemetry = read_telemetry(directory)
    except TraceError as error:
        return Sensors(None, f"{NO_POWER}: {error.message}", None)
    if telemetry is None:
        return Sensors(None, NO_POWER, None)
    temperature = _series(telemetry, TEMPERATURE)
    time_ns, watts = _series(telemetry, POWER)
    sensor = telemetry.sensors.get(POWER) or {}
    if not len(time_ns):
        missing = sensor.get("missing")
        return Sensors(None, f"{NO_POWER}: {missing}" if missing else NO_POWER, None, temperature)
    rate_hz = sensor.get("rate_hz")
    power = Power(time_ns, watts, round(SECOND_NS / rate_hz) if rate_hz else None, sensor.get("gaps") or ())
    meter = sensor.get("source") or POWER
    if rate_hz:
        meter += f", {rate_hz:g} samples per second"
    return Sensors(power, None, meter, temperature)


def _series(telemetry: Telemetry, name: str) -> tuple[Array, Array]:
    if name not in telemetry.sensors:
        return _NONE
    time_ns, value = telemetry.series(name)
    order = np.argsort(time_ns, kind="stable")
    return np.asarray(time_ns, np.int64)[order], np.asarray(value, float)[order]
