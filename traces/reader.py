"""Reading a trace or a run, and saying what is wrong with a file that is neither."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from .amended import amended
from .errors import TraceError
from .footer import MAGIC, Footer, FooterFirst, read_footer
from .places import Place, Url
from .schema import COLUMN_TYPES, KEY_PREFIX, OPS, SCHEMA_VERSION, TRACE_SCHEMA
from .shipped import located

RUN_RECORDS = "records.parquet"
TEST = "test.json"
_READ_BYTES = 256 << 10


@dataclass(frozen=True)
class Trace:
    """An open trace. metadata: the file's `blkreel.` keys, decoded, without the prefix; of a run, as amended later.

    memory: what was found out about the trace, for whoever asks again.
    """

    path: Place
    metadata: dict
    footer: Footer
    memory: dict = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        if isinstance(self.path, Url):
            # A range of a remote file costs a round trip, so the columns of a row group come in few large ones.
            return pq.ParquetFile(pa.PythonFile(FooterFirst(self.path, self.footer), mode="r"),
                                  page_checksum_verification=True, pre_buffer=True)
        # In small pieces: whole column chunks of a row group, as they are read otherwise, take tens of MiB.
        return pq.ParquetFile(self.path, page_checksum_verification=True, buffer_size=_READ_BYTES, pre_buffer=False)

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema_arrow

    @property
    def rows(self) -> int:
        return self._file.metadata.num_rows

    @property
    def group_rows(self) -> list[int]:
        """How many rows each row group has."""
        return [self._file.metadata.row_group(group).num_rows for group in range(self._file.metadata.num_row_groups)]

    @property
    def is_run(self) -> bool:
        """Whether these are the records of a replay, with due times and the run's account."""
        return "run" in self.metadata

    @cached_property
    def row_groups_at(self) -> list[int]:
        """Where each row group begins in the file, and where the last one ends."""
        places, end = [], len(MAGIC)
        for group in range(self._file.metadata.num_row_groups):
            chunks = [self._file.metadata.row_group(group).column(column)
                      for column in range(self._file.metadata.num_columns)]
            begins = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
            places.append(min(begins))
            end = max(begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True))
        return [*places, end]

    def only_value(self, column: str) -> int | None:
        """The value that a column has in all rows; None where it has several, or where the file does not tell."""
        index, values = self._file.schema_arrow.names.index(column), set()
        for group in range(self._file.metadata.num_row_groups):
            statistics = self._file.metadata.row_group(group).column(index).statistics
            if statistics is None or not statistics.has_min_max:
                return None
            values |= {statistics.min, statistics.max}
        return values.pop() if len(values) == 1 else None

    def batches(self, columns: list[str] | None = None, rows: int = 131_072,
                groups: range | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in submit order, at most `rows` at once, of all or some row groups. Raises TraceError at a damaged
        page."""
        try:
            if not isinstance(self.path, Url):
                yield from self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False,
                                                   row_groups=None if groups is None else list(groups))
                return
            # One row group at a time: what pyarrow fetched ahead it keeps until the next call.
            for group in range(self._file.metadata.num_row_groups) if groups is None else groups:
                yield from self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False,
                                                   row_groups=[group])
        except (OSError, pa.ArrowException) as error:
            raise _damaged(self.path, error) from error

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """All rows at once: about 80 bytes each. Raises TraceError at a damaged page."""
        try:
            return self._file.read(columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(self.path, error) from error


def open_trace(path) -> Trace:
    """Open a trace file, the records of a run directory, or a trace that ships (`sample:NAME`).

    path may be a URL (`s3://...`, places.py): of such a file only the ranges that are asked for are read.
    Raises TraceError, with the remedy, for a path that does not exist, is empty, is not Parquet, was cut off,
    is a Parquet file of something else, is damaged, or was written by a later version.
    """
    path = located(path)
    if isinstance(path, Url):
        if path.suffix != ".parquet" and (path / RUN_RECORDS).is_file():
            path = path / RUN_RECORDS
    elif path.is_dir():
        if not (path / RUN_RECORDS).is_file() and (path / TEST).is_file():
            raise TraceError(f"{path} is a test, of which each step is a run",
                             f"see it as a whole: blkreel report {path}; or name one: {path}/steps/NAME")
        if not (path / RUN_RECORDS).is_file():
            raise TraceError(f"{path} is a directory without {RUN_RECORDS}",
                             "name a trace file, or a directory that `blkreel replay -o` made")
        path = path / RUN_RECORDS
    footer = read_footer(path)
    try:
        whole = FooterFirst(path, footer) if isinstance(path, Url) else path
        with pq.ParquetFile(whole) as file:
            schema, raw = file.schema_arrow, file.metadata.metadata or {}
        metadata = {key.decode().removeprefix(KEY_PREFIX): json.loads(value)
                    for key, value in raw.items() if key.startswith(KEY_PREFIX.encode())}
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from error
    _check_schema(path, schema, metadata)
    return Trace(path, amended(path, metadata), footer)


def counts_by_op(trace: Trace) -> tuple[dict[str, int], dict[str, int]]:
    """I/Os and bytes by the name of the operation."""
    ios, moved = dict.fromkeys(OPS, 0), dict.fromkeys(OPS, 0)
    for batch in trace.batches(["op", "length_bytes"]):
        op, length_bytes = batch["op"].to_numpy(), batch["length_bytes"].to_numpy()
        for name, code in OPS.items():
            ios[name] += int((op == code).sum())
            moved[name] += int(length_bytes[op == code].sum())
    return ios, moved


def _check_schema(path, schema, metadata):
    version = metadata.get("schema_version")
    if version is None:
        raise TraceError(f"{path} is a Parquet file, but not a trace (no {KEY_PREFIX}schema_version)",
                         "name a trace made by `blkreel capture`")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise TraceError(f"{path} has trace version {version}; this blkreel reads up to {SCHEMA_VERSION}",
                         "update blkreel")
    missing = [name for name in TRACE_SCHEMA.names if name not in schema.names]
    if missing:
        raise TraceError(f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                         "it was changed after it was written: record it again")
    twice = [name for name in COLUMN_TYPES if schema.names.count(name) > 1]
    if twice:
        raise TraceError(f"{path} has the column {twice[0]} several times",
                         "it was changed after it was written: record it again")
    wrong = [f.name for f in schema if f.name in COLUMN_TYPES and f.type != COLUMN_TYPES[f.name]]
    if wrong:
        raise TraceError(f"{path} has column {wrong[0]} as {schema.field(wrong[0]).type}, "
                         f"not {COLUMN_TYPES[wrong[0]]}", "it was changed after it was written: record it again")


def _damaged(path, error) -> TraceError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return TraceError(f"{path} is damaged ({reason})", "copy it again from where it was whole, or record it again")
