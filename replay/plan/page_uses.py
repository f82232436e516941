"""First uses of pages as rows of a plan: they are not issued, and wait for the read whose pages they use."""

import numpy as np

from blkreel.replay.engine.engine import Batch
from blkreel.traces.format.schema import FLAGS, NOT_USED, USE_COLUMNS

NO_USE = -1
_OF_USES = set(USE_COLUMNS) - {"used_ns"}


class PageUses:
    """Puts the uses into the rows of a trace, in the order of time. Takes all rows of the devices, batch by batch.

    complete: whether the recording has all uses, so that read-ahead without one was not used.
    """

    def __init__(self, complete: bool = True) -> None:
        self._complete = complete
        self._waiting: Batch | None = None  # uses after the last row so far
        self._last_row = NO_USE
        self._removed_ns = 0

    def merged(self, io: Batch, source_row: np.ndarray, submit_ns: np.ndarray) -> tuple[Batch, np.ndarray, np.ndarray]:
        """The rows with the uses up to the last of them.

        io: columns of the trace with USE_COLUMNS. submit_ns: after the idle policy.

        Result: io, of USE_COLUMNS with used_ns, and with `use_of`: the row whose pages a use is of, NO_USE for an I/O;
        source_row, for a use the last row before it; and submit_ns.
        """
        uses = self._taken(io, source_row)
        is_use = np.arange(len(uses["use_of"]) + len(submit_ns)) < len(uses["use_of"])
        columns = {name: np.concatenate([uses[name], io[name]]) for name in uses if name != "use_of"}
        # A use comes before a row that its thread submitted at the same time.
        order = np.lexsort((~is_use, columns["submit_ns"]))
        columns = {name: column[order] for name, column in columns.items()}
        is_use, use_of = is_use[order], np.concatenate([uses["use_of"], np.full(len(submit_ns), NO_USE)])[order]
        row, removed_ns, moved_ns = np.empty((3, len(order)), np.int64)
        row[~is_use], removed_ns[~is_use], moved_ns[~is_use] = source_row, io["idle_removed_ns"], submit_ns
        row[is_use] = removed_ns[is_use] = 0
        moved_ns[is_use] = np.iinfo(np.int64).max
        row = np.maximum.accumulate(np.maximum(row, self._last_row))
        removed_ns = np.maximum.accumulate(np.maximum(removed_ns, self._removed_ns))
        next_ns = np.minimum.accumulate(moved_ns[::-1])[::-1]
        moved_ns = np.where(is_use, np.minimum(columns["submit_ns"] - removed_ns, next_ns), moved_ns)
        self._last_row, self._removed_ns = int(row[-1]), int(removed_ns[-1])
        if not self._complete:
            columns["used_ns"] = np.where(columns["used_ns"] == NOT_USED, -1, columns["used_ns"])
        return columns | {"use_of": use_of, "idle_removed_ns": removed_ns}, row, moved_ns

    def _taken(self, io: Batch, source_row: np.ndarray) -> Batch:
        """The uses up to the last row, in the order of time; later ones are kept."""
        at = np.flatnonzero((io["latency_ns"] >= 0) & (io["used_ns"] >= io["latency_ns"]))
        uses = {name: column[at] for name, column in io.items() if name not in _OF_USES}
        uses |= {"submit_ns": uses["submit_ns"] + io["used_ns"][at], "latency_ns": np.zeros(len(at), np.int64),
                 "tid": io["used_by"][at], "waited_on": np.full(len(at), -1, np.int64),
                 "flags": uses["flags"] & ~FLAGS["inherited"], "think_ns": io["used_think_ns"][at],
                 "use_of": source_row[at]}
        if "blocked_ns" in uses:
            uses["blocked_ns"] = io["used_blocked_ns"][at]
        if self._waiting is not None:
            uses = {name: np.concatenate([self._waiting[name], column]) for name, column in uses.items()}
        order = np.argsort(uses["submit_ns"], kind="stable")
        count = int(np.searchsorted(uses["submit_ns"][order], io["submit_ns"][-1], "right"))
        self._waiting = {name: column[order[count:]] for name, column in uses.items()}
        return {name: column[order[:count]] for name, column in uses.items()}

