"""`blkreel info`: causes and files of a trace, compared with sums made by hand."""

import json

import numpy as np
import pyarrow as pa
import pytest
from small_trace import new_trace

from blkreel.traces.format.schema import FLAGS, TRACE_SCHEMA

OWN, READ_AHEAD = FLAGS["own"], FLAGS["read_ahead"]


def test_causes_own_and_files_are_told(blkreel, tmp_path):
    schema = pa.schema([*TRACE_SCHEMA, pa.field("inode", pa.int64(), nullable=False)])
    own, several, hinted = FLAGS["own"], FLAGS["several_files"], FLAGS["hint_medium"] | FLAGS["atomic"]
    new_trace(tmp_path / "t.parquet", {"files": [{"inode": 12, "filesystem": "8:1", "path": "/games/level.pak"}]},
              schema=schema, offset_bytes=0, length_bytes=[4096, 8192, 4096, 512, 1024], op=[0, 0, 0, 1, 0],
              flags=[own, own | several, 0, own | hinted, 0], waited_on=[-1, 0, 1, -1, -1],
              think_ns=[0, 900, 900, 0, 0], inode=[12, 12, 13, 0, -1])
    document = json.loads(blkreel("info", tmp_path / "t.parquet", "--json").stdout)
    assert document["own"] == {"ios": 3, "bytes": 4096 + 8192 + 512}
    assert document["causes_known"] == 2
    assert document["files"] == {
        "/games/level.pak": {"ios": 2, "bytes": 12288}, "inode 13": {"ios": 1, "bytes": 4096},
        "(unknown)": {"ios": 1, "bytes": 1024}, "(file system metadata)": {"ios": 1, "bytes": 512}}
    assert document["several_files"] == {"ios": 1, "bytes": 8192}
    assert document["write_flags"] == dict.fromkeys(["hint_medium", "atomic"], {"ios": 1, "bytes": 512})
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    assert "45.7 % of the bytes are in 1 I/O with data of several files" in shown
    assert "dependency known for 40.0 % of I/Os" in shown and "/games/level.pak" in shown
    assert "lower bound" not in shown


@pytest.mark.parametrize(("flags", "blocked_ns", "counts", "words"), [
    ([OWN | READ_AHEAD] * 2 + [OWN] * 2 + [READ_AHEAD] * 4, -1, (4, 2, 2), "50.0 % of workload I/Os"),
    ([READ_AHEAD] * 2 + [0] * 6, -1, (8, 2, 2), "25.0 % of I/Os"),
    ([OWN | READ_AHEAD] + [OWN] * 9, -1, (10, 1, 1), None),
    ([READ_AHEAD] * 5 + [0] * 3, [0, 10, 20, -1, -1, -1, -1, -1], (8, 5, 2), "25.0 % of I/Os"),
    ([READ_AHEAD] * 8, 5, (8, 8, 0), None)])
def test_the_load_time_of_read_ahead_is_a_lower_bound(tmp_path, blkreel, flags, blocked_ns, counts, words):
    """Of the workload if any I/O is marked, and where more than 10 % have a thread whose blocked time is unknown."""
    counts = dict(zip(("ios", "read_ahead_ios", "blocked_unknown_ios"), counts, strict=True))
    schema = pa.schema([*TRACE_SCHEMA, pa.field("blocked_ns", pa.int64(), nullable=False)])
    new_trace(tmp_path / "t.parquet", {}, schema=schema, blocked_ns=np.broadcast_to(blocked_ns, len(flags)),
              submit_ns=np.arange(len(flags)), offset_bytes=0, length_bytes=512, flags=np.array(flags))
    assert json.loads(blkreel("info", tmp_path / "t.parquet", "--json").stdout)["read_ahead"] == counts
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    if words:
        assert f"replay is a lower bound: {words} are read-ahead by threads without" in shown
    else:
        assert "lower bound" not in shown


def test_threads_that_are_not_listed_are_counted(blkreel, tmp_path):
    threads = {str(tid): {"pid": tid, "comm": f"worker-{tid}"} for tid in range(1, 41)}
    new_trace(tmp_path / "t.parquet", {"threads": threads}, submit_ns=np.arange(40), offset_bytes=0, length_bytes=512,
              tid=np.arange(1, 41))
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    assert shown.count("worker-") == 12 and "28 more: --json" in shown.splitlines()


def test_a_trace_that_knows_neither_does_not_speak_of_them(blkreel, tmp_path):
    new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(2), offset_bytes=0, length_bytes=512)
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    assert "waits" not in shown and "workload" not in shown and "\n  file" not in shown


def test_the_layers_of_a_volume_have_no_sum(blkreel, tmp_path):
    """An I/O of a mirror is once in the volume and twice below it: info has the counts of each layer, and a report
    is refused until one layer is extracted."""
    parts = [{"name": name, "volume_offset_bytes": 0, "length_bytes": 1 << 30, "offset_bytes": 1 << 20}
             for name in ("sda", "sdb")]
    metadata = {"devices": [{"name": name, "path": f"/dev/{name}", "layer": layer}
                            for name, layer in (("sda", "request"), ("md0", "bio"), ("sdb", "request"))],
                "volumes": [{"name": "md0", "path": "/dev/md0", "label": "", "kind": "md raid1", "parts": parts}],
                "storage_layer": "both", "capture_layer": "mixed"}
    trace = tmp_path / "t.parquet"
    new_trace(trace, metadata, submit_ns=np.arange(5), offset_bytes=[0, 1 << 20, 1 << 20, 0, 1 << 20],
              length_bytes=4096, op=[1, 1, 1, 0, 0], device=[1, 0, 2, 1, 2])
    document = json.loads(blkreel("info", trace, "--json").stdout)
    assert [(layer["devices"], {op: total["ios"] for op, total in layer["ops"].items()})
            for layer in document["layers"]] == [(["/dev/sda", "/dev/sdb"], {"read": 1, "write": 2}),
                                                 (["/dev/md0"], {"read": 1, "write": 1})]
    assert document["ops"] == document["layers"][0]["ops"]
    shown = blkreel("info", trace).stdout
    assert "/dev/md0, md raid1 on sda from byte 1,048,576, sdb from byte 1,048,576" in shown and "5 rows" in shown
    refused = blkreel("report", trace, check=False)
    assert refused.returncode == 1 and "slice" in refused.stderr and "--device 0 --device 2" in refused.stderr
    blkreel("slice", trace, "-o", tmp_path / "drives.parquet", "--device", "0", "--device", "2")
    document = json.loads(blkreel("info", tmp_path / "drives.parquet", "--json").stdout)
    assert "layers" not in document and document["rows"] == 3
    assert (document["metadata"]["storage_layer"], document["metadata"]["capture_layer"]) == ("device", "request")


def test_the_time_of_a_trace_ends_with_its_last_completion(tmp_path, blkreel):
    """A trace of one I/O of a second was one "over 0 ns", and over 1.00 s for `slice` and `report`."""
    new_trace(tmp_path / "t.parquet", {}, submit_ns=[5], latency_ns=[10**9], offset_bytes=0, length_bytes=[1 << 30])
    assert json.loads(blkreel("info", tmp_path / "t.parquet", "--json").stdout)["duration_ns"] == 10**9
