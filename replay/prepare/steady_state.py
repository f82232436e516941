"""Steady state of a series of rounds, which ends preparations and judges results (docs/method.md, "Steady state")."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

ROUNDS = 5
_SPREAD_LIMIT = 0.20
_SLOPE_LIMIT = 0.10
_ROUNDING = 1e-12


class SteadinessAccount(TypedDict):
    """spread, trend: as shares of the mean, to compare with the limits; None without a mean."""

    steady: bool
    rounds: int
    values: list[float]
    mean: float | None
    slope_per_round: float | None
    spread: float | None
    trend: float | None
    spread_limit: float
    trend_limit: float


@dataclass(frozen=True)
class Steadiness:
    """The last five rounds of a series, in the unit of the series.

    spread: largest minus smallest. slope: of the least-squares line, per round. is_known: False with fewer rounds.
    """

    rounds: int
    values: tuple[float, ...]
    mean: float = 0.0
    spread: float = 0.0
    slope: float = 0.0

    @property
    def is_known(self) -> bool:
        return self.rounds >= ROUNDS

    @staticmethod
    def of(values: Sequence[float]) -> "Steadiness":
        rounds, last = len(values), np.asarray(values[-ROUNDS:], float)
        if rounds < ROUNDS:
            return Steadiness(rounds, tuple(last.tolist()))
        # In closed form: an iterative fit is inexact in the last digit, and so wrong at the limit.
        distance = np.arange(ROUNDS) - (ROUNDS - 1) / 2
        slope = float(distance @ last) / float(distance @ distance)
        return Steadiness(rounds, tuple(last.tolist()), float(last.mean()), float(np.ptp(last)), slope)

    @property
    def steady(self) -> bool:
        """Whether the spread is at most 20 % of the mean, and the trend at most 10 %."""
        return (self.is_known and _at_most(self.spread, _SPREAD_LIMIT * self.mean)
                and _at_most((ROUNDS - 1) * abs(self.slope), _SLOPE_LIMIT * self.mean))

    def account(self) -> SteadinessAccount:
        return {"steady": self.steady, "rounds": self.rounds, "values": list(self.values),
                "mean": self.mean if self.is_known else None, "slope_per_round": self.slope if self.is_known else None,
                "spread": self.spread / self.mean if self.mean else None,
                "trend": (ROUNDS - 1) * abs(self.slope) / self.mean if self.mean else None,
                "spread_limit": _SPREAD_LIMIT, "trend_limit": _SLOPE_LIMIT}


def _at_most(value: float, limit: float) -> bool:
    """With a relative tolerance for rounding, so that another unit of the series does not change the result."""
    return value <= limit * (1 + _ROUNDING)


def is_steady(values: Sequence[float]) -> bool:
    """Whether the last five values are."""
    return Steadiness.of(values).steady
