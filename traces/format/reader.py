"""Opens traces and runs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError
from blkreel.common.storage_url import Location, StorageUrl
from blkreel.common.typed_document import mismatch, parse_json
from blkreel.traces.samples import called, located

from .footer import Footer, FooterFirst, read_footer
from .integrity import disagreement
from .metadata_types import TraceMetadata
from .overrides import amended
from .pages import (
    PageCheck,
    PageError,
    PageLimitError,
    RowGroup,
    check_columns,
    row_group_offsets,
    row_groups_of,
)
from .schema import COLUMN_TYPES, FLAGS, KEY_PREFIX, OPS, SCHEMA_VERSION, TRACE_SCHEMA, Metadata

RUN_RECORDS = "records.parquet"
TEST = "test.json"
_READ_BYTES = 256 << 10


@dataclass(frozen=True)
class Trace:
    """An open trace. metadata: the file's `blkreel.` keys, decoded, without the prefix; of a run, with later values.

    layout: of the Parquet file. row_groups: of its footer. cache: results of passes over the trace, by name.
    """

    path: Location
    metadata: Metadata
    footer: Footer
    layout: pq.FileMetaData = field(compare=False, repr=False)
    row_groups: list[RowGroup] = field(compare=False, repr=False)
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
        return pq.ParquetFile(self.path, page_checksum_verification=True, buffer_size=_READ_BYTES, pre_buffer=False)

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
    def is_run(self) -> bool:
        """Whether these are the records of a replay."""
        return "run" in self.metadata

    @cached_property
    def row_groups_at(self) -> list[int]:
        """File offsets of each row group, and of the end of the last one."""
        return row_group_offsets(self.row_groups)

    def bounds(self, column: str, group: int) -> tuple[int, int] | None:
        """The least and the greatest value of a column in a row group; None without statistics in the file."""
        statistics = self.layout.row_group(group).column(self.schema.names.index(column)).statistics
        return (int(statistics.min), int(statistics.max)) if statistics and statistics.has_min_max else None

    def only_value(self, column: str) -> int | None:
        """The value of a column if all rows have the same; None otherwise, or without statistics in the file."""
        values: set[int] = set()
        for group in range(self.layout.num_row_groups):
            bounds = self.bounds(column, group)
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

        Raises TraceError at a damaged page.
        """
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
            raise _damaged(self.path, error) from error

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """All rows at once: about 80 bytes each. Raises TraceError at a damaged page."""
        try:
            self._check_pages(None)
            return self._file.read(columns=columns)
        except (OSError, pa.ArrowException, PageError) as error:
            raise _damaged(self.path, error) from error


def open_trace(path: str | Location, *, verify: bool = True) -> Trace:
    """Open a trace file, the records of a run directory, or a trace that ships (`sample:NAME`).

    path may be a URL (`s3://...`); only the needed ranges of the file are read. Raises TraceError for a file that is
    missing, empty, truncated, damaged, not Parquet, not a trace, or of a later version; with `verify` also for one
    whose rows are not those that its metadata describes.
    """
    path = located(path)
    if isinstance(path, StorageUrl):
        if path.suffix != ".parquet" and (path / RUN_RECORDS).is_file():
            path = path / RUN_RECORDS
    elif path.is_dir():
        if not (path / RUN_RECORDS).is_file() and (path / TEST).is_file():
            raise TraceError(f"{path} is a test; each of its steps is a run",
                             f"show the test: blkreel report {path}; or name a step: {path}/steps/NAME")
        if not (path / RUN_RECORDS).is_file():
            raise TraceError(f"{path} is a directory without {RUN_RECORDS}",
                             "name a trace file, or a directory that `blkreel replay -o` made")
        path = path / RUN_RECORDS
    footer = read_footer(path)
    try:
        whole = FooterFirst(path, footer) if isinstance(path, StorageUrl) else path
        row_groups = row_groups_of(footer)
        with pq.ParquetFile(whole) as file:
            schema, layout = file.schema_arrow, file.metadata
        check_columns(row_groups, [layout.schema.column(column).physical_type for column in range(layout.num_columns)])
        metadata = {key.decode().removeprefix(KEY_PREFIX): parse_json(value)
                    for key, value in (layout.metadata or {}).items() if key.startswith(KEY_PREFIX.encode())}
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from error
    _check_schema(path, schema, metadata)
    if wrong := mismatch(metadata, TraceMetadata):
        raise _damaged(path, ValueError(f"metadata: {wrong}"))
    trace = Trace(path, amended(path, metadata), footer, layout, row_groups)
    if verify and (why := disagreement(trace)):
        raise TraceError(f"{path} was changed after it was written: {why}", how_to_repair(trace))
    return trace


def how_to_repair(trace: Trace) -> str:
    """The remedy for rows that do not agree with the metadata."""
    if trace.is_run:
        return "copy it again from an intact copy, or replay the trace again"
    output = f"{trace.path.stem}-repaired.parquet"
    return f"repair it: {command_line('check', '--repair', trace.path, '-o', output)}"


def counts_by_op(trace: Trace) -> tuple[dict[str, int], dict[str, int]]:
    """I/Os and bytes by operation name."""
    ios, moved = dict.fromkeys(OPS, 0), dict.fromkeys(OPS, 0)
    for batch in trace.batches(["op", "length_bytes"]):
        op, length_bytes = batch["op"].to_numpy(), batch["length_bytes"].to_numpy()
        for name, code in OPS.items():
            ios[name] += int((op == code).sum())
            moved[name] += int(length_bytes[op == code].sum())
    return ios, moved


def has_workload_io(trace: Trace) -> bool:
    """Whether any I/O is marked as one of the workload. Reads up to the first."""
    return any((batch["flags"].to_numpy() & FLAGS["own"]).any() for batch in trace.batches(["flags"]))


def _check_schema(path: Location, schema: pa.Schema, metadata: Metadata) -> None:
    version = metadata.get("schema_version")
    if version is None and set(TRACE_SCHEMA.names) <= set(schema.names):
        raise TraceError(f"{path} has the columns of a trace, but not its metadata: the program that wrote it "
                         "dropped them",
                         "write it from Python: blkreel.write_trace(PATH, ROWS, like=ORIGINAL)")
    if version is None:
        raise TraceError(f"{path} is a Parquet file, but not a trace (no {KEY_PREFIX}schema_version)",
                         "name a trace made by `blkreel capture`")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise TraceError(f"{path} has trace version {version}; this blkreel reads up to {SCHEMA_VERSION}",
                         "update blkreel")
    missing = [name for name in TRACE_SCHEMA.names if name not in schema.names]
    if missing:
        raise TraceError(f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                         "the file was changed after it was written: record it again")
    twice = [name for name in COLUMN_TYPES if schema.names.count(name) > 1]
    if twice:
        raise TraceError(f"{path} has the column {twice[0]} several times",
                         "the file was changed after it was written: record it again")
    wrong = [f.name for f in schema if f.name in COLUMN_TYPES and f.type != COLUMN_TYPES[f.name]]
    if wrong:
        raise TraceError(f"{path} has column {wrong[0]} as {schema.field(wrong[0]).type}, "
                         f"not {COLUMN_TYPES[wrong[0]]}", "the file was changed after it was written: record it again")


def _damaged(path: Location, error: Exception) -> TraceError:
    if isinstance(error, PageLimitError):
        return TraceError(f"{path} {error}", "write the file again with data pages of 1 MiB")
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return TraceError(f"{path} is damaged ({reason})", "copy it again from an intact copy, or record it again")
