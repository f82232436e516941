"""A spool that was damaged on the disk: its sound blocks are recovered, and what is missing is counted."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import some_rows

from blkreel.common.errors import TraceError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import RUN_SCHEMA, TRACE_SCHEMA
from blkreel.traces.spool.block_file import BlockFile
from blkreel.traces.spool.spool import Spool, recover

BLOCKS = 6
ROWS = 100


@pytest.fixture
def left(tmp_path):
    """The output and the rows file of a spool whose writer died: BLOCKS blocks of ROWS rows, a note in the middle."""
    return left_in(tmp_path)


def left_in(directory, schema=TRACE_SCHEMA):
    output = directory / "t.parquet"
    spool = Spool(output, schema, {"command": ["game"]})
    for number in range(BLOCKS):
        if number == BLOCKS // 2:
            spool._write(lambda writer: writer.note({"note": "threads", "threads": [[7, 5, "game", "game"]]}))
        spool.append(some_rows(number * ROWS + np.arange(ROWS), tid=7))
        spool.flush()
    spool._close()
    return output, spool.directory / "rows.blocks"


def blocks_of(rows_file):
    with BlockFile(rows_file) as blocks:
        return list(blocks.blocks())


def damage(rows_file, at, data):
    with open(rows_file, "r+b") as file:
        file.seek(at)
        file.write(data)


def test_bad_bytes_in_names_cost_the_names_only(left):
    output, rows_file = left
    (note,) = [block for block in blocks_of(rows_file) if block.rows == 0]
    damage(rows_file, note.payload_at, b"\xff" * (note.end_bytes - note.payload_at))
    trace = open_trace(recover(output))
    assert trace.rows == BLOCKS * ROWS and "threads" not in trace.metadata
    damaged_bytes = note.end_bytes - note.payload_at + 24
    assert any(f"{damaged_bytes} damaged bytes" in warning for warning in check(trace).warnings)


@pytest.mark.parametrize("whole", [False, True])
def test_a_zeroed_block_makes_no_rows_up(left, whole):
    output, rows_file = left
    block = blocks_of(rows_file)[1]
    begin = block.payload_at - 24 * whole
    damage(rows_file, begin, bytes(block.end_bytes - begin))
    trace = open_trace(recover(output))
    assert trace.table(["submit_ns"])["submit_ns"].to_pylist() == [*range(ROWS), *range(2 * ROWS, BLOCKS * ROWS)]
    assert any("damaged bytes" in warning for warning in check(trace).warnings)


def test_a_damaged_last_block_is_counted_and_a_cut_one_is_not(left):
    output, rows_file = left
    last = blocks_of(rows_file)[-1]
    os.truncate(rows_file, last.end_bytes - 8)
    with BlockFile(rows_file) as blocks:
        assert len(list(blocks.blocks())) == BLOCKS and blocks.damaged_bytes == 0
    damage(rows_file, last.end_bytes - 8, b"\xff" * 8)
    with BlockFile(rows_file) as blocks:
        assert len(list(blocks.blocks())) == BLOCKS
        assert blocks.damaged_bytes == last.end_bytes - last.payload_at + 24


@pytest.mark.parametrize("content", [b"", b'{"spool_columns": ["nonsense"]}'])
def test_rows_outlive_their_metadata(left, content):
    """tests/unit/cli/damaged/test_damaged_documents.py has other damage."""
    output, rows_file = left
    rows_file.with_name("metadata.json").write_bytes(content)
    trace = open_trace(recover(output))
    assert trace.rows == BLOCKS * ROWS and list(trace.metadata["threads"]) == ["7"]
    assert any("metadata of the spool was lost" in warning for warning in check(trace).warnings)


def test_rows_of_a_run_outlive_their_metadata(tmp_path):
    output, rows_file = left_in(tmp_path, RUN_SCHEMA)
    rows_file.with_name("metadata.json").write_bytes(b"")
    assert open_trace(recover(output)).schema.equals(RUN_SCHEMA)


def test_a_damaged_layout_is_refused(left):
    output, rows_file = left
    damage(rows_file, 30, b"\0")
    with pytest.raises(TraceError, match="their layout is damaged"):
        recover(output)
    assert rows_file.exists(), "what cannot be read is kept"


@cases(26)
@given(st.data())
def test_any_damage_leaves_the_rows_of_the_sound_blocks(tmp_path_factory, data):
    """A block that was not touched is recovered, and no row appears that was not written."""
    output, rows_file = left_in(tmp_path_factory.mktemp("spool"))
    size_bytes = rows_file.stat().st_size
    blocks = blocks_of(rows_file)
    layout_bytes = blocks[0].payload_at - 24
    at = data.draw(st.integers(layout_bytes, size_bytes - 1))
    noise = data.draw(st.binary(min_size=1, max_size=200))
    before = rows_file.read_bytes()
    rows_file.write_bytes(before[:at] + noise + before[at + data.draw(st.integers(0, 300)):])
    untouched = [block for block in blocks if block.rows and block.end_bytes <= at]
    rows = open_trace(recover(output)).table(["submit_ns"])["submit_ns"].to_pylist()
    assert set(rows) <= set(range(BLOCKS * ROWS)) and len(rows) == len(set(rows))
    assert rows[:len(untouched) * ROWS] == list(range(len(untouched) * ROWS))
    assert len(rows) >= (BLOCKS - 2) * ROWS, "300 bytes reach into two blocks at most"


def test_the_metadata_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """After a power cut, a rename without that may leave an empty file."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    spool = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {"command": ["game"]})
    assert any("metadata.json" in name for name in synced)
    assert json.loads((spool.directory / "metadata.json").read_text())["command"] == ["game"]
    spool.discard()
