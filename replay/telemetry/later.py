"""Power that a meter's log tells after a run has ended: most meters give their log away only then."""

from dataclasses import replace
from pathlib import Path

from blkreel.traces.amended import amend
from blkreel.traces.errors import BlkreelError, TraceError
from blkreel.traces.reader import open_trace
from blkreel.traces.telemetry import read_telemetry
from blkreel.traces.telemetry_file import FILE, Telemetry, sensor, write_telemetry

from ..verdict import judge
from .account import account_of
from .power_log import PowerLog
from .power_samples import ClockPairs


def add_power(directory: Path, log: PowerLog) -> dict:
    """Put the log's samples into the telemetry of a run, and judge the run again; its account as it is then.

    What power was there before is replaced. Raises TraceError where there is no run, BlkreelError where the log has
    no sample of its time.
    """
    trace = open_trace(directory)
    run, epoch_ns = trace.metadata.get("run"), trace.metadata.get("epoch_ns")
    if run is None or epoch_ns is None:
        raise TraceError(f"{directory} is no run, so no meter was beside it", "name what `blkreel replay -o` made")
    pairs = trace.metadata.get("clock_pairs") or []
    if len(pairs) < 2:
        raise TraceError(f"{directory} does not tell its wall clock", "its replay died: replay it again")
    first, last = ((pair["monotonic_ns"], pair["realtime_ns"]) for pair in (pairs[0], pairs[-1]))
    end_ns = epoch_ns + run["wall_ns"]
    found = log.read(ClockPairs(first, last), epoch_ns).during(epoch_ns, end_ns)
    meter = {"meter": f"log: {log.path.name}", "rail": "drive"}
    told = read_telemetry(directory) or Telemetry({}, epoch_ns=epoch_ns)
    gaps = [(begin_ns - epoch_ns, to_ns - epoch_ns) for begin_ns, to_ns in found.gaps]
    told = replace(
        told, sensors={**told.sensors, "power_w": sensor("W", meter["meter"], found.rate_hz, gaps=gaps,
                                                         notes=found.notes)},
        samples={**told.samples, "power_w": (found.time_ns - epoch_ns, found.watts)})
    others = [drive["name"] for drive in (run.get("drives") or [])[1:]]
    account = {**run, "telemetry": {**account_of(told, run["wall_ns"], meter, others)}}
    if account["telemetry"]["power"] is None:
        raise BlkreelError(f"{log.path} has a single sample of the time of {directory}", "take one with more")
    verdict = judge(account)
    write_telemetry(Path(directory) / FILE, told, force=True)
    amend(trace, {"telemetry": account["telemetry"], "verdict": verdict}, f"power from {log.path.name}")
    return {**account, "verdict": verdict}
