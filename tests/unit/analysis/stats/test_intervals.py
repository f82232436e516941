"""Intervals and ratios over runs, held against tables, hand values and scipy."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.stats.intervals import geometric_mean, holm, interval, runs_to_exclude_one, welch

positive = st.floats(1e-3, 1e12)


@pytest.fixture(scope="module")
def stats():
    """Not imported with this module, since each worker of pytest imports all modules of tests."""
    from scipy import stats
    return stats


@given(st.lists(positive, min_size=2, max_size=19))
def test_interval_is_that_of_scipy_on_logarithms(stats, values):
    logs = np.log(values)
    shown = interval(values)
    assert shown.low <= geometric_mean(values) * (1 + 1e-12) and shown.high >= geometric_mean(values) * (1 - 1e-12)
    if logs.std() > 1e-9:
        low, high = stats.t.interval(0.95, len(logs) - 1, logs.mean(), stats.sem(logs))
        assert math.log(shown.low) == pytest.approx(low, rel=1e-6, abs=1e-6)
        assert math.log(shown.high) == pytest.approx(high, rel=1e-6, abs=1e-6)


@given(st.lists(positive, min_size=2, max_size=12), st.lists(positive, min_size=2, max_size=12))
def test_ratio_is_that_of_scipys_unequal_variances(stats, a, b):
    logs_a, logs_b = np.log(a), np.log(b)
    shown = welch(a, b)
    assert shown.value == pytest.approx(math.exp(logs_a.mean() - logs_b.mean()), rel=1e-9)
    if logs_a.std() + logs_b.std() > 1e-6:
        expected = stats.ttest_ind(logs_a, logs_b, equal_var=False)
        bounds = expected.confidence_interval(0.95)
        assert shown.df == pytest.approx(expected.df, rel=1e-6)
        assert shown.p == pytest.approx(expected.pvalue, rel=1e-5, abs=1e-12)
        assert [math.log(shown.low), math.log(shown.high)] == pytest.approx([bounds.low, bounds.high], rel=1e-6,
                                                                            abs=1e-6)


def test_ratio_by_hand(stats):
    """Logarithms 1, 2, 3 and 2, 4, 6: means 2 and 4, variances 1 and 4; u = 1/3 and 4/3; se = √(5/3);
    df = (5/3)² / ((1/9)/2 + (16/9)/2) = 50/17."""
    shown = welch([math.exp(each) for each in (2, 4, 6)], [math.exp(each) for each in (1, 2, 3)])
    assert shown.df == pytest.approx(50 / 17)
    assert math.log(shown.value) == pytest.approx(2)
    assert (math.log(shown.high) - 2) / math.sqrt(5 / 3) == pytest.approx(stats.t.ppf(0.975, 50 / 17))


def test_equal_values_are_their_own_mean():
    """Also those whose logarithm is rounded: the load time of a run is printed without rounding."""
    assert geometric_mean([5_236_057_677]) == geometric_mean([5_236_057_677] * 3) == 5_236_057_677
    assert interval([5_236_057_677] * 3).low == interval([5_236_057_677] * 3).high == 5_236_057_677


def test_order_of_runs_changes_no_digit():
    values = [math.exp(random.Random(3).gauss(10, 0.1)) for _ in range(3)] + [2e4, 2.1e4, 1.9e4] * 17
    shuffled = values[::-1]
    random.Random(4).shuffle(shuffled)
    assert interval(values) == interval(shuffled) and interval(values).method == "bootstrap"
    assert welch(values, [1e4, 1.1e4]) == welch(shuffled, [1.1e4, 1e4])
    assert geometric_mean(values) == geometric_mean(shuffled)


def test_more_than_fifty_runs_are_resampled_as_scipy_does(stats):
    values = np.random.default_rng(7).lognormal(3, 0.4, 60)  # its logarithms are near to normal, these are not:
    values[:3] *= 4
    shown = interval(values.tolist())
    expected = stats.bootstrap((np.log(values),), np.mean, confidence_level=0.95, n_resamples=20_000,
                                     method="BCa", rng=np.random.default_rng(1)).confidence_interval
    width = expected.high - expected.low
    assert shown.method == "bootstrap" and interval(values.tolist()[:50]).method == "t"
    assert math.log(shown.low) == pytest.approx(expected.low, abs=0.04 * width)
    assert math.log(shown.high) == pytest.approx(expected.high, abs=0.04 * width)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, None], [0, 2.0], [-1.0, 2.0], [1.0, math.inf], [1.0, math.nan]])
def test_no_interval_where_there_can_be_none(values):
    assert interval(values) is None
    assert welch(values, [1.0, 2.0]) is None and welch([1.0, 2.0], values) is None


def test_runs_that_do_not_deviate():
    same = interval([3.7] * 6)
    assert same.low == same.high == pytest.approx(3.7)
    assert interval([3.7] * 30).high == pytest.approx(3.7)
    apart, alike = welch([2.0] * 6, [1.0] * 6), welch([2.0] * 6, [2.0] * 6)
    assert apart.low == apart.high == pytest.approx(2) and apart.p == 0 and apart.excludes_one
    assert alike.value == 1 and alike.p == 1 and not alike.excludes_one
    one_sided = welch([2.0] * 6, [1.0, 1.1, 0.9, 1.0, 1.05, 0.95])
    assert one_sided.df == pytest.approx(5)


def test_holm_by_hand():
    """Holm: 0.01·4, then 0.02·3, 0.03·2, 0.04·1, none below the one before."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


@pytest.mark.parametrize("values", [(1.1, 1.0, 1.2, 0.95), (1.02, 1.0, 1.05)])
def test_the_projected_runs_are_the_fewest_whose_interval_excludes_one(stats, values):
    needed = runs_to_exclude_one(values)
    logs = [math.log(value) for value in values]
    mean, deviation = np.mean(logs), np.std(logs, ddof=1)

    def excludes(n):
        return stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) < abs(mean)

    assert needed > len(values) and excludes(needed) and not excludes(needed - 1)


@pytest.mark.parametrize("values", [(1.1,), (1.0, 1.0), (1.1, 0.0), (1.1, 1 / 1.1)])
def test_no_number_of_runs_where_none_would_do(values):
    assert runs_to_exclude_one(values) is None
