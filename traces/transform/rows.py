"""Columns of rows that move from one trace to another."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from blkreel.traces.format.schema import FLAGS, OPTIONAL_COLUMNS, RUN_FLAGS, TRACE_SCHEMA, UNKNOWN, with_columns

# The other flags describe the replay of a run.
TRACE_FLAGS = sum(bit for name, bit in FLAGS.items() if name not in RUN_FLAGS)


@dataclass
class Span:
    """Counts rows and the time from the first submission to the last submission or completion."""

    rows: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def add(self, columns: dict[str, np.ndarray]) -> None:
        submit_ns = columns["submit_ns"]
        if not len(submit_ns):
            return
        if not self.rows:
            self.first_ns = self.last_ns = int(submit_ns[0])
        self.rows += len(submit_ns)
        self.last_ns = max(self.last_ns, int((submit_ns + columns["latency_ns"].clip(0)).max()))

    @property
    def duration_ns(self) -> int:
        return self.last_ns - self.first_ns


def trace_schema(*schemas: pa.Schema) -> pa.Schema:
    """The columns of a trace, with the optional ones that any of the schemas has; those of a run are left out."""
    return with_columns(TRACE_SCHEMA, (name for name in OPTIONAL_COLUMNS
                                       if any(name in schema.names for schema in schemas)))


def filled(columns: dict[str, np.ndarray], schema: pa.Schema) -> dict[str, np.ndarray]:
    """All columns of the schema; a missing one has the value for unknown."""
    count = len(columns["submit_ns"])
    return {field.name: columns[field.name] if field.name in columns
            else np.full(count, UNKNOWN[field.name], str(field.type)) for field in schema}


def without_lost_dependencies(waited_on: np.ndarray, think_ns: np.ndarray,
                              flags: np.ndarray) -> dict[str, np.ndarray]:
    """The three columns with no think time, and not `inherited`, where waited_on is −1."""
    is_dependent = waited_on >= 0
    return {"waited_on": waited_on, "think_ns": np.where(is_dependent, think_ns, 0),
            "flags": np.where(is_dependent, flags, flags & ~FLAGS["inherited"])}


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
            inside = window_of == window
            begin, end = int(rows[inside].min()), int(rows[inside].max()) + 1
            # Not mapped: on a full tmpfs a hole of the file that is touched in memory is a SIGBUS.
            numbers = np.frombuffer(os.pread(self._file.fileno(), 8 * (end - begin), 8 * begin), "<i8")
            result[inside] = numbers[rows[inside] - begin] - 1
        return result

    def close(self) -> None:
        self._file.close()
