"""Where a drive's writes become slow for good (docs/method.md, "slc-cache")."""

from dataclasses import dataclass

import numpy as np

SLOWER = 1.25
SURE = 50.0
CHANCE = 15.0  # of the variances around them, the best of all cuts through nothing but noise gains as many at most
FEWEST = 16
FEWEST_SHARE = 0.005


@dataclass(frozen=True)
class Change:
    """at: how many values belong to the first part; None where no change was found, and `why` says what was lacking."""

    at: int | None
    why: str = ""


def find_change(cost: np.ndarray) -> Change:
    """Where the cost of an I/O (ns, or ns per byte; positive) first jumps up, by least squares on its logarithm.

    Of all ways to cut the values in two, the one that leaves the least sum of squares around the two means. Logarithms,
    with the highest and the lowest half percent (and two) brought to the next, because an I/O that took a thousand
    times as long should not outweigh thousands of others. It counts as a change where all of these hold: the second
    part costs at least SLOWER times as much (by these means); it is far more than chance (k (n − k) / n (mean₁ −
    mean₂)² ≥ SURE variances of the values around their means); a straight line explains the values less well than this
    cut and one in each part, which it would not on a drive that becomes slower all the way; both parts have at least
    FEWEST values and half a percent. Where the first part holds such a change again, that one is the first.
    """
    logs = _logarithms(cost)
    cut, gain = _best_cut(logs)
    if cut is None:
        return Change(None, f"only {len(logs)} values")
    slower = float(np.exp(logs[cut:].mean() - logs[:cut].mean()))
    if slower < SLOWER:
        return Change(None, f"behind the best cut writes cost {slower:.2f} times as much, less than {SLOWER:g}")
    if not _is_sure(logs, gain):
        return Change(None, "what lies behind the best cut differs no more than chance would have it")
    place = np.arange(len(logs)) - (len(logs) - 1) / 2
    if float(place @ logs) ** 2 / float(place @ place) >= _explained(logs, cut, gain):
        return Change(None, "a steady decline explains the writes better than a jump")
    earlier = find_change(np.asarray(cost)[:cut])
    return earlier if earlier.at is not None else Change(cut)


def _explained(logs, cut, gain):
    """By how much this cut lowers the sum of squares, with one more in each part: several speeds one after another, as
    a cache, flash of three bits and tidying up have them, are near to a line too. Less what a cut gains by chance."""
    cuts, left = 1, gain
    for part in (logs[:cut], logs[cut:]):
        more = _best_cut(part)[1]
        if _is_sure(part, more):
            cuts, left = cuts + 1, left + more
    return left - cuts * CHANCE * _variance(logs, left)


def _is_sure(logs, gain):
    return gain >= SURE * _variance(logs, gain)


def _variance(logs, gain):
    """What is left around the means of the parts."""
    around = logs - logs.mean()  # so that sums of squares do not lose their digits
    return max(float(around @ around) - gain, 0.0) / max(1, len(logs))


def _logarithms(cost):
    logs = np.log(np.maximum(np.asarray(cost, float), 1e-9))
    if not len(logs):
        return logs
    beyond = min(2 + int(FEWEST_SHARE * len(logs)), (len(logs) - 1) // 2)
    ordered = np.partition(logs, [beyond, len(logs) - 1 - beyond])
    return np.clip(logs, ordered[beyond], ordered[len(logs) - 1 - beyond])


def _best_cut(logs):
    """(how many values lie before the best cut, by how much it lowers the sum of squares); None, 0 of too few."""
    count = len(logs)
    edge = max(FEWEST, int(np.ceil(FEWEST_SHARE * count)))
    if count < 2 * edge:
        return None, 0.0
    first = np.arange(edge, count - edge + 1)
    # S_k, the sum of the first k less their mean's share: between the two means lies n S_k / (k (n − k)).
    sums = np.cumsum(logs - logs.mean())[first - 1]
    gains = sums * sums * count / (first * (count - first).astype(float))
    best = int(np.argmax(gains))
    return int(first[best]), float(gains[best])
