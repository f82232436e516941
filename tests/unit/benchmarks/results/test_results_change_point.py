"""The size of a fast part: found to the write where there is one, and not made up where there is none."""

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from synthetic_tests import MIB, MadeTest, closed_loop

from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.reports.slc_cache import Pieces
from blkreel.benchmarks.step_metrics.change_point import MIN_VALUES, find_change

seeds = st.integers(0, 2**32 - 1)


def noisy(random, cost_ns, spread):
    """Log-normal around cost_ns, and one write in five hundred takes a hundred times as long."""
    drawn = cost_ns * random.lognormal(0, spread, len(cost_ns))
    return np.where(random.random(len(cost_ns)) < 0.002, drawn * 100, drawn).astype(np.int64) + 1


@cases(20)
@given(seeds, st.integers(1000, 12_000), st.floats(0.05, 0.9), st.floats(0.35, 20), st.floats(1.8, 12),
       st.floats(0, 0.4))
def test_a_known_cache_is_found_within_two_percent(seed, fast, share, fast_gb_s, slower, spread):
    """Whatever its size and speed: up to 20 GB/s, where all of the fast part may pass within one sample of 0.5 s."""
    random = np.random.default_rng(seed)
    cost_ns = np.where(np.arange(int(fast / share)) < fast, MIB / fast_gb_s, MIB / fast_gb_s * slower)
    found = find_change(noisy(random, cost_ns, spread) / MIB)
    assert found.at is not None, found.why
    assert abs(found.at - fast) <= 0.02 * fast


@cases(10)
@given(seeds, st.integers(40, 1000), st.floats(0.05, 0.9))
def test_a_small_cache_is_found_to_some_writes(seed, fast, share):
    random = np.random.default_rng(seed)
    cost_ns = np.where(np.arange(int(fast / share)) < fast, 400_000, 1_200_000)
    if int(fast / share) - fast < 40:
        return
    assert abs(find_change(noisy(random, cost_ns, 0.2)).at - fast) <= 5


@pytest.mark.parametrize(("fast", "slow"), [(MIN_VALUES, 48), (48, MIN_VALUES)])
def test_a_part_has_the_least_number_of_values(fast, slow):
    assert find_change(np.repeat([1.0, 4.0], [fast, slow])).at == fast
    short = np.repeat([1.0, 4.0], [fast - (fast < slow), slow - (slow < fast)])
    assert find_change(short).at in (None, MIN_VALUES, len(short) - MIN_VALUES)


@cases(20)
@given(seeds, st.integers(100, 20_000), st.floats(0, 1.0))
def test_without_a_knee_none_is_found(seed, writes, spread):
    random = np.random.default_rng(seed)
    assert find_change(noisy(random, np.full(writes, 400_000.0), spread)).at is None


@cases(12)
@given(seeds, st.integers(1000, 20_000), st.floats(1.3, 3), st.floats(0, 0.3))
def test_a_drive_that_slows_down_all_the_way_has_no_knee(seed, writes, slower, spread):
    """As a disk does from its outer tracks to its inner ones."""
    random = np.random.default_rng(seed)
    cost = 400_000 * slower ** np.linspace(0, 1, writes)
    assert find_change(cost * random.lognormal(0, spread, writes)).at is None


@cases(8)
@given(seeds, st.integers(20, 400), st.integers(2, 50))
def test_regular_stalls_are_no_knee(seed, every, longer):
    random = np.random.default_rng(seed)
    cost = 400_000 * random.lognormal(0, 0.1, 8000)
    cost[::every] *= longer
    assert find_change(cost).at is None


@cases(12)
@given(seeds, st.lists(st.integers(1000, 12_000), min_size=3, max_size=4), st.floats(1.5, 6), st.floats(1.5, 6),
       st.floats(0, 0.3))
def test_of_several_falls_the_first_is_the_end_of_the_fast_part(seed, writes, second, third, spread):
    """A cache, then flash of three bits, then flash that has to be tidied up: evenly spaced, that is nearly a line."""
    random = np.random.default_rng(seed)
    costs = 300_000 * np.cumprod([1, second, third, 1.6])[:len(writes)]
    found = find_change(noisy(random, np.repeat(costs, writes), spread))
    assert found.at is not None, found.why
    assert abs(found.at - writes[0]) <= 0.02 * writes[0]


def test_a_drive_that_is_fast_again_now_and_then_has_its_fast_part_up_to_the_first_slow_write():
    random = np.random.default_rng(5)
    behind = np.where(np.arange(30_000) % 200 < 100, 2_000_000, 350_000)
    cost = np.concatenate([np.full(8192, 350_000), behind]) * random.lognormal(0, 0.1, 38_192)
    assert find_change(cost).at == 8192


@pytest.mark.parametrize(("values", "at"), [
    (np.repeat([4.0, 1.0], 500), None), (np.repeat([1.0, 2.0], [333, 667]), 333)],
    ids=["a drive that becomes faster has no fast part", "the cut is exact to the write"])
def test_the_cut(values, at):
    assert find_change(values).at == at


@pytest.mark.parametrize(("values", "why"), [
    (np.ones(20), "only 20 values"),
    (np.repeat([1.0, 1.2], 500), "1.20 times as much, below 1.25"),
])
def test_what_was_lacking_is_said(values, why):
    assert why in find_change(values).why


@cases(10)
@given(seeds, st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_pieces_keep_every_byte_and_nanosecond_when_they_join(seed, batches):
    from blkreel.benchmarks.reports import slc_cache
    random = np.random.default_rng(seed)
    rows = random.integers(1, 1000, (sum(batches), 2))
    done = np.cumsum(rows[:, 1])
    pieces, at = Pieces(), 0
    kept, slc_cache.MAX_PIECES = slc_cache.MAX_PIECES, 16
    try:
        for size in batches:
            part = slice(at, at + size)
            pieces.add(rows[part, 0], rows[part, 1], done[part])
            at += size
    finally:
        slc_cache.MAX_PIECES = kept
    table = pieces.table()
    assert table[:, :2].sum(axis=0).tolist() == rows.sum(axis=0).tolist()
    assert len(table) <= 17 and table[-1, 2] == done[-1] and (np.diff(table[:, 2]) > 0).all()


REST_NS = 30 * 10**9


def fills(tmp_path, fast_writes):
    """Fills of 1,000 writes, by the rest before: some at 8 GB/s, then 1 GB/s."""
    test = MadeTest(tmp_path / "t", "cache")
    for rest_ns, fast in fast_writes.items():
        cost = np.where(np.arange(1000) < fast, MIB // 8, MIB)
        test.step("fill", {"rest_ns": rest_ns}, closed_loop(1000, cost, op=1, length_bytes=MIB))
    return results_of(test.path)


def test_the_report_names_sizes_speeds_and_what_a_rest_brings_back(tmp_path):
    document = fills(tmp_path, {0: 100, REST_NS: 60, 10 * REST_NS: 0})
    fresh, rested, without = document["figures"]["states"][""]["fills"].values()
    assert document["figures"]["states"][""]["fast_bytes"] == fresh["fast_bytes"] == 100 * MIB
    assert fresh["before_mb_s"] == pytest.approx(8000) and fresh["after_mb_s"] == pytest.approx(1000)
    assert rested["fast_bytes"] == 60 * MIB and rested["of_first"] == pytest.approx(0.6)
    assert without["fast_bytes"] is None and without["after_mb_s"] is None
    assert without["why"]["fast_bytes"].startswith("no change found, all of it was slow: ")
    # 0.944 s of writing, and the last, cut-off half second is not drawn as a slow one.
    line = document["series"][0]["lines"][0]
    assert line["x"] == [0.0] and line["y"][0] == pytest.approx(
        MIB * sum(np.cumsum(np.repeat([MIB // 8, MIB], [100, 900])) < 5e8) / 5e5, rel=1e-5)


def test_the_fast_part_of_a_drive_is_that_of_its_first_fill(tmp_path):
    """Without that fill, the next one found less of it."""
    figures = fills(tmp_path, {REST_NS: 60})["figures"]["states"][""]
    assert figures["fast_bytes"] is None and figures["fills"]["after-30s"]["fast_bytes"] == 60 * MIB


def test_a_first_fill_within_the_fast_part_is_told_as_fast_where_a_later_one_shows_both(tmp_path):
    """A cache larger than the first fill: what the second one finds of it tells what the first one was."""
    fresh, rested = fills(tmp_path, {0: 1000, REST_NS: 60})["figures"]["states"][""]["fills"].values()
    assert fresh["fast_bytes"] is None
    assert fresh["why"]["fast_bytes"].startswith("no change found, all of it was fast: ")
    assert rested["fast_bytes"] == 60 * MIB
