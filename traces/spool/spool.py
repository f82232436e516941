"""The spool: crash-safe storage of rows until they become a Parquet trace.

A Parquet file without its footer is unreadable, so a capture that dies would lose everything. The spool is a file of
blocks (blocks.py), readable up to its last complete one; finish() sorts it into the trace. A helper writes its blocks
into that file itself, so that rows cost Python no time and survive its death.
"""

import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Required

import numpy as np
import pyarrow as pa

from blkreel.common.errors import BlkreelError, TraceError
from blkreel.common.files.json_file import write_json
from blkreel.common.files.output_lock import spool_of, take_lock
from blkreel.common.files.safe_files import Layout, create, make_directory, open_own, remove_directory
from blkreel.common.files.typed_document import read_json
from blkreel.traces.format.metadata_types import TraceMetadata, wrong_metadata
from blkreel.traces.format.schema import (
    COLUMN_TYPES,
    COMPRESSED_RUN_SCHEMA,
    OPTIONAL_COLUMNS,
    RUN_SCHEMA,
    TRACE_SCHEMA,
    Metadata,
    layout_of,
)
from blkreel.traces.format.writer import (
    TraceWriter,
    output_error,
    output_errors,
    refuse_existing,
    refuse_output,
    table_of,
)

from .block_file import BlockFile
from .blocks import NOTE, ROWS, BlockWriter
from .causes import OP_USE, OP_WAKE
from .contents import ROWS_FILE, SpoolContents
from .notes import Note, SpoolNotes

# A row of a run takes 80 bytes here, and up to half of that in the trace; the rest is for metadata and footers.
_RESERVE_SHARE = 2  # rows_bytes / _RESERVE_SHARE are reserved
_RESERVE_LEAST_BYTES = 256 << 10
RESERVE_GROWTH = 9 / 8  # it grows by more than it must, and so less often
_RESERVE_FILE, _METADATA_FILE, _TRACE_FILE, _COPY_FILE = "reserve", "metadata.json", "trace.parquet", "copy.parquet"
# All names in a spool directory, in the order of their removal; blktrace/ holds the files of the blktrace command.
# The metadata is last: it tells that the trace has its name.
LAYOUT: Layout = {f".{_METADATA_FILE}.*.tmp": None, "blktrace": {"*.blktrace.*": None}, _RESERVE_FILE: None,
                  _TRACE_FILE: None, _COPY_FILE: None, ROWS_FILE: None, _METADATA_FILE: None}
PRIVATE_MODE = 0o600
_FLUSH_ROWS = 65_536
_FLUSH_AFTER_S = 0.5  # a kill loses less than a second of rows
_HELPER_EXIT_S = 3.0  # a helper whose parent was killed still writes its last rows
_CUT = "recovered after its writer died: the last rows may be missing"
# Modes of fallocate(2).
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_GRAIN_BYTES = 64 << 10  # at least the block size of any file system: only complete blocks are freed

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class _SpoolMetadata(TraceMetadata, total=False):
    spool_columns: Required[list[str]]
    spool_public: bool
    spool_whole: bool
    spool_begin_bytes: int
    spool_held_from_ns: int
    spool_origin_ns: int
    spool_trace_inode: int | None


def reserve_bytes(rows_bytes: int) -> int:
    """The space that is reserved at least for the trace of these rows."""
    return rows_bytes // _RESERVE_SHARE + _RESERVE_LEAST_BYTES


class Spool:
    """Takes rows in any order; finish() sorts them and gives the trace its final name.

    The spool is the directory `.NAME.spool` beside the output; recover() finishes one that was left behind.
    rows_file: the block stream, written by a helper or by append(). begin_bytes: start of the rows
    that were not dropped. reserve_file: reserves disk space for the trace. A child inherits both files.
    owner: (user, group) of the trace. public: whether other users may read it, as far as the umask lets them; a
    recording has names of programs and files. Raises OutputExists, OutputInUse while another command writes the output,
    or BlkreelError if the disk is full: rows appended before can still be finished.
    """

    def __init__(self, output: str | Path, schema: pa.Schema, metadata: Metadata, *, force: bool = False,
                 owner: tuple[int, int] | None = None, public: bool = False):
        self.output = Path(output)
        self.rows = 0
        self.begin_bytes = 0
        self._schema = schema
        self._force = force
        self._owner = owner
        self._metadata = {**metadata, "spool_public": public}
        self._writer: BlockWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._flushed_at = time.monotonic()
        self._reserved_bytes = 0
        refuse_output(self.output, force)
        self.directory = spool_of(self.output)
        if os.path.lexists(self.directory):
            _refuse_or_clear(self.directory, self.output, force)
        with output_errors(self.output):
            make_directory(self.directory, 0o700)
            self.rows_file = create(self.directory / ROWS_FILE)
            self.reserve_file = create(self.directory / _RESERVE_FILE)
            take_lock(self.output, self.rows_file.fileno())
            self._save_metadata()

    @property
    def columns(self) -> list[str]:
        """Names of the columns of its trace."""
        return list(self._schema.names)

    def append(self, columns: dict[str, np.ndarray]) -> None:
        """Add rows, as TraceWriter.write takes them, but in any order."""
        table = table_of(columns, self._schema)
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self.rows += table.num_rows
        if self._waiting_rows >= _FLUSH_ROWS or time.monotonic() - self._flushed_at > _FLUSH_AFTER_S:
            self.flush()

    def write(self, columns: dict[str, np.ndarray]) -> None:
        """Write rows to the file at once; if this raises, none of them were written.

        Reserves the space that the trace will take, so that a full disk fails here and not in finish().
        """
        table = table_of(columns, self._schema)
        self.flush()
        self._keep_reserve(self.rows_file.tell() + table.nbytes)
        self._write(lambda writer: writer.rows({name: table[name].to_numpy() for name in table.column_names}))
        self.rows += table.num_rows

    def note(self, metadata: Metadata) -> None:
        """Merge into the metadata that a recovered trace would have."""
        self._metadata.update(metadata)
        with output_errors(self.output):
            self._save_metadata()

    def flush(self) -> None:
        """Write the gathered rows to the file: they then survive the death of this process."""
        if self._waiting_rows:
            table = pa.concat_tables(self._waiting).combine_chunks()
            self._write(lambda writer: writer.rows({name: table[name].to_numpy() for name in table.column_names}))
        self._waiting, self._waiting_rows = [], 0
        self._flushed_at = time.monotonic()

    def metadata(self, key: str) -> Any:
        return self._metadata[key]

    def written_bytes(self) -> int:
        """Length of the row file; the last block may be incomplete while a helper writes."""
        return os.fstat(self.rows_file.fileno()).st_size

    def refuse_without_holes(self) -> None:
        """Raise BlkreelError if drop_head() cannot free space."""
        # Tried after the end of the file, where no data is.
        if _punch(self.rows_file.fileno(), self.written_bytes(), _GRAIN_BYTES) == errno.EOPNOTSUPP:
            raise BlkreelError(f"the file system of {self.output.parent.resolve()} cannot free the beginning of a file",
                               "put the output on ext4, xfs, btrfs or tmpfs, or give neither --keep nor --max-size")

    def drop_head(self, until_bytes: int, note: Callable[[int], Metadata]) -> None:
        """Drop complete blocks up to this offset, keeping the names in them.

        note: makes the metadata about it from the number of dropped rows.
        """
        notes = SpoolNotes(self._metadata.get("threads"), self._metadata.get("files"))
        rows, begin_bytes = 0, self.begin_bytes
        with _in_place(self.directory), BlockFile(self.directory / ROWS_FILE, begin_bytes) as blocks:
            for block in blocks.blocks(until_bytes):
                self.begin_bytes = block.end_bytes
                if block.kind == ROWS:
                    rows += int((~np.isin(blocks.rows_of(block)["op"], (OP_USE, OP_WAKE))).sum())
                elif block.kind == NOTE:
                    notes.take({**blocks.json(block, Note)})
            layout_bytes = blocks.layout_bytes
        # Saved first: a recovery must not look for blocks in a hole.
        self.note({**notes.begun, **notes.metadata(), **note(rows), "spool_begin_bytes": self.begin_bytes})
        with output_errors(self.output):
            _free_head(self.rows_file.fileno(), layout_bytes, begin_bytes, self.begin_bytes)

    def save_copy(self, path: Path, metadata: Metadata) -> Path:
        """Write a trace of the rows so far and continue. Returns its path."""
        self.flush()
        with _in_place(self.directory):
            contents = SpoolContents(self.directory, self._schema, {**self._metadata, **metadata})
            with TraceWriter(path, contents.schema, temporary=self.directory / _COPY_FILE, owner=self._owner,
                             mode=_mode(self._metadata)) as writer:
                _write_rows(contents, writer)
                writer.close(contents.metadata())
        return path

    def finish(self, metadata: Metadata) -> Path:
        """Sort the rows into the trace, give it its name, remove the spool. Returns the trace's path.

        If the disk is full, the spool stays: `blkreel recover` finishes it when there is space.
        """
        self.flush()
        threads = {**self._metadata.get("threads", {}), **metadata.get("threads", {})}
        self._metadata.update(metadata | ({"threads": threads} if threads else {}) | {"spool_whole": True})
        with suppress(OSError):  # on a full disk the metadata saved before stays
            self._save_metadata()
        try:
            with _in_place(self.directory):
                return _finish(self.directory, self.output, self._metadata, self._schema, self._force, self._owner)
        finally:
            self._close()

    def discard(self) -> None:
        """Remove the spool without writing a trace."""
        self._close()
        with suppress(OSError, BlkreelError):
            remove_directory(self.directory, LAYOUT)

    def _keep_reserve(self, rows_bytes: int) -> None:
        wanted = reserve_bytes(rows_bytes)
        if wanted <= self._reserved_bytes:
            return
        wanted = int(wanted * RESERVE_GROWTH)
        try:
            os.posix_fallocate(self.reserve_file.fileno(), 0, wanted)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise output_error(self.output, error) from error
        self._reserved_bytes = wanted

    def _write(self, write: Callable[[BlockWriter], None]) -> None:
        whole_bytes = self.rows_file.tell()
        try:
            if self._writer is None:
                self._writer = BlockWriter(self.rows_file, "spool", layout_of(self._schema),
                                           checksums=True)
            write(self._writer)
        except OSError as error:
            # The rest of an incomplete block would hide everything written after it.
            self.rows_file.truncate(whole_bytes)
            self.rows_file.seek(whole_bytes)
            raise output_error(self.output, error) from error

    def _close(self) -> None:
        self.rows_file.close()
        self.reserve_file.close()

    def _save_metadata(self) -> None:
        if not self.directory.is_dir():
            return  # moved, with what was saved before; writing would make another one
        _write_metadata(self.directory, {**self._metadata, "spool_columns": self._schema.names})


def recover(output: str | Path, *, force: bool = False,
            ended: Callable[[Any, Metadata], Mapping[str, Any]] | None = None,
            recounted: Callable[[Iterator[pa.RecordBatch], Any], Any] | None = None) -> Path:
    """Finish the spool that a capture or replay left behind. Returns the trace's path.

    ended: makes metadata of the writer's totals, if it finished, and of the metadata so far.
    recounted: makes the account of a replay that was killed of its rows and of the account that it stored before.
    Raises TraceError if there is no spool, OutputInUse if its writer is still running.
    """
    output = Path(output)
    directory = output if output.name.endswith(".spool") else spool_of(output)
    if directory is output:
        output = output.with_name(output.name.removeprefix(".").removesuffix(".spool"))
    if directory.is_symlink() or not directory.is_dir():
        raise TraceError(f"nothing to recover for {output}: there is no {directory}",
                         "name the output that the capture or replay was given")
    if not os.path.lexists(directory / ROWS_FILE):
        if not output.exists():
            raise _no_rows(directory)
        remove_directory(directory, LAYOUT)  # its writer died while it did so
        return output
    metadata, schema = _spool_metadata(directory)
    with open(open_own(directory / ROWS_FILE, os.O_RDONLY), "rb") as file:
        take_lock(output, file.fileno(), _HELPER_EXIT_S)
        if _is_published(output, metadata):
            remove_directory(directory, LAYOUT)
            return output
        refuse_existing(output, force)
        contents = SpoolContents(directory, schema, metadata)
        if not contents.has_layout:
            raise _no_rows(directory)
        metadata = {**contents.metadata(), **metadata, "recovered": True}
        warnings = metadata.get("import_warnings", [])
        if contents.end is not None and ended is not None:
            metadata |= ended(contents.end, metadata)
            warnings = [*metadata.get("import_warnings", []), *warnings]
        elif not metadata.get("spool_whole"):
            warnings = [*warnings, _CUT]
            if "run" in metadata and recounted is not None:
                metadata["run"] = recounted(contents.batches(), metadata["run"])
            elif "run" not in metadata:
                metadata["ledger"] = {"missing": [_CUT]}
        if contents.damaged_bytes:
            warnings = [*warnings, f"{contents.damaged_bytes:,} damaged bytes of {directory / ROWS_FILE} were skipped: "
                                   "the I/Os and names in them are missing"]
        if warnings:
            metadata["import_warnings"] = warnings
        return _finish(directory, output, metadata, schema, force)


def _no_rows(directory: Path) -> TraceError:
    return TraceError(f"{directory} holds no rows: its writer died before the first one, or their layout is damaged",
                      "record it again, with --force")


@contextmanager
def _in_place(directory: Path) -> Iterator[None]:
    """Raises BlkreelError if the directory is not there any more."""
    try:
        yield
    except FileNotFoundError:
        raise BlkreelError(f"{directory} was moved or removed during the recording", "move it back") from None


def _finish(directory: Path, output: Path, metadata: Metadata, schema: pa.Schema, force: bool,
            owner: tuple[int, int] | None = None) -> Path:
    # Truncated and not only removed: a process that has it open would keep its space.
    with suppress(FileNotFoundError), open(open_own(directory / _RESERVE_FILE, os.O_WRONLY), "wb") as reserve:
        reserve.truncate(0)
    contents = SpoolContents(directory, schema, metadata)
    with TraceWriter(output, contents.schema, force=force, temporary=directory / _TRACE_FILE, owner=owner,
                     mode=_mode(metadata)) as writer:
        _write_rows(contents, writer)
        try:
            _note_trace(directory, writer.inode)
            writer.close(contents.metadata())
        except BaseException:
            _note_trace(directory, None)
            raise
    remove_directory(directory, LAYOUT)
    return output


def _mode(metadata: Metadata) -> int | None:
    return None if metadata.get("spool_public") else PRIVATE_MODE


def _write_rows(contents: SpoolContents, writer: TraceWriter) -> None:
    with output_errors(writer.path):
        contents.write_rows(writer)


def _spool_metadata(directory: Path) -> tuple[Metadata, pa.Schema]:
    """The metadata of a spool that was left behind, and the schema of its trace."""
    try:
        metadata: Metadata = {**read_json(directory / _METADATA_FILE, _SpoolMetadata)}
        columns = [(name, COLUMN_TYPES[name]) for name in metadata["spool_columns"]]
        if wrong := wrong_metadata(metadata):
            raise ValueError(wrong)
        names = {name for name, _ in columns}
        if not (set(TRACE_SCHEMA.names) <= names and _names_of_rows(directory) - set(OPTIONAL_COLUMNS) <= names
                and len(names) == len(columns)):
            raise ValueError("not the columns of the rows")
        if metadata.get("spool_begin_bytes", 0) > (directory / ROWS_FILE).stat().st_size:
            raise ValueError("the rows begin after their end")
        if abs(metadata.get("spool_origin_ns", 0)) >= 1 << 62:
            raise ValueError("no time")
    except (OSError, ValueError, KeyError):
        # The rows hold the columns, the threads and, of a helper, the beginning and the ledger.
        metadata = {"import_warnings": ["the metadata of the spool was lost: devices, command and machine are unknown"]}
        schema = _schema_of_rows(directory)
        _write_metadata(directory, {**metadata, "spool_columns": schema.names})
        return metadata, schema
    return metadata, pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


def _schema_of_rows(directory: Path) -> pa.Schema:
    """That of a run if the rows have its columns, else that of a trace."""
    names = _names_of_rows(directory)
    schemas = (COMPRESSED_RUN_SCHEMA, RUN_SCHEMA)
    return next((schema for schema in schemas if names >= set(schema.names)), TRACE_SCHEMA)


def _names_of_rows(directory: Path) -> set[str]:
    with BlockFile(directory / ROWS_FILE) as blocks:
        return {name for name, _ in blocks.columns or []}


def _note_trace(directory: Path, inode: int | None) -> None:
    """Save the trace's inode: a kill between naming the trace and removing the spool leaves both."""
    path = directory / _METADATA_FILE
    with suppress(OSError):  # a full disk: the trace does not get its name either
        _write_metadata(directory, {**read_json(path, _SpoolMetadata), "spool_trace_inode": inode})


def _write_metadata(directory: Path, metadata: Metadata) -> None:
    # Flushed: after a power cut a rename without it may leave an empty file.
    write_json(directory / _METADATA_FILE, metadata, indent=None)


def _is_published(output: Path, metadata: Metadata) -> bool:
    try:
        return bool(output.stat().st_ino == metadata.get("spool_trace_inode"))
    except OSError:
        return False


def _refuse_or_clear(directory: Path, output: Path, force: bool) -> None:
    """For the spool of a command that died: refuse_output() has found that no process has its lock."""
    if not force:
        raise BlkreelError(f"an unfinished {output} was left by a command that died",
                           f"finish it with: blkreel recover {output}, or add --force to discard it")
    if not remove_directory(directory, LAYOUT):
        raise BlkreelError(f"{directory} is a link or holds files that blkreel did not make",
                           f"look at them, and move them away: ls -la {directory}")


def _free_head(fd: int, keep_bytes: int, begin_bytes: int, end_bytes: int) -> None:
    """Free begin to end. Everything before begin, except the first keep_bytes, is free already. Raises OSError."""
    begin_bytes = max(keep_bytes, begin_bytes // _GRAIN_BYTES * _GRAIN_BYTES)
    if end_bytes > begin_bytes:
        code = _punch(fd, begin_bytes, end_bytes - begin_bytes)
        if code:
            raise OSError(code, os.strerror(code))


def _punch(fd: int, offset_bytes: int, length_bytes: int) -> int:
    failed = _libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset_bytes, length_bytes)
    return ctypes.get_errno() if failed else 0
