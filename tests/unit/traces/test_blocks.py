"""The pipe between Python and the helpers: what goes in comes out, damage is noticed, and codes are the same."""

import io
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree import TREE

from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.spool.blocks import BlockReader, BlockStreamError, BlockWriter, End, Note, Rows

COLUMNS = [("due_ns", "i8"), ("op", "i1"), ("cpu", "i2")]


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


def test_a_desynchronized_pipe_is_noticed():
    damaged = bytearray(stream())
    at = damaged.index(struct.pack("<I", 0x314B4C42), 4)
    damaged[at] ^= 1
    with pytest.raises(BlockStreamError, match="out of step"):
        read(bytes(damaged))


def test_a_rows_block_of_the_wrong_size_is_noticed():
    damaged = bytearray(stream([3]))
    at = damaged.index(struct.pack("<IH", 0x314B4C42, 2))
    struct.pack_into("<I", damaged, at + 8, 9)
    with pytest.raises(BlockStreamError, match="rows"):
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
