"""Which drives differ, and which share a rank.

Two drives differ in a figure only if the Welch interval of their ratio excludes 1 and the effect exceeds 2 %
(docs/method.md, "Statistics"). A comparison of many drives in several figures asks that many times, and one time in
twenty chance answers: so all pairs in the figures that a comparison leads with are one family, held to 5 % together
(Holm), and all pairs in the other figures are a second.

Ties are not transitive: A may tie with B and B with C, while A is better than C. Going from the best value down, a
drive joins the group of the one before it if no drive of that group is better than it, and else begins the next. So
drives that differ never share a rank, all that share one tie with each other, and no drive stands before one that is
better. Drives of neighboring groups may tie still: `ties` names them. A rank is one more than the number of drives in
the groups before.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .intervals import EFFECT, LEVEL, Ratio, geometric_mean, holm, is_effect, welch

ENOUGH_RUNS = 6  # from which on there is an interval and a rank

Values = list[float | None]  # one a run; None if unknown
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Pair:
    """base, other: keys. ratio: other by base; None, with why, if there is no interval. p: adjusted for the family."""

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
    """rank: None with too few runs, or without the metric. ties: keys of drives without a significant difference."""

    rank: int | None = None
    ties: tuple[str, ...] = field(default=())


def pairs(runs: dict[str, dict[str, Values]], same_question: Mapping[str, str] | None = None) -> list[Pair]:
    """Each pair of drives in each metric of one family. runs: metric -> key of a drive -> values.

    same_question: metric -> another one whose test it shares. It has its own ratio and effect, and adds none to the
    family.
    """
    same_question = same_question or {}
    compared = []
    for figure, drives in runs.items():
        keys = list(drives)
        means = {key: geometric_mean(values) for key, values in drives.items()}
        compared += [_pair(figure, base, other, drives, means)
                     for index, base in enumerate(keys) for other in keys[index + 1:]]
    tested = [(pair, pair.ratio.p) for pair in compared if pair.ratio and pair.figure not in same_question]
    adjusted = {(pair.figure, pair.base, pair.other): p
                for (pair, _), p in zip(tested, holm([p for _, p in tested]), strict=True)}
    return [_judged(pair, adjusted.get((same_question.get(pair.figure, pair.figure), pair.base, pair.other)),
                    len(tested)) for pair in compared]


def _pair(figure: str, base: str, other: str, drives: dict[str, Values], means: dict[str, float | None]) -> Pair:
    mean_base, mean_other = means[base], means[other]
    value = mean_other / mean_base if mean_base and mean_other else None
    few = min(len(drives[base]), len(drives[other]))
    if value is None:
        return Pair(figure, base, other, None, None, why="a run lacks this figure, or it is zero")
    if few < ENOUGH_RUNS:
        return Pair(figure, base, other, value, None, why=f"n too small (n={few}, {ENOUGH_RUNS} runs each are needed)")
    return Pair(figure, base, other, value, welch(drives[other], drives[base]))


def _judged(pair: Pair, p: float | None, family: int) -> Pair:
    if p is None or pair.value is None or pair.ratio is None:
        return pair
    why = ""
    if not pair.ratio.excludes_one:
        why = "the interval of the ratio holds 1"
    elif not is_effect(pair.value):
        why = f"under {(EFFECT - 1) * 100:.0f} % apart"
    elif p >= 1 - LEVEL:
        why = f"may be chance among {family} comparisons (Holm)"
    return Pair(pair.figure, pair.base, pair.other, pair.value, pair.ratio, p, not why, why)


def best_first(values: Mapping[K, float | None], higher_is_better: bool) -> list[K]:
    """The keys that have a value, by it; equal ones in the order in which they came."""
    items = [(value, key) for key, value in values.items() if value is not None]
    return [key for _, key in sorted(items, key=lambda pair: pair[0], reverse=higher_is_better)]


def places_by_value(values: Mapping[K, float | None], higher_is_better: bool) -> dict[K, int]:
    """The place, from 1, of each key that has a value, the best first; equal values share one."""
    ordered = best_first(values, higher_is_better)
    places: dict[K, int] = {}
    for number, key in enumerate(ordered):
        before = ordered[number - 1] if number else key
        places[key] = places[before] if number and values[before] == values[key] else number + 1
    return places


def ranked(runs: dict[str, Values], differ: set[frozenset[str]], higher_is_better: bool) -> dict[str, Place]:
    """The place of each drive in one figure. runs: key -> value of each run; differ: the pairs that do."""
    values = {key: geometric_mean(own) for key, own in runs.items() if len(own) >= ENOUGH_RUNS}
    ordered = best_first(dict(sorted(values.items())), higher_is_better)
    groups: list[list[str]] = []
    for key in ordered:
        if not groups or any(frozenset((key, member)) in differ for member in groups[-1]):
            groups.append([])
        groups[-1].append(key)
    places, before = {key: Place() for key in runs}, 0
    for group in groups:
        for key in group:
            ties = tuple(rival for rival in ordered if rival != key and frozenset((key, rival)) not in differ)
            places[key] = Place(before + 1, ties)
        before += len(group)
    return places
