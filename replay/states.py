"""The states that a drive can be put into before a measurement, as steps of generated I/O.

Sizes are those of the method for drives of 256 GiB and more; a smaller drive gets the same fractions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blkreel.traces.errors import UsageError
from blkreel.traces.units import format_bytes

from .extents import Extents
from .placed import PlacedBlocks
from .streams import permutation, ranges, with_replacement

STATES = {
    "fresh": "erased",
    "client": "erased, 95 % filled, a part overwritten at random, rested",
    "full": "erased, all of it filled",
    "enterprise": "full, then one capacity of random 4K writes",
    "pts": "erased, filled twice, then random 4K writes in rounds until their rate is steady",
    "data": "erased, then only the spans given are written",
    "trace": "what a trace reads before it writes it is written once; not erased, unless asked for",
    "op25": "full, but a quarter left erased as spare; also client+op25, enterprise+op25, pts+op25, data+op25",
}

REFERENCE_BYTES = 256 << 30
PREFILL_BYTES = 512 << 10
PREFILL_DEPTH = 32
_RANDOM_BYTES = 8 << 30
_REST_NS = 300 * 10**9
_FILL_BYTES = 128 << 10
_FILL_DEPTH = 32
_PTS_ROUNDS = 25
_PTS_ROUND_SHARE = 16  # a round writes one part in so many of the capacity
_ERASE_BYTES = 1 << 30
_ERASE_DEPTH = 4
_WITHOUT_SPARE = ("fresh", "trace", "op25")


@dataclass(frozen=True)
class Step:
    """One stretch of I/O of a kind, or (plan None) a rest.

    total_bytes: what it issues, for progress. rounds: how often it is repeated at most, until its rate is
    steady. plan(round, first_row): its rows from that one on. covers: what is written for sure; None where that is left
    to chance, all over what is filled. kind: steps of one kind go at one rate, for the
    estimate of the time left.
    """

    what: str
    total_bytes: int = 0
    depth: int = 1
    plan: Callable[..., Iterator[dict]] | None = None
    rest_ns: int = 0
    erases: bool = False
    rounds: int = 1
    kind: str = "sequential"
    covers: Extents | PlacedBlocks | None = None


@dataclass(frozen=True)
class State:
    """What a state is made of, on one drive.

    filled: everything that is written at the end. filled_bytes: all below is, whatever else. usable_bytes: what
    measurements may use; the rest is spare. scale: see DriveState. identity: all that decides what is issued.
    trace: which one the blocks were written for, its sha256 and map.
    """

    name: str
    steps: list[Step]
    filled_bytes: int
    scale: float
    usable_bytes: int
    filled: Extents | PlacedBlocks
    identity: dict
    trace: dict | None = None
    permuted: bool = False

    @property
    def rest_ns(self) -> int:
        return sum(step.rest_ns for step in self.steps)

    @property
    def erases(self) -> bool:
        return any(step.erases for step in self.steps)


def about(name: str) -> str:
    """What a state is, in a line."""
    base, _, spare = name.partition("+")
    return f"{STATES[base]}; on three quarters, the rest left erased" if spare else STATES[name]


def state_for(name: str, capacity_bytes: int, block_bytes: int, *, seed: int, rest_ns: int | None = None,
              spans: Sequence[tuple[int, int]] | None = None, permuted: bool = False,
              prefill: PlacedBlocks | None = None, trace: dict | None = None, erase: bool | None = None) -> State:
    """The steps to a state on a drive of that capacity.

    rest_ns overrides the idle time of the state. spans: of the state `data`, what is written, as (start, end) in
    bytes; ends are moved to whole blocks. permuted: the random writes of `enterprise` take each block once. prefill,
    trace: of the state `trace`, the blocks and which trace it is. erase: whether to begin with that, which by itself
    all states but `trace` do.

    Raises UsageError for a name that is none, and for spans that are none or do not fit.
    """
    base, _, spare = name.partition("+")
    if name == "op25":
        base, spare = "full", "op25"
    if base not in STATES or spare not in ("", "op25") or (spare and base in _WITHOUT_SPARE) or base == "op25":
        raise UsageError(f"no such state: {name}", f"use one of: {', '.join(STATES)}")
    _check_words(name, base, spans, permuted, trace)
    block_bytes = max(4096, block_bytes)
    span_bytes = _whole(capacity_bytes * 3 // 4 if spare else capacity_bytes, block_bytes)
    if span_bytes < block_bytes and base not in ("fresh", "trace"):
        raise UsageError(f"{capacity_bytes:,} bytes are too few for the state {name}", "choose a larger drive")
    # What is named in bytes is not scaled.
    scale = 1.0 if base in ("data", "trace") else min(1.0, capacity_bytes / REFERENCE_BYTES)
    steps = [_erase(capacity_bytes)] if erase or (erase is None and base != "trace") else []
    filled = Extents.none()
    if base == "client":
        filled_bytes = _whole(span_bytes * 95 // 100, _FILL_BYTES) or span_bytes
        random_bytes = _whole(min(_RANDOM_BYTES, span_bytes // 32), block_bytes) or block_bytes
        filled = _one(filled_bytes)
        steps += [
            _fill(filled),
            Step("overwriting at random", random_bytes, _FILL_DEPTH, lambda _, first_row=0: permutation(
                random_bytes, block_bytes, "write", seed, first_row), kind="random", covers=_one(random_bytes)),
            Step("resting", rest_ns=int(_REST_NS * scale) if rest_ns is None else rest_ns)]
    elif base == "data":
        filled = _spans(spans, block_bytes, span_bytes)
        steps.append(_fill(filled))
    elif base == "trace":
        filled = prefill if prefill is not None else PlacedBlocks()
        steps.append(Step("writing what will be read", filled.bytes, PREFILL_DEPTH,
                          lambda _, first_row=0: ranges(filled, "write", PREFILL_BYTES, first_row), covers=filled))
    elif base != "fresh":
        filled = _one(span_bytes)
        steps.append(_fill(filled))
    if base == "pts":
        round_bytes = _whole(span_bytes // _PTS_ROUND_SHARE, block_bytes) or block_bytes
        steps += [
            _fill(filled),
            Step("settling", round_bytes, _FILL_DEPTH, rounds=_PTS_ROUNDS, kind="random",
                 plan=lambda number, first_row=0: with_replacement(span_bytes, block_bytes, "write", round_bytes,
                                                                   seed + number, first_row))]
    if base == "enterprise":
        steps.append(Step("writing at random", span_bytes, 128, kind="random", covers=filled if permuted else None,
                          plan=lambda _, first_row=0: permutation(span_bytes, block_bytes, "write", seed, first_row)
                          if permuted else with_replacement(span_bytes, block_bytes, "write", span_bytes, seed,
                                                            first_row)))
    identity = {"state": name, "capacity_bytes": capacity_bytes, "block_bytes": block_bytes, "seed": seed,
                "permuted": permuted, "erases": bool(steps and steps[0].erases), "trace": trace,
                "spans": np.column_stack([filled.start, filled.end]).tolist() if base == "data" else None}
    return State(name, steps, _filled_from_0(filled), scale, span_bytes if spare else capacity_bytes, filled, identity,
                 trace, permuted)


def _check_words(name, base, spans, permuted, trace):
    if permuted and base != "enterprise":
        raise UsageError(f"the state {name} has no random writes that could be a permutation",
                         "that goes with enterprise")
    if (base == "data") != (spans is not None):
        raise UsageError(f"the state {name} takes no spans" if spans is not None else
                         "the state data needs to know what is to be written",
                         "name it: --state data --span 64GB")
    if (base == "trace") != (trace is not None):
        raise UsageError(f"the state {name} takes no trace" if trace is not None else
                         "the state trace needs a trace", "name it: --state trace --trace FILE")


def _spans(spans, block_bytes, usable_bytes) -> Extents:
    """Whole blocks that hold what was asked for."""
    pairs = np.array(list(spans), np.int64).reshape(-1, 2)
    if not len(pairs) or (pairs[:, 0] < 0).any() or (pairs[:, 1] <= pairs[:, 0]).any():
        raise UsageError("a span of the state data is empty", "name what is to be written: --span 64GB")
    if (pairs[:, 1] > usable_bytes).any():
        raise UsageError(f"a span ends at {format_bytes(int(pairs[:, 1].max()))}, beyond the "
                         f"{format_bytes(usable_bytes)} that can be used", "choose a smaller span, or a larger drive")
    return Extents.of(pairs[:, 0] // block_bytes * block_bytes, -(-pairs[:, 1] // block_bytes) * block_bytes)


def _filled_from_0(filled) -> int:
    """Where the first gap begins. Of a trace's blocks nobody asks."""
    if isinstance(filled, PlacedBlocks) or not len(filled) or filled.start[0]:
        return 0
    return int(filled.end[0])


def _one(end_bytes) -> Extents:
    return Extents(np.array([0]), np.array([end_bytes]))


def _erase(capacity_bytes) -> Step:
    whole = _one(capacity_bytes)
    return Step("erasing", capacity_bytes, _ERASE_DEPTH, lambda _, first_row=0: ranges(
        whole, "discard", _ERASE_BYTES, first_row), erases=True, kind="erase")


def _fill(extents) -> Step:
    return Step("filling", extents.bytes, _FILL_DEPTH, lambda _, first_row=0: ranges(
        extents, "write", _FILL_BYTES, first_row), covers=extents)


def _whole(count, unit) -> int:
    return count // unit * unit
