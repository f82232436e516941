"""Where a drive's writes become slow for good (docs/method.md, "Size of the fast part")."""

from dataclasses import dataclass

import numpy as np

SLOWER = 1.25
SURE = 50.0
FEWEST = 16
FEWEST_SHARE = 0.005


@dataclass(frozen=True)
class Change:
    """at: how many values belong to the first part; None where no change was found, and `why` says what was lacking."""

    at: int | None
    why: str = ""


def find_change(cost: np.ndarray) -> Change:
    """Where the cost of an I/O (ns, or ns per byte; positive) jumps up, by least squares on its logarithm.

    Of all ways to cut the values in two, the one that leaves the least sum of squares around the two means. Logarithms,
    with the highest and the lowest half percent (and two) brought to the next, because an I/O that took a thousand
    times as long should not outweigh thousands of others. It counts as a change where all of these hold: the second
    part costs at least SLOWER times as much (by these means); it is far more than chance (k (n − k) / n (mean₁ −
    mean₂)² ≥ SURE variances of the values around their means); a straight line explains the values less well, which it
    would not on a drive that becomes slower all the way; both parts have at least FEWEST values and half a percent.
    """
    cost = np.maximum(np.asarray(cost, float), 1e-9)
    count = len(cost)
    edge = max(FEWEST, int(np.ceil(FEWEST_SHARE * count)))
    if count < 2 * edge:
        return Change(None, f"only {count} values")
    logs = np.log(cost)
    beyond = 2 + int(FEWEST_SHARE * count)
    ordered = np.partition(logs, [beyond, count - 1 - beyond])
    logs = np.clip(logs, ordered[beyond], ordered[count - 1 - beyond])
    logs -= logs.mean()  # so that sums of squares do not lose their digits
    first = np.arange(edge, count - edge + 1)
    # Cut behind k values: between the two means lies n S_k / (k (n − k)), where S_k is the sum of the first k.
    sums = np.cumsum(logs)[first - 1]
    gains = sums * sums * count / (first * (count - first).astype(float))
    best = int(np.argmax(gains))
    at, gain = int(first[best]), float(gains[best])
    total = float(logs @ logs)
    variance = max(total - gain, 0.0) / count
    slower = float(np.exp(logs[at:].mean() - logs[:at].mean()))
    if sums[best] >= 0 or slower < SLOWER:
        return Change(None, f"behind the best cut writes cost {slower:.2f} times as much, less than {SLOWER:g}")
    if gain < SURE * variance:
        return Change(None, "what lies behind the best cut differs no more than chance would have it")
    place = np.arange(count) - (count - 1) / 2
    line = float(place @ logs) ** 2 / float(place @ place)
    if line >= gain:
        return Change(None, "a steady decline explains the writes better than a jump")
    return Change(at)
