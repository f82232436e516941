"""What the earlier part of a trace leaves to the later one, so that parts can be measured apart and joined.

Busy time, depth and idle time of a part depend on what was outstanding when it began. A carry holds that: small, and
quickly found, so that a long trace is measured in parallel: first the carry of each part by itself, then `then()` from
the first part to the last, then every part with the carry before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from blkreel.traces.errors import TraceError
from blkreel.traces.schema import OPS

CLASSES = ("read", "write", "other")
COLUMNS = ["submit_ns", "latency_ns", "op"]

# As native/metrics.c has them.
_LIMIT_NS, _LATENCY_LIMIT_NS = 1 << 61, 1 << 60
_NONE_FIRST, _NONE_REACH = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def classes_of(op: np.ndarray) -> np.ndarray:
    """Index into CLASSES of each row: reads, writes, and all that moves no data to or from the host."""
    return np.where(op == OPS["read"], 0, np.where(op == OPS["write"], 1, 2))


def out_of_order() -> TraceError:
    return TraceError("rows are not in the order of submit_ns", "sort the file by submit_ns, or record it again")


def out_of_range() -> TraceError:
    return TraceError("rows have times, places or lengths that no drive has",
                      "see what is wrong with the trace: blkreel check TRACE")


@dataclass(frozen=True)
class Carry:
    """Times in ns; None: there was no row yet. Of I/Os whose completion was seen, but for last_submit_ns.

    first_ns, reach_ns: first submit and latest completion of reads, writes, others, and all together. outstanding: rows
    of (completion, index of the class) of what was outstanding at the last submit, sorted.
    """

    last_submit_ns: int | None = None
    last_seen_submit_ns: int | None = None
    first_ns: tuple[int | None, ...] = (None,) * 4
    reach_ns: tuple[int | None, ...] = (None,) * 4
    outstanding: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))

    @property
    def origin_ns(self) -> int | None:
        """First submit of the run, from which seconds and the timeline count."""
        return self.first_ns[-1]

    @property
    def span_ns(self) -> int | None:
        """The makespan; None where no completion was seen."""
        return None if self.origin_ns is None else self.makespan_ns

    @property
    def makespan_ns(self) -> int:
        return self.makespan_of(-1)

    def makespan_of(self, kind: int) -> int:
        """From the first submit of a class of CLASSES to its last completion; of -1, all."""
        return 0 if self.first_ns[kind] is None else self.reach_ns[kind] - self.first_ns[kind]

    def then(self, later: "Carry") -> "Carry":
        """The carry behind both, where `later` was found of the rows behind this one by themselves.

        Raises TraceError where they begin before these end.
        """
        if later.last_submit_ns is None:
            return self
        if self.last_submit_ns is None:
            return later
        if later.last_submit_ns < self.last_submit_ns or (
                later.origin_ns is not None and later.origin_ns < self.last_submit_ns):
            raise out_of_order()
        if later.last_seen_submit_ns is None:
            return Carry(later.last_submit_ns, self.last_seen_submit_ns, self.first_ns, self.reach_ns,
                         self.outstanding)
        still = self.outstanding[self.outstanding[:, 0] > later.last_seen_submit_ns]
        return Carry(later.last_submit_ns, later.last_seen_submit_ns,
                     tuple(b if a is None else a for a, b in zip(self.first_ns, later.first_ns, strict=True)),
                     tuple(max((t for t in pair if t is not None), default=None)
                           for pair in zip(self.reach_ns, later.reach_ns, strict=True)),
                     _sorted(np.concatenate([still, later.outstanding])))

    def __eq__(self, other) -> bool:
        return isinstance(other, Carry) and np.array_equal(self.to_numbers(), other.to_numbers())

    __hash__ = None

    def to_numbers(self) -> np.ndarray:
        """As int64, in the layout of struct metrics_carry."""
        return np.concatenate([
            [_NONE_REACH if t is None else t for t in (self.last_submit_ns, self.last_seen_submit_ns)],
            [_NONE_FIRST if t is None else t for t in self.first_ns],
            [_NONE_REACH if t is None else t for t in self.reach_ns],
            [len(self.outstanding)], self.outstanding.ravel()]).astype(np.int64)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray) -> "Carry":
        """Raises ValueError for what to_numbers() cannot have given."""
        told = [None if n in (_NONE_FIRST, _NONE_REACH) else n for n in numbers[:10].tolist()]
        if len(numbers) < 11 or len(numbers) - 11 != 2 * int(numbers[10]):
            raise ValueError("not a carry")
        return cls(told[0], told[1], tuple(told[2:6]), tuple(told[6:10]), _sorted(numbers[11:].reshape(-1, 2)))


def carry_after(batches: Iterable[pa.RecordBatch]) -> Carry:
    """The carry behind batches with COLUMNS, by themselves. Raises TraceError for rows out of order."""
    carry = Carry()
    for batch in batches:
        for name in COLUMNS:
            if batch[name].null_count:
                raise TraceError(f"column {name} has {batch[name].null_count} values missing",
                                 "it was changed after it was written: record it again")
        if batch.num_rows:
            carry = carry.then(_of_rows(*(batch[name].to_numpy(zero_copy_only=False) for name in COLUMNS)))
    return carry


def _of_rows(submit_ns, latency_ns, op) -> Carry:
    if (submit_ns[1:] < submit_ns[:-1]).any():
        raise out_of_order()
    if submit_ns[0] < -_LATENCY_LIMIT_NS or submit_ns[-1] >= _LIMIT_NS or latency_ns.max() >= _LATENCY_LIMIT_NS:
        raise out_of_range()
    seen = latency_ns >= 0
    last_ns = int(submit_ns[-1])
    if not seen.any():
        return Carry(last_ns)
    kinds, begin_ns = classes_of(op[seen]), submit_ns[seen]
    complete_ns = begin_ns + latency_ns[seen]
    first, reach = [], []
    for kind in range(len(CLASSES)):
        mine = kinds == kind
        first.append(int(begin_ns[mine.argmax()]) if mine.any() else None)
        reach.append(int(complete_ns[mine].max()) if mine.any() else None)
    late = complete_ns > begin_ns[-1]
    return Carry(last_ns, int(begin_ns[-1]), (*first, int(begin_ns[0])), (*reach, int(complete_ns.max())),
                 _sorted(np.column_stack([complete_ns[late], kinds[late]])))


def _sorted(outstanding):
    """By completion, then class: parts find them in different orders."""
    rows = np.asarray(outstanding, np.int64).reshape(-1, 2)
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]
