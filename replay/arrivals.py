"""How the gaps between submissions differ from the plan's: added up as records pass, in bounded memory."""

import numpy as np

# Two rows that go out with one call carry one stamp: what is shorter than that is one class.
_LEAST_NS = 1024
_SUB_BITS = 5
_OCTAVES = 45

# A row that takes longer than this to complete finds its place taken; so does one that so many others overtook.
WINDOW_NS = 10**9
WINDOW_ROWS = 1 << 20
_SORT_ROWS = 1 << 16


class InSubmitOrder:
    """Rows come in another order than that of their submission; take() gives them back in that one, some time later.

    misplaced: rows that came after others that were submitted later had been given back.
    """

    def __init__(self):
        self.misplaced = 0
        self._waiting: list[tuple] = []
        self._count, self._sort_at = 0, _SORT_ROWS
        self._until_ns = np.iinfo(np.int64).min

    def take(self, submit_ns: np.ndarray, due_ns: np.ndarray, complete_ns: np.ndarray, until_ns: int) -> tuple | None:
        """(submit_ns, due_ns, complete_ns) of rows before until_ns, which none that comes later precedes; None while
        too few are there.
        """
        self._waiting.append((submit_ns.copy(), due_ns.copy(), complete_ns.copy()))
        self._count += len(submit_ns)
        return self._sorted(until_ns) if self._count >= self._sort_at else None

    def rest(self) -> tuple | None:
        """All that is left."""
        return self._sorted(np.iinfo(np.int64).max) if self._count else None

    def _sorted(self, until_ns):
        columns = [np.concatenate(parts) for parts in zip(*self._waiting, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        columns = [column[order] for column in columns]
        count = int(np.searchsorted(columns[0], until_ns))
        if len(order) - count > WINDOW_ROWS:
            count = len(order) - WINDOW_ROWS // 2
        self._waiting = [tuple(column[count:] for column in columns)]
        self._count = len(order) - count
        # What stays is sorted again: not before as much has come in addition.
        self._sort_at = min(max(_SORT_ROWS, 2 * self._count), WINDOW_ROWS + _SORT_ROWS)
        if not count:
            return None
        self.misplaced += int(np.searchsorted(columns[0][:count], self._until_ns))
        self._until_ns = max(self._until_ns, int(columns[0][count - 1]))
        return tuple(column[:count] for column in columns)


class Gaps:
    """Counts of gaps, each known to one part in 32; below 1 us they are one class."""

    def __init__(self):
        self.total = self.sum_ns = 0
        self.counts = np.zeros(1 + (_OCTAVES << _SUB_BITS), np.int64)

    def add(self, gaps_ns: np.ndarray) -> None:
        gaps_ns = np.maximum(gaps_ns, 0)
        octave = np.frexp(np.maximum(gaps_ns, _LEAST_NS).astype(np.float64))[1] - 1
        sub = (np.maximum(gaps_ns, _LEAST_NS) >> (octave - _SUB_BITS)) - (1 << _SUB_BITS)
        place = np.where(gaps_ns < _LEAST_NS, 0, 1 + ((octave - 10) << _SUB_BITS) + sub)
        self.counts += np.bincount(np.minimum(place, len(self.counts) - 1), minlength=len(self.counts))
        self.total += len(gaps_ns)
        self.sum_ns += int(gaps_ns.sum())

    def percentile_ns(self, per_mille: int) -> int:
        """The value at rank ceil(n p), rounded down by at most one part in 32; 0 for what is below 1 us."""
        rank = -(-self.total * per_mille // 1000)
        return int(_BOUNDS_NS[int(np.searchsorted(np.cumsum(self.counts), rank))])

    def account(self) -> dict:
        return {"mean_ns": self.sum_ns // self.total, "p50_ns": self.percentile_ns(500),
                "p99_ns": self.percentile_ns(990)}


def _bounds_ns():
    steps = np.arange(_OCTAVES << _SUB_BITS, dtype=np.int64)
    octave, sub = steps >> _SUB_BITS, steps & ((1 << _SUB_BITS) - 1)
    return np.concatenate([[0], (sub + (1 << _SUB_BITS)) << (octave + 10 - _SUB_BITS)])


_BOUNDS_NS = _bounds_ns()  # where each class begins


def distance(one: Gaps, other: Gaps) -> tuple[float, float]:
    """(the greatest difference of the distribution functions, the area between them in ns).

    The first is Kolmogorov and Smirnov's; the second is by how much, on average, a gap of one differs from the gap
    of the same rank of the other.
    """
    apart = np.abs(np.cumsum(one.counts) / one.total - np.cumsum(other.counts) / other.total)
    return float(apart.max()), float((apart[:-1] * np.diff(_BOUNDS_NS)).sum())


class Arrivals:
    """The gaps of rows with a deadline: between their submissions, and between their deadlines."""

    def __init__(self):
        self._issued, self._planned, self._changed = Gaps(), Gaps(), Gaps()
        self._last: tuple | None = None
        self._most_ns = 0

    def add(self, submit_ns: np.ndarray, due_ns: np.ndarray) -> None:
        """Rows in the order of submission."""
        timed = due_ns >= 0
        submit_ns, due_ns = submit_ns[timed], due_ns[timed]
        if not len(submit_ns):
            return
        late_ns = submit_ns - due_ns
        ordered_ns = np.sort(due_ns, kind="stable")  # quick where it is nearly in order, as here
        if self._last is not None:
            last_submit_ns, last_due_ns, last_late_ns = self._last
            submit_ns = np.concatenate([[last_submit_ns], submit_ns])
            ordered_ns = np.concatenate([[last_due_ns], ordered_ns])
            late_ns = np.concatenate([[last_late_ns], late_ns])
        self._last = int(submit_ns[-1]), int(ordered_ns[-1]), int(late_ns[-1])
        changed_ns = np.abs(np.diff(late_ns))
        self._issued.add(np.diff(submit_ns))
        self._planned.add(np.diff(ordered_ns))
        self._changed.add(changed_ns)
        self._most_ns = max(self._most_ns, int(changed_ns.max(initial=0)))

    def account(self) -> dict | None:
        """None of fewer than two rows with a deadline."""
        if not self._issued.total:
            return None
        apart, area_ns = distance(self._issued, self._planned)
        return {"gaps": self._issued.total, "planned": self._planned.account(), "issued": self._issued.account(),
                "ks": round(apart, 4), "mean_shift_ns": round(area_ns),
                "changed": {"p50_ns": self._changed.percentile_ns(500), "p99_ns": self._changed.percentile_ns(990),
                            "max_ns": self._most_ns}}
