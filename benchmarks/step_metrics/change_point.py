"""The change point of a series of write costs (docs/method.md, "slc-cache")."""

from dataclasses import dataclass

import numpy as np

from blkreel.benchmarks.step_metrics import Array

MIN_SLOWDOWN = 1.25
MIN_GAIN = 50.0  # in variances of the values around their means
NOISE_GAIN = 15.0  # at most this gain, in variances, for the best cut of noise
MIN_VALUES = 16
MIN_SHARE = 0.005


@dataclass(frozen=True)
class Change:
    """at: number of values before the change; None if there is none, with the reason in `why`."""

    at: int | None
    why: str = ""


def find_change(cost: Array) -> Change:
    """The first upward jump of the cost of an I/O (ns, or ns per byte; positive), by least squares on its logarithm.

    The cut with the least sum of squares around the means of its two parts. Logarithms, with the highest and lowest
    half percent (and two) clipped, because an I/O that took a thousand times as long should not outweigh thousands of
    others. The cut is a change if all of these hold: the second part costs at least MIN_SLOWDOWN times as much (by
    these means); k (n − k) / n (mean₁ − mean₂)² is at least MIN_GAIN variances of the values around their means; a
    straight line, as of a drive that slows down gradually, explains less than this cut and one in each part; both
    parts have at least MIN_VALUES values and half a percent. A change within the first part comes first.
    """
    logs = _logarithms(cost)
    cut, gain = _best_cut(logs)
    if cut is None:
        return Change(None, f"only {len(logs)} values")
    slower = float(np.exp(logs[cut:].mean() - logs[:cut].mean()))
    if slower < MIN_SLOWDOWN:
        return Change(None, f"after the best cut writes cost {slower:.2f} times as much, below {MIN_SLOWDOWN:g}")
    if not _is_significant(logs, gain):
        return Change(None, "the difference after the best cut is within chance")
    position = np.arange(len(logs)) - (len(logs) - 1) / 2
    if float(position @ logs) ** 2 / float(position @ position) >= _explained(logs, cut, gain):
        return Change(None, "a gradual decline explains the writes better than a jump")
    earlier = find_change(np.asarray(cost)[:cut])
    return earlier if earlier.at is not None else Change(cut)


def _explained(logs: Array, cut: int, gain: float) -> float:
    """The gain of this cut and one in each part, less the gain of noise: several rates in sequence, as of a cache, of
    flash and of garbage collection, also resemble a line."""
    cuts, total = 1, gain
    for part in (logs[:cut], logs[cut:]):
        more = _best_cut(part)[1]
        if _is_significant(part, more):
            cuts, total = cuts + 1, total + more
    return total - cuts * NOISE_GAIN * _variance(logs, total)


def _is_significant(logs: Array, gain: float) -> bool:
    return gain >= MIN_GAIN * _variance(logs, gain)


def _variance(logs: Array, gain: float) -> float:
    """Around the means of the parts of a cut with that gain."""
    around = logs - logs.mean()  # so that sums of squares do not lose their digits
    return max(float(around @ around) - gain, 0.0) / max(1, len(logs))


def _logarithms(cost: Array) -> Array:
    logs: Array = np.log(np.maximum(np.asarray(cost, float), 1e-9))
    if not len(logs):
        return logs
    beyond = min(2 + int(MIN_SHARE * len(logs)), (len(logs) - 1) // 2)
    ordered = np.partition(logs, [beyond, len(logs) - 1 - beyond])
    clipped: Array = np.clip(logs, ordered[beyond], ordered[len(logs) - 1 - beyond])
    return clipped


def _best_cut(logs: Array) -> tuple[int | None, float]:
    """(number of values before the best cut, its gain: the decrease of the sum of squares); None, 0 for too few."""
    count = len(logs)
    edge = max(MIN_VALUES, int(np.ceil(MIN_SHARE * count)))
    if count < 2 * edge:
        return None, 0.0
    first = np.arange(edge, count - edge + 1)
    # S_k, the sum of the first k less their mean's share: between the two means lies n S_k / (k (n − k)).
    sums = np.cumsum(logs - logs.mean())[first - 1]
    gains = sums * sums * count / (first * (count - first).astype(float))
    best = int(np.argmax(gains))
    return int(first[best]), float(gains[best])
