"""Whether a series of rounds has settled (docs/replay.md, "States")."""

import numpy as np

ROUNDS = 5
_SPREAD_LIMIT = 0.20
_SLOPE_LIMIT = 0.10


def is_steady(values) -> bool:
    """Of the last five rounds: they spread over at most 20 % of their mean, and their trend over 10 %."""
    last = np.asarray(values[-ROUNDS:], float)
    if len(last) < ROUNDS:
        return False
    mean = last.mean()
    # Least squares in closed form: a fit by iteration errs in the last digit, and so at the limit.
    distance = np.arange(ROUNDS) - (ROUNDS - 1) / 2
    slope = float(distance @ last) / float(distance @ distance)
    return bool(np.ptp(last) <= _SPREAD_LIMIT * mean and (ROUNDS - 1) * abs(slope) <= _SLOPE_LIMIT * mean)
