"""States of a drive before a measurement, as steps of generated I/O.

Sizes are those of the method for drives of 256 GiB and more; a smaller drive gets the same fractions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.units import format_bytes
from blkreel.replay.drive.zones import Zones
from blkreel.replay.plan.batch import plan_batch
from blkreel.replay.plan.extents import Extents, MappedBlocks
from blkreel.replay.streams.rules import permutation, ranges, with_replacement
from blkreel.traces.format.condition import USUAL_REST_NS
from blkreel.traces.format.schema import OPS

STATES = {
    "fresh": "erased",
    "client": "erased, 95 % filled, a part overwritten at random, idle time",
    "full": "erased, all of it filled",
    "enterprise": "full, then one capacity of random 4K writes",
    "pts": "erased, filled twice, then random 4K writes in rounds until the rate is steady",
    "data": "erased, then only the given spans are written",
    "trace": "blocks that a trace reads before it writes them are written once; erased only with --erase",
    "op25": "full, with a quarter left erased as spare; also client+op25, enterprise+op25, pts+op25, data+op25",
}

# Why a zoned drive does not take it.
_NOT_ON_ZONES = {**dict.fromkeys(("client", "enterprise", "pts"), "zones take no random writes"),
                 "trace": "a replay puts the write pointers where the trace found them"}
REFERENCE_BYTES = 256 << 30
PREFILL_BYTES = 512 << 10
PREFILL_DEPTH = 32
_RANDOM_BYTES = 8 << 30
_FILL_BYTES = 128 << 10
_FILL_DEPTH = 32
_PTS_ROUNDS = 25
_PTS_ROUND_SHARE = 16  # a round writes 1/16 of the capacity
_ERASE_BYTES = 1 << 30
_ERASE_DEPTH = 4
_WITHOUT_SPARE = ("fresh", "trace", "op25")


Filled = Extents | MappedBlocks


class StepPlan(Protocol):
    """Returns the rows of a round, from first_row on."""

    def __call__(self, round_: int, /, first_row: int = 0) -> Iterator[dict[str, np.ndarray]]: ...


@dataclass(frozen=True)
class Step:
    """Generated I/O of one kind, or idle time if plan is None.

    total_bytes: of one round. rounds: most repetitions, until the rate is steady. covers: blocks that it certainly
    writes; None for random blocks of all that is filled. kind: steps of one kind have one rate, to estimate the time
    left.
    """

    what: str
    total_bytes: int = 0
    depth: int = 1
    plan: StepPlan | None = None
    rest_ns: int = 0
    erases: bool = False
    rounds: int = 1
    kind: str = "sequential"
    covers: Filled | None = None


@dataclass(frozen=True)
class State:
    """The steps to a state on one drive.

    filled: all blocks written at the end. filled_bytes: all below is written. usable_bytes: available for
    measurements; the rest is spare. scale: see DriveState. identity: everything that determines the I/O. trace: the
    one that the blocks are written for, its sha256 and map.
    """

    name: str
    steps: list[Step]
    filled_bytes: int
    scale: float
    usable_bytes: int
    filled: Filled
    identity: dict[str, Any]
    trace: dict[str, Any] | None = None
    permuted: bool = False

    @property
    def rest_ns(self) -> int:
        return sum(step.rest_ns for step in self.steps)

    @property
    def erases(self) -> bool:
        return any(step.erases for step in self.steps)


def about(name: str) -> str:
    """A description of a state in one line."""
    base, _, spare = name.partition("+")
    return f"{STATES[base]}; on three quarters of the drive, the rest left erased" if spare else STATES[name]


def overwritten_bytes(name: str, capacity_bytes: int, block_bytes: int) -> int:
    """The beginning of a drive that the state `client` overwrites at random; 0 for other states."""
    base, _, spare = name.partition("+")
    if base != "client":
        return 0
    block_bytes = max(4096, block_bytes)
    span_bytes = _whole(capacity_bytes * 3 // 4 if spare else capacity_bytes, block_bytes)
    return _whole(min(_RANDOM_BYTES, span_bytes // 32), block_bytes) or block_bytes


def state_for(name: str, capacity_bytes: int, block_bytes: int, *, seed: int, rest_ns: int | None = None,
              spans: Sequence[tuple[int, int]] | None = None, permuted: bool = False,
              prefill: MappedBlocks | None = None, trace: dict[str, Any] | None = None,
              erase: bool | None = None, zones: Zones | None = None) -> State:
    """The steps to a state on a drive of that capacity.

    rest_ns: overrides the idle time of the state. spans: (start, end) in bytes for the state `data`, extended to whole
    blocks. permuted: the random writes of `enterprise` write each block once. prefill, trace: the blocks and the
    identity of the trace, for the state `trace`. erase: whether to erase first; by default all states but `trace` do.
    zones: of a zoned drive, which are filled one after the other.

    Raises UsageError for an unknown name, for spans that are empty or do not fit, and for a state that zones do not
    take.
    """
    base, _, spare = name.partition("+")
    if name == "op25":
        base, spare = "full", "op25"
    if base not in STATES or spare not in ("", "op25") or (spare and base in _WITHOUT_SPARE) or base == "op25":
        raise UsageError(f"no such state: {name}", did_you_mean(name, STATES, f"use one of: {', '.join(STATES)}"))
    _check_options(name, base, spans, permuted, trace)
    if zones is not None and base in _NOT_ON_ZONES:
        raise UsageError(f"the state {name} is not possible on a zoned drive: {_NOT_ON_ZONES[base]}",
                         "use one of: fresh, full, op25, data")
    block_bytes = max(4096, block_bytes)
    span_bytes = _whole(capacity_bytes * 3 // 4 if spare else capacity_bytes, block_bytes)
    if span_bytes < block_bytes and base not in ("fresh", "trace"):
        raise UsageError(f"{capacity_bytes:,} bytes are too few for the state {name}", "choose a larger drive")
    # A size in bytes is not scaled.
    scale = 1.0 if base in ("data", "trace") else min(1.0, capacity_bytes / REFERENCE_BYTES)
    steps = [_erase(capacity_bytes, zones)] if erase or (erase is None and base != "trace") else []
    filled: Filled = Extents.none()
    if base == "client":
        filled_bytes = _whole(span_bytes * 95 // 100, _FILL_BYTES) or span_bytes
        random_bytes = overwritten_bytes(name, capacity_bytes, block_bytes)
        filled = _from_0(filled_bytes)
        steps += [
            _fill(_from_0(filled_bytes)),
            Step("overwriting at random", random_bytes, _FILL_DEPTH, lambda _, first_row=0: permutation(
                random_bytes, block_bytes, "write", seed, first_row), kind="random", covers=_from_0(random_bytes)),
            Step("resting", rest_ns=int(USUAL_REST_NS["client"] * scale) if rest_ns is None else rest_ns)]
    elif base == "data":
        extents = filled = _in_zones(_spans(spans or [], block_bytes, span_bytes), zones)
        steps.append(_fill(extents))
    elif base == "trace":
        filled = prefill if prefill is not None else MappedBlocks()
        steps.append(Step("writing blocks to be read", filled.bytes, PREFILL_DEPTH,
                          lambda _, first_row=0: ranges(filled, "write", PREFILL_BYTES, first_row), covers=filled))
    elif base != "fresh":
        filled = _in_zones(_from_0(span_bytes), zones)
        steps.append(_fill(filled))
    if base == "pts":
        round_bytes = _whole(span_bytes // _PTS_ROUND_SHARE, block_bytes) or block_bytes
        steps += [
            _fill(_from_0(span_bytes)),
            Step("settling", round_bytes, _FILL_DEPTH, rounds=_PTS_ROUNDS, kind="random",
                 plan=lambda number, first_row=0: with_replacement(span_bytes, block_bytes, round_bytes,
                                                                   seed + number, first_row))]
    if base == "enterprise":
        steps.append(Step("writing at random", span_bytes, 128, kind="random", covers=filled if permuted else None,
                          plan=lambda _, first_row=0: permutation(span_bytes, block_bytes, "write", seed, first_row)
                          if permuted else with_replacement(span_bytes, block_bytes, span_bytes, seed,
                                                            first_row)))
    identity = {"state": name, "capacity_bytes": capacity_bytes, "block_bytes": block_bytes, "seed": seed,
                "permuted": permuted, "erases": bool(steps and steps[0].erases), "trace": trace,
                "spans": np.column_stack([filled.start, filled.end]).tolist()
                if base == "data" and isinstance(filled, Extents) else None}
    return State(name, steps, _filled_from_0(filled), scale, span_bytes if spare else capacity_bytes, filled, identity,
                 trace, permuted)


def _check_options(name: str, base: str, spans: Sequence[tuple[int, int]] | None, permuted: bool,
                   trace: dict[str, Any] | None) -> None:
    if permuted and base != "enterprise":
        raise UsageError(f"the state {name} has no random writes to permute", "use it with: --state enterprise")
    if (base == "data") != (spans is not None):
        raise UsageError(f"the state {name} takes no spans" if spans is not None else
                         "the state data needs spans", "give them: --state data --span 64GB")
    if (base == "trace") != (trace is not None):
        raise UsageError(f"the state {name} takes no trace" if trace is not None else
                         "the state trace needs a trace", "give it: --state trace --trace FILE")


def _spans(spans: Sequence[tuple[int, int]], block_bytes: int, usable_bytes: int) -> Extents:
    """The spans, extended to whole blocks."""
    pairs = np.array(list(spans), np.int64).reshape(-1, 2)
    if not len(pairs) or (pairs[:, 0] < 0).any() or (pairs[:, 1] <= pairs[:, 0]).any():
        raise UsageError("a span of the state data is empty", "give its size: --span 64GB")
    if (pairs[:, 1] > usable_bytes).any():
        raise UsageError(f"a span ends at {format_bytes(int(pairs[:, 1].max()))}, beyond the "
                         f"usable {format_bytes(usable_bytes)}", "choose a smaller span, or a larger drive")
    return Extents.of(pairs[:, 0] // block_bytes * block_bytes, -(-pairs[:, 1] // block_bytes) * block_bytes)


def _filled_from_0(filled: Filled) -> int:
    """Offset of the first gap; 0 for blocks of a trace, which do not need it."""
    if isinstance(filled, MappedBlocks) or not len(filled) or filled.start[0]:
        return 0
    return int(filled.end[0])


def _from_0(end_bytes: int) -> Extents:
    return Extents(np.array([0]), np.array([end_bytes]))


def _in_zones(extents: Extents, zones: Zones | None) -> Extents:
    """The parts of the extents within the capacity of zones. Raises UsageError for one that starts within a zone."""
    if zones is None:
        return extents
    parts = []
    for start, end in zip(extents.start.tolist(), extents.end.tolist(), strict=True):
        if start % zones.zone_bytes:
            raise UsageError(f"a span starts at {start:,}, within a zone of {format_bytes(zones.zone_bytes)}",
                             "let it start at a multiple of this size")
        at = slice(start // zones.zone_bytes, -(-end // zones.zone_bytes))
        parts.append((zones.start_bytes[at], np.minimum(zones.end_bytes[at], end)))
    return Extents.of(*(np.concatenate(ends) for ends in zip(*parts, strict=True)))


def _reset_zones(round_: int, first_row: int = 0) -> Iterator[dict[str, np.ndarray]]:
    if not first_row:
        yield plan_batch(np.zeros(1, np.int64), 0, OPS["zone_reset_all"], source_row=0)


def _erase(capacity_bytes: int, zones: Zones | None) -> Step:
    if zones is not None:
        return Step("erasing", capacity_bytes, 1, _reset_zones, erases=True, kind="erase")
    whole = _from_0(capacity_bytes)
    return Step("erasing", capacity_bytes, _ERASE_DEPTH, lambda _, first_row=0: ranges(
        whole, "discard", _ERASE_BYTES, first_row), erases=True, kind="erase")


def _fill(extents: Extents) -> Step:
    return Step("filling", extents.bytes, _FILL_DEPTH, lambda _, first_row=0: ranges(
        extents, "write", _FILL_BYTES, first_row), covers=extents)


def _whole(count: int, unit: int) -> int:
    return count // unit * unit
