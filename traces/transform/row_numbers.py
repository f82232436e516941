"""Where the rows of a trace are in a new one."""

import os
import tempfile
from pathlib import Path

import numpy as np

_WINDOW_ROWS = 1 << 20


class RowNumbers:
    """The new number of each row, in a sparse temporary file in `directory`: 8 bytes per row, at most 8 MiB of which
    are in memory. Raises OSError if the disk is full."""

    def __init__(self, directory: Path, rows: int):
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close()
        self._rows = max(1, rows)
        self._file.truncate(8 * self._rows)

    def put(self, first_row: int, numbers: np.ndarray) -> None:
        """The new numbers of rows from first_row on; −1: not in the new trace."""
        content, at = memoryview((numbers + 1).astype("<i8").tobytes()), 8 * first_row
        while content:
            written = os.pwrite(self._file.fileno(), content, at)
            content, at = content[written:], at + written

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The new numbers; −1 of a row that is not in the new trace, was not put yet, or is −1."""
        result = np.full(len(rows), -1, np.int64)
        window_of = np.where((rows >= 0) & (rows < self._rows), rows // _WINDOW_ROWS, -1)
        for window in np.unique(window_of[window_of >= 0]).tolist():
            begin, inside = window * _WINDOW_ROWS, window_of == window
            numbers = np.memmap(self._file, "<i8", "r", offset=8 * begin,
                                shape=(min(_WINDOW_ROWS, self._rows - begin),))
            result[inside] = numbers[rows[inside] - begin] - 1
        return result

    def close(self) -> None:
        self._file.close()
