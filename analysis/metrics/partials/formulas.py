"""The formulas behind the metrics of registry.py: ratios, percentiles, consistency, whether a writer kept up."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blkreel.common.verdict import enough

from .distributions import PERCENTILES, Distribution, ValueCounts
from .keep_up import KEPT_UP_SHARE, KeepUp


class WriteSums(Protocol):
    """What a ClassPartial of writes has."""

    bytes: int
    unseen_bytes: int
    late_bursts: int

    @property
    def planned_bursts(self) -> int: ...


@dataclass(frozen=True)
class Consistency:
    """Of IOPS in whole seconds. Scores are None where nothing deviates, and of fewer than 2 seconds."""

    seconds: int
    mean_iops: float | None = None
    score: float | None = None
    downside_score: float | None = None
    first_percentile_over_upper_quartile: float | None = None
    share_under_half_upper_quartile: float | None = None


def ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def mb_per_s(count_bytes: int, duration_ns: int) -> float | None:
    return count_bytes * 1000 / duration_ns if duration_ns else None


def percentile(values: Distribution, name: str) -> int | None:
    """By nearest rank; None where fewer than 10 values lie beyond."""
    return values.percentile(PERCENTILES[name]) if enough(values.count, PERCENTILES[name]) else None


def waiting_percentile(values: Distribution, name: str) -> int | None:
    """Latency-weighted: the share of all waiting that was spent in I/Os up to this latency."""
    return values.waiting_percentile(PERCENTILES[name]) if enough(values.count, PERCENTILES[name]) else None


def too_small(values: Distribution) -> list[str]:
    """Percentiles that cannot be given."""
    return [name for name, fraction in PERCENTILES.items() if not enough(values.count, fraction)]


def offered_bytes(write: WriteSums) -> int:
    return write.bytes + write.unseen_bytes


def written_on_time(write: WriteSums, keep_up: KeepUp) -> float | None:
    """Share of the bytes due that were written by the time the last write was due."""
    return ratio(keep_up.by_due_bytes, keep_up.bytes + write.unseen_bytes)


def writer_state(write: WriteSums, keep_up: KeepUp) -> str:
    """Whether the background writer kept up with its plan: none, unplanned, kept up or fell behind."""
    numerator, denominator = KEPT_UP_SHARE
    if not offered_bytes(write):
        return "none"
    if not write.planned_bursts:
        return "unplanned"
    if write.late_bursts or keep_up.ended_late or (
            write.bytes * denominator < offered_bytes(write) * numerator):
        return "fell behind"
    return "kept up"


def consistency(seconds: np.ndarray) -> Consistency:
    """From the completions in each whole second."""
    return consistency_of(ValueCounts.of(*np.unique(seconds, return_counts=True)))


def consistency_of(seconds: Distribution) -> Consistency:
    """From how often each number of completions occurred in a second."""
    count = seconds.count
    # A drive that is fast half of the time and slow the other half has the slow half as its lower median.
    quartile = seconds.percentile((75, 100))
    slowest = seconds.percentile((1, 100))
    if count < 2 or quartile is None or slowest is None:
        return Consistency(count)
    # Python's integers up to the root: the order of summation changes no digit, and no sum is too large.
    values, counts = seconds.items()
    ops = list(zip(values.tolist(), counts.tolist(), strict=True))
    total = sum(value * times for value, times in ops)
    squares = sum(value * value * times for value, times in ops)
    deviation = math.sqrt(count * squares - total * total) / count
    downside = math.sqrt(sum((value - quartile)**2 * times for value, times in ops if value < quartile) / count)
    return Consistency(count, total / count, ratio(total / count, deviation), ratio(quartile, downside),
                       ratio(slowest, quartile), sum(times for value, times in ops if 2 * value < quartile) / count)
