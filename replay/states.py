"""The states that a drive can be put into before a measurement, as steps of generated I/O.

Sizes are those of the method for drives of 256 GiB and more; a smaller drive gets the same fractions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from blkreel.traces.errors import UsageError

from .extents import Extents
from .streams import permutation, ranges, with_replacement

STATES = {
    "fresh": "erased",
    "client": "erased, 95 % filled, a part overwritten at random, rested",
    "full": "erased, all of it filled",
    "enterprise": "full, then one capacity of random 4K writes",
    "pts": "erased, filled twice, then random 4K writes in rounds until their rate is steady",
    "op25": "full, but a quarter left erased as spare; also client+op25, enterprise+op25",
}

REFERENCE_BYTES = 256 << 30
_RANDOM_BYTES = 8 << 30
_REST_NS = 300 * 10**9
_FILL_BYTES = 128 << 10
_FILL_DEPTH = 32
_PTS_ROUNDS = 25
_PTS_ROUND_SHARE = 16  # a round writes one part in so many of the capacity
_ERASE_BYTES = 1 << 30
_ERASE_DEPTH = 4


@dataclass(frozen=True)
class Step:
    """One stretch of I/O of a kind, or (plan None) a rest.

    total_bytes: what it issues, for progress. rounds: how often it is repeated at most, until its rate is
    steady; plan is then called with the number of the round.
    """

    what: str
    total_bytes: int = 0
    depth: int = 1
    plan: Callable[[int], Iterator[dict]] | None = None
    rest_ns: int = 0
    erases: bool = False
    rounds: int = 1


@dataclass(frozen=True)
class State:
    """filled_bytes: everything below is written at the end. scale: see DriveState."""

    name: str
    steps: list[Step]
    filled_bytes: int
    scale: float

    @property
    def rest_ns(self) -> int:
        return sum(step.rest_ns for step in self.steps)


def state_for(name: str, capacity_bytes: int, block_bytes: int, *, seed: int, rest_ns: int | None = None) -> State:
    """The steps to a state on a drive of that capacity. rest_ns overrides the idle time of the state.

    Raises UsageError for a name that is none.
    """
    base, _, spare = name.partition("+")
    if name == "op25":
        base, spare = "full", "op25"
    if base not in STATES or base == "op25" or spare not in ("", "op25") or (spare and base == "fresh"):
        raise UsageError(f"no such state: {name}", f"use one of: {', '.join(STATES)}")
    block_bytes = max(4096, block_bytes)
    span_bytes = _whole(capacity_bytes * 3 // 4 if spare else capacity_bytes, block_bytes)
    scale = min(1.0, capacity_bytes / REFERENCE_BYTES)
    steps = [_erase(capacity_bytes)]
    filled_bytes = 0
    if base == "client":
        filled_bytes = _whole(span_bytes * 95 // 100, _FILL_BYTES) or span_bytes
        random_bytes = _whole(min(_RANDOM_BYTES, span_bytes // 32), block_bytes) or block_bytes
        steps += [
            _fill(filled_bytes),
            Step("overwriting at random", random_bytes, _FILL_DEPTH,
                 lambda _: permutation(random_bytes, block_bytes, "write", seed)),
            Step("resting", rest_ns=int(_REST_NS * scale) if rest_ns is None else rest_ns)]
    elif base != "fresh":
        filled_bytes = span_bytes
        steps.append(_fill(filled_bytes))
    if base == "pts":
        round_bytes = _whole(span_bytes // _PTS_ROUND_SHARE, block_bytes) or block_bytes
        steps += [
            _fill(filled_bytes),
            Step("settling", round_bytes, _FILL_DEPTH, rounds=_PTS_ROUNDS, plan=lambda number: with_replacement(
                span_bytes, block_bytes, "write", round_bytes, seed + number))]
    if base == "enterprise":
        steps.append(Step("writing at random", span_bytes, 128,
                          lambda _: with_replacement(span_bytes, block_bytes, "write", span_bytes, seed)))
    return State(name, steps, filled_bytes, scale)


def _erase(capacity_bytes) -> Step:
    whole = Extents(np.array([0]), np.array([capacity_bytes]))
    return Step("erasing", capacity_bytes, _ERASE_DEPTH, lambda _: ranges(whole, "discard", _ERASE_BYTES), erases=True)


def _fill(span_bytes) -> Step:
    span = Extents(np.array([0]), np.array([span_bytes]))
    return Step("filling", span_bytes, _FILL_DEPTH, lambda _: ranges(span, "write", _FILL_BYTES))


def _whole(count, unit) -> int:
    return count // unit * unit
