"""Bins lose less than 1 % of a value, and nothing of counts, sums, the smallest and the largest."""

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.partials.distributions import PERCENTILES, Histogram, ValueCounts
from blkreel.common.errors import TraceError

# As durations are: over many powers of two, with their neighbors, and below 0 as lateness may be. 60 fit into 64 bits.
value = st.one_of(st.integers(-600, 600), st.integers(-(1 << 57), 1 << 57),
                  st.builds(lambda power, near: (1 << power) + near, st.integers(0, 56), st.integers(-1, 1)))
values = st.lists(value, max_size=60).map(lambda numbers: np.array(numbers, np.int64))


def exact(numbers):
    counts = ValueCounts()
    counts.add(numbers)
    return counts


def near(told, true):
    return abs(told - true) <= abs(true) / 100


@cases(100)
@given(values)
def test_every_percentile_is_within_a_percent(numbers):
    true, binned = exact(numbers), exact(numbers).to_histogram()
    assert (binned.count, binned.minimum, binned.maximum) == (true.count, true.minimum, true.maximum)
    assert binned.total == sum(numbers.tolist())
    for fraction in [*PERCENTILES.values(), (0, 1), (1, 1), (1, 3)]:
        assert (true.percentile(fraction) is None) == (binned.percentile(fraction) is None)
        if len(numbers):
            assert near(binned.percentile(fraction), true.percentile(fraction))
    for (a, beyond_a), (b, beyond_b) in zip(binned.tail(20), true.tail(20), strict=True):
        assert beyond_a == beyond_b and near(a, b)


@pytest.mark.parametrize("numbers", [[1 << 61] * 4, [-(1 << 61)] * 5])
def test_sums_beyond_64_bits_are_refused(numbers):
    with pytest.raises(TraceError, match="64 bits"):
        exact(np.array(numbers)).to_histogram()
    half = Histogram.of(np.array(numbers[:2]), np.ones(2, np.int64))
    with pytest.raises(TraceError, match="64 bits"):
        half + half + half


@cases(100)
@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60).map(lambda numbers: np.array(numbers, np.int64)))
def test_waiting_is_cut_at_the_same_value(numbers):
    true, binned = exact(numbers), exact(numbers).to_histogram()
    for fraction in ((50, 100), (99, 100), (1, 1)):
        expected = true.waiting_percentile(fraction)
        assert binned.waiting_percentile(fraction) is None if expected is None else near(
            binned.waiting_percentile(fraction), expected)


@cases(60)
@given(values, values, values)
def test_histograms_add_up_in_any_order(a, b, c):
    together = exact(np.concatenate([a, b, c])).to_histogram()
    a, b, c = exact(a), exact(b).to_histogram(), exact(c)
    assert (a + b) + c == a + (b + c) == b + (c + a) == together
    assert (a + c).error == 0 and (a + b).error == Histogram.error < 0.01
    grown = Histogram()
    for part in (a, b, c):
        grown.add(np.repeat(*part.items()) if part.error == 0 else np.empty(0, np.int64))
    assert grown == a + c + Histogram()


@pytest.mark.parametrize("sign", [1, -1])
def test_the_same_bins_in_c(sign):
    """Through lateness, the one distribution that may be negative."""
    powers = np.int64(1) << np.arange(60, dtype=np.int64)
    sizes = np.unique(np.concatenate([np.arange(2000), powers, powers - 1, powers + 1, powers * 3 // 2]))
    sizes = sizes[sizes < 1 << 60]
    submit_ns = sizes if sign > 0 else np.zeros(len(sizes), np.int64)
    due_ns = np.zeros(len(sizes), np.int64) if sign > 0 else sizes
    zeros = np.zeros(len(sizes), np.int64)
    found = Histogram()
    # A run of eighteen years is refused: several that are shorter.
    for chosen in [sizes < 1 << 52, *(sizes == size for size in sizes[sizes >= 1 << 52])]:
        metrics = MetricsAccumulator(exact=False)
        metrics.feed({"submit_ns": submit_ns[chosen], "due_ns": due_ns[chosen], "latency_ns": zeros[chosen],
                      "length_bytes": zeros[chosen], "op": zeros[chosen]})
        found = found + metrics.finish().lateness_host
    assert found == Histogram.of(sign * sizes, np.ones(len(sizes), np.int64))


def test_the_mean_of_a_bin_whose_doubled_total_does_not_fit():
    assert Histogram.of_bins([9], [3], [(1 << 62) + 1], 1, 1 << 62).items()[0].tolist() == [((1 << 62) + 1 + 1) // 3]
