"""The rule of steadiness at its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.prepare.steady_state import ROUNDS, Steadiness, is_steady


@pytest.mark.parametrize(("rounds", "steady"), [
    ([100] * 4, False),
    ([100] * 5, True),
    ([500, 100, 100, 100, 100, 100], True),
    ([90, 110, 90, 110, 100], True),
    ([89.9, 110.1, 90, 110, 100], False),
    ([95, 97.5, 100, 102.5, 105], True),
    ([94.9, 97.4, 100, 102.6, 105.1], False),
    ([105, 102.5, 100, 97.5, 95], True),
])
def test_the_limits(rounds, steady):
    assert is_steady(rounds) is steady


@given(st.lists(st.floats(1, 1e6), min_size=0, max_size=12))
def test_the_rule_as_a_fit_of_another_hand_finds_it(rounds):
    found = Steadiness.of(rounds)
    assert found.rounds == len(rounds)
    if len(rounds) < ROUNDS:
        assert not found.steady and found.account()["mean"] is found.account()["slope_per_round"] is None
        return
    last = np.array(rounds[-ROUNDS:])
    slope, _ = np.polyfit(np.arange(ROUNDS), last, 1)
    mean = last.mean()
    assert found.slope == pytest.approx(slope, abs=1e-9 * mean)
    spread_share, trend_share = (last.max() - last.min()) / mean, 4 * abs(slope) / mean
    if abs(spread_share - 0.2) > 1e-9 and abs(trend_share - 0.1) > 1e-9:
        assert found.steady == (spread_share < 0.2 and trend_share < 0.1)
    account = found.account()
    assert account["spread"] == pytest.approx(spread_share)
    assert account["trend"] == pytest.approx(trend_share, abs=1e-9)
    assert account["values"] == last.tolist()


def test_a_drive_that_stands_still_is_not_steady_by_a_division():
    account = Steadiness.of([0.0] * 5).account()
    assert account["spread"] is None
    assert account["steady"]
