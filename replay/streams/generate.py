"""Batches of a generated stream: the same at every call, from any batch on."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NoReturn

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.replay.engine.engine import Batch
from blkreel.replay.plan.batch import plan_batch
from blkreel.traces.format.schema import CHECKS, OPS, ZONE_OPS

from .rules import Permutation
from .spec import ACCESSES, Bursts, StreamSpec

# A multiple of MIX_ROWS.
BATCH_ROWS = 60_000
# The share of reads is exact in every so many I/Os, in random order. With 100 instead, a runs test of a million I/Os
# would show the regularity.
MIX_ROWS = 10_000
_NS_PER_S = 10**9
# Denominator of rates. With it, times within a batch stay below 2**63.
_RATE_PARTS = 1000
# Due times beyond 146 years would overflow the plan.
_MAX_NS = 1 << 62
_MAX_BYTES = 1 << 62
_MAX_IOPS = 10**9
_OPS = [op for op in OPS if op not in (*ZONE_OPS, *CHECKS)]
_OFFSETS, _MIX, _PASS, _SIZES = range(4)


def batches(spec: StreamSpec, stop_ns: int | None = None, first_batch: int = 0) -> Iterator[Batch]:
    """The stream from its start or from a later batch on, as plan_batch() makes them.

    due_ns counts from the start of the run, -1 for as soon as the depth allows; burst is the number of the burst, or
    -1; source_row the number of the I/O in its stream. Endless without volume, bursts or extents. I/Os due at stop_ns
    or later are left out. Raises UsageError for an invalid spec.
    """
    check(spec)
    total = row_count(spec, min(stop_ns if stop_ns is not None else _MAX_NS, _MAX_NS))
    rows = _rows_per_batch(spec)
    index = first_batch
    while total is None or index * rows < total:
        first = index * rows
        yield _batch(spec, index, first, rows if total is None else min(rows, total - first))
        index += 1


def extent_of(spec: StreamSpec) -> tuple[int, int]:
    """Start and end of the offsets of the stream, in bytes of the target."""
    if spec.access == "extents":
        return spec.start_bytes, spec.start_bytes + sum(spec.lengths_bytes)
    blocks, total = _blocks(spec), row_count(spec)
    if spec.access == "sequential" and total is not None:
        blocks = min(blocks, total)
    return spec.start_bytes, spec.start_bytes + blocks * spec.block_bytes


def bound_bytes(spec: StreamSpec, stop_ns: int | None = None) -> tuple[int, int] | None:
    """Maximum bytes that the stream writes and discards; None if it is endless."""
    total = row_count(spec, stop_ns)
    share = MIX_ROWS - _reads_in_mix(spec)
    if share == 0:
        return 0, 0
    if total is None:
        return None
    if spec.access == "extents":
        changed = sum(spec.lengths_bytes[:total])
    else:
        largest_bytes = max(spec.lengths_bytes) if spec.access == "random-sizes" else spec.block_bytes
        changed = (total // MIX_ROWS * share + min(total % MIX_ROWS, share)) * largest_bytes
    return (0, changed) if spec.op == "discard" else (changed, 0)


def row_count(spec: StreamSpec, stop_ns: int | None = None) -> int | None:
    """Number of I/Os of the stream that are due before stop_ns; None if endless.

    The volume is a maximum, except that a stream has at least one I/O. The bytes of a burst are rounded up to whole
    blocks.
    """
    limits = []
    if spec.access == "extents":
        reached = np.cumsum(np.asarray(spec.lengths_bytes, np.int64))
        limits.append(len(reached) if spec.volume_bytes is None
                      else max(1, int(np.searchsorted(reached, spec.volume_bytes, "right"))))
        limits.append(len(reached))
    elif spec.volume_bytes is not None:
        limits.append(max(1, spec.volume_bytes // spec.block_bytes))
    if spec.bursts is not None and spec.bursts.count is not None:
        limits.append(spec.bursts.count * _rows_per_burst(spec.bursts, spec))
    if stop_ns is not None and (rows := _rows_before(spec, stop_ns)) is not None:
        limits.append(rows)
    return min(limits, default=None)


def check(spec: StreamSpec) -> None:
    """Raises UsageError for an invalid spec."""
    def refuse(why: str, remedy: str) -> NoReturn:
        raise UsageError(f"stream {spec.name}: {why}", remedy)

    bursts = spec.bursts
    if spec.access not in ACCESSES:
        refuse(f"invalid access {spec.access!r}", f"use one of {', '.join(ACCESSES)}")
    if spec.op not in _OPS:
        refuse(f"invalid op {spec.op!r}", f"use one of {', '.join(_OPS)}")
    if not 0 <= spec.read_percent <= 100:
        refuse(f"invalid share of reads: {spec.read_percent} %", "use 0 to 100")
    if spec.block_bytes < 1 or spec.start_bytes < 0:
        refuse(f"invalid blocks: {spec.block_bytes} bytes, from {spec.start_bytes} on", "use blocks of 512 or more")
    if spec.depth < 1:
        refuse(f"depth {spec.depth} would issue nothing", "use 1 or more")
    if spec.access in ("extents", "random-sizes") and (
            not spec.lengths_bytes or any(size < 1 or size % spec.block_bytes for size in spec.lengths_bytes)):
        refuse(f"its sizes are not whole blocks of {spec.block_bytes} bytes", "give sizes of whole blocks")
    if spec.access == "random-sizes":
        _check_random_sizes(spec, refuse)
    elif spec.access == "extents":
        if sum(spec.lengths_bytes) > spec.span_bytes:
            refuse(f"its extents of {sum(spec.lengths_bytes)} bytes exceed its region of {spec.span_bytes}",
                   "make the region larger, or the extents smaller or fewer")
    elif _blocks(spec) < (2 if spec.access == "halves" else 1):
        refuse(f"its region of {spec.span_bytes} bytes is too small for blocks of {spec.block_bytes}",
               "make the region larger or the blocks smaller")
    if sum(option is not None for option in (bursts, spec.rate_iops, spec.every_ns)) > 1:
        refuse("it has more than one of bursts, rate and every", "keep one of them")
    if bursts is not None and (bursts.bytes < 1 or bursts.every_ns < 1 or bursts.first_ns < 0
                               or (bursts.count is not None and bursts.count < 0)):
        refuse("its bursts need bytes and a period above zero", "give them both")
    if spec.rate_iops is not None and not 1 / _RATE_PARTS <= spec.rate_iops <= _MAX_IOPS:
        refuse(f"a rate of {spec.rate_iops:g} I/Os a second is out of range", f"use 0.001 to {_MAX_IOPS:,}")
    if max(spec.span_bytes, spec.block_bytes, spec.volume_bytes or 0, bursts.bytes if bursts else 0) > _MAX_BYTES:
        refuse(f"its sizes exceed {_MAX_BYTES} bytes", "give smaller ones")
    if max(spec.first_ns, spec.every_ns or 0, *((bursts.first_ns, bursts.every_ns) if bursts else ())) > _MAX_NS:
        refuse("its times exceed 146 years", "give shorter ones")
    if spec.every_ns is not None and spec.every_ns < 1:
        refuse("the time between two of its I/Os is zero", "omit `every` for as soon as possible")


def _check_random_sizes(spec: StreamSpec, refuse: Callable[[str, str], NoReturn]) -> None:
    if len(spec.lengths_bytes) != 2 or spec.lengths_bytes[0] > spec.lengths_bytes[1]:
        refuse(f"its lengths {list(spec.lengths_bytes)} are not a smallest and a largest size", "give the two sizes")
    if spec.lengths_bytes[1] > spec.span_bytes:
        refuse(f"its region of {spec.span_bytes} bytes is too small for sizes of {spec.lengths_bytes[1]}",
               "make the region larger or the sizes smaller")
    if spec.volume_bytes is not None or spec.bursts is not None:
        refuse("random sizes have no volume and no bursts", "end the step with a time")


def _batch(spec: StreamSpec, index: int, first: int, count: int) -> Batch:
    row = np.arange(first, first + count, dtype=np.int64)
    reads = _reads(spec, first, count)
    op: np.ndarray | int = OPS["read" if spec.read_percent == 100 else spec.op]
    if reads is not None:
        op = np.where(reads, np.int8(OPS["read"]), np.int8(op))
    length: np.ndarray | int = spec.block_bytes
    if spec.access == "extents":
        lengths = np.asarray(spec.lengths_bytes, np.int64)
        offset = (spec.start_bytes + np.cumsum(lengths) - lengths)[row]
        length = lengths[row]
    elif spec.access == "random-sizes":
        smallest, largest = (size // spec.block_bytes for size in spec.lengths_bytes)
        count_of_blocks = _random(spec, _SIZES, index).integers(smallest, largest, len(row), np.int64, endpoint=True)
        length = count_of_blocks * spec.block_bytes
        last_block = _blocks(spec) - count_of_blocks
        offset = spec.start_bytes + spec.block_bytes * _random(spec, _OFFSETS, index).integers(
            0, last_block, dtype=np.int64, endpoint=True)
    else:
        offset = spec.start_bytes + _block_numbers(spec, index, row, reads) * spec.block_bytes
    burst = row // _rows_per_burst(spec.bursts, spec) if spec.bursts is not None else -1
    return plan_batch(offset, length, op, due_ns=_due_ns(spec, row, burst), stream=spec.number, burst=burst,
                      source_row=row)


def _block_numbers(spec: StreamSpec, index: int, row: np.ndarray, reads: np.ndarray | None) -> np.ndarray:
    count = _blocks(spec)
    if spec.access == "sequential":
        return row % count
    if spec.access == "random":
        return _random(spec, _OFFSETS, index).integers(0, count, len(row), np.int64)
    if spec.access == "halves":
        return _in_halves(spec, row, reads, count)
    if count <= BATCH_ROWS:
        # As many whole passes as a batch holds.
        order = _random(spec, _PASS, index).random((_rows_per_batch(spec) // count, count)).argsort(axis=1)
        return order.reshape(-1)[:len(row)]
    parts, passes = [], row // count
    for number in np.unique(passes).tolist():
        seed = _seeds(spec, _PASS, number).generate_state(1, np.uint64)[0]
        parts.append(Permutation(count, int(seed))(row[passes == number] % count))
    return np.concatenate(parts)


def _in_halves(spec: StreamSpec, row: np.ndarray, reads: np.ndarray | None, count: int) -> np.ndarray:
    """Reads sequential in the lower half, other I/Os sequential in the upper half."""
    if reads is None:
        reads = np.full(len(row), _reads_in_mix(spec) == MIX_ROWS)
    nth_read = int(row[0]) // MIX_ROWS * _reads_in_mix(spec) + np.cumsum(reads) - 1
    nth_other = row - nth_read - 1
    lower = count // 2
    return np.where(reads, nth_read % lower, lower + nth_other % (count - lower))


def _reads(spec: StreamSpec, first: int, count: int) -> np.ndarray | None:
    """Mask of the reads; None if all or none of the I/Os are reads."""
    if _reads_in_mix(spec) in (0, MIX_ROWS):
        return None
    parts = []
    for group in range(first // BATCH_ROWS, (first + count - 1) // BATCH_ROWS + 1):
        ordered = np.arange(MIX_ROWS) < _reads_in_mix(spec)
        parts.append(_random(spec, _MIX, group).permuted(np.tile(ordered, (BATCH_ROWS // MIX_ROWS, 1)), axis=1))
    low = first % BATCH_ROWS
    return np.concatenate(parts).reshape(-1)[low:low + count]


def _due_ns(spec: StreamSpec, row: np.ndarray, burst: np.ndarray | int) -> np.ndarray | int:
    if spec.bursts is not None:
        return np.asarray(spec.bursts.first_ns + burst * spec.bursts.every_ns)
    if spec.every_ns is not None:
        return spec.first_ns + row * spec.every_ns
    if spec.rate_iops is None:
        return -1
    ticks, rate = _rate(spec.rate_iops)
    whole, remainder = divmod(int(row[0]) * ticks, rate)
    return np.asarray(spec.first_ns + whole + (remainder + (row - row[0]) * ticks) // rate)


def _rows_before(spec: StreamSpec, stop_ns: int) -> int | None:
    """Number of I/Os due before stop_ns; None without due times."""
    bursts = spec.bursts
    if bursts is not None:
        return max(0, -(-(stop_ns - bursts.first_ns) // bursts.every_ns)) * _rows_per_burst(bursts, spec)
    if spec.every_ns is not None:
        return max(0, -(-(stop_ns - spec.first_ns) // spec.every_ns))
    if spec.rate_iops is None:
        return None
    ticks, rate = _rate(spec.rate_iops)
    return max(0, -(-(stop_ns - spec.first_ns) * rate // ticks))


def _rate(iops: float) -> tuple[int, int]:
    """(a, b): the n-th I/O is due n a / b ns after the first, rounded down."""
    rate = Fraction(iops).limit_denominator(_RATE_PARTS)
    return _NS_PER_S * rate.denominator, rate.numerator


def _blocks(spec: StreamSpec) -> int:
    return spec.span_bytes // spec.block_bytes


def _rows_per_burst(bursts: Bursts, spec: StreamSpec) -> int:
    return -(-bursts.bytes // spec.block_bytes)


def _rows_per_batch(spec: StreamSpec) -> int:
    if spec.access == "permutation" and _blocks(spec) <= BATCH_ROWS:
        return BATCH_ROWS // _blocks(spec) * _blocks(spec)
    return BATCH_ROWS


def _reads_in_mix(spec: StreamSpec) -> int:
    return MIX_ROWS if spec.op == "read" else MIX_ROWS * spec.read_percent // 100


def _random(spec: StreamSpec, purpose: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(_seeds(spec, purpose, number)))


def _seeds(spec: StreamSpec, purpose: int, number: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(spec.seed, spawn_key=(spec.number, purpose, number))
