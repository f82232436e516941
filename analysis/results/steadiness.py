"""Whether and when a rate became steady: the rule of five rounds (docs/method.md, "Steady state")."""

from dataclasses import dataclass

import numpy as np

from blkreel.traces.steady import ROUNDS, is_steady

from .fine_bins import FineBins

PER_RUN = 60
STAYS = 0.10
ENDS = 0.20


@dataclass(frozen=True)
class Steady:
    """at_ns: since the begin, where the first of its five rounds began. iops: the mean from there on."""

    at_ns: int
    iops: float


def became_steady(rounds) -> int | None:
    """The first round of the first five that are steady and stay: their mean within 10 % of that of all rounds from
    there on, and within 20 % of that of the last five. A fast beginning is even too, but it does not stay."""
    rounds = np.asarray(rounds, float)
    for first in range(len(rounds) - ROUNDS + 1):
        mean, rest = rounds[first:first + ROUNDS].mean(), rounds[first:].mean()
        if (is_steady(rounds[first:first + ROUNDS]) and abs(mean - rest) <= STAYS * rest
                and abs(mean - rounds[-ROUNDS:].mean()) <= ENDS * mean):
            return first
    return None


def round_length_ns(span_ns: int, stall_period_ns: int | None) -> int:
    """A sixtieth of the run; of a drive that stalls periodically whole periods, so that each round has as many."""
    length_ns = max(1, span_ns // PER_RUN)
    return -(-length_ns // stall_period_ns) * stall_period_ns if stall_period_ns else length_ns


def steady(bins: FineBins, span_ns: int, stall_period_ns: int | None) -> tuple[Steady | None, int, int]:
    """(what became steady or None, the length of a round in ns, how many rounds there were)."""
    wanted_ns = round_length_ns(span_ns, stall_period_ns)
    together = max(1, round(wanted_ns / bins.width_ns))
    length_ns = together * bins.width_ns
    rounds = bins.grouped(length_ns)[:span_ns // length_ns] * (10**9 / length_ns)
    first = became_steady(rounds)
    if first is None:
        return None, length_ns, len(rounds)
    return Steady(first * length_ns, float(rounds[first:].mean())), length_ns, len(rounds)
