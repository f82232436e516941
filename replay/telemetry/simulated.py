"""A simulated drive's own account of its heat and power, from the engine's totals."""

import numpy as np

from blkreel.traces.telemetry_file import Telemetry, sensor

SOURCE = "simulated"


def telemetry_of(totals: dict) -> Telemetry | None:
    """totals: the engine's end block; None where it tells no samples.

    `throttling` is whether it is throttled then, `throttle_events` how often it had begun to be.
    """
    samples = (totals.get("simulated") or {}).get("samples")
    if not samples:
        return None
    table = np.array(samples, np.float64).reshape(len(samples), -1)
    time_ns = np.array([row[0] for row in samples], np.int64)
    throttling = (table[:, 3] > 0).astype(np.float64)
    # Power is the mean since the sample before: of the first one, of the time before the run.
    if len(table) > 1:
        table[0, 2] = table[1, 2]
    began = np.cumsum(np.diff(throttling, prepend=0.0) > 0).astype(np.float64)
    values = {"temperature_c": ("C", table[:, 1]), "power_w": ("W", table[:, 2]), "throttling": ("0|1", throttling),
              "throttle_events": ("count", began)}
    rate_hz = round(1e9 / float(np.median(np.diff(time_ns))), 3) if len(time_ns) > 1 else None
    return Telemetry({name: sensor(unit, SOURCE, rate_hz) for name, (unit, _) in values.items()}, {},
                     totals.get("start_monotonic_ns"), {name: (time_ns, value) for name, (_, value) in values.items()})
