"""Files written by past versions must be read for ever: one of each kind and version stands in tests/golden.

A file here is never written anew. A new version of the format adds its own: run this file with DIRECTORY
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tree import TREE

from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import RUN_SCHEMA, TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.telemetry.file import SCHEMA as TELEMETRY_SCHEMA
from blkreel.traces.telemetry.file import Telemetry, read_file, sensor, write_telemetry

GOLDEN = TREE / "tests/golden"
ROWS = 300
# The bits there were when the files were written; later ones are none of theirs.
FLAGS = [1 << bit for bit in (0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 16)]
METADATA = {
    "writer": "blkreel 0.1.0", "source_format": "bpf:tp_btf", "clock": "monotonic", "epoch_ns": 1_000_000_000,
    "capture_layer": "request", "command": ["./start-game"], "kernel": "6.1.0",
    "devices": [{"name": "nvme0n1", "path": "/dev/nvme0n1", "kind": "disk", "size_bytes": 1 << 38}],
    "threads": {"100": {"pid": 100, "comm": "game", "names": ["sh", "game"]}},
    "lost": {"total": 2, "per_cpu": {"1": 2}, "intervals": []},
}


# Digits, not a formula: the last bit of a power depends on the processor.
POWER_W = np.array(json.loads((GOLDEN / "telemetry-v1-power_w.json").read_text()))
TELEMETRY = Telemetry(
    {"temperature_c": sensor("C", "hwmon nvme", 1.0), "temperature_c.sensor-1": sensor("C", "hwmon nvme", 1.0),
     "power_w": sensor("W", "command meter", 2.0, gaps=[(60_000_000_000, 72_500_000_000)], notes=["2 lines of it"]),
     "throttle_events": sensor("count", "nvme smart-log", missing="nvme is not installed; apt-get install nvme-cli")},
    {"before": {"media_errors": 0, "temperature_c": 31}, "after": {"media_errors": 1, "temperature_c": 44}},
    123_456_789_000,
    {"temperature_c": (np.arange(-1, 99) * 10**9, 31 + np.arange(100) % 7 / 10),
     "temperature_c.sensor-1": (np.arange(-1, 99) * 10**9, 40.0 + np.arange(100)),
     "power_w": (np.arange(100) * 500_000_000, POWER_W)})


def columns(schema):
    """Every column with values at the ends of what it may hold."""
    row = np.arange(ROWS)
    values = {
        "submit_ns": row * 1_000_003, "latency_ns": np.where(row % 50 == 49, -1, row * 977), "queue_ns": row % 7 - 1,
        "offset_bytes": (row * 7919 % 1000) << 27, "length_bytes": 512 << (row % 12), "op": row % 5,
        "flags": np.array(FLAGS)[row % len(FLAGS)], "device": row * 0, "cpu": row % 128 - 1,
        "status": -(row % 134), "tid": np.where(row % 3, 100, -1), "waited_on": row - 1 - row % 2,
        "think_ns": row * 31, "due_ns": row * 1_000_003 - 5, "stream": row % 2, "burst": row // 100 - 1,
        "source_row": row * 2,
    }
    return {name: values[name] for name in schema.names}


@pytest.mark.parametrize("name, schema", [("trace-v1", TRACE_SCHEMA), ("run-v1", RUN_SCHEMA)])
def test_a_file_of_version_1_reads_as_it_was_written(name, schema):
    trace = open_trace(GOLDEN / f"{name}.parquet")
    assert trace.schema.equals(schema)
    table = trace.table()
    for column, values in columns(schema).items():
        assert table[column].to_numpy().tolist() == values.tolist(), column
    assert METADATA.items() <= trace.metadata.items()
    assert trace.metadata["schema_version"] == 1 and trace.metadata["op_names"]["3"] == "discard"
    assert trace.is_run == (name == "run-v1")
    # The golden file has think times without a dependency or a completion, which the format does not allow.
    assert check(trace).errors == [
        "1 row: think_ns without waited_on (first at row 1)",
        "298 rows: think_ns is not submit_ns - the completion of waited_on (first at row 2)"]
    assert check(trace).warnings[0] == "2 events lost while capturing"


def test_telemetry_of_version_1_reads_as_it_was_written():
    path = GOLDEN / "telemetry-v1.parquet"
    assert pq.read_schema(path).names == ["time_ns", "sensor", "value"]
    assert pq.read_schema(path).equals(TELEMETRY_SCHEMA)
    found = read_file(path)
    assert found.epoch_ns == TELEMETRY.epoch_ns and found.smart == TELEMETRY.smart
    assert list(found.sensors) == list(TELEMETRY.sensors)
    for name, entry in TELEMETRY.sensors.items():
        time_ns, value = found.series(name)
        assert time_ns.tolist() == TELEMETRY.series(name)[0].tolist(), name
        assert value.tolist() == TELEMETRY.series(name)[1].tolist(), name
        assert found.sensors[name] == {**entry, "samples": len(value)}
    rows = pd.read_parquet(path)
    assert rows["time_ns"].is_monotonic_increasing
    assert set(rows["sensor"]) == {"temperature_c", "temperature_c.sensor-1", "power_w"}


if __name__ == "__main__":
    write_telemetry(Path(sys.argv[1]) / "telemetry-v1.parquet", TELEMETRY)
    for name, schema, more in (("trace-v1", TRACE_SCHEMA, {}),
                               ("run-v1", RUN_SCHEMA, {"run": {"label": "a", "partial": None}})):
        with TraceWriter(Path(sys.argv[1]) / f"{name}.parquet", schema) as writer:
            writer.write(columns(schema))
            writer.close({**METADATA, **more})
