"""Time in which nothing is asked of a drive, so that it can tidy up or cool down."""

import time

from blkreel.traces.units import format_ns

from . import simulated
from .target import Target

_TICK_S = 0.2


def rest(target: Target, duration_ns: int, *, what: str, progress) -> None:
    """Leave the drive alone for so long. what: for the progress, such as `resting`.

    By the clock, not by a count of ticks: a suspended machine has rested too. A simulated drive is told of the time;
    on a virtual clock it passes at once.
    """
    start = time.monotonic()
    with progress(what, max(duration_ns / 1e9, 1e-3)) as task:
        if target.is_simulated and target.simulated.is_virtual:
            simulated.pass_time(target, duration_ns)
            task.update(duration_ns / 1e9, f"for {format_ns(duration_ns)}")
            return
        while (elapsed := time.monotonic() - start) < duration_ns / 1e9:
            task.update(elapsed, f"for {format_ns(duration_ns)}")
            time.sleep(min(_TICK_S, max(0.0, duration_ns / 1e9 - elapsed)))
    if target.is_simulated:
        simulated.pass_time(target, duration_ns)
