"""Writing a trace: one Parquet file, in submit order, under its final name only when it is whole."""

import errno
import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .errors import BlkreelError, OutputExists, TraceError
from .outline import COLUMNS as OUTLINED
from .outline import KeptOutline
from .schema import (
    DELTA_COLUMNS,
    DICTIONARY_COLUMNS,
    FLAGS,
    KEY_PREFIX,
    OP_NAMES,
    SCHEMA_VERSION,
    TRACE_SCHEMA,
    UNKNOWN,
)

ROWS_PER_GROUP = 1_000_000
# They are in memory until their group is written, and a run's are wider and written while much else is held.
RUN_ROWS_PER_GROUP = 500_000
_ROWS_PER_PAGE = 200_000
_PAGE_BYTES = 8 << 20


class TraceWriter:
    """Writes rows that come in order of `submit_ns`; Spool takes them in any order.

    Nothing stands under `path` before close(); until then the rows are in `temporary`, on the same file
    system, and `inode` is what the file will keep. As a context manager it removes its temporary file
    when the block ends by an exception or without close(). Raises OutputExists where `path` exists and
    `force` is not given, TraceError for rows out of order, BlkreelError when the disk is full.
    """

    def __init__(self, path, schema: pa.Schema = TRACE_SCHEMA, *, force: bool = False,
                 temporary: Path | None = None):
        self.path = Path(path)
        self.rows = 0
        self._schema = schema
        self._force = force
        self._gathered: list[pa.Table] = []
        self._gathered_rows = 0
        self._last_submit_ns = None
        self._outstanding = np.empty(0, np.int64)
        self._boundary: list[dict] = []
        is_run = "due_ns" in schema.names
        self._rows_per_group = RUN_ROWS_PER_GROUP if is_run else ROWS_PER_GROUP
        # A run is seldom replayed itself, and its end should not take longer for that.
        self._outline = None if is_run else KeptOutline()
        self._groups_at: list[int] = []
        refuse_existing(self.path, force)
        self._temporary = temporary or self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with _disk_errors(self.path):
            self._file = open(self._temporary, "wb")
        self.inode = os.fstat(self._file.fileno()).st_ino
        self._parquet = pq.ParquetWriter(
            self._file, schema, compression="zstd", compression_level=3, version="2.6", store_schema=False,
            use_dictionary=[name for name in [*DICTIONARY_COLUMNS, "length_bytes"] if name in schema.names],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in DELTA_COLUMNS if name in schema.names},
            data_page_size=_PAGE_BYTES, max_rows_per_page=_ROWS_PER_PAGE, write_page_index=True,
            write_page_checksum=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.abandon()

    def write(self, columns: dict[str, np.ndarray]) -> None:
        """Add rows. A column that is not given holds its UNKNOWN value; all have the same length."""
        table = table_of(columns, self._schema)
        if table.num_rows == 0:
            return
        submit_ns = table["submit_ns"].to_numpy()
        first = submit_ns[0] if self._last_submit_ns is None else self._last_submit_ns
        if submit_ns[0] < first or np.any(submit_ns[1:] < submit_ns[:-1]):
            raise TraceError(f"rows for {self.path} are not in order of submit_ns")
        self._last_submit_ns = submit_ns[-1]
        self._gathered.append(table)
        self._gathered_rows += table.num_rows
        # A call of write_table makes a row group: small ones cost readers more than the rows themselves.
        while self._gathered_rows >= self._rows_per_group:
            self._write_group(self._rows_per_group)

    def close(self, metadata: dict) -> Path:
        """Write what is gathered and the metadata (keys without prefix), and give the file its name."""
        with _disk_errors(self.path):
            if self._gathered_rows or not self.rows:
                self._write_group(self._gathered_rows)
            self._parquet.add_key_value_metadata(_encode_metadata({
                "schema_version": SCHEMA_VERSION,
                "op_names": {str(code): name for code, name in OP_NAMES.items()},
                "flag_names": {str(bit): name for name, bit in FLAGS.items()},
                **{key: value for key, value in metadata.items() if key != "survey"},
                "boundary": self._boundary,
                **(self._outline.metadata([*self._groups_at, self._file.tell()]) if self._outline else {}),
            }))
            self._parquet.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            publish(self._temporary, self.path, self._force)
        return self.path

    def abandon(self) -> None:
        """Remove the unfinished file. Does nothing after close()."""
        self._temporary.unlink(missing_ok=True)
        # Closed first, or its destructor complains of the closed file.
        with suppress(OSError):
            self._parquet.close()
        with suppress(OSError):  # a full disk has been told already
            self._file.close()

    def _write_group(self, count):
        table = pa.concat_tables(self._gathered) if self._gathered else self._schema.empty_table()
        # In the pieces that they came in: joined, they would be in memory twice.
        group, rest = table.slice(0, count), table.slice(count)
        self._gathered = [rest] if rest.num_rows else []
        self._gathered_rows = rest.num_rows
        with _disk_errors(self.path):
            self._groups_at.append(self._file.tell())
            self._parquet.write_table(group, row_group_size=max(1, count))
        self.rows += count
        self._note_boundary(group)
        if self._outline and count:
            self._outline.add({name: group[name].to_numpy() for name in OUTLINED})

    def _note_boundary(self, group):
        """Which I/Os of earlier row groups were outstanding when this one starts.

        With their completions, busy time and depth of each row group can be computed by itself and added up.
        """
        if not group.num_rows:
            return
        submit_ns, latency_ns = group["submit_ns"].to_numpy(), group["latency_ns"].to_numpy()
        carried = self._outstanding[self._outstanding > submit_ns[0]]
        self._boundary.append({"row": self.rows - group.num_rows,
                               "outstanding_complete_ns": np.sort(carried).tolist()})
        complete_ns = np.concatenate([carried, (submit_ns + latency_ns)[latency_ns >= 0]])
        self._outstanding = complete_ns[complete_ns > submit_ns[-1]]


def table_of(columns: dict[str, np.ndarray], schema: pa.Schema) -> pa.Table:
    """A table of `schema` from arrays; missing columns take their UNKNOWN value.

    Raises ValueError for a column that the schema does not have.
    """
    extra = set(columns) - set(schema.names)
    if extra:
        raise ValueError(f"no such trace column: {', '.join(sorted(extra))}")
    count = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            values = np.full(count, UNKNOWN[field.name], field.type.to_pandas_dtype())
        arrays.append(pa.array(np.asarray(values, field.type.to_pandas_dtype())))
    return pa.Table.from_arrays(arrays, schema=schema)


def refuse_existing(path: Path, force: bool) -> None:
    """Raise before work is done for an output that could not be given its name at the end."""
    if path.exists() and not force:
        raise OutputExists(path)
    if not path.parent.is_dir():
        raise BlkreelError(f"{path.parent} is not a directory", f"mkdir -p {path.parent}")


def publish(temporary: Path, path: Path, force: bool) -> None:
    """Give a whole file its final name; never over a file that appeared meanwhile, unless forced."""
    if force:
        temporary.replace(path)
        return
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise OutputExists(path) from None
    except OSError as error:
        # File systems without hard links (exFAT, some network mounts).
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        refuse_existing(path, force)
        temporary.rename(path)
        return
    temporary.unlink()


class _disk_errors:
    """Turns a full disk and a refused directory into an error that names the output."""

    def __init__(self, path):
        self._path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, OSError):
            raise output_error(self._path, error) from error


def output_error(path, error: OSError) -> BlkreelError:
    """What to tell a user whose output can't be written."""
    if isinstance(error, BlkreelError):
        return error
    if error.errno == errno.ENOSPC or "No space left" in str(error):
        return BlkreelError(f"no space left for {path}",
                            f"free some (df -h {Path(path).parent}) or name another output")
    return BlkreelError(f"cannot write {path}: {error.strerror or error}",
                        "check the directory, or name another output")


def _encode_metadata(metadata: dict) -> dict[str, str]:
    return {KEY_PREFIX + key: json.dumps(value, separators=(",", ":")) for key, value in metadata.items()}
