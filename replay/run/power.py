"""Power of a meter's log, added to a run after its end."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from blkreel.common.errors import BlkreelError, TraceError
from blkreel.replay.fidelity.verdict import judge
from blkreel.replay.telemetry.account import Meter, account_of
from blkreel.replay.telemetry.power.log import PowerLog
from blkreel.replay.telemetry.power.samples import ClockPairs
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.overrides import amend
from blkreel.traces.format.reader import open_trace
from blkreel.traces.telemetry.file import FILE, Telemetry, sensor, write_telemetry
from blkreel.traces.telemetry.reader import read_telemetry


def add_power(directory: Path, log: PowerLog) -> Mapping[str, Any]:
    """Put the log's samples into the telemetry of a finished run, and judge the run again. Returns its new account.

    Earlier power samples are replaced. Raises TraceError if there is no run, BlkreelError if the log has no sample of
    its time.
    """
    trace = open_trace(directory)
    run, epoch_ns = trace.metadata.get("run"), trace.metadata.get("epoch_ns")
    if run is None or epoch_ns is None:
        raise TraceError(f"{directory} is not a run", "give a directory that `blkreel replay -o` wrote")
    pairs = trace.metadata.get("clock_pairs") or []
    if len(pairs) < 2:
        raise TraceError(f"{directory}: no start time recorded, because its replay was killed", "replay it again")
    first, last = ((pair["monotonic_ns"], pair["realtime_ns"]) for pair in (pairs[0], pairs[-1]))
    begin_ns = Run.of(trace.metadata).begin_ns
    end_ns = epoch_ns + begin_ns + run["wall_ns"]
    power = log.read(ClockPairs(first, last), epoch_ns).during(epoch_ns, end_ns)
    meter: Meter = {"meter": f"log: {log.path.name}", "rail": "drive"}
    before = read_telemetry(directory) or Telemetry({}, epoch_ns=epoch_ns)
    gaps = [(gap_begin_ns - epoch_ns, gap_end_ns - epoch_ns) for gap_begin_ns, gap_end_ns in power.gaps]
    entry = sensor("W", meter["meter"], power.rate_hz, gaps=gaps, notes=power.notes)
    telemetry = replace(before, sensors={**before.sensors, "power_w": entry},
                        samples={**before.samples, "power_w": (power.time_ns - epoch_ns, power.watts)})
    other_drives = [drive["name"] for drive in (run.get("drives") or [])[1:]]
    account = {**run, "telemetry": account_of(telemetry, run["wall_ns"], meter, other_drives, begin_ns)}
    if account["telemetry"]["power"] is None:
        raise BlkreelError(f"{log.path}: only one sample during {directory}", "give a log with more samples")
    verdict = judge(account)
    write_telemetry(Path(directory) / FILE, telemetry, force=True)
    amend(trace, {"telemetry": account["telemetry"], "verdict": verdict}, f"power from {log.path.name}")
    return {**account, "verdict": verdict}
