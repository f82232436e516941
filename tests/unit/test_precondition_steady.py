"""The rule of steadiness at its limits."""

import pytest

from blkreel.replay.steady import is_steady


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
