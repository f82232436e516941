"""Whether a series of rounds has settled: a rule that preparations end by and results are judged by.

docs/method.md, "Steady state".
"""

from dataclasses import dataclass

import numpy as np

ROUNDS = 5
_SPREAD_LIMIT = 0.20
_SLOPE_LIMIT = 0.10


@dataclass(frozen=True)
class Steadiness:
    """Of the last five rounds of a series, in the series' unit.

    spread: the largest less the smallest. slope: of the line of least squares, per round. Both, and the mean, are
    None where there are fewer than five rounds.
    """

    rounds: int
    values: tuple[float, ...]
    mean: float | None = None
    spread: float | None = None
    slope: float | None = None

    @staticmethod
    def of(values) -> "Steadiness":
        rounds, last = len(values), np.asarray(values[-ROUNDS:], float)
        if rounds < ROUNDS:
            return Steadiness(rounds, tuple(last.tolist()))
        # Least squares in closed form: a fit by iteration errs in the last digit, and so at the limit.
        distance = np.arange(ROUNDS) - (ROUNDS - 1) / 2
        slope = float(distance @ last) / float(distance @ distance)
        return Steadiness(rounds, tuple(last.tolist()), float(last.mean()), float(np.ptp(last)), slope)

    @property
    def steady(self) -> bool:
        """They spread over at most 20 % of their mean, and their trend over 10 %."""
        if self.mean is None:
            return False
        return (self.spread <= _SPREAD_LIMIT * self.mean
                and (ROUNDS - 1) * abs(self.slope) <= _SLOPE_LIMIT * self.mean)

    def account(self) -> dict:
        """As a result tells it. spread and trend: as shares of the mean, to be held against the limits beside them."""
        shares = {"spread": None, "trend": None}
        if self.mean:
            shares = {"spread": self.spread / self.mean, "trend": (ROUNDS - 1) * abs(self.slope) / self.mean}
        return {"steady": self.steady, "rounds": self.rounds, "values": list(self.values), "mean": self.mean,
                "slope_per_round": self.slope, **shares, "spread_limit": _SPREAD_LIMIT, "trend_limit": _SLOPE_LIMIT}


def is_steady(values) -> bool:
    """Whether the last five of them are."""
    return Steadiness.of(values).steady
