"""Which drives differ, and which share a rank.

Two drives differ in a figure only if the Welch interval of their ratio excludes 1 and the effect exceeds 2 %
(methodology.md, section 3). A comparison of many drives in several figures asks that many times, and one time in
twenty chance answers: so all pairs in the figures that a comparison leads with are one family, held to 5 % together
(Holm), and all pairs in the other figures are a second.

Ties are not transitive: A may tie with B and B with C, while A is better than C. Going from the best value down, a
drive joins the group of the one before it if no drive of that group is better than it, and else begins the next. So
drives that differ never share a rank, all that share one tie with each other, and no drive stands before one that is
better. Drives of neighbouring groups may tie still: `ties` names them. A rank is one more than the number of drives in
the groups before.
"""

from dataclasses import dataclass, field

from .statistics import LEVEL, Ratio, geometric_mean, holm, welch
from .verdict import ENOUGH_RUNS

EFFECT = 1.02  # ratio up to which two drives are the same for whoever uses them


@dataclass(frozen=True)
class Pair:
    """base, other: keys. ratio: other by base; None with why where there is no interval. p: adjusted for the family."""

    figure: str
    base: str
    other: str
    value: float | None
    ratio: Ratio | None
    p: float | None = None
    differ: bool | None = None
    why: str = ""


@dataclass(frozen=True)
class Place:
    """rank: None of a drive with too few runs, or without the figure. ties: keys of those it can't be told from."""

    rank: int | None = None
    ties: tuple[str, ...] = field(default=())


def pairs(runs: dict[str, dict[str, list]]) -> list[Pair]:
    """Each pair of drives in each figure of one family.

    runs: figure -> key of a drive -> value of each run (None where unknown).
    """
    found = []
    for figure, drives in runs.items():
        keys = list(drives)
        found += [_pair(figure, base, other, drives) for index, base in enumerate(keys) for other in keys[index + 1:]]
    asked = [pair for pair in found if pair.ratio]
    adjusted = dict(zip(map(id, asked), holm([pair.ratio.p for pair in asked]), strict=True))
    return [_judged(pair, adjusted.get(id(pair)), len(asked)) for pair in found]


def _pair(figure, base, other, drives):
    mean_base, mean_other = geometric_mean(drives[base]), geometric_mean(drives[other])
    value = mean_other / mean_base if mean_base and mean_other else None
    few = min(len(drives[base]), len(drives[other]))
    if value is None:
        return Pair(figure, base, other, None, None, why="a run lacks this figure, or it is zero")
    if few < ENOUGH_RUNS:
        return Pair(figure, base, other, value, None, why=f"n too small (n={few}, {ENOUGH_RUNS} runs each are needed)")
    return Pair(figure, base, other, value, welch(drives[other], drives[base]))


def _judged(pair, p, family):
    if p is None:
        return pair
    effect = max(pair.value, 1 / pair.value)
    why = ""
    if not pair.ratio.excludes_one:
        why = "the interval of the ratio holds 1"
    elif effect <= EFFECT:
        why = f"under {(EFFECT - 1) * 100:.0f} % apart"
    elif p >= 1 - LEVEL:
        why = f"so far apart may one of {family} comparisons be by chance (Holm)"
    return Pair(pair.figure, pair.base, pair.other, pair.value, pair.ratio, p, not why, why)


def ranked(runs: dict[str, list], differ: set[frozenset], higher_is_better: bool) -> dict[str, Place]:
    """The place of each drive in one figure. runs: key -> value of each run; differ: the pairs that do."""
    values = {key: geometric_mean(own) for key, own in runs.items() if len(own) >= ENOUGH_RUNS}
    known = [key for key, value in values.items() if value is not None]
    known.sort(key=lambda key: (-values[key] if higher_is_better else values[key], key))
    groups = []
    for key in known:
        if not groups or any(frozenset((key, member)) in differ for member in groups[-1]):
            groups.append([])
        groups[-1].append(key)
    places, before = {key: Place() for key in runs}, 0
    for group in groups:
        for key in group:
            ties = tuple(other for other in known if other != key and frozenset((key, other)) not in differ)
            places[key] = Place(before + 1, ties)
        before += len(group)
    return places
