"""Streams can be begun anywhere: what is interrupted goes on with the very rest of what it had begun."""

import numpy as np
import pytest
from columns import joined
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.extents import Extents, MappedBlocks
from blkreel.replay.streams import rules
from blkreel.replay.streams.rules import permutation, ranges, with_replacement
from blkreel.traces.blocksets.block_set import BlockSet

PARTS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 50)), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def short_batches(monkeypatch):
    """So that a stream of some hundred rows has several."""
    monkeypatch.setattr(rules, "BATCH_ROWS", 64)


def assert_is_the_rest(make, first_row):
    all_rows, rest = joined(make(0)), joined(make(first_row))
    assert all_rows["source_row"].tolist() == list(range(len(all_rows["op"]))), "rows are numbered"
    if first_row >= len(all_rows["op"]):
        assert not rest
        return
    for name, column in rest.items():
        assert column.tolist() == all_rows[name][first_row:].tolist(), name


class FewAtATime(MappedBlocks):
    """As sets of blocks come that are too large for arrays: in several parts."""

    def batches(self):
        for part in super().batches():
            for low in range(0, len(part), 2):
                yield Extents(part.start[low:low + 2], part.end[low:low + 2])


@pytest.mark.parametrize("blocks_of", [
    Extents.of, lambda start, end: FewAtATime(BlockSet.of(start, end))], ids=["arrays", "parts"])
@given(PARTS, st.integers(1, 20), st.integers(0, 700))
def test_ranges(blocks_of, parts, chunk, first_row):
    start = np.array([p[0] for p in parts]) * 4096
    blocks = blocks_of(start, start + np.array([p[1] for p in parts]) * 4096)
    assert_is_the_rest(lambda row: ranges(blocks, "write", chunk * 512, row), first_row)


@given(st.integers(1, 500), st.integers(0, 600), st.integers(0, 9))
def test_a_permutation(blocks, first_row, seed):
    assert_is_the_rest(lambda row: permutation(blocks * 4096, 4096, "write", seed, row), first_row)


@given(st.integers(1, 500), st.integers(0, 600), st.integers(0, 9))
def test_random_writes(blocks, first_row, seed):
    assert_is_the_rest(lambda row: with_replacement(1 << 20, 4096, blocks * 4096, seed, row), first_row)


def test_no_two_batches_of_random_writes_are_alike():
    block = joined(with_replacement(1 << 40, 4096, 640 * 4096, 1))["offset_bytes"]
    assert len(np.unique(block)) == 640


def test_beginning_far_inside_takes_one_batch(monkeypatch):
    made = []
    generator = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed: made.append(seed) or generator(seed))
    next(with_replacement(1 << 40, 4096, 1 << 40, 1, (1 << 28) - 64))
    assert made == [[1, (1 << 28) // 64 - 1]]
