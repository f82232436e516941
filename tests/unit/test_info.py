"""`blkreel info`: what a trace says of causes and files, held against sums made by hand."""

import json

import numpy as np
import pyarrow as pa

from blkreel.traces.schema import FLAGS, TRACE_SCHEMA
from blkreel.traces.writer import TraceWriter


def test_causes_own_and_files_are_told(blkreel, tmp_path):
    schema = pa.schema([*TRACE_SCHEMA, pa.field("inode", pa.int64(), nullable=False)])
    own = FLAGS["own"]
    with TraceWriter(tmp_path / "t.parquet", schema) as out:
        out.write({"submit_ns": np.arange(5) * 1000, "latency_ns": np.full(5, 100), "offset_bytes": np.zeros(5, "i8"),
                   "length_bytes": np.array([4096, 8192, 4096, 512, 1024]), "op": np.array([0, 0, 0, 1, 0]),
                   "flags": np.array([own, own, 0, own, 0]), "waited_on": np.array([-1, 0, 1, -1, -1]),
                   "think_ns": np.array([0, 900, 900, 0, 0]), "inode": np.array([12, 12, 13, 0, -1])})
        out.close({"files": [{"inode": 12, "filesystem": "8:1", "path": "/games/level.pak"}]})
    document = json.loads(blkreel("info", tmp_path / "t.parquet", "--json").stdout)
    assert document["own"] == {"ios": 3, "bytes": 4096 + 8192 + 512}
    assert document["causes_known"] == 2
    assert document["files"] == {
        "/games/level.pak": {"ios": 2, "bytes": 12288}, "inode 13": {"ios": 1, "bytes": 4096},
        "(unknown)": {"ios": 1, "bytes": 1024}, "(the file system's own)": {"ios": 1, "bytes": 512}}
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    assert "known of 40.0% of I/Os" in shown and "/games/level.pak" in shown


def test_a_trace_that_knows_neither_does_not_speak_of_them(blkreel, tmp_path):
    with TraceWriter(tmp_path / "t.parquet") as out:
        out.write({"submit_ns": np.arange(2), "latency_ns": np.full(2, 100), "offset_bytes": np.zeros(2, "i8"),
                   "length_bytes": np.full(2, 512), "op": np.zeros(2, "i8")})
        out.close({})
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    assert "causes" not in shown and "own" not in shown and "file" not in shown
