"""Confidence intervals over runs: of a metric of one drive, and of the ratio of two drives.

The unit is a whole run (docs/method.md, "Statistics"). Rates and times are positive and spread by factors, so all of
this is done on ln(value): the value is the geometric mean, and an interval of a difference of logarithms is one of a
ratio. Values come in any order and give the same digits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
FEWEST = 2  # runs that a variance needs
BOOTSTRAP_RUNS = 51  # from here on; the bootstrap of 20 runs covers 92 %, not 95 %
MOST_PROJECTED = 100  # runs
_RESAMPLES = 9_999
_AT_ONCE = 1 << 20  # values drawn at once: 8 MiB each of indices and of logarithms
_SEED = 20_140_301  # fixed, so that the same runs give the same digits
EFFECT = 1.02  # a ratio up to this is no difference in practice


@dataclass(frozen=True)
class Interval:
    """An interval that holds the true value in LEVEL of all sets of runs. method: "t" or "bootstrap"."""

    low: float
    high: float
    n: int
    method: str

    @property
    def words(self) -> str:
        how = "t interval on ln" if self.method == "t" else "bootstrap (BCa) on ln"
        return f"{LEVEL * 100:g} % {how}, {self.n} runs"


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of one set of runs by that of another, with its Welch interval.

    df: degrees of freedom by Satterthwaite; inf if no run deviates. p: two-sided p-value of no difference.
    """

    value: float
    low: float
    high: float
    df: float
    p: float

    @property
    def excludes_one(self) -> bool:
        return not self.low <= 1 <= self.high

    @property
    def matters(self) -> bool:
        return is_effect(self.value)


def is_effect(ratio: float) -> bool:
    return max(ratio, 1 / ratio) > EFFECT


def interval(values: Sequence[float | None]) -> Interval | None:
    """The interval of the geometric mean: t on ln(value), from BOOTSTRAP_RUNS on by resampling.

    exp(m ± t(1 − a/2, n − 1) s / √n), with m and s the mean and standard deviation (n − 1) of the logarithms. None for
    fewer than two values, and where one is unknown, zero or negative: it has no logarithm. Values that are all the
    same give an interval of no width.
    """
    logs = _logs(values)
    if logs is None or len(logs) < FEWEST:
        return None
    mean, variance = _mean_and_variance(logs)
    if not variance:
        value = geometric_mean(values) or math.exp(mean)
        return Interval(value, value, len(logs), "t")
    if len(logs) >= BOOTSTRAP_RUNS:
        low, high = _bootstrap(np.array(logs), mean)
        return Interval(math.exp(low), math.exp(high), len(logs), "bootstrap")
    reach = t_quantile(len(logs) - 1) * math.sqrt(variance / len(logs))
    return Interval(math.exp(mean - reach), math.exp(mean + reach), len(logs), "t")


def welch(a: Sequence[float | None], b: Sequence[float | None]) -> Ratio | None:
    """The ratio of the geometric means of a by b, with unequal variances.

    d = mean(ln a) − mean(ln b), u = s²/n of each, exp(d ± t(1 − α/2, df) √(ua + ub)), with Satterthwaite's
    df = (ua + ub)² / (ua² / (na − 1) + ub² / (nb − 1)) (Welch 1947, Biometrika 34). None as of `interval`.
    """
    logs_a, logs_b = _logs(a), _logs(b)
    if logs_a is None or logs_b is None or min(len(logs_a), len(logs_b)) < FEWEST:
        return None
    (mean_a, variance_a), (mean_b, variance_b) = _mean_and_variance(logs_a), _mean_and_variance(logs_b)
    share_a, share_b = variance_a / len(logs_a), variance_b / len(logs_b)
    apart, se = mean_a - mean_b, math.sqrt(share_a + share_b)
    if not se:
        value = math.exp(apart)
        return Ratio(value, value, value, math.inf, float(value == 1))
    # In parts of the sum: squares of tiny variances would be zero.
    part_a, part_b = share_a / (share_a + share_b), share_b / (share_a + share_b)
    df = 1 / (part_a**2 / (len(logs_a) - 1) + part_b**2 / (len(logs_b) - 1))
    reach = t_quantile(df) * se
    return Ratio(math.exp(apart), math.exp(apart - reach), math.exp(apart + reach), df, _two_sided(apart, se, df))


def smallest_difference(sets: Sequence[Sequence[float | None]], n: int) -> float | None:
    """The smallest ratio of two geometric means of n runs each whose interval excludes 1, if runs spread as in these
    sets of runs: exp(t(1 − α/2, 2 n − 2) s √(2 / n)), s pooled over the sets. None where no set has two runs.
    """
    squares, df = 0.0, 0
    for logs in filter(None, map(_logs, sets)):
        squares += _mean_and_variance(logs)[1] * (len(logs) - 1) if len(logs) > 1 else 0.0
        df += len(logs) - 1
    return math.exp(t_quantile(2 * n - 2) * math.sqrt(squares / df * 2 / n)) if df else None


def runs_to_exclude_one(values: Sequence[float | None]) -> int | None:
    """The fewest runs whose interval would exclude 1, if their logarithms had the mean and the deviation of these:
    t(1 − α/2, n − 1) s / √n < |m|. None of fewer than two values, and where more than MOST_PROJECTED would be needed.
    """
    logs = _logs(values)
    if logs is None or len(logs) < FEWEST:
        return None
    mean, variance = _mean_and_variance(logs)
    return next((n for n in range(FEWEST, MOST_PROJECTED + 1)
                 if t_quantile(n - 1) * math.sqrt(variance / n) < abs(mean)), None)


@dataclass(frozen=True)
class RatioTerms:
    """What a set of runs adds to an interval: n, the mean of the logarithms, and s²/n of them (0 of one run)."""

    n: int
    mean: float
    share: float


def ratio_terms(values: Sequence[float | None]) -> RatioTerms | None:
    """None without values, and where one is unknown, zero or negative."""
    logs = _logs(values)
    if not logs:
        return None
    if len(logs) == 1:
        return RatioTerms(1, logs[0], 0.0)
    mean, variance = _mean_and_variance(logs)
    return RatioTerms(len(logs), mean, variance / len(logs))


def holm(p_values: Sequence[float]) -> list[float]:
    """p adjusted for multiple comparisons by Holm's step-down: the familywise error rate stays level.

    Sorted ascending, the k-th of m (from 0) becomes max(before, min(1, (m − k) p)) (Holm 1979, Scand. J. Statist. 6).
    """
    adjusted, worst = [0.0] * len(p_values), 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """None of no values, and where one is unknown, zero or negative."""
    logs = _logs(values)
    if not logs:
        return None
    # Of equal values, such as that of a single run, the value itself: a logarithm would round it.
    return values[0] if len(set(values)) == 1 else math.exp(math.fsum(logs) / len(logs))


def mean_of_runs(values: Sequence[float | None]) -> float | None:
    """The geometric mean; the arithmetic mean if a run has zero. None of no values, and where one is unknown."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or not numbers:
        return None
    return geometric_mean(numbers) or sum(numbers) / len(numbers)


def _logs(values: Sequence[float | None]) -> list[float] | None:
    logs = [math.log(value) for value in values if value is not None and 0 < value < math.inf]
    return sorted(logs) if len(logs) == len(values) else None


def _mean_and_variance(logs: list[float]) -> tuple[float, float]:
    if logs[0] == logs[-1]:
        return logs[0], 0.0  # rounding would give equal values a variance
    mean = math.fsum(logs) / len(logs)
    return mean, math.fsum((log - mean)**2 for log in logs) / (len(logs) - 1)


def t_quantile(df: float) -> float:
    from scipy.special import stdtrit  # scipy.stats has it too, and takes a second to load
    return float(stdtrit(df, (1 + LEVEL) / 2))


def _two_sided(apart: float, se: float, df: float) -> float:
    from scipy.special import stdtr
    if not se:
        return float(apart == 0)
    return float(2 * stdtr(df, -abs(apart) / se))


def _bootstrap(logs: np.ndarray, mean: float) -> list[float]:
    """Bounds of the mean by BCa (Efron 1987, J. Am. Stat. Assoc. 82): quantiles of the means of resampled sets, moved
    for the bias of their median and for how the spread depends on the mean (a, from leaving out one run each)."""
    from scipy.special import ndtr, ndtri
    random = np.random.default_rng(_SEED)
    count, step = len(logs), max(1, _AT_ONCE // len(logs))
    means = np.concatenate([
        logs[random.integers(0, count, (min(step, _RESAMPLES - begin), count))].mean(axis=1)
        for begin in range(0, _RESAMPLES, step)])
    below = ((means < mean).sum() + (means == mean).sum() / 2) / _RESAMPLES
    bias = ndtri(min(max(below, 1 / _RESAMPLES), 1 - 1 / _RESAMPLES))
    left_out = (logs.sum() - logs) / (count - 1)
    off = left_out.mean() - left_out
    acceleration = (off**3).sum() / (6 * (off**2).sum()**1.5)
    bounds = []
    for z in (ndtri((1 - LEVEL) / 2), ndtri((1 + LEVEL) / 2)):
        bounds.append(ndtr(bias + (bias + z) / (1 - acceleration * (bias + z))))
    return [float(bound) for bound in np.quantile(means, bounds)]
