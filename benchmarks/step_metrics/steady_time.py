"""Time to steady state, by the rule of five rounds (docs/method.md, "Steady state")."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blkreel.benchmarks.step_metrics import Array
from blkreel.replay.prepare.steady_state import ROUNDS, is_steady

from .fine_bins import FineBins

ROUNDS_PER_RUN = 60
MAX_DEVIATION = 0.10
MAX_END_DEVIATION = 0.20


@dataclass(frozen=True)
class Steady:
    """at_ns: start of the first steady round, from the start of the run. iops: the mean from there on."""

    at_ns: int
    iops: float


def became_steady(rates: Sequence[float] | Array) -> int | None:
    """The first of the first five steady rounds whose mean is within 10 % of that of all rounds from there on, and
    within 20 % of that of the last five: a fast beginning may be steady too, but it does not last."""
    rounds = np.asarray(rates, float)
    for first in range(len(rounds) - ROUNDS + 1):
        mean, tail_mean = rounds[first:first + ROUNDS].mean(), rounds[first:].mean()
        if (is_steady(rounds[first:first + ROUNDS].tolist()) and abs(mean - tail_mean) <= MAX_DEVIATION * tail_mean
                and abs(mean - rounds[-ROUNDS:].mean()) <= MAX_END_DEVIATION * mean):
            return first
    return None


def round_length_ns(span_ns: int, stall_period_ns: int | None) -> int:
    """A sixtieth of the run, rounded up to whole stall periods, so that each round has as many stalls."""
    length_ns = max(1, span_ns // ROUNDS_PER_RUN)
    return -(-length_ns // stall_period_ns) * stall_period_ns if stall_period_ns else length_ns


def steady(bins: FineBins, span_ns: int, stall_period_ns: int | None) -> tuple[Steady | None, int, int]:
    """(the steady state or None, the length of a round in ns, the number of rounds)."""
    wanted_ns = round_length_ns(span_ns, stall_period_ns)
    together = max(1, round(wanted_ns / bins.width_ns))
    length_ns = together * bins.width_ns
    rounds = bins.grouped(length_ns)[:span_ns // length_ns] * (10**9 / length_ns)
    first = became_steady(rounds)
    if first is None:
        return None, length_ns, len(rounds)
    return Steady(first * length_ns, float(rounds[first:].mean())), length_ns, len(rounds)
