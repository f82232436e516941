"""Change points of series of results: dated, silent, and indifferent to what does not matter."""

import math

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.stats.change_points import FEWEST_VALUES, change_points

NIGHTS = 60
RUNS = 3  # a night: fewer cannot date a step of 5 % with a spread of 3 % to within one night in 95 of 100 series


def nights(seed: int, count: int = NIGHTS) -> np.ndarray:
    """Geometric means of RUNS runs a night that spread by 3 %."""
    return np.exp(np.random.default_rng(seed).normal(0, 0.03, (count, RUNS)).mean(axis=1))


def stepped(values: np.ndarray, step: int, ratio: float = 1.05) -> list[float]:
    return [float(each) for each in np.where(np.arange(len(values)) >= step, ratio, 1.0) * values]


def test_a_step_of_5_percent_is_dated_to_within_one_night() -> None:
    steps = np.random.default_rng(1).integers(10, NIGHTS - 9, 100)
    dated = [any(abs(point.index - step) <= 1 for point in change_points(stepped(nights(seed), step)))
             for seed, step in enumerate(steps)]
    assert sum(dated) >= 95


def test_a_series_without_a_step_is_silent() -> None:
    assert sum(not change_points(nights(seed).tolist()) for seed in range(100)) >= 95


def test_size_interval_and_dates_hold_the_truth() -> None:
    size = dates = 0
    for seed in range(40):
        point, = change_points(stepped(nights(seed), 30, 1.1))
        size += point.ratio.low <= 1.1 <= point.ratio.high
        dates += point.first <= 30 <= point.last
        assert point.first <= point.index <= point.last
        assert point.p <= 0.01
    assert size >= 35
    assert dates >= 37


def test_a_step_that_is_taken_back_gives_two_change_points() -> None:
    values = np.array(stepped(nights(5), 20, 1.1)) / np.where(np.arange(NIGHTS) >= 30, 1.1, 1.0)
    first, second = change_points(values.tolist())
    assert abs(first.index - 20) <= 1
    assert abs(second.index - 30) <= 1
    assert first.ratio.low > 1 > second.ratio.high


def test_slow_nights_hide_no_step_and_are_none() -> None:
    values = nights(7)
    values[[5, 33, 50]] *= 1.5
    assert not change_points(values.tolist())
    point, = change_points(stepped(values, 24, 1.1))
    assert abs(point.index - 24) <= 1


def test_heavy_tails_are_silent() -> None:
    random = np.random.default_rng(3)
    assert sum(not change_points(np.exp(0.03 * random.standard_cauchy(NIGHTS)).tolist()) for _ in range(100)) >= 95


def test_a_change_may_only_be_at_given_splits() -> None:
    point, = change_points(stepped(nights(9), 30, 1.2), splits=[12, 27, 45])
    assert point.index == 27
    assert change_points(stepped(nights(9), 30, 1.2), splits=[]) == []


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 3, [1.0] * 20, [1.0, 1.0, 2.0, 2.0]])
def test_few_or_equal_values_have_no_change_point(values: list[float]) -> None:
    assert change_points(values) == []


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_values_without_a_logarithm_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive, finite"):
        change_points([1.0, value, 1.0])


def test_an_exact_step_has_an_interval_of_no_width() -> None:
    point, = change_points([100.0] * 10 + [110.0] * 10)
    assert (point.index, point.first, point.last) == (10, 10, 10)
    assert point.ratio.low == point.ratio.high == pytest.approx(1.1)


@cases(25)
@given(st.lists(st.integers(1, 6), max_size=24), st.floats(1e-6, 1e12))
def test_the_unit_of_the_values_does_not_matter(values: list[int], unit: float) -> None:
    points = change_points([float(each) for each in values])
    scaled = change_points([each * unit for each in values])
    assert [point.index for point in scaled] == [point.index for point in points]
    bounds = [0, *(point.index for point in points), len(values)]
    assert all(b - a >= FEWEST_VALUES for a, b in zip(bounds, bounds[1:], strict=False) if points)
