"""Writes a trace: one Parquet file in submit order, which gets its final name when it is complete."""

import errno
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.errors import BlkreelError, OutputExists, TraceError
from blkreel.common.files.output_lock import new_output, refuse_in_use
from blkreel.common.files.safe_files import NewFile, refuse_missing_directory, refuse_special
from blkreel.common.limits import limit_reached

from .exposure import COLUMNS as EXPOSURE_COLUMNS
from .exposure import KEY as EXPOSURE
from .exposure import ExposureScan
from .integrity import COLUMNS as CHECKED_COLUMNS
from .integrity import KEY as INTEGRITY
from .integrity import RowChecksums
from .schema import (
    DELTA_COLUMNS,
    DICTIONARY_COLUMNS,
    FLAGS,
    KEY_PREFIX,
    OP_NAMES,
    SCHEMA_VERSION,
    TRACE_SCHEMA,
    UNKNOWN,
    Metadata,
)
from .trace_survey import COLUMNS as SURVEY_COLUMNS
from .trace_survey import SurveyBuilder

ROWS_PER_GROUP = 500_000  # which stay in memory until the group is written
_ROWS_PER_PAGE = 200_000
_PAGE_BYTES = 8 << 20
_PART_ROWS = 131_072
# Keys that the writer computes from the rows.
_OF_THE_ROWS = ("survey", "boundary", EXPOSURE, INTEGRITY)
_MOST_OUTSTANDING = 200_000  # in the key `boundary`; drives have a few thousand at a time


class TraceWriter:
    """Writes rows in order of `submit_ns`; Spool takes them in any order.

    `path` appears at close(); until then the rows are in `temporary`, on the same file system. inode: of the file, also
    after close(). owner: (user, group) of the file. mode: its permissions, else those of the umask. As a context
    manager it removes the temporary file unless close() was called. Raises OutputExists if `path` exists without
    `force`, OutputInUse while another command writes it, TraceError for rows out of order, BlkreelError if the disk is
    full.
    """

    def __init__(self, path: str | Path, schema: pa.Schema = TRACE_SCHEMA, *, force: bool = False,
                 temporary: Path | None = None, owner: tuple[int, int] | None = None,
                 mode: int | None = None):
        self.path = Path(path)
        self.rows = 0
        self._schema = schema
        self._gathered_rows = 0
        self._last_submit_ns: int | None = None
        self._outstanding = np.empty(0, np.int64)
        self._boundary: list[dict[str, Any]] | None = []
        self._boundary_ios = 0
        self._rows_per_group = ROWS_PER_GROUP
        # The rows of one group, copied: batches that stay in memory would be spread over a heap of temporary arrays,
        # which took twice their size. The kernel gives pages to those that are written only.
        self._gathered = {field.name: np.empty(self._rows_per_group, str(field.type)) for field in schema}
        # A run is rarely replayed, so its end should not take longer for a survey.
        self._survey = None if "due_ns" in schema.names else SurveyBuilder()
        self._exposure = ExposureScan()
        self._checksums = RowChecksums()
        self._groups_at: list[int] = []
        if temporary is None:
            refuse_output(self.path, force)
        else:
            refuse_existing(self.path, force)
        with output_errors(self.path):
            self._new = (new_output(self.path, force=force, owner=owner) if temporary is None else
                         NewFile(self.path, force=force, owner=owner, temporary=temporary))
        self._file = self._new.file
        if mode is not None:
            os.fchmod(self._file.fileno(), mode)
        self.inode = os.fstat(self._file.fileno()).st_ino
        # With checksums of pages: a flipped bit in a trace would be a write to the wrong offset of a drive.
        self._parquet = pq.ParquetWriter(
            self._file, schema, compression="zstd", compression_level=3, version="2.6", store_schema=False,
            use_dictionary=[name for name in [*DICTIONARY_COLUMNS, "length_bytes"] if name in schema.names],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in DELTA_COLUMNS if name in schema.names},
            data_page_size=_PAGE_BYTES, max_rows_per_page=_ROWS_PER_PAGE, write_page_index=True,
            write_page_checksum=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.abandon()

    def write(self, columns: dict[str, np.ndarray]) -> None:
        """Add rows. A missing column gets its UNKNOWN value; all columns have the same length."""
        arrays = _arrays_of(columns, self._schema)
        submit_ns = arrays["submit_ns"]
        if not len(submit_ns):
            return
        first = submit_ns[0] if self._last_submit_ns is None else self._last_submit_ns
        if submit_ns[0] < first or np.any(submit_ns[1:] < submit_ns[:-1]):
            raise TraceError(f"rows for {self.path} are not in order of submit_ns")
        self._last_submit_ns = submit_ns[-1]
        begin = 0
        while begin < len(submit_ns):
            count = min(len(submit_ns) - begin, self._rows_per_group - self._gathered_rows)
            for name, values in arrays.items():
                self._gathered[name][self._gathered_rows:self._gathered_rows + count] = values[begin:begin + count]
            self._gathered_rows += count
            begin += count
            # Each call of write_table makes a row group, and small row groups are expensive to read.
            if self._gathered_rows == self._rows_per_group:
                self._write_group()

    def close(self, metadata: Metadata) -> Path:
        """Write the remaining rows and the metadata (keys without prefix), and give the file its name."""
        with output_errors(self.path):
            if self._gathered_rows or not self.rows:
                self._write_group()
            groups_at = [*self._groups_at, self._file.tell()]
            stored = {
                "schema_version": SCHEMA_VERSION,
                "op_names": {str(code): name for code, name in OP_NAMES.items()},
                "flag_names": {str(bit): name for name, bit in FLAGS.items()},
                **{key: value for key, value in metadata.items() if key not in _OF_THE_ROWS},
                **({"boundary": self._boundary} if self._boundary is not None else {}),
                **self._checksums.metadata(groups_at),
                **self._exposure.metadata(groups_at),
                **(self._survey.metadata(groups_at) if self._survey else {}),
            }
            self._parquet.add_key_value_metadata({
                KEY_PREFIX + key: json.dumps(value, separators=(",", ":")) for key, value in stored.items()})
            self._parquet.close()
            self._new.publish()
        return self.path

    def abandon(self) -> None:
        """Remove the unfinished file. Does nothing after close()."""
        # Close the writer first: its destructor fails on a closed file.
        with suppress(OSError):
            self._parquet.close()
        self._new.abandon()

    def _write_group(self) -> None:
        count, self._gathered_rows = self._gathered_rows, 0
        group = pa.Table.from_arrays([pa.array(values[:count]) for values in self._gathered.values()],
                                     schema=self._schema)
        with output_errors(self.path):
            self._groups_at.append(self._file.tell())
            self._parquet.write_table(group, row_group_size=max(1, count))
        for begin in range(0, count, _PART_ROWS):  # in parts, since each step takes as much memory again
            part = group.slice(begin, _PART_ROWS)
            self._checksums.add({name: part[name].chunks for name in CHECKED_COLUMNS})
            self._note_outstanding(part["submit_ns"].to_numpy(), part["latency_ns"].to_numpy(),
                                   is_group_start=not begin)
            self._exposure.add({name: part[name].to_numpy() for name in EXPOSURE_COLUMNS})
            if self._survey:
                self._survey.add({name: part[name].to_numpy() for name in SURVEY_COLUMNS})
        self.rows += count

    def _note_outstanding(self, submit_ns: np.ndarray, latency_ns: np.ndarray, *, is_group_start: bool) -> None:
        """Record the completions of I/Os that are outstanding when a row group starts, unless they are too many.

        With them, busy time and depth of each row group can be computed separately and added up.
        """
        if self._boundary is None:
            return
        carried = self._outstanding[self._outstanding > submit_ns[0]]
        if is_group_start:
            self._boundary.append({"row": self.rows, "outstanding_complete_ns": np.sort(carried).tolist()})
            self._boundary_ios += len(carried)
        complete_ns = np.concatenate([carried, (submit_ns + latency_ns)[latency_ns >= 0]])
        self._outstanding = complete_ns[complete_ns > submit_ns[-1]]
        if self._boundary_ios + len(self._outstanding) > _MOST_OUTSTANDING:
            self._boundary, self._outstanding = None, np.empty(0, np.int64)


def table_of(columns: dict[str, np.ndarray], schema: pa.Schema) -> pa.Table:
    """A table of `schema`; missing columns get their UNKNOWN value. Raises ValueError for an unknown column."""
    return pa.Table.from_arrays([pa.array(values) for values in _arrays_of(columns, schema).values()], schema=schema)


def _arrays_of(columns: dict[str, np.ndarray], schema: pa.Schema) -> dict[str, np.ndarray]:
    extra = set(columns) - set(schema.names)
    if extra:
        raise ValueError(f"no such trace column: {', '.join(sorted(extra))}")
    count = len(next(iter(columns.values())))
    return {field.name: np.asarray(columns[field.name], str(field.type)) if field.name in columns
            else np.full(count, UNKNOWN[field.name], str(field.type)) for field in schema}


def refuse_existing(path: Path, force: bool) -> None:
    """Raise OutputExists or BlkreelError early for an output that could not get its name at the end."""
    refuse_special(path)
    if os.path.lexists(path) and not force:
        raise OutputExists(path)
    with output_errors(path):
        refuse_missing_directory(path)


def refuse_output(path: Path, force: bool) -> None:
    """As refuse_existing(); also, with `force` too, raise OutputInUse for an output that is being written."""
    refuse_in_use(path)
    refuse_existing(path, force)


def output_error(path: str | Path, error: OSError) -> BlkreelError:
    """The error for an output that cannot be written."""
    if isinstance(error, BlkreelError):
        return error
    if limit := limit_reached(error):
        return limit
    if error.errno == errno.ENOSPC or "No space left" in str(error):
        # A directory that the command made may be removed again, its mount point is not.
        mount = next(parent for parent in Path(path).resolve().parents if parent.is_mount())
        return BlkreelError(f"no space left for {path}",
                            f"free some space (df -h {shlex.quote(str(mount))}) or name another output")
    return BlkreelError(f"cannot write {path}: {error.strerror or error}",
                        "check the directory, or name another output")


@contextmanager
def output_errors(path: str | Path) -> Iterator[None]:
    """Turns an OSError into an error that names the output."""
    try:
        yield
    except OSError as error:
        raise output_error(path, error) from error
