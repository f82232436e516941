"""Where I/Os go on a target, and what a read touches first there: over random traces, sizes and blocks."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.replay.plan.mapping import choose_mapping, parse_map
from blkreel.replay.plan.survey import Survey, read_first_on
from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.format.trace_survey import COLUMNS, SurveyScan

SECTOR = 512
# Sectors of a drive of some GiB; I/Os lie near each other, so that they meet.
PLACES = st.one_of(st.integers(0, 500), st.integers(2040, 2060), st.integers(1 << 22, (1 << 22) + 500))
IOS = st.lists(st.tuples(PLACES, st.integers(1, 64), st.booleans()), min_size=1, max_size=40)
BLOCKS = st.sampled_from([512, 4096])
PHYSICAL = st.sampled_from([512, 4096, 16384])


def target(size_bytes, block_bytes=512, physical=4096):
    size_bytes = size_bytes // block_bytes * block_bytes
    return SimpleNamespace(size_bytes=size_bytes, block_bytes=block_bytes, path="/dev/target",
                           drive=SimpleNamespace(physical_block_bytes=physical, zoned=""))


def of(ranges):
    start = np.array([r[0] for r in ranges], np.int64) * SECTOR
    return BlockSet.of(start, start + np.array([r[1] for r in ranges], np.int64) * SECTOR)


def columns_of(ios):
    offset = np.array([io[0] for io in ios], np.int64) * SECTOR
    length = np.array([io[1] for io in ios], np.int64) * SECTOR
    return {**{name: np.zeros(len(ios), np.int64) for name in COLUMNS}, "offset_bytes": offset, "length_bytes": length,
            "op": np.array([0 if io[2] else 1 for io in ios], np.int8)}


class FakeTrace:
    """A trace in memory that is passed over; too short to be kept."""

    rows = 0
    footer = SimpleNamespace(size_bytes=0)

    def __init__(self, columns):
        self._columns = columns

    def batches(self, names):
        yield _Batch(self._columns)


class _Batch(dict):
    @property
    def num_rows(self):
        return len(self["op"])


def surveyed(ios):
    scan = SurveyScan()
    scan.add(columns_of(ios))
    found = scan.by_device[0]
    return Survey(**vars(found))


def chosen(name, ios, place):
    found = surveyed(ios)
    return choose_mapping(name, found.touched, place, "t", longest_bytes=found.longest_bytes)


@given(IOS, BLOCKS, PHYSICAL)
def test_compact_keeps_order_neighbors_and_alignment_inside_the_drive(ios, block_bytes, physical):
    touched = of(ios)
    packed_bytes = touched.grown(max(4096, physical)).bytes
    mapping = choose_mapping("compact", touched, target(packed_bytes, block_bytes, physical), "t")
    points = np.unique(np.concatenate([np.arange(s, s + n) for s, n, _ in ios])) * SECTOR
    moved = mapping.map_bytes(points)
    assert (np.diff(moved) > 0).all(), "one to one, and in order"
    neighbors = np.diff(points) == SECTOR
    assert (np.diff(moved)[neighbors] == SECTOR).all()
    granule = max(4096, physical)
    assert (moved % granule == points % granule).all()
    assert moved.min() >= 0
    assert moved.max() + SECTOR <= packed_bytes


@cases(100)
@given(IOS, BLOCKS, PHYSICAL, st.sampled_from([None, "identity", "compact", "wrap", "scale", "tile", "tile=3"]),
       st.one_of(st.integers(80_000, 600_000), st.integers(1 << 20, 9 << 20), st.integers(1 << 31, 1 << 33)),
       st.one_of(st.none(), st.integers(1 << 20, 1 << 34)))
def test_nothing_lands_outside_and_lengths_and_alignment_stay(ios, block_bytes, physical, name, size_bytes, source):
    place, found, columns = target(size_bytes, block_bytes, physical), surveyed(ios), columns_of(ios)
    try:
        mapping = choose_mapping(name, found.touched, place, "t", longest_bytes=found.longest_bytes,
                                 source_bytes=source)
    except BlkreelError as error:
        assert error.remedy
        return
    start, end = mapping.map(columns["offset_bytes"], columns["length_bytes"])
    low = columns["offset_bytes"] // block_bytes * block_bytes
    high = -(-(columns["offset_bytes"] + columns["length_bytes"]) // block_bytes) * block_bytes
    assert (end - start == high - low).all()
    assert (start % block_bytes == 0).all()
    assert (start >= 0).all()
    last = (mapping.copies - 1) * mapping.stride_bytes
    assert (end + last <= place.size_bytes).all()
    assert mapping.stride_bytes % 4096 == 0
    if mapping.copies > 1:
        assert end.max() <= mapping.stride_bytes, "copies do not meet"
    if not mapping.folds:
        assert (start % 4096 == low % 4096).all()
    read_first = read_first_on(FakeTrace(columns), found, mapping)
    assert read_first.limit_bytes <= place.size_bytes
    assert len(read_first) >= sum(len(part) for part in read_first.batches())


@cases(100)
@given(IOS, BLOCKS, st.sampled_from(["identity", "compact", "wrap", "scale", "tile=2"]), st.sampled_from([23, 33]))
def test_what_is_written_beforehand_is_what_a_read_touches_first_on_the_target(ios, block_bytes, name, bits):
    """Block by block on the target, in the order of the plan."""
    place, found, columns = target(1 << bits, block_bytes), surveyed(ios), columns_of(ios)
    try:
        mapping = choose_mapping(name, found.touched, place, "t", longest_bytes=found.longest_bytes)
    except BlkreelError:
        return
    start, end = mapping.map(columns["offset_bytes"], columns["length_bytes"])
    rows = {"offset_bytes": start, "length_bytes": end - start, "op": columns["op"]}
    first = {}
    for part in mapping.tiled(rows):
        for low, length, op in zip(part["offset_bytes"], part["length_bytes"], part["op"], strict=True):
            for block in range(low // block_bytes, (low + length) // block_bytes):
                first.setdefault(block, op == 0)
    wanted = {block for block, is_read in first.items() if is_read}
    written = {block for part in read_first_on(FakeTrace(columns), found, mapping).batches()
               for low, high in zip(part.start, part.end, strict=True)
               for block in range(low // block_bytes, high // block_bytes)}
    if block_bytes == SECTOR or mapping.folds:
        assert written == wanted
    else:
        # A write that grows to a whole block brings bytes that the trace did not write: what it then reads of them
        # is written beforehand as well.
        assert written >= wanted
        assert written <= set(first)


@given(st.lists(st.integers(0, 1 << 16), min_size=1, max_size=50), st.integers(1, 200), st.integers(1, 200))
def test_scale_keeps_order_and_sequences_inside_a_region(blocks, source_mib, target_mib):
    offset = np.unique(np.array(blocks)) * 4096 % (source_mib << 20)
    offset.sort()
    mapping = choose_mapping("scale", BlockSet.of(offset, offset + 4096), target(target_mib << 20), "t",
                             source_bytes=source_mib << 20, longest_bytes=4096)
    start, _ = mapping.map(offset, np.full(len(offset), 4096))
    region = offset >> 20
    same = np.diff(region) == 0
    assert (np.diff(start)[same] == np.diff(offset)[same]).all()
    assert (np.diff(start >> 20) >= 0).all()
    if target_mib >= source_mib:
        assert len(np.unique(start)) == len(np.unique(offset)), "nothing meets on a larger drive"
    middle = (region + 0.5) / source_mib * target_mib
    assert (abs((start >> 20) + 0.5 - middle) <= 1 + target_mib / source_mib).all()


def test_wrap_is_modulo_the_size_and_an_io_over_the_end_is_moved_back():
    ios = [(0, 8, True), (256 + 8, 8, True), (256 * 2 - 4, 8, False)]
    start, end = chosen("wrap", ios, target(256 * SECTOR)).map(*(columns_of(ios)[name] for name in (
        "offset_bytes", "length_bytes")))
    assert start.tolist() == [0, 4096, 248 * SECTOR]
    assert end.tolist() == [4096, 8192, 256 * SECTOR]


def test_tiles_lie_side_by_side_and_go_together():
    ios = [(0, 8, True), (8, 16, False)]
    mapping = chosen("tile=3", ios, target(3 << 20))
    columns = columns_of(ios)
    start, end = mapping.map(columns["offset_bytes"], columns["length_bytes"])
    rows = {"offset_bytes": start, "length_bytes": end - start, "op": columns["op"], "due_ns": np.array([5, 9])}
    (part,) = mapping.tiled(rows)
    assert part["offset_bytes"].tolist() == [0, 1 << 20, 2 << 20, 4096, (1 << 20) + 4096, (2 << 20) + 4096]
    assert part["due_ns"].tolist() == [5, 5, 5, 9, 9, 9]
    placed = read_first_on(None, surveyed(ios), mapping)
    assert placed.bytes == 3 * 4096
    assert [start for part in placed.batches() for start in part.start.tolist()] == [0, 1 << 20, 2 << 20]


def test_tile_makes_as_many_copies_as_drives_like_the_source_fit():
    touched = of([(0, 8)])
    assert choose_mapping("tile", touched, target(10 << 20), "t", source_bytes=3 << 20).copies == 3
    assert choose_mapping("tile", touched, target(2 << 20), "t", source_bytes=3 << 20).copies == 1
    with pytest.raises(BlkreelError, match="no room for 9 copies.*tile=8"):
        choose_mapping("tile=9", touched, target(8 * 4096), "t")


def test_a_trace_that_does_not_fit_names_the_sizes_and_the_way_out():
    touched = of([(0, 8), (1 << 21, 2048)])
    with pytest.raises(BlkreelError, match="1,074,790,400.*--map compact"):
        choose_mapping("identity", touched, target(1 << 29), "t.parquet")
    with pytest.raises(BlkreelError, match="t.parquet touches 1.05 MB .*more than the 1.05 MB .1,048,576 bytes"):
        choose_mapping(None, touched, target(1 << 20), "t.parquet")
    for name in ("wrap", "scale"):
        with pytest.raises(BlkreelError, match=f"I/O of 1.05 MB .*too long for --map {name}.*larger drive"):
            choose_mapping(name, touched, target(1 << 20), "t.parquet", longest_bytes=1 << 20)


@pytest.mark.parametrize("name", ["identity", "compact", "tile"])
@pytest.mark.parametrize(("extents", "longest_bytes"), [
    ([(0, 8), (1 << 21, 8)], 4096), ([(0, 4096), (1 << 21, 8)], 4096), ([(0, 4096)], 2 << 20)])
def test_a_map_that_is_suggested_is_not_refused(name, extents, longest_bytes):
    touched, drive = of(extents), target(1 << 20)
    if name == "compact" and extents[0][1] == 8:
        return
    with pytest.raises(BlkreelError) as error:
        choose_mapping(name, touched, drive, "t", longest_bytes=longest_bytes)
    for suggested in re.findall(r"--map (\w+)", error.value.remedy):
        choose_mapping(suggested, touched, drive, "t", longest_bytes=longest_bytes)
    assert ("--map" in error.value.remedy) == (longest_bytes < 1 << 20)


def test_a_map_of_nothing_moves_nothing():
    """A trace of flushes alone touches no block."""
    mapping = choose_mapping("compact", BlockSet(), target(1 << 20), "t")
    assert mapping.map_bytes(np.array([0, 0])).tolist() == [0, 0]
    for name in ("identity", "compact", "wrap", "scale", "tile"):
        place = choose_mapping(name, BlockSet(), target(1 << 20), "t").map(np.array([0]), np.array([0]))
        assert [part.tolist() for part in place] == [[0], [0]]


def test_words_for_maps():
    assert parse_map("refuse") == "identity"
    assert parse_map(None) is None
    assert parse_map("tile=12") == "tile=12"
    for text in ("", "fold", "tile=0", "tile=1025", "tile=", "tile=-1", "wrap=2"):
        with pytest.raises(UsageError) as error:
            parse_map(text)
        assert "tile=" in error.value.remedy
