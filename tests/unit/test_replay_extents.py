"""Byte ranges, first touch and maps, held against the same done byte by byte."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.extents import Extents
from blkreel.replay.first_touch import FirstTouch
from blkreel.replay.mapping import choose_mapping
from blkreel.traces.errors import BlkreelError

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=40)


def of(ranges):
    start = np.array([r[0] for r in ranges], np.int64)
    return Extents.of(start, start + np.array([r[1] for r in ranges], np.int64))


def members(extents):
    return {byte for start, end in zip(extents.start, extents.end, strict=True) for byte in range(start, end)}


def naive(ranges):
    return {byte for start, length in ranges for byte in range(start, start + length)}


@given(RANGES, RANGES)
def test_union_and_difference(one, other):
    assert members(of(one)) == naive(one)
    assert of(one).bytes == len(naive(one))
    assert members(of(one).union(of(other))) == naive(one) | naive(other)
    assert members(of(one).minus(of(other))) == naive(one) - naive(other)


@given(RANGES)
def test_extents_are_ascending_and_apart(ranges):
    extents = of(ranges)
    assert (extents.end > extents.start).all()
    assert (extents.start[1:] > extents.end[:-1]).all()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40), st.booleans()), max_size=60), st.integers(1, 60))
def test_first_touch_is_by_order(ios, size):
    """Byte by byte: who came first."""
    first = {}
    for start, length, is_read in ios:
        for byte in range(start, start + length):
            first.setdefault(byte, is_read)
    touch = FirstTouch()
    for low in range(0, len(ios), size):
        start, length, is_read = (np.array(column) for column in zip(*ios[low:low + size], strict=True))
        touch.add(start, start + length, is_read.astype(bool))
    assert members(touch.read_first) == {byte for byte, is_read in first.items() if is_read}
    assert members(touch.touched) == set(first)


def test_first_touch_of_a_million_ios_takes_seconds():
    random = np.random.default_rng(3)
    touch = FirstTouch()
    start = time.process_time()
    for _ in range(8):
        offset = random.integers(0, 1 << 28, 131_072) * 4096
        touch.add(offset, offset + random.integers(1, 64, 131_072) * 4096, random.random(131_072) < 0.5)
    # About 1 s of processor time here; the bound is there to catch a quadratic step.
    assert time.process_time() - start < 30
    assert 0 < touch.read_first.bytes < touch.touched.bytes


def target(size_bytes, block_bytes=512):
    return SimpleNamespace(size_bytes=size_bytes, block_bytes=block_bytes, path="/dev/target",
                           drive=SimpleNamespace(physical_block_bytes=4096))


BLOCK_RANGES = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 64)), min_size=1, max_size=40)


@given(BLOCK_RANGES, st.sampled_from([512, 4096]))
def test_compact_keeps_order_neighbours_and_alignment_inside_the_drive(ranges, block_bytes):
    sectors = [(start * 512, length * 512) for start, length in ranges]
    touched = of(sectors)
    packed_bytes = touched.aligned(4096).bytes
    mapping = choose_mapping("compact", touched, target(packed_bytes, block_bytes), "t")
    points = np.unique(np.concatenate([np.arange(s, s + n, 512) for s, n in sectors]))
    moved = mapping.move(points)
    assert (np.diff(moved) > 0).all(), "one to one, and in order"
    neighbours = np.diff(points) == 512
    assert (np.diff(moved)[neighbours] == 512).all()
    assert (moved % 4096 == points % 4096).all()
    assert moved.min() >= 0
    assert moved.max() + 512 <= packed_bytes
    assert mapping.move_extents(touched).bytes == touched.bytes


def test_identity_where_it_fits_compact_where_not():
    touched = of([(0, 4096), (1 << 30, 8192)])
    assert choose_mapping(None, touched, target((1 << 30) + 8192), "t").name == "identity"
    assert choose_mapping(None, touched, target(1 << 20), "t").name == "compact"


def test_a_trace_that_does_not_fit_names_the_sizes_and_the_way_out():
    touched = of([(0, 4096), (1 << 30, 1 << 20)])
    with pytest.raises(BlkreelError, match="1,074,790,400.*--map compact"):
        choose_mapping("identity", touched, target(1 << 29), "t.parquet")
    with pytest.raises(BlkreelError, match="t.parquet touches 1.05 MB .*more than the 1.05 MB .1,048,576 bytes"):
        choose_mapping(None, touched, target(1 << 20), "t.parquet")


def test_a_map_of_nothing_moves_nothing():
    """A trace of flushes alone touches no block."""
    mapping = choose_mapping("compact", Extents.none(), target(1 << 20), "t")
    assert mapping.move(np.array([0, 0])).tolist() == [0, 0]
