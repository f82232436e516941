"""Synthetic test directories in the format of `blkreel test`."""

import json
import zlib

import numpy as np

from blkreel.traces.format.schema import RUN_SCHEMA
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.telemetry.file import Telemetry, sensor, write_telemetry

MS = 1_000_000
SECOND = 1000 * MS
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DRIVE = {"name": "loop3", "path": "/dev/loop3", "major": 7, "minor": 3, "size_bytes": 8 << 30, "model": "Example 980",
         "firmware": "1B4Q", "kind": "disk", "serial_hash": "hash of a drive"}


def rows_of(submit_ns, latency_ns, op=0, length_bytes=4096, **more):
    """Columns of a run. A number holds for all rows; rows are brought into the order of submit_ns."""
    submit_ns = np.asarray(submit_ns, np.int64)
    columns = {"submit_ns": submit_ns, "latency_ns": latency_ns, "op": op, "length_bytes": length_bytes,
               "due_ns": submit_ns, "offset_bytes": 0, "source_row": np.arange(len(submit_ns)), **more}
    columns = {name: np.broadcast_to(np.asarray(values), len(submit_ns)) for name, values in columns.items()}
    order = np.argsort(submit_ns, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def closed_loop(count, cost_ns, depth=1, **more):
    """Rows of a queue that is kept at `depth` by one server: each I/O costs cost_ns (a number, or one for each)."""
    done = np.cumsum(np.broadcast_to(np.asarray(cost_ns, np.int64), count))
    submit = np.concatenate([np.zeros(min(depth, count), np.int64), done[:max(0, count - depth)]])
    return rows_of(submit, done - submit, **{"due_ns": -1, **more})


def both(*parts):
    """Several streams as one, in the order of submit_ns."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["submit_ns"], kind="stable")
    return {name: values[order] for name, values in joined.items()}


def write_step(directory, rows, *, streams=(), power=None, temperature=None, verdict=None, power_rate_hz=1.0,
               power_gaps=(), power_missing=None, withheld=(), io_max=None, **run):
    """The run of one step. power, temperature: (time_ns, value). verdict: reasons, and withheld metrics. io_max: limits
    of its control group. run: more of its account."""
    directory.mkdir(parents=True)
    reasons = list(verdict or [])
    level = "invalid" if any(each["level"] == "invalid" for each in reasons) else "qualified" if reasons else "valid"
    count = len(rows["submit_ns"])
    with TraceWriter(directory / "records.parquet", RUN_SCHEMA) as writer:
        writer.write(rows)
        writer.close({"devices": [{**DRIVE, "io_max": io_max or {}}], "clock": "monotonic", "epoch_ns": 0,
                      "threads": {}, "run": {
            "label": "fast drive", "drive": DRIVE, "source": {"path": "a step", "streams": list(streams)},
            "pace": {"name": "depth", "depth": 1}, "idle": {"name": "original", "cap_ns": None, "removed_ns": 0},
            "state": {"name": "full"}, "planned_ops": count, "completed_ops": count, "error_ops": 0, "partial": None,
            "verdict": {"level": level, "reasons": reasons, "notes": [], "withheld": list(withheld)},
            **run}})
    sensors, samples = {}, {}
    if power is not None or power_missing:
        sensors["power_w"] = sensor("W", "meter X", power_rate_hz, gaps=power_gaps, missing=power_missing)
    if power is not None:
        samples["power_w"] = tuple(np.asarray(each) for each in power)
    if temperature is not None:
        sensors["temperature_c"] = sensor("°C", "hwmon", 1.0)
        samples["temperature_c"] = tuple(np.asarray(each) for each in temperature)
    if sensors:
        write_telemetry(directory / "telemetry.parquet", Telemetry(sensors, samples=samples))
    return directory


class MadeTest:
    """A test's directory that grows step by step."""

    def __init__(self, directory, report, *, name="a-test", quick=False, scale=1.0, parameters=None):
        self.path = directory
        directory.mkdir(parents=True)
        self.told = {"version": 1, "test": name, "title": f"{name} of {report}", "report": report, "explain": "made up",
                     "quick": quick, "scale": scale, "parameters": parameters or {}, "drive": DRIVE,
                     "seed": zlib.crc32(directory.name.encode()),  # else tests with equal rows are copies
                     "usable_bytes": 8 << 30, "label": "fast drive", "started_at": "2026-01-01T00:00:00Z",
                     "ended_at": "2026-01-01T01:00:00Z", "blkreel": "0.1.0", "steps": []}
        self._write()

    def step(self, role, labels=None, rows=None, *, status="done", do="measure", title=None, error=None, **run):
        """Add a step; with rows also its run. Gives the step's id."""
        labels = labels or {}
        step_id = "-".join([f"{len(self.told['steps']) + 1:02}", role or do, *map(str, labels.values())])
        where = None
        if rows is not None:
            where = f"steps/{step_id}"
            write_step(self.path / where, rows, **run)
        self.told["steps"].append({
            "id": step_id, "do": do, "title": title or " ".join([role or do, *map(str, labels.values())]), "role": role,
            "labels": labels, "status": status, "directory": where, "started_at": None, "ended_at": None,
            "result": None, "error": error})
        self._write()
        return step_id

    def _write(self):
        (self.path / "test.json").write_text(json.dumps(self.told))
