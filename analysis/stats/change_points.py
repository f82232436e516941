"""Change points of a series of results: when a metric stepped, by how much, and how sure that is.

A single split is tested with the scan of two-sample statistics over all splits (Sen and Srivastava 1975, Ann. Stat. 3;
James, James and Siegmund 1987, Biometrika 74), a segment that differs from the rest with that over all pairs of splits
(circular binary segmentation: Olshen et al. 2004, Biostatistics 5). Both are of normal scores of the ranks (van der
Waerden), so that a single slow night counts no more than the slowest of any series, and any distribution gives the same
false alarms. Significance is by permutation (Antoch and Hušková 2001, Stat. Probab. Lett. 53), and the parts before and
after a change point are searched again (binary segmentation: Vostrikova 1981).

The values must be exchangeable where nothing changed. Values that follow their neighbors, as under a slow drift, give
more change points than LEVEL says.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .intervals import Ratio, welch

LEVEL = 0.01  # probability of any change point in a series without one
FEWEST_VALUES = 2  # on each side of a split
_SPLIT_ORDERS, _SEGMENT_ORDERS = 999, 399  # random orders; each test has half of LEVEL
_AT_ONCE = 1 << 20  # scores summed at once: 8 MiB
_SEED = 19_750_113  # fixed, so that the same series gives the same change points
_DATE_LEVEL = 0.95
_MAD_TO_SD = 1.4826  # of a normal distribution
_CLIP = 2  # spreads


@dataclass(frozen=True)
class ChangePoint:
    """index: of the first value after the change. first, last: the indexes that hold the true one in 95 % of series.

    ratio: geometric mean of the values from here to the next change point, by that of those since the one before, with
    its Welch interval; 1 is no change. p: of no change between its neighbors, by permutation.
    """

    index: int
    first: int
    last: int
    ratio: Ratio
    p: float


def change_points(values: Sequence[float], splits: Sequence[int] | None = None) -> list[ChangePoint]:
    """Change points of positive values in order of time.

    splits: indexes of values before which a change may be, as the first of each firmware; all by default.
    Raises ValueError for a value that is not positive and finite.
    """
    series = np.asarray(values, float)
    if not (np.isfinite(series) & (series > 0)).all():
        raise ValueError("change points need positive, finite values")
    possible = np.unique(np.arange(1, len(series)) if splits is None else np.asarray(splits, int))
    logs, random = np.log(series), np.random.default_rng(_SEED)
    indexes = _search(logs, possible, 0, len(logs), random)
    return _confirmed(logs, possible, indexes, random)


def _search(logs: np.ndarray, possible: np.ndarray, begin: int, end: int, random: np.random.Generator) -> list[int]:
    """Indexes of change points from begin to end, each level of splits tested at LEVEL."""
    splits = _splits_between(possible, begin, end)
    if not len(splits):
        return []
    scores = _normal_scores(logs[begin:end])
    parts = _best_split(scores, splits, random) or _best_segment(scores, splits, random)
    bounds = [begin, *(begin + index for index in parts), end]
    deeper = [index for low, high in zip(bounds, bounds[1:], strict=False) if parts
              for index in _search(logs, possible, low, high, random)]
    return sorted([*bounds[1:-1], *deeper])


def _confirmed(logs: np.ndarray, possible: np.ndarray, indexes: list[int],
               random: np.random.Generator) -> list[ChangePoint]:
    """Date each change point between its neighbors, and leave out those that are not significant there, one by one:
    without the least significant one the others are tested on more values."""
    while indexes:
        tests: list[tuple[int, int, int, float]] = []
        for number in range(len(indexes)):
            before = indexes[number - 1] if number else 0
            after = indexes[number + 1] if number + 1 < len(indexes) else len(logs)
            scores, splits = _normal_scores(logs[before:after]), _splits_between(possible, before, after)
            index, first, last = (before + index_in_part for index_in_part in _date(logs[before:after], scores, splits))
            indexes[number] = index
            tests.append((index, first, last, _p_of_split(scores, splits, random, math.inf)))
        least = max(tests, key=lambda test: test[3])
        if least[3] <= LEVEL:
            bounds = [0, *indexes, len(logs)]
            return [ChangePoint(index, first, last, _ratio(logs, bounds[number], index, bounds[number + 2]), p)
                    for number, (index, first, last, p) in enumerate(tests)]
        indexes.remove(least[0])
    return []


def _ratio(logs: np.ndarray, before: int, index: int, after: int) -> Ratio:
    ratio = welch(np.exp(logs[index:after]).tolist(), np.exp(logs[before:index]).tolist())
    assert ratio is not None  # positive values, FEWEST_VALUES on each side
    return ratio


def _splits_between(possible: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Relative to begin, with enough values on both sides."""
    return possible[(possible >= begin + FEWEST_VALUES) & (possible <= end - FEWEST_VALUES)] - begin


def _normal_scores(logs: np.ndarray) -> np.ndarray:
    """Quantiles of the normal distribution at (rank − 1/2) / n, the mean of the ranks where values are equal, less
    their mean."""
    from scipy.special import ndtri
    _, inverse, counts = np.unique(logs, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    scores = ndtri((ranks - 0.5) / len(logs))
    return np.asarray(scores - scores.mean())


def _split_statistic(scores: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Sum of squares between the two parts of each split. scores: of one series, or a series in each row."""
    sums = scores.cumsum(axis=-1)[..., splits - 1]
    return np.asarray(sums**2 * (len(scores.T) / (splits * (len(scores.T) - splits))))


def _best_split(scores: np.ndarray, splits: np.ndarray, random: np.random.Generator) -> list[int]:
    """The best split, or none where it is not significant."""
    if _p_of_split(scores, splits, random, LEVEL / 2) > LEVEL / 2:
        return []
    return [int(splits[_split_statistic(scores, splits).argmax()])]


def _best_segment(scores: np.ndarray, splits: np.ndarray, random: np.random.Generator) -> list[int]:
    """Begin and end of the segment that differs most from the rest, or none where it is not significant."""
    first, last = np.triu_indices(len(splits), 1)
    begins, ends = splits[first], splits[last]
    wide = ends - begins >= FEWEST_VALUES
    begins, ends = begins[wide], ends[wide]
    if not len(begins):
        return []
    lengths = ends - begins
    weights = len(scores) / (lengths * (len(scores) - lengths))

    def statistic(rows: np.ndarray) -> np.ndarray:
        sums = rows.cumsum(axis=-1)
        return np.asarray((sums[..., ends - 1] - sums[..., begins - 1])**2 * weights)

    own = statistic(scores)
    at_once = max(1, _AT_ONCE // len(begins))
    if _p(own.max(), scores, statistic, _SEGMENT_ORDERS, at_once, LEVEL / 2, random) > LEVEL / 2:
        return []
    best = int(own.argmax())
    return [int(begins[best]), int(ends[best])]


def _p_of_split(scores: np.ndarray, splits: np.ndarray, random: np.random.Generator, level: float) -> float:
    def statistic(rows: np.ndarray) -> np.ndarray:
        return _split_statistic(rows, splits)

    at_once = max(1, _AT_ONCE // len(scores))
    return _p(statistic(scores).max(), scores, statistic, _SPLIT_ORDERS, at_once, level, random)


def _p(own: float, scores: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], orders: int, at_once: int,
       level: float, random: np.random.Generator) -> float:
    """Share of random orders whose largest statistic is at least `own`, this order included. Ends early where the
    share of all orders is above `level` already (Besag and Clifford 1991, Biometrika 78)."""
    reached, tested = 1, 1
    while tested < orders + 1:
        # A few first: most series without a change point need no more.
        count = min(at_once, 40 if tested == 1 else orders + 1 - tested, orders + 1 - tested)
        rows = random.permuted(np.broadcast_to(scores, (count, len(scores))), axis=1)
        reached += int((statistic(rows).max(axis=1) >= own * (1 - 1e-9)).sum())
        tested += count
        if reached > level * (orders + 1):
            break
    return reached / tested


def _date(logs: np.ndarray, scores: np.ndarray, splits: np.ndarray) -> tuple[int, int, int]:
    """The best split, and the first and last of those that are not much less likely.

    The best split of the scores gives two levels (medians) and a spread (1.4826 times the median absolute deviation).
    It is dated on the logarithms, clipped at 2 spreads beyond both levels (Huber 1964, Ann. Math. Stat. 35): ranks lose
    the size of the difference, outliers would hide it. Those whose log-likelihood is within c = −ln(1 − √0.95) = 3.7 of
    the best: on each side of the true split, the walk of the log-likelihood rises by more than c with a probability
    below exp(−c) (Siegmund 1988, Int. Stat. Rev. 56).
    """
    split = int(splits[_split_statistic(scores, splits).argmax()])
    levels = np.median(logs[:split]), np.median(logs[split:])
    spread = _MAD_TO_SD * np.median(np.abs(logs - np.where(np.arange(len(logs)) < split, *levels)))
    if spread:
        scores = np.clip(logs, min(levels) - _CLIP * spread, max(levels) + _CLIP * spread)
        scores = scores - scores.mean()
    statistic, total = _split_statistic(scores, splits), float((scores**2).sum())
    within = np.maximum(total - statistic, total * 1e-9)  # sum of squares within the parts
    best = int(statistic.argmax())
    likely = splits[np.log(within / within[best]) * len(scores) / 2 <= -math.log(1 - math.sqrt(_DATE_LEVEL))]
    return int(splits[best]), int(likely.min()), int(likely.max())
