"""Files written by past versions must be read for ever: one of each kind and version stands in tests/golden.

A file here is never written anew. A new version of the format adds its own: python tests/unit/test_golden.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from blkreel.traces.check import check
from blkreel.traces.reader import open_trace
from blkreel.traces.schema import RUN_SCHEMA, TRACE_SCHEMA
from blkreel.traces.writer import TraceWriter

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
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
    assert check(trace).errors == []
    assert check(trace).warnings[0] == "2 events were lost while capturing"


if __name__ == "__main__":
    for name, schema, more in (("trace-v1", TRACE_SCHEMA, {}),
                               ("run-v1", RUN_SCHEMA, {"run": {"label": "a", "partial": None}})):
        with TraceWriter(Path(sys.argv[1]) / f"{name}.parquet", schema) as writer:
            writer.write(columns(schema))
            writer.close({**METADATA, **more})
