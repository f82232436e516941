"""The trace that a tool writes, and what the tool reports about it."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.traces.format.names import NamesInRows
from blkreel.traces.format.schema import OP_NAMES, Metadata
from blkreel.traces.format.writer import TraceWriter, output_error
from blkreel.traces.spool.spool import PRIVATE_MODE

from .rows import Span


@dataclass
class Transformed:
    """A trace that was written. ios, bytes: by operation. cut_dependencies: I/Os that waited for an I/O which the trace
    does not have. restored_dependencies: of an earlier slice. notes: what was lost or assumed."""

    path: Path
    metadata: Metadata
    ios: dict[str, int]
    bytes: dict[str, int]
    duration_ns: int
    notes: list[str] = field(default_factory=list)
    cut_dependencies: int = 0
    restored_dependencies: int = 0


class TransformOutput:
    """Takes rows in order of submission, and writes the trace with the names of the threads and files in them.

    names: metadata with the `threads` and `files` of which finish() removes those without a row. The trace can be read
    by its owner only, unless `public`. As a context manager it removes an unfinished file, and raises BlkreelError if
    the disk of the trace is full, also for temporary files beside it.
    """

    def __init__(self, path: Path, schema: pa.Schema, names: Metadata, *, force: bool, public: bool):
        self._span = Span()
        self._names = NamesInRows(names)
        self._ios = dict.fromkeys(OP_NAMES.values(), 0)
        self._bytes = dict.fromkeys(OP_NAMES.values(), 0)
        self._writer = TraceWriter(path, schema, force=force, owner=caller_of_sudo(),
                                   mode=None if public else PRIVATE_MODE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._writer.abandon()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise output_error(self._writer.path, error) from error

    @property
    def rows(self) -> int:
        """Rows so far."""
        return self._span.rows

    @property
    def last_ns(self) -> int:
        """The last submission or completion so far."""
        return self._span.last_ns

    def write(self, columns: dict[str, np.ndarray]) -> None:
        self._writer.write(columns)
        self._span.add(columns)
        self._names.add(columns)
        for code, name in OP_NAMES.items():
            matches = columns["op"] == code
            self._ios[name] += int(matches.sum())
            self._bytes[name] += int(columns["length_bytes"][matches].sum())

    def finish(self, metadata: Metadata, notes: Sequence[str] = (), *, cut_dependencies: int = 0,
               restored_dependencies: int = 0) -> Transformed:
        """Write the metadata, and give the trace its name."""
        metadata = self._names.metadata({**metadata, "duration_ns": self._span.duration_ns})
        path = self._writer.close(metadata)
        return Transformed(path, metadata, self._ios, self._bytes, self._span.duration_ns, list(notes),
                           cut_dependencies, restored_dependencies)


