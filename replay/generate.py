"""A stream by a rule, as batches of the plan: the same at every call, and from any batch on."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from blkreel.traces.errors import UsageError
from blkreel.traces.schema import OPS

from .stream_spec import ACCESSES, StreamSpec
from .streams import Permutation, plan_batch

# A multiple of what the share of reads is exact in.
BATCH_ROWS = 60_000
# In every so many I/Os the share of reads is exact, their order random. In every hundred it would be too regular: of
# a million I/Os a runs test would tell.
MIX_ROWS = 10_000
_NS_PER_S = 10**9
# Fractions of an I/O a second that a rate can have: with them, times within a batch stay below 2**63.
_RATE_PARTS = 1000
# What is due after 146 years would be a number too large for the plan.
_EVER_NS = 1 << 62
_MOST_BYTES = 1 << 62
_MOST_IOPS = 10**9
_OFFSETS, _MIX, _PASS = range(3)


def batches(spec: StreamSpec, stop_ns: int | None = None, first_batch: int = 0) -> Iterator[dict]:
    """The stream from its start, or from a later batch on, as batches of streams.plan_batch().

    due_ns counts from the start of the run, or is −1 for as soon as the depth allows; burst is the number of the burst,
    or −1; source_row that of the I/O in its stream. Without end where neither volume, bursts nor extents have one. What
    would be due at stop_ns or later is left out. Raises UsageError for a rule that cannot be followed.
    """
    check(spec)
    total = row_count(spec, min(stop_ns if stop_ns is not None else _EVER_NS, _EVER_NS))
    rows = _rows_per_batch(spec)
    index = first_batch
    while total is None or index * rows < total:
        first = index * rows
        yield _batch(spec, index, first, rows if total is None else min(rows, total - first))
        index += 1


def extent_of(spec: StreamSpec) -> tuple[int, int]:
    """From where to where the stream reaches at most, in bytes of the target."""
    if spec.access == "extents":
        return spec.start_bytes, spec.start_bytes + sum(spec.lengths_bytes)
    blocks, total = _blocks(spec), row_count(spec)
    if spec.access == "sequential" and total is not None:
        blocks = min(blocks, total)
    return spec.start_bytes, spec.start_bytes + blocks * spec.block_bytes


def bound_bytes(spec: StreamSpec, stop_ns: int | None = None) -> tuple[int, int] | None:
    """How many bytes the stream writes and discards at most, by its rule alone; None where that has no bound."""
    total = row_count(spec, stop_ns)
    share = MIX_ROWS - _reads_in_mix(spec)
    if share == 0:
        return 0, 0
    if total is None:
        return None
    if spec.access == "extents":
        changed = sum(spec.lengths_bytes[:total])
    else:
        changed = (total // MIX_ROWS * share + min(total % MIX_ROWS, share)) * spec.block_bytes
    return (0, changed) if spec.op == "discard" else (changed, 0)


def row_count(spec: StreamSpec, stop_ns: int | None = None) -> int | None:
    """How many I/Os the stream has, those left out that are due at stop_ns or later; None for without end.

    A volume is not exceeded, unless by a single I/O that is larger; a burst's bytes are rounded up to whole blocks.
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
        limits.append(spec.bursts.count * _rows_per_burst(spec))
    if stop_ns is not None and spec.timed:
        limits.append(_rows_before(spec, stop_ns))
    return min(limits, default=None)


def check(spec: StreamSpec) -> None:
    """Raises UsageError for a rule that cannot be followed, naming what is wrong."""
    def refuse(what, remedy):
        raise UsageError(f"stream {spec.name}: {what}", remedy)

    bursts = spec.bursts
    if spec.access not in ACCESSES:
        refuse(f"access {spec.access!r} is none of the choices", f"use one of {', '.join(ACCESSES)}")
    if spec.op not in OPS:
        refuse(f"op {spec.op!r} is none of the choices", f"use one of {', '.join(OPS)}")
    if not 0 <= spec.read_percent <= 100:
        refuse(f"{spec.read_percent} % of reads is no share", "use 0 to 100")
    if spec.block_bytes < 1 or spec.start_bytes < 0:
        refuse(f"it has blocks of {spec.block_bytes} bytes from {spec.start_bytes} on", "give it blocks of 512 or more")
    if spec.depth < 1:
        refuse(f"depth {spec.depth} would issue nothing", "use 1 or more")
    if spec.access == "extents":
        if not spec.lengths_bytes or any(size < 1 or size % spec.block_bytes for size in spec.lengths_bytes):
            refuse(f"its extents are no whole blocks of {spec.block_bytes} bytes", "give sizes of whole blocks")
        if sum(spec.lengths_bytes) > spec.span_bytes:
            refuse(f"its extents have {sum(spec.lengths_bytes)} bytes together, its region {spec.span_bytes}",
                   "make the region larger, or the extents smaller or fewer")
    elif _blocks(spec) < (2 if spec.access == "halves" else 1):
        refuse(f"its region of {spec.span_bytes} bytes is too small for blocks of {spec.block_bytes}",
               "make the region larger or the blocks smaller")
    if sum(one is not None for one in (bursts, spec.rate_iops, spec.every_ns)) > 1:
        refuse("it has more than one of bursts, rate and every", "keep one of them")
    if bursts is not None and (bursts.bytes < 1 or bursts.every_ns < 1 or bursts.first_ns < 0
                               or (bursts.count is not None and bursts.count < 0)):
        refuse("its bursts need bytes and a period above zero", "give them both")
    if spec.rate_iops is not None and not 1 / _RATE_PARTS <= spec.rate_iops <= _MOST_IOPS:
        refuse(f"a rate of {spec.rate_iops:g} I/Os a second is out of range", f"use 0.001 to {_MOST_IOPS:,}")
    if max(spec.span_bytes, spec.block_bytes, spec.volume_bytes or 0, bursts.bytes if bursts else 0) > _MOST_BYTES:
        refuse("it has sizes beyond any drive", "give smaller ones")
    if max(spec.first_ns, spec.every_ns or 0, *((bursts.first_ns, bursts.every_ns) if bursts else ())) > _EVER_NS:
        refuse("it has times beyond any test", "give shorter ones")
    if spec.every_ns is not None and spec.every_ns < 1:
        refuse("the time between two of its I/Os is zero", "leave `every` out for as soon as possible")


def _batch(spec, index, first, count) -> dict:
    row = np.arange(first, first + count, dtype=np.int64)
    reads = _reads(spec, first, count)
    op = OPS["read" if spec.read_percent == 100 else spec.op]
    if reads is not None:
        op = np.where(reads, np.int8(OPS["read"]), np.int8(op))
    if spec.access == "extents":
        length = np.asarray(spec.lengths_bytes, np.int64)
        offset = (spec.start_bytes + np.cumsum(length) - length)[row]
        length = length[row]
    else:
        length = spec.block_bytes
        offset = spec.start_bytes + _block_numbers(spec, index, row, reads) * spec.block_bytes
    burst = row // _rows_per_burst(spec) if spec.bursts is not None else -1
    return plan_batch(offset, length, op, due_ns=_due_ns(spec, row, burst), stream=spec.number, burst=burst,
                      source_row=row)


def _block_numbers(spec, index, row, reads):
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
    parts, number = [], row // count
    for one in np.unique(number).tolist():
        seed = _seeds(spec, _PASS, one).generate_state(1, np.uint64)[0]
        parts.append(Permutation(count, int(seed))(row[number == one] % count))
    return np.concatenate(parts)


def _in_halves(spec, row, reads, count):
    """Reads one after another in the lower half and writes in the upper, each around when its half is through."""
    if reads is None:
        reads = np.full(len(row), _reads_in_mix(spec) == MIX_ROWS)
    nth_read = int(row[0]) // MIX_ROWS * _reads_in_mix(spec) + np.cumsum(reads) - 1
    nth_other = row - nth_read - 1
    lower = count // 2
    return np.where(reads, nth_read % lower, lower + nth_other % (count - lower))


def _reads(spec, first, count):
    """Which I/Os are reads, where only some are; else None."""
    if _reads_in_mix(spec) in (0, MIX_ROWS):
        return None
    parts = []
    for group in range(first // BATCH_ROWS, (first + count - 1) // BATCH_ROWS + 1):
        ordered = np.arange(MIX_ROWS) < _reads_in_mix(spec)
        parts.append(_random(spec, _MIX, group).permuted(np.tile(ordered, (BATCH_ROWS // MIX_ROWS, 1)), axis=1))
    low = first % BATCH_ROWS
    return np.concatenate(parts).reshape(-1)[low:low + count]


def _due_ns(spec, row, burst):
    if spec.bursts is not None:
        return spec.bursts.first_ns + burst * spec.bursts.every_ns
    if spec.every_ns is not None:
        return spec.first_ns + row * spec.every_ns
    if spec.rate_iops is None:
        return -1
    ticks, rate = _rate(spec)
    whole, rest = divmod(int(row[0]) * ticks, rate)
    return spec.first_ns + whole + (rest + (row - row[0]) * ticks) // rate


def _rows_before(spec, stop_ns):
    if spec.bursts is not None:
        return max(0, -(-(stop_ns - spec.bursts.first_ns) // spec.bursts.every_ns)) * _rows_per_burst(spec)
    if spec.every_ns is not None:
        return max(0, -(-(stop_ns - spec.first_ns) // spec.every_ns))
    ticks, rate = _rate(spec)
    return max(0, -(-(stop_ns - spec.first_ns) * rate // ticks))


def _rate(spec):
    """(a, b): the n-th I/O is due n a / b ns after the first, rounded down."""
    rate = Fraction(spec.rate_iops).limit_denominator(_RATE_PARTS)
    return _NS_PER_S * rate.denominator, rate.numerator


def _blocks(spec):
    return spec.span_bytes // spec.block_bytes


def _rows_per_burst(spec):
    return -(-spec.bursts.bytes // spec.block_bytes)


def _rows_per_batch(spec):
    if spec.access == "permutation" and _blocks(spec) <= BATCH_ROWS:
        return BATCH_ROWS // _blocks(spec) * _blocks(spec)
    return BATCH_ROWS


def _reads_in_mix(spec):
    return MIX_ROWS if spec.op == "read" else MIX_ROWS * spec.read_percent // 100


def _random(spec, what, number):
    return np.random.Generator(np.random.Philox(_seeds(spec, what, number)))


def _seeds(spec, what, number):
    return np.random.SeedSequence(spec.seed, spawn_key=(spec.number, what, number))
