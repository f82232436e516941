"""Files of btrecord: all I/Os equal those of a parser written here, and those of a trace that btrecord converted."""

import struct
import subprocess

import numpy as np
import pytest
from foreign_traces import RECORDINGS
from tree import foreign

from blkreel.common.errors import TraceError
from blkreel.traces.exporters import FORMATS, export_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.importers import ImportOptions, import_recording


def ios_of(data):
    """(time, sector, bytes, op code) of each I/O."""
    at = 32
    while at < len(data):
        count, time_ns = struct.unpack_from("<QQ", data, at)
        at += 16
        for _ in range(count):
            sector, length_bytes, is_read = struct.unpack_from("<QQI", data, at)
            at += 24
            yield time_ns, sector, length_bytes, 1 - is_read


def assert_same(path, output):
    result = import_recording([path], output)
    expected = np.array(list(ios_of(path.read_bytes())), np.int64)
    rows = open_trace(result.path).table(["submit_ns", "offset_bytes", "length_bytes", "op"]).to_pandas()
    assert (rows.submit_ns + result.metadata["epoch_ns"]).tolist() == expected[:, 0].tolist()
    assert rows.offset_bytes.tolist() == (expected[:, 1] * 512).tolist()
    assert rows.length_bytes.tolist() == expected[:, 2].tolist() and rows.op.tolist() == expected[:, 3].tolist()
    return result


@pytest.mark.parametrize("read_bytes", [1, 50, 1 << 20])
def test_ios_have_the_time_of_their_bunch_and_the_cpu_of_the_file(tmp_path, monkeypatch, read_bytes):
    """Also where reads end inside of bunches."""
    monkeypatch.setattr("blkreel.traces.importers.tools.btrecord._READ_BYTES", read_bytes)
    (tmp_path / "sdb.replay.3").write_bytes(RECORDINGS["btrecord"])
    result = assert_same(tmp_path / "sdb.replay.3", tmp_path / "t.parquet")
    assert [device["name"] for device in result.metadata["devices"]] == ["sdb"]
    assert set(open_trace(result.path).table(["cpu"])["cpu"].to_pylist()) == {3}
    assert "time of the bunch" in " ".join(result.metadata["import_warnings"])
    assert {"latency", "thread"} <= set(result.metadata["source_lacks"])


def test_the_ios_of_a_file_of_others(tmp_path):
    result = assert_same(foreign("hfplayer/sdi.replay.0"), tmp_path / "t.parquet")
    assert result.metadata["ledger"]["rows"] == 652


def test_what_btrecord_makes_of_an_exported_trace_has_the_same_ios(tmp_path, program):
    btrecord = program("btrecord", "blktrace")
    trace = open_trace("sample:game-small")
    export_trace(trace, tmp_path / "dev.blktrace.0", FORMATS["blktrace"])
    subprocess.run([btrecord, "dev"], cwd=tmp_path, check=True, capture_output=True)
    result = assert_same(tmp_path / "dev.replay.0", tmp_path / "t.parquet")
    columns = ["submit_ns", "offset_bytes", "length_bytes", "op"]
    rows, before = (each.table(columns).to_pandas().query("length_bytes > 0").sort_values(
        columns[1:], kind="stable", ignore_index=True) for each in (open_trace(result.path), trace))
    assert rows[columns[1:]].equals(before[columns[1:]])
    # btrecord takes the events of queueing, up to 1 ms before the submission, and gathers 10 ms in a bunch.
    early_ns = (before.submit_ns - before.submit_ns.min()) - (rows.submit_ns - rows.submit_ns.min())
    assert early_ns.min() >= -1_000_000 and early_ns.max() <= 11_000_000


def test_a_cut_file_and_a_damaged_bunch_have_a_place(tmp_path):
    data = RECORDINGS["btrecord"]
    (tmp_path / "sdb.replay.0").write_bytes(data[:-1])
    result = import_recording([tmp_path / "sdb.replay.0"], tmp_path / "t.parquet", format_name="btrecord",
                              options=ImportOptions(max_rejected=0.05))
    assert result.metadata["ledger"]["rejected"]["the file ends inside a bunch"]["count"] == 1
    assert "58 complete I/Os, and its header counts 60" in " ".join(result.metadata["import_warnings"])
    (tmp_path / "sdb.replay.0").write_bytes(data[:32 + 64] + struct.pack("<Q", 513) + data[32 + 72:])
    with pytest.raises(TraceError, match="bunch at byte 96 has 513 I/Os"):
        import_recording([tmp_path / "sdb.replay.0"], tmp_path / "t.parquet", force=True)
    assert not list(tmp_path.glob(".*"))
