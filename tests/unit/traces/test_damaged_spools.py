"""A spool that was damaged on the disk: its sound blocks are recovered, and what is missing is counted."""

import io
import json
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import some_rows
from tree import TREE

from blkreel.common.errors import TraceError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS, RUN_SCHEMA, TIME_LIMIT_NS, TRACE_SCHEMA
from blkreel.traces.spool.block_file import BlockFile
from blkreel.traces.spool.blocks import BlockReader, BlockStreamError, BlockWriter, End, Note, Rows
from blkreel.traces.spool.spool import Spool, recover

BLOCKS = 6
ROWS = 100
COLUMNS = [("due_ns", "i8"), ("op", "i1"), ("cpu", "i2")]


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


def stream(row_counts=(3, 0, 5), end=True):
    file = io.BytesIO()
    writer = BlockWriter(file, "plan", COLUMNS, checksums=False)
    for count in row_counts:
        writer.rows({"due_ns": np.arange(count) * 10**12, "op": np.arange(count) % 5, "cpu": -np.arange(count)})
    writer.note({"note": "progress", "rows": 8})
    if end:
        writer.end({"rows": sum(row_counts)})
    return file.getvalue()


def read(data, name="plan", columns=COLUMNS):
    return list(BlockReader(io.BytesIO(data), name, columns))


@given(st.lists(st.integers(0, 20), max_size=4))
def test_what_is_written_is_read(row_counts):
    blocks = read(stream(row_counts))
    assert [block.count for block in blocks if isinstance(block, Rows)] == row_counts
    for block in blocks[:len(row_counts)]:
        assert block.columns["due_ns"].tolist() == [i * 10**12 for i in range(block.count)]
        assert block.columns["cpu"].tolist() == [-i for i in range(block.count)]
    assert blocks[-2:] == [Note({"note": "progress", "rows": 8}), End({"rows": sum(row_counts)})]


@given(st.data())
def test_a_stream_cut_anywhere_is_noticed(data):
    whole = stream()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BlockStreamError, match="writer died"):
        read(whole[:cut])


def test_a_stream_without_its_end_is_noticed():
    with pytest.raises(BlockStreamError, match="without its end block"):
        read(stream(end=False))


def test_another_layout_is_refused():
    with pytest.raises(BlockStreamError, match="docs/install.md"):
        read(stream(), columns=[("due_ns", "i8"), ("op", "i2"), ("cpu", "i2")])
    with pytest.raises(BlockStreamError, match="docs/install.md"):
        read(stream(), name="records")


@pytest.mark.parametrize(("counts", "place", "at", "change", "words"), [
    ((), struct.pack("<I", 0x314B4C42), 0, lambda byte: byte ^ 1, "out of step"),
    (([3],), struct.pack("<IH", 0x314B4C42, 2), 8, lambda byte: 9, "rows")],
    ids=["a pipe out of step", "a block of the wrong size"])
def test_a_wrong_header_of_a_block_is_noticed(counts, place, at, change, words):
    damaged = bytearray(stream(*counts))
    at += damaged.index(place, 4)
    damaged[at] = change(damaged[at])
    with pytest.raises(BlockStreamError, match=words):
        read(bytes(damaged))


def test_columns_of_different_length_are_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="op has 2 rows"):
        BlockWriter(io.BytesIO(), "plan", COLUMNS, checksums=False).rows(
            {"due_ns": np.zeros(3), "op": np.zeros(2), "cpu": np.zeros(3)})


def test_python_and_c_have_the_same_codes():
    text = (TREE / "traces/native/codes.h").read_text()
    ops = {name.lower(): int(code) for name, code in re.findall(r"OP_(\w+) = (\d+),", text)}
    assert ops.pop("count") == len(OPS)
    assert ops == OPS
    assert {name.lower(): 1 << int(bit) for name, bit in re.findall(r"FLAG_(\w+) = 1 << (\d+),", text)} == FLAGS
    assert f"TIME_LIMIT_NS (1ll << {TIME_LIMIT_NS.bit_length() - 1})" in text
