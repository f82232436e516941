"""Sets of blocks and first touch in native code, held against the same done sector by sector."""


import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import BlkreelError
from blkreel.traces.blocksets.block_set import BlockSet, FirstTouch, PackedSet

SECTOR = 512
CHUNK_SECTORS = (32 << 20) // SECTOR
# Near the beginning, and around the border of two chunks of the native sets.
PLACES = st.one_of(st.integers(0, 300), st.integers(CHUNK_SECTORS - 150, CHUNK_SECTORS + 150))
RANGES = st.lists(st.tuples(PLACES, st.integers(0, 40)), max_size=40)


def of(ranges):
    start = np.array([r[0] for r in ranges], np.int64) * SECTOR
    return BlockSet.of(start, start + np.array([r[1] for r in ranges], np.int64) * SECTOR)


def members(blocks, most=3):
    return {sector for starts, ends in blocks.ranges(most) for start, end in zip(starts, ends, strict=True)
            for sector in range(start // SECTOR, end // SECTOR)}


@given(st.lists(st.tuples(PLACES, st.integers(0, 40), st.booleans()), max_size=60), st.integers(1, 60),
       st.sampled_from([1, 8]))
def test_first_touch_is_by_order(ios, size, grain):
    """Sector by sector: who came first."""
    ios = [(start // grain * grain, length * grain, is_read) for start, length, is_read in ios]
    first = {}
    for start, length, is_read in ios:
        for sector in range(start, start + length):
            first.setdefault(sector, is_read)
    touch = FirstTouch()
    for low in range(0, len(ios), size):
        start, length, is_read = (np.array(column) for column in zip(*ios[low:low + size], strict=True))
        touch.add(start * SECTOR, (start + length) * SECTOR, is_read.astype(bool))
    assert members(touch.read_first) == {sector for sector, is_read in first.items() if is_read}
    assert members(touch.touched) == set(first)


@given(RANGES, st.binary(max_size=64))
def test_a_saved_set_is_the_same_and_anything_else_is_refused(ranges, noise):
    blocks = of(ranges)
    saved = bytes(blocks.saved())
    assert members(BlockSet.load(saved)) == members(blocks)
    for wrong in (noise, saved[:-1], saved + b"\0"):
        with pytest.raises(ValueError, match="not a saved set"):
            BlockSet.load(wrong)


def test_parts_of_a_sector_count_as_all_of_it():
    assert members(BlockSet.of(np.array([511]), np.array([513]))) == {0, 1}


@pytest.mark.parametrize(("start", "end"), [(-1, 512), (0, (1 << 62) + 1), (0, 1 << 61)])
def test_a_range_out_of_all_bounds_is_refused(start, end):
    with pytest.raises(BlkreelError, match="TiB|drive") as error:
        BlockSet.of(np.array([start]), np.array([end]))
    assert "blkreel check" in error.value.remedy


def test_packing_parts_of_blocks_is_refused():
    with pytest.raises(ValueError, match="whole blocks"):
        PackedSet(BlockSet.of(np.array([0]), np.array([512])))


def test_a_freed_set_keeps_only_its_size():
    blocks = of([(0, 8), (100, 3)])
    blocks.forget()
    blocks.forget()
    assert (len(blocks), blocks.bytes, blocks.limit_bytes) == (2, 11 * SECTOR, 103 * SECTOR)
    with pytest.raises(RuntimeError, match="freed"):
        list(blocks.ranges())
