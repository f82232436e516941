"""Finds the row whose I/O completed at a given time."""

import tempfile
from pathlib import Path

import numpy as np


class Completions:
    """Completion times of rows, in a temporary file in `directory`: 24 bytes per row.

    Rows are added in order of submission, in blocks; a look-up reads only blocks that have such times. Raises OSError
    if the disk is full.
    """

    def __init__(self, directory: Path):
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close()
        self._first: list[int] = []
        self._last: list[int] = []
        self._blocks: list[tuple[int, int]] = []  # number of the first value in the file, rows
        self.rows = 0

    def add(self, submit_ns: np.ndarray, latency_ns: np.ndarray) -> None:
        """The next rows. A row without a completion is never found."""
        complete_ns = np.where(latency_ns >= 0, submit_ns + latency_ns, -1)
        count = len(complete_ns)
        if not count:
            return
        order = np.argsort(complete_ns, kind="stable")
        self._file.seek(0, 2)
        self._blocks.append((self._file.tell() // 8, count))
        for values in (complete_ns, complete_ns[order], order + self.rows):
            self._file.write(values.astype("<i8").tobytes())
        self._first.append(int(complete_ns[order[0]]))
        self._last.append(int(complete_ns[order[-1]]))
        self.rows += count
        self._file.flush()

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Completion times of rows that were added; -1 without one, or for a row that was not added."""
        result = np.full(len(rows), -1, np.int64)
        begins = np.cumsum([0, *(count for _, count in self._blocks)])
        block_of = np.searchsorted(begins, rows, side="right") - 1
        for block in np.unique(block_of[(rows >= 0) & (rows < self.rows)]).tolist():
            inside = (block_of == block) & (rows >= 0)
            result[inside] = self._values(block, 0)[rows[inside] - begins[block]]
        return result

    def only_row_at(self, complete_ns: np.ndarray) -> np.ndarray:
        """The row that completed at each time; -1 if none did, or several."""
        order = np.argsort(complete_ns, kind="stable")
        wanted = complete_ns[order]
        row, matches = np.full(len(wanted), -1, np.int64), np.zeros(len(wanted), np.int64)
        begins = np.searchsorted(wanted, self._first)
        ends = np.searchsorted(wanted, self._last, side="right")
        for block in np.flatnonzero(begins < ends).tolist():
            part = slice(begins[block], ends[block])
            times, rows = self._values(block, 1), self._values(block, 2)
            left = np.searchsorted(times, wanted[part])
            count = np.searchsorted(times, wanted[part], side="right") - left
            matches[part] += count
            row[part] = np.where(count > 0, rows[np.minimum(left, len(rows) - 1)], row[part])
        result = np.empty(len(wanted), np.int64)
        result[order] = np.where((matches == 1) & (wanted >= 0), row, -1)
        return result

    def close(self) -> None:
        self._file.close()

    def _values(self, block: int, part: int) -> np.ndarray:
        first, count = self._blocks[block]
        return np.memmap(self._file, "<i8", "r", offset=(first + part * count) * 8, shape=(count,))
