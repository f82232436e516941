"""The state at the boundary of two parts of a trace, so that parts are measured separately and joined.

Busy time, depth and idle time of a part depend on the I/Os outstanding at its begin. A carry has them. To measure a
long trace in parallel: compute the carry of each part alone, chain them with `then()` from the first part to the last,
then measure each part with the carry before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from blkreel.common.errors import TraceError
from blkreel.traces.blocksets.intervals import union
from blkreel.traces.format.schema import FLAGS, OPS, QUEUED_LIMIT_NS, TIME_LIMIT_NS, WRITE_CODES

CLASSES = ("read", "write", "other")
COLUMNS = ["submit_ns", "latency_ns", "op"]
QUEUE_COLUMNS = ["due_ns", "flags"]  # of a run; flags also of a trace with roles

_NONE_FIRST, _NONE_REACH = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_ALL_TIME = np.array([[_NONE_REACH, _NONE_FIRST]], np.int64)


def classes_of(op: np.ndarray) -> np.ndarray:
    """Index into CLASSES of each row. Operations without data transfer are `other`."""
    return np.where(op == OPS["read"], 0, np.where(np.isin(op, WRITE_CODES), 1, 2))


def out_of_order() -> TraceError:
    return TraceError("rows are not in the order of submit_ns", "sort the file by submit_ns, or record it again")


def out_of_range() -> TraceError:
    return TraceError("rows have times, lengths or offsets that no drive has (negative, or from 2^61 ns, 2^50 or 2^62 "
                      "bytes on), or sums of them beyond 2^63", "see what is wrong: blkreel check TRACE; "
                      "of a valid one leave such rows out: blkreel slice --to TIME")


@dataclass(frozen=True)
class Carry:
    """Times in ns; None: there was no row yet. Of I/Os whose completion was seen, but for last_submit_ns.

    first_ns, reach_ns: first submit and latest completion of reads, writes, others, and all together. outstanding: rows
    of (completion, index of the class) of what was outstanding at the last submit, sorted. uncovered: rows of begin
    and end of the times at which no I/O of each class is outstanding or waits for a full queue (native/uncovered.h).
    """

    last_submit_ns: int | None = None
    last_seen_submit_ns: int | None = None
    first_ns: tuple[int | None, ...] = (None,) * 4
    reach_ns: tuple[int | None, ...] = (None,) * 4
    outstanding: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int64))
    uncovered: tuple[np.ndarray, ...] = field(default_factory=lambda: (_ALL_TIME,) * len(CLASSES))

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
        first_ns, reach_ns = self.first_ns[kind], self.reach_ns[kind]
        return 0 if first_ns is None or reach_ns is None else reach_ns - first_ns

    def then(self, later: "Carry") -> "Carry":
        """The carry after both parts; `later` is the carry of the later rows alone.

        Raises TraceError if the later rows begin before the earlier ones end.
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
                         self.outstanding, self.uncovered)
        still = self.outstanding[self.outstanding[:, 0] > later.last_seen_submit_ns]
        return Carry(later.last_submit_ns, later.last_seen_submit_ns,
                     tuple(b if a is None else a for a, b in zip(self.first_ns, later.first_ns, strict=True)),
                     tuple(max((t for t in pair if t is not None), default=None)
                           for pair in zip(self.reach_ns, later.reach_ns, strict=True)),
                     _sorted(np.concatenate([still, later.outstanding])),
                     tuple(_pruned(_intersection(a, b), later.last_seen_submit_ns)
                           for a, b in zip(self.uncovered, later.uncovered, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Carry) and np.array_equal(self.to_numbers(), other.to_numbers())

    def to_numbers(self) -> np.ndarray:
        """As int64, in the layout of struct boundary_state."""
        return np.concatenate([
            [_NONE_REACH if t is None else t for t in (self.last_submit_ns, self.last_seen_submit_ns)],
            [_NONE_FIRST if t is None else t for t in self.first_ns],
            [_NONE_REACH if t is None else t for t in self.reach_ns],
            [len(self.outstanding)], [len(rows) for rows in self.uncovered], self.outstanding.ravel(),
            *(rows.ravel() for rows in self.uncovered)]).astype(np.int64)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray) -> "Carry":
        """The inverse of to_numbers(). Raises ValueError for other arrays."""
        times = [None if n in (_NONE_FIRST, _NONE_REACH) else n for n in numbers[:10].tolist()]
        counts = numbers[10:14].tolist()
        if len(counts) < 4 or min(counts) < 0 or len(numbers) - 14 != 2 * sum(counts):
            raise ValueError("not a carry")
        outstanding, *uncovered = np.split(numbers[14:].reshape(-1, 2), np.cumsum(counts)[:-1])
        return cls(times[0], times[1], tuple(times[2:6]), tuple(times[6:10]), _sorted(outstanding), tuple(uncovered))


def carry_after(batches: Iterable[pa.RecordBatch]) -> Carry:
    """The carry after batches with COLUMNS, of a run also QUEUE_COLUMNS, starting from none. Raises TraceError for rows
    out of order."""
    carry = Carry()
    for batch in batches:
        names = [*COLUMNS, *(name for name in QUEUE_COLUMNS if name in batch.schema.names)]
        for name in names:
            if batch[name].null_count:
                raise TraceError(f"column {name} has {batch[name].null_count} values missing",
                                 "it was changed after it was written: record it again")
        if batch.num_rows:
            carry = carry.then(_of_rows(**{name: batch[name].to_numpy(zero_copy_only=False) for name in names}))
    return carry


def _of_rows(submit_ns: np.ndarray, latency_ns: np.ndarray, op: np.ndarray, due_ns: np.ndarray | None = None,
             flags: np.ndarray | None = None) -> Carry:
    if (submit_ns[1:] < submit_ns[:-1]).any():
        raise out_of_order()
    if submit_ns[0] < 0 or (latency_ns.clip(0) >= TIME_LIMIT_NS - submit_ns).any():
        raise out_of_range()
    mask = latency_ns >= 0
    if flags is not None:
        mask &= (flags & FLAGS["role_background"]) == 0
    last_ns = int(submit_ns[-1])
    if not mask.any():
        return Carry(last_ns)
    kinds, begin_ns = classes_of(op[mask]), submit_ns[mask]
    complete_ns = begin_ns + latency_ns[mask]
    wait_ns = begin_ns
    if due_ns is not None and flags is not None:
        due_ns, full = due_ns[mask], (flags[mask] & FLAGS["queue_full"]) != 0
        wait_ns = np.where(full & (due_ns >= 0) & (due_ns < begin_ns),
                           np.maximum(due_ns, begin_ns - QUEUED_LIMIT_NS), begin_ns)
    first, reach, uncovered = [], [], []
    for kind in range(len(CLASSES)):
        of_kind = kinds == kind
        first.append(int(begin_ns[of_kind.argmax()]) if of_kind.any() else None)
        reach.append(int(complete_ns[of_kind].max()) if of_kind.any() else None)
        rows = _uncovered(wait_ns[of_kind], complete_ns[of_kind])
        uncovered.append(rows[-1:] if due_ns is None else _pruned(rows, int(begin_ns[-1])))
    late = complete_ns > begin_ns[-1]
    return Carry(last_ns, int(begin_ns[-1]), (*first, int(begin_ns[0])), (*reach, int(complete_ns.max())),
                 _sorted(np.column_stack([complete_ns[late], kinds[late]])), tuple(uncovered))


def _uncovered(begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Rows of begin and end of the times outside all intervals [begin, end), which need no order."""
    begin_ns, end_ns = union(begin_ns, end_ns)
    return np.column_stack([np.append(_NONE_REACH, end_ns), np.append(begin_ns, _NONE_FIRST)])


def _intersection(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What is in both of two lists of ascending intervals, whose last ones have no end."""
    first, end = (np.searchsorted(b[:, 1], a[:, 0], "right"), np.searchsorted(b[:, 0], a[:, 1], "left"))
    counts = end - first  # of intervals of b that each of a overlaps
    of_a = np.repeat(np.arange(len(a)), counts)
    of_b = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return np.column_stack([np.maximum(a[of_a, 0], b[of_b, 0]), np.minimum(a[of_a, 1], b[of_b, 1])])


def _pruned(rows: np.ndarray, last_submit_ns: int) -> np.ndarray:
    """Without those that no later I/O can fill."""
    return rows[rows[:, 1] > last_submit_ns - QUEUED_LIMIT_NS]


def _sorted(outstanding: np.ndarray) -> np.ndarray:
    """Rows by completion, then class: the order must not depend on the split into parts."""
    rows = np.asarray(outstanding, np.int64).reshape(-1, 2)
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]
