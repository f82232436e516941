"""Writing, spooling and reading traces: order, atomic names, what other tools see."""

import os
import shutil
import subprocess
import sys
import time

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from small_trace import some_rows as columns
from spooled import TOTALS

from blkreel.common.errors import BlkreelError, OutputExists, TraceError
from blkreel.common.files import safe_files
from blkreel.common.files.output_lock import OutputInUse, spool_of
from blkreel.traces.format import writer
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import RUN_SCHEMA, TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool import reorder
from blkreel.traces.spool.blocks import BlockWriter
from blkreel.traces.spool.contents import SpoolContents
from blkreel.traces.spool.spool import Spool, recover


def test_a_spool_that_is_moved_is_recovered_there(tmp_path):
    (tmp_path / "old").mkdir()
    spool = Spool(tmp_path / "old/t.parquet", TRACE_SCHEMA, {})
    spool.append(columns(np.arange(100)))
    spool.flush()
    (tmp_path / "old").rename(tmp_path / "new")
    spool.note({"command": ["game"]})
    with pytest.raises(BlkreelError) as error:
        spool.finish({})
    assert error.value.remedy == "move it back"
    assert not (tmp_path / "old").exists()
    del spool
    assert open_trace(recover(tmp_path / "new/t.parquet")).rows == 100


@cases(16)
@given(st.lists(st.lists(st.integers(0, 30 * 10**9), min_size=1, max_size=30), min_size=1, max_size=8),
       st.integers(1, 40))
def test_a_spool_sorts_rows_of_any_order(tmp_path_factory, batches, sort_rows):
    output = tmp_path_factory.mktemp("spool") / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    number = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reorder, "_SORT_ROWS", sort_rows)
        for batch in batches:
            spool.append(columns(batch, offset_bytes=np.arange(number, number + len(batch)) * 4096))
            spool.flush()
            number += len(batch)
        spool.finish({})
    table = open_trace(output).table().to_pandas()
    assert table["submit_ns"].is_monotonic_increasing
    arrived = zip(np.concatenate(batches), np.arange(number) * 4096, strict=True)
    assert sorted(zip(table["submit_ns"], table["offset_bytes"], strict=True)) == sorted(arrived)
    assert not spool_of(output).exists()


@pytest.mark.parametrize("order", ["backwards", "days in turn", "one stuck", "any"])
def test_rows_in_any_order_are_sorted_with_few_in_memory(monkeypatch, tmp_path, order):
    """Whole files may be stragglers, as recordings of several days or machines one after the other; an I/O that is
    submitted first may complete last."""
    for name, rows in (("_SORT_ROWS", 100), ("_RUN_ROWS", 300), ("_PART_ROWS", 7)):
        monkeypatch.setattr(reorder, name, rows)
    monkeypatch.setattr("blkreel.traces.spool.contents._BATCH_ROWS", 10)
    number = 3000
    times = {"backwards": np.arange(number)[::-1] // 3 * 10**9,
             "days in turn": np.concatenate([np.arange(1000) * 10**8 - day * 10**12 for day in range(3)]),
             "one stuck": np.append(np.arange(1, number) * 10**8, 3),
             "any": np.random.default_rng(3).integers(0, 700, number) * 10**9}[order]
    spool = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {})
    for start in range(0, number, 10):
        spool.append(columns(times[start:start + 10], offset_bytes=np.arange(start, start + 10) * 512))
        spool.flush()
    contents = SpoolContents(spool.directory, TRACE_SCHEMA, {})
    tables = list(reorder.in_submit_order(contents.batches, tmp_path))
    assert max(table.num_rows for table in tables) < 600
    rows = pa.concat_tables(tables).to_pandas()
    assert rows.submit_ns.tolist() == sorted(times)
    assert sorted(zip(rows.submit_ns, rows.offset_bytes // 512, strict=True)) \
        == sorted(zip(times, range(number), strict=True))
    spool.discard()


def test_a_trace_reads_in_plain_pandas_and_duckdb(tmp_path):
    path = new_trace(tmp_path / "t.parquet", submit_ns=np.arange(1000) * 1000)
    frame = pd.read_parquet(path)
    assert list(frame.columns) == TRACE_SCHEMA.names
    assert not frame.isna().any().any()
    assert (frame["waited_on"] == -1).all()
    total = duckdb.sql(f"select sum(length_bytes), min(submit_ns), max(submit_ns) from '{path}'").fetchall()
    assert total == [(4096 * 1000, 0, 999_000)]


def test_the_file_is_encoded_as_the_format_says(tmp_path):
    path = new_trace(tmp_path / "t.parquet", schema=RUN_SCHEMA, submit_ns=np.arange(5000) * 1000)
    metadata = pq.ParquetFile(path).metadata
    for index in range(metadata.num_columns):
        column = metadata.row_group(0).column(index)
        assert column.compression == "ZSTD", column.path_in_schema
        if column.path_in_schema in ("submit_ns", "due_ns", "waited_on", "source_row"):
            assert "DELTA_BINARY_PACKED" in column.encodings, column.path_in_schema
        assert pq.ParquetFile(path).schema.column(index).max_definition_level == 0, "columns are required, not nullable"
    keys = {key.decode() for key in metadata.metadata}
    assert {"blkreel.schema_version", "blkreel.op_names", "blkreel.flag_names", "blkreel.boundary"} <= keys


def test_each_row_group_knows_what_was_outstanding_at_its_start(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "ROWS_PER_GROUP", 3)
    path = new_trace(tmp_path / "t.parquet", submit_ns=range(0, 70, 10), latency_ns=[100, 5, 5, 15, 1, 1, 1])
    boundary = open_trace(path).metadata["boundary"]
    assert boundary == [{"row": 0, "outstanding_complete_ns": []},
                        {"row": 3, "outstanding_complete_ns": [100]},
                        {"row": 6, "outstanding_complete_ns": [100]}]


def test_too_many_outstanding_are_left_out(tmp_path, monkeypatch):
    """Rows that never end would be in the metadata once for each row group after them."""
    monkeypatch.setattr(writer, "ROWS_PER_GROUP", 3)
    monkeypatch.setattr(writer, "_MOST_OUTSTANDING", 5)
    path = new_trace(tmp_path / "t.parquet", {"boundary": [{"row": 0, "outstanding_complete_ns": [1]}]},
                     submit_ns=range(7), latency_ns=100)
    assert "boundary" not in open_trace(path).metadata and open_trace(path).rows == 7


def test_nothing_stands_under_the_name_before_close(tmp_path):
    path = tmp_path / "t.parquet"
    with TraceWriter(path) as out:
        out.write(columns([1, 2]))
        assert not path.exists()
    assert list(tmp_path.iterdir()) == []


def test_rows_out_of_order_are_refused(tmp_path):
    with TraceWriter(tmp_path / "t.parquet") as out:
        out.write(columns([5, 6]))
        with pytest.raises(TraceError, match="order"):
            out.write(columns([4]))


def test_an_output_that_exists_is_kept(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("precious")
    for make in (lambda: TraceWriter(path), lambda: Spool(path, TRACE_SCHEMA, {})):
        with pytest.raises(OutputExists, match="--force"):
            make()
    assert path.read_text() == "precious"


def test_an_output_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "t.parquet"
    with TraceWriter(path) as out:
        out.write(columns([1]))
        path.write_text("precious")
        with pytest.raises(OutputExists):
            out.close({})
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_force_overwrites(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("old")
    assert open_trace(new_trace(path, submit_ns=[1])).rows == 1


def test_an_empty_trace_is_a_trace(tmp_path):
    Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {}).finish({})
    trace = open_trace(tmp_path / "t.parquet")
    assert trace.rows == 0 and check(trace).errors == []


def test_a_killed_writer_loses_at_most_what_was_not_flushed(tmp_path):
    output = tmp_path / "t.parquet"
    script = ("import sys, time, numpy as np\n"
              "from blkreel.traces.spool.spool import Spool\nfrom blkreel.traces.format.schema import TRACE_SCHEMA\n"
              "spool = Spool(sys.argv[1], TRACE_SCHEMA, {'command': ['game']})\n"
              "z = np.zeros(1000, np.int64)\n"
              "for i in range(100000):\n"
              "    spool.append(dict(submit_ns=z + i, latency_ns=z, offset_bytes=z, length_bytes=z + 4096, op=z))\n"
              "    if i == 200: print('on', flush=True)\n"
              "    time.sleep(0.0005)\n")
    child = subprocess.Popen([sys.executable, "-c", script, output], stdout=subprocess.PIPE)
    child.stdout.readline()
    with pytest.raises(OutputInUse, match=f"is being written by process {child.pid}"):
        recover(output)
    child.kill()
    child.wait()
    assert not output.exists()
    with pytest.raises(BlkreelError, match="left by a command that died.*blkreel recover"):
        Spool(output, TRACE_SCHEMA, {})
    shutil.copytree(spool_of(output), spool_of(tmp_path / "replaced"))
    assert open_trace(Spool(tmp_path / "replaced", TRACE_SCHEMA, {}, force=True).finish({})).rows == 0
    trace = open_trace(recover(output))
    assert trace.rows >= 130_000
    assert trace.metadata["command"] == ["game"] and trace.metadata["recovered"]
    assert check(trace).errors == []
    assert {path.name for path in tmp_path.iterdir()} == {"t.parquet", "replaced"}


def test_a_half_written_batch_does_not_spoil_the_rest(tmp_path):
    output = tmp_path / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    for start in (0, 100, 200):
        spool.append(columns(start + np.arange(100)))
        spool.flush()
    spool.rows_file.close()
    rows_file = spool.directory / "rows.blocks"
    os.truncate(rows_file, rows_file.stat().st_size - 50)
    trace = open_trace(recover(output))
    assert trace.rows == 200
    assert "may be missing" in check(trace).warnings[0]


def test_rows_without_causes_need_no_space_beside_their_trace(tiny_filesystem):
    """As those of ftrace, of which a full disk keeps only a quarter free."""
    output = tiny_filesystem / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    layout = [("submit_ns", "i8"), ("latency_ns", "i8"), ("offset_bytes", "i8"), ("length_bytes", "i8"), ("op", "i1")]
    BlockWriter(spool.rows_file, "capture", layout, checksums=True).rows(columns(np.arange(22_000)))
    spool.rows_file.close()
    assert open_trace(recover(output)).rows == 22_000


def test_names_and_totals_beside_the_rows_survive_a_kill(tmp_path):
    """As a helper writes them, which is not bound to the order of rows and names."""
    output = tmp_path / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {"command": ["game"]})
    layout = [("submit_ns", "i8"), ("latency_ns", "i8"), ("offset_bytes", "i8"), ("length_bytes", "i8"), ("op", "i1"),
              ("tid", "i4"), ("inode", "i8")]
    writer = BlockWriter(spool.rows_file, "capture", layout, checksums=True)
    writer.note({"note": "threads", "threads": [[7, 5, "n\u00c3\u00a4h", "main"]]})
    writer.rows(columns(np.arange(10), tid=np.repeat([7, 8], 5), inode=np.arange(10)))
    writer.note({"note": "threads", "threads": [[7, 5, "cut\u00c3", "main"], [8, 5, "late", "main"],
                                                [9, 9, "without a row", "other"]]})
    writer.note({"note": "files", "files": [{"inode": 3, "filesystem": "8:1", "path": "/a"}] * 2
                 + [{"inode": 99, "filesystem": "8:1", "path": "/data/other/without a row"}]})
    writer.end(TOTALS)
    spool.rows_file.close()
    trace = open_trace(recover(output, ended=lambda end, begun: {
        "ledger": {"events": end["events"], "of": begun["command"]}}))
    assert trace.metadata["threads"]["7"] == {"pid": 5, "comm": "cut\ufffd", "process": "main",
                                              "names": ["n\u00e4h", "cut\ufffd"]}
    assert list(trace.metadata["threads"]) == ["7", "8"]
    assert trace.metadata["files"] == [{"inode": 3, "filesystem": "8:1", "path": "/a"}]
    assert trace.metadata["ledger"] == {"events": 100, "of": ["game"]}
    assert trace.table(["inode"])["inode"].to_pylist() == list(range(10))
    assert check(trace).warnings == [], "its writer came to its end: nothing is missing"


@pytest.mark.parametrize("calls", range(5))
def test_a_kill_while_the_spool_is_removed(tmp_path, monkeypatch, calls):
    """Before and after each file of the spool, and before the directory."""
    output = tmp_path / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    spool.append(columns(np.arange(10)))
    spool.flush()
    removed = []

    class Killed(BaseException):
        pass

    def dies(function):
        def call(name, *, dir_fd=None):
            if len(removed) == calls:
                raise Killed
            removed.append(name)
            function(name, dir_fd=dir_fd)
        return call

    def remove(path, layout):
        for name in ("unlink", "rmdir"):
            monkeypatch.setattr(os, name, dies(getattr(os, name)))
        return safe_files.remove_directory(path, layout)

    monkeypatch.setattr("blkreel.traces.spool.spool.remove_directory", remove)
    killed = False
    try:
        spool.finish({})
    except Killed:
        killed = True
    monkeypatch.undo()
    assert output.exists() and killed == spool_of(output).exists()
    if killed:
        assert open_trace(recover(output)).rows == 10
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_spool_is_not_taken_for_the_trace_of_somebody_else(tmp_path):
    output = tmp_path / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    spool.append(columns(np.arange(10)))
    spool.flush()
    spool.rows_file.close()
    output.write_text("precious")
    with pytest.raises(OutputExists):
        recover(output)
    assert spool_of(output).exists() and output.read_text() == "precious"


def test_a_spool_whose_writer_died_before_its_first_row_is_no_trace(tmp_path):
    spool_of(tmp_path / "t.parquet").mkdir()
    with pytest.raises(TraceError, match="its writer died before the first one.*record it again"):
        recover(tmp_path / "t.parquet")


@pytest.mark.kernel
def test_a_full_disk_leaves_the_rows_recoverable(tiny_filesystem, tmp_path):
    output = tiny_filesystem / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    noise = np.random.default_rng(1)
    with pytest.raises(BlkreelError, match="no space left .*name another output"):
        for start in range(100):
            spool.append(columns(start * 10**6 + np.arange(2000), offset_bytes=noise.integers(0, 2**40, 2000)))
            time.sleep(0)
            spool.flush()
    assert not output.exists()
    assert spool.directory.is_dir()


@pytest.mark.kernel
def test_a_full_disk_leaves_no_half_trace(tiny_filesystem):
    path = tiny_filesystem / "t.parquet"
    noise = np.random.default_rng(1)
    with pytest.raises(BlkreelError, match="no space left"), TraceWriter(path) as out:
        for start in range(20):
            out.write(columns(start * 10**6 + np.arange(20_000), offset_bytes=noise.integers(0, 2**40, 20_000)))
        out.close({})
    assert list(tiny_filesystem.iterdir()) == []


@pytest.mark.parametrize("public, mode", [(False, 0o600), (True, 0o644)])
def test_a_recording_is_private_unless_asked_otherwise(tmp_path, public, mode):
    """It names programs, commands and files. The same after a kill."""
    previous = os.umask(0o022)
    try:
        for name in ("t.parquet", "killed.parquet"):
            spool = Spool(tmp_path / name, TRACE_SCHEMA, {}, public=public)
            spool.append(columns([1, 2]))
            spool.flush()
            assert spool.directory.stat().st_mode & 0o777 == 0o700
            copy = spool.save_copy(tmp_path / f"copy-{name}", {})
            path = spool.finish({}) if name == "t.parquet" else _killed(spool)
            assert {path.stat().st_mode & 0o777, copy.stat().st_mode & 0o777} == {mode}
    finally:
        os.umask(previous)


def test_a_copy_that_is_killed_leaves_nothing_behind(tmp_path, monkeypatch):
    spool, names = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {}), []
    spool.append(columns([1, 2]))
    with monkeypatch.context() as patched:
        patched.setattr(TraceWriter, "close", lambda writer, metadata: names.extend(
            path.name for path in (tmp_path, spool.directory) for path in path.iterdir()))
        patched.setattr(safe_files.NewFile, "abandon", lambda file: None)
        spool.save_copy(tmp_path / "copy.parquet", {})
    assert names[0] == spool.directory.name and len(names) > 3
    _killed(spool)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_recording_whose_directory_is_moved_away_for_a_while_goes_on(tmp_path):
    """A flight recorder ended at its next drop, with `No such file or directory`."""
    (tmp_path / "a").mkdir()
    spool = Spool(tmp_path / "a/t.parquet", TRACE_SCHEMA, {})
    spool.append(columns([1, 2]))
    spool.flush()
    (tmp_path / "a").rename(tmp_path / "b")
    for use in (lambda: spool.drop_head(1, lambda rows: {}), lambda: spool.save_copy(tmp_path / "copy.parquet", {}),
                lambda: spool.finish({})):
        with pytest.raises(BlkreelError, match="was moved or removed") as error:
            use()
        assert error.value.remedy == "move it back"
    (tmp_path / "b").rename(tmp_path / "a")
    assert open_trace(_killed(spool)).rows == 2


def test_a_flight_recorder_holds_no_io_in_flight_from_before_what_it_holds(tmp_path):
    """Its row is written when the recording ends, long after those of its neighbors, which were dropped."""
    ring = {"max_bytes": None, "keep_ns": 1000, "dropped_rows": 7}
    spool = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {"ring": ring, "spool_held_from_ns": 5000})
    spool.append(columns([1000, 1001, 6000, 7000], latency_ns=np.array([-1, 5500, 10, -1])))
    for path in (spool.save_copy(tmp_path / "copy.parquet", {}), spool.finish({})):
        trace = open_trace(path)
        assert trace.table(["submit_ns"])["submit_ns"].to_pylist() == [1001, 6000, 7000]
        assert trace.metadata["ring"] == {**ring, "dropped_rows": 8}


def _killed(spool):
    spool._close()
    return recover(spool.output)


def test_a_trace_in_a_pipe_is_refused_with_the_reason():
    """It was `cannot be read: None`."""
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(TraceError, match="is a pipe or a device") as raised:
        open_trace(f"/dev/fd/{read}")
    os.close(read)
    assert "write it to a file first" in raised.value.remedy
