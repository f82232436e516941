"""Sorts rows from any order, most often that of completion, into submit order, in bounded memory."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self

import numpy as np
import pyarrow as pa

# An I/O that took longer is set aside, so that a single stuck one does not hold all later rows in memory.
STRAGGLER_NS = 5_000_000_000
_SORT_ROWS = 65_536
# Stragglers in memory before they go to a file, and the part of each file that is in memory: 80 bytes a row.
_RUN_ROWS = 1 << 19
_PART_ROWS = 4096


def in_submit_order(batches: Callable[[], Iterator[pa.RecordBatch]],
                    directory: Path | None = None) -> Iterator[pa.Table]:
    """The rows of all batches, sorted by `submit_ns`, equal ones in their order of arrival.

    `batches` is called twice: first to find the point after which no earlier row arrives, then for the rows.
    directory: for temporary files without a name, if many rows arrive late; default: that of the system. Raises OSError
    if the disk is full.
    """
    with _Stragglers(directory) as stragglers:
        survey = _survey(batches(), stragglers)
        last = len(survey.minimum_ns) - 1
        waiting: list[pa.Table] = []
        waiting_rows = 0
        emitted_to_ns = None
        for index, batch in enumerate(batches()):
            table = pa.Table.from_batches([batch])
            late = _late(table["submit_ns"].to_numpy(), survey.running_max_ns[index])
            if late.any():
                table = table.filter(pa.array(~late))
            waiting.append(table)
            waiting_rows += table.num_rows
            horizon_ns = survey.minimum_ns[index + 1] if index < last else None
            if index < last and (waiting_rows < _SORT_ROWS or horizon_ns == emitted_to_ns):
                continue
            emitted_to_ns = horizon_ns
            ready, pending = _split(pa.concat_tables(waiting), horizon_ns)
            waiting, waiting_rows = [pending], pending.num_rows
            yield from stragglers.merged(_sorted(ready), horizon_ns)


class _Stragglers:
    """Rows that arrive long after later ones. Beyond _RUN_ROWS, they wait in files, each sorted: a merge sort.

    They are taken from in order of time. As a context manager it frees the files.
    """

    def __init__(self, directory: Path | None):
        self._directory = directory
        self._gathered: list[pa.Table] = []
        self._rows = 0
        self._runs: list[_Run] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for run in self._runs:
            run.close()

    def add(self, table: pa.Table) -> None:
        """Add rows, in their order of arrival."""
        self._gathered.append(table)
        self._rows += table.num_rows
        if self._rows >= _RUN_ROWS:
            self._runs.append(_Run.in_file(_sorted(pa.concat_tables(self._gathered)), self._directory))
            self._gathered, self._rows = [], 0

    def seal(self) -> None:
        """No more rows are added."""
        if self._gathered:
            self._runs.append(_Run(iter([_sorted(pa.concat_tables(self._gathered))])))
            self._gathered = []

    def merged(self, ready: pa.Table, horizon_ns: int | None) -> Iterator[pa.Table]:
        """The rows of `ready`, which is sorted, and all stragglers before the horizon, in order, in bounded pieces."""
        while True:
            # Rows before the end of every run's part in memory are complete: none of them is still in a file.
            ends_ns = [run.end_ns for run in self._runs if run.more]
            bound_ns = min([*ends_ns, *([horizon_ns] if horizon_ns is not None else [])], default=None)
            parts = [run.take(bound_ns) for run in self._runs]
            if bound_ns == horizon_ns:
                early, ready = ready, ready.slice(0, 0)
            else:
                early, ready = _split_sorted(ready, bound_ns)
            piece = [part for part in (early, *parts) if part is not None and part.num_rows]
            if piece:
                yield piece[0] if len(piece) == 1 else _sorted(pa.concat_tables(piece))
            if bound_ns == horizon_ns:
                return
            for run in self._runs:
                if run.more and run.end_ns == bound_ns:
                    run.read()


class _Run:
    """Sorted rows, of which a part is in memory.

    more: whether rows follow that part. end_ns: its last time; all rows that follow are at that time or later.
    """

    def __init__(self, parts: Iterator[pa.Table], file: IO[bytes] | None = None):
        self._parts = parts
        self._file = file
        self._part = next(parts)
        self._next = next(parts, None)
        self.end_ns = _last_ns(self._part)

    @classmethod
    def in_file(cls, table: pa.Table, directory: Path | None) -> Self:
        """A run in a temporary file, which is read in parts of a few thousand rows."""
        file = tempfile.TemporaryFile(dir=directory)
        try:
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table.combine_chunks(), max_chunksize=_PART_ROWS)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return cls((pa.Table.from_batches([batch]) for batch in pa.ipc.open_stream(file)), file)

    @property
    def more(self) -> bool:
        return self._next is not None

    def read(self) -> None:
        """Read the next part into memory."""
        if self._next is not None:
            self._part = pa.concat_tables([self._part, self._next])
            self.end_ns = _last_ns(self._next)
            self._next = next(self._parts, None)

    def take(self, bound_ns: int | None) -> pa.Table:
        """Remove and return the rows before the bound; None: all."""
        taken, self._part = _split_sorted(self._part, bound_ns)
        return taken

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Survey:
    """Result of the first pass over all batches.

    minimum_ns[i]: least submit_ns in batch i and all after it, without stragglers.
    running_max_ns[i]: greatest submit_ns before batch i.
    """

    def __init__(self) -> None:
        self.minimum_ns: list[int] = []
        self.running_max_ns: list[int] = []


def _survey(batches: Iterator[pa.RecordBatch], stragglers: _Stragglers) -> _Survey:
    survey = _Survey()
    highest_ns = np.iinfo(np.int64).min
    for batch in batches:
        submit_ns = batch["submit_ns"].to_numpy()
        survey.running_max_ns.append(highest_ns)
        late = _late(submit_ns, highest_ns)
        on_time = submit_ns[~late]
        survey.minimum_ns.append(on_time.min() if len(on_time) else np.iinfo(np.int64).max)
        if late.any():
            stragglers.add(pa.Table.from_batches([batch]).filter(pa.array(late)))
        highest_ns = max(highest_ns, submit_ns.max(initial=highest_ns))
    for index in range(len(survey.minimum_ns) - 2, -1, -1):
        survey.minimum_ns[index] = min(survey.minimum_ns[index], survey.minimum_ns[index + 1])
    stragglers.seal()
    return survey


def _split_sorted(table: pa.Table, bound_ns: int | None) -> tuple[pa.Table, pa.Table]:
    if bound_ns is None:
        return table, table.slice(0, 0)
    at = int(np.searchsorted(table["submit_ns"].to_numpy(), bound_ns))
    return table.slice(0, at), table.slice(at)


def _sorted(table: pa.Table) -> pa.Table:
    """By submit_ns, equal rows in their order."""
    submit_ns = table["submit_ns"].to_numpy()
    if not np.any(submit_ns[1:] < submit_ns[:-1]):
        return table
    return table.take(pa.array(np.argsort(submit_ns, kind="stable")))


def _last_ns(table: pa.Table) -> int:
    return int(table["submit_ns"][-1].as_py())


def _late(submit_ns: np.ndarray, highest_before_ns: int) -> np.ndarray:
    """Which rows were submitted long before rows of an earlier batch."""
    # As float: the least int64 minus the span would wrap around.
    late: np.ndarray = submit_ns < float(highest_before_ns) - STRAGGLER_NS
    return late


def _split(table: pa.Table, horizon_ns: int | None) -> tuple[pa.Table, pa.Table]:
    if horizon_ns is None:
        return table, table.slice(0, 0)
    ready = table["submit_ns"].to_numpy() < horizon_ns
    return table.filter(pa.array(ready)), table.filter(pa.array(~ready))
