"""An open trace or run: its metadata, and its rows in batches."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError
from blkreel.common.files.storage_url import Location, StorageUrl
from blkreel.traces.samples import called

from .footer import Footer, FooterFirst, local_file
from .metadata_types import HasMetadata, Thread
from .pages import PageCheck, PageError, PageLimitError, RowGroup, row_group_offsets
from .schema import COLUMN_TYPES, OP_NAMES, OPS, Metadata

_READ_BYTES = 256 << 10


@dataclass(frozen=True)
class Trace(HasMetadata):
    """An open trace. metadata: the file's `blkreel.` keys, decoded, without the prefix; of a run, with later values.

    layout: of the Parquet file. row_groups: of its footer. verified: rows with an unknown operation are refused.
    cache: results of passes over the trace, by name.
    """

    path: Location
    metadata: Metadata
    footer: Footer
    layout: pq.FileMetaData = field(compare=False, repr=False)
    row_groups: list[RowGroup] = field(compare=False, repr=False)
    verified: bool = True
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        if isinstance(self.path, StorageUrl):
            # Each range of a remote file costs a round trip, so a row group is read in a few large ranges.
            remote = FooterFirst(self.path, self.footer)
            file = pq.ParquetFile(pa.PythonFile(remote, mode="r"), page_checksum_verification=True, pre_buffer=True)
            remote.on_range = PageCheck(self.footer, self.row_groups).check_range
            return file
        # Small reads: complete column chunks of a row group take tens of MiB.
        return pq.ParquetFile(local_file(self.path), page_checksum_verification=True, buffer_size=_READ_BYTES,
                              pre_buffer=False)

    @cached_property
    def _pages(self) -> PageCheck:
        return PageCheck(self.footer, self.row_groups)

    def _check_pages(self, groups: range | None) -> None:
        """Refuse pages that take more memory than a file of this size may. A remote file is checked by range."""
        if not isinstance(self.path, StorageUrl):
            self._pages.check_file(self.path, groups)

    @property
    def name(self) -> str:
        """The trace in messages: `sample:NAME`, or its path."""
        return called(self.path)

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema_arrow

    @property
    def rows(self) -> int:
        return int(self.layout.num_rows)

    @property
    def group_rows(self) -> list[int]:
        """Number of rows of each row group."""
        return [self.layout.row_group(group).num_rows for group in range(self.layout.num_row_groups)]

    @property
    def threads(self) -> dict[str, Thread]:
        """By their numbers as texts; empty if the source does not name them."""
        threads: dict[str, Thread] | None = self.metadata.get("threads")
        return threads or {}

    @cached_property
    def row_groups_at(self) -> list[int]:
        """File offsets of each row group, and of the end of the last one."""
        return row_group_offsets(self.row_groups)

    def bounds(self, column: str, group: int) -> tuple[int, int] | None:
        """The least and the greatest value of a column in a row group; None without statistics in the file."""
        statistics = self.layout.row_group(group).column(self.schema.names.index(column)).statistics
        return (int(statistics.min), int(statistics.max)) if statistics and statistics.has_min_max else None

    def only_device(self) -> int | None:
        """The device if all rows have the same; None otherwise, or without statistics in the file."""
        values: set[int] = set()
        for group in range(self.layout.num_row_groups):
            bounds = self.bounds("device", group)
            if bounds is None:
                return None
            values |= set(bounds)
        return values.pop() if len(values) == 1 else None

    def greatest(self, column: str) -> int:
        """The greatest value of a column; −1 of one that the file does not have. Reads it without statistics."""
        if column not in self.schema.names:
            return -1
        bounds = [self.bounds(column, group) for group in range(self.layout.num_row_groups)]
        if all(bounds):
            return max((bound[1] for bound in bounds if bound), default=-1)
        return max((int(batch[column].to_numpy().max(initial=-1)) for batch in self.batches([column])), default=-1)

    def batches(self, columns: list[str] | None = None, rows: int = 131_072,
                groups: range | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in submit order, at most `rows` per batch, of all or some row groups.

        Raises TraceError at a damaged page, at a value that is missing, and at an unknown operation.
        """
        for batch in self._batches(columns, rows, groups):
            self._check_values(batch)
            yield batch

    def _batches(self, columns: list[str] | None, rows: int, groups: range | None) -> Iterator[pa.RecordBatch]:
        try:
            self._check_pages(groups)
            if not isinstance(self.path, StorageUrl):
                yield from self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False,
                                                   row_groups=None if groups is None else list(groups))
                return
            # One row group per call: pyarrow keeps prefetched data until the next call.
            for group in range(self.layout.num_row_groups) if groups is None else groups:
                yield from self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False,
                                                   row_groups=[group])
        except (OSError, pa.ArrowException, PageError) as error:
            raise damaged(self.path, error) from error

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """All rows at once: about 80 bytes each. Raises TraceError as batches()."""
        try:
            self._check_pages(None)
            table = self._file.read(columns=columns)
        except (OSError, pa.ArrowException, PageError) as error:
            raise damaged(self.path, error) from error
        self._check_values(table)
        return table

    def _check_values(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Columns of the format have a value in each row; other columns of a file may have none."""
        for name in rows.schema.names:
            if name in COLUMN_TYPES and (missing := rows[name].null_count):
                raise TraceError(f"{self.path}: column {name} has {missing:,} values missing",
                                 "the file was changed after it was written: record it again")
        if self.verified and "op" in rows.schema.names and rows.num_rows:
            op = rows["op"].to_numpy()
            if op.min() < 0 or op.max() >= len(OPS):
                unknown = ", ".join(str(code) for code in np.unique(op).tolist() if code not in OP_NAMES)
                raise TraceError(f"{self.name} holds unknown operations: {unknown}",
                                 f"find the damage with: {command_line('check', self.path)}")


def damaged(path: Location, error: Exception) -> TraceError:
    """The error for a file or a page that cannot be read."""
    if isinstance(error, PageLimitError):
        return TraceError(f"{path} {error}", "write the file again with data pages of 1 MiB")
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return TraceError(f"{path} is damaged ({reason})", "copy it again from an intact copy, or record it again")
