"""Rows on their way to a trace: kept safe as they come, made into Parquet at the end.

A Parquet file without its footer is unreadable, so a capture that dies would lose everything. The spool
is a file of blocks (blocks.py), readable up to its last whole one; finish() sorts it into the trace. A helper
writes its blocks into that file itself, so that rows cost Python nothing and outlive it.
"""

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from .block_file import BlockFile
from .blocks import NOTE, BlockWriter
from .errors import BlkreelError, TraceError
from .holes import can_punch, punch_head
from .schema import COLUMN_TYPES, layout_of
from .spool_notes import SpoolNotes
from .spooled import ROWS_FILE, Spooled
from .writer import TraceWriter, output_error, refuse_existing, table_of

# A row of a run takes 80 bytes here, and up to half of that in the trace; the rest is for metadata and footers.
_RESERVE_SHARE = 2
_RESERVE_LEAST_BYTES = 256 << 10
_RESERVE_FILE, _METADATA_FILE, _TRACE_FILE = "reserve", "metadata.json", "trace.parquet"
_FLUSH_ROWS = 65_536
_FLUSH_AFTER_S = 0.5  # a kill loses less than a second of rows
_LAST_WORDS_S = 3.0  # a helper whose parent was killed writes its last rows
_CUT = "it was recovered after its writer died: what came last may be missing"


class Spool:
    """Takes rows in any order of submission; finish() gives the trace its final name.

    Stands in the directory `.NAME.spool` beside the output; recover() finishes one that was left behind.
    rows_file: where a helper writes the whole stream, layout first; append() and write_note() write it from here.
    begin_bytes: where the rows begin that are still held.
    reserve_file: holds space for the trace while the rows fill the disk. Both are for a child to inherit.
    Raises OutputExists, or BlkreelError when the disk is full: what was appended before stays finishable.
    """

    def __init__(self, output, schema: pa.Schema, metadata: dict, *, force: bool = False):
        self.output = Path(output)
        self.rows = 0
        self.begin_bytes = 0
        self._schema = schema
        self._force = force
        self._metadata = dict(metadata)
        self._writer: BlockWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._flushed_at = time.monotonic()
        self._reserved_bytes = 0
        refuse_existing(self.output, force)
        self.directory = spool_of(self.output)
        if self.directory.exists():
            _refuse_or_clear(self.directory, self.output, force)
        try:
            self.directory.mkdir()
            self.rows_file = open(self.directory / ROWS_FILE, "wb", buffering=0)
            self.reserve_file = open(self.directory / _RESERVE_FILE, "wb", buffering=0)
            _lock(self.rows_file, 0)
            self._save_metadata()
        except OSError as error:
            raise output_error(self.output, error) from error

    def append(self, columns: dict[str, np.ndarray]) -> None:
        """Add rows, as TraceWriter.write takes them, but in any order."""
        table = table_of(columns, self._schema)
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self.rows += table.num_rows
        if self._waiting_rows >= _FLUSH_ROWS or time.monotonic() - self._flushed_at > _FLUSH_AFTER_S:
            self.flush()

    def write(self, columns: dict[str, np.ndarray]) -> None:
        """Add rows, and hand them to the kernel at once; none of them are in where this raises.

        Keeps as much free beside them as the trace will take: a full disk ends this, and not finish().
        """
        table = table_of(columns, self._schema)
        self.flush()
        self._keep_reserve(self.rows_file.tell() + table.nbytes)
        self._write(lambda writer: writer.rows({name: table[name].to_numpy() for name in table.column_names}))
        self.rows += table.num_rows

    def write_note(self, fields: dict) -> None:
        """Put a note beside the rows: {"note": "threads" or "files", ...} as spool_notes.py reads it."""
        self._write(lambda writer: writer.note(fields))

    def note(self, metadata: dict) -> None:
        """Merge into the metadata that a recovered trace would carry."""
        self._metadata.update(metadata)
        try:
            self._save_metadata()
        except OSError as error:
            raise output_error(self.output, error) from error

    def flush(self) -> None:
        """Hand the gathered rows to the kernel: from here on they survive the death of this process."""
        if self._waiting_rows:
            table = pa.concat_tables(self._waiting).combine_chunks()
            self._write(lambda writer: writer.rows({name: table[name].to_numpy() for name in table.column_names}))
        self._waiting, self._waiting_rows = [], 0
        self._flushed_at = time.monotonic()

    def metadata(self, key: str):
        """What was noted under this key."""
        return self._metadata[key]

    def written_bytes(self) -> int:
        """Length of the rows; its last block may be cut, while a helper writes it."""
        return os.fstat(self.rows_file.fileno()).st_size

    def refuse_without_holes(self) -> None:
        """Raise where drop_head() cannot give space back."""
        if not can_punch(self.rows_file.fileno()):
            raise BlkreelError(f"the file system of {self.output.parent.resolve()} cannot free the beginning of a file",
                               "put the output on ext4, xfs, btrfs or tmpfs, or give neither --keep nor --max-size")

    def drop_head(self, until_bytes: int, note: Callable[[int], dict]) -> int:
        """Forget whole blocks up to there, but for the names in them. Returns how many rows that were.

        note: what to note about it, given that number.
        """
        notes = SpoolNotes(self._metadata.get("threads"), self._metadata.get("files"))
        rows, begin_bytes = 0, self.begin_bytes
        with BlockFile(self.directory / ROWS_FILE, begin_bytes) as blocks:
            for block in blocks.blocks(until_bytes):
                self.begin_bytes = block.end_bytes
                rows += block.rows
                if block.kind == NOTE:
                    notes.take(blocks.json(block))
            layout_bytes = blocks.layout_bytes
        # Noted first: whoever recovers must not look for blocks in a hole.
        self.note({**notes.begun, **notes.metadata(), **note(rows), "spool_begin_bytes": self.begin_bytes})
        try:
            punch_head(self.rows_file.fileno(), layout_bytes, begin_bytes, self.begin_bytes)
        except OSError as error:
            raise output_error(self.output, error) from error
        return rows

    def save_copy(self, path: Path, metadata: dict) -> Path:
        """Make a trace of what is here by now, and go on. Returns its path."""
        self.flush()
        held = Spooled(self.directory, self._schema, {**self._metadata, **metadata})
        with TraceWriter(path, held.schema) as writer:
            _write_rows(held, writer)
            writer.close(held.metadata())
        return path

    def finish(self, metadata: dict) -> Path:
        """Sort the rows into the trace, give it its name, remove the spool. Returns the trace's path.

        When the disk is full for the trace, the spool stays: `blkreel recover` finishes it once there is space.
        """
        self.flush()
        threads = {**self._metadata.get("threads", {}), **metadata.get("threads", {})}
        self._metadata.update(metadata | ({"threads": threads} if threads else {}) | {"spool_whole": True})
        with suppress(OSError):  # on a full disk; what was noted before then stays
            self._save_metadata()
        try:
            return _finish(self.directory, self.output, self._metadata, self._schema, self._force)
        finally:
            self._close()

    def discard(self) -> None:
        """Remove the spool; no trace is written."""
        self._close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _keep_reserve(self, rows_bytes):
        wanted = rows_bytes // _RESERVE_SHARE + _RESERVE_LEAST_BYTES
        if wanted <= self._reserved_bytes:
            return
        wanted += wanted // 8
        try:
            os.posix_fallocate(self.reserve_file.fileno(), 0, wanted)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise output_error(self.output, error) from error
        self._reserved_bytes = wanted

    def _write(self, write):
        whole_bytes = self.rows_file.tell()
        try:
            if self._writer is None:
                self._writer = BlockWriter(self.rows_file, "spool", layout_of(self._schema))
            write(self._writer)
        except OSError as error:
            # What is left of a block that was cut would hide all that is written behind it.
            self.rows_file.truncate(whole_bytes)
            self.rows_file.seek(whole_bytes)
            raise output_error(self.output, error) from error

    def _close(self):
        self.rows_file.close()
        self.reserve_file.close()

    def _save_metadata(self):
        _write_json(self.directory / _METADATA_FILE, {**self._metadata, "spool_columns": self._schema.names})


def spool_of(output: Path) -> Path:
    """Where the spool of an output stands."""
    return output.with_name(f".{output.name}.spool")


def recover(output, *, force: bool = False, ended: Callable[[dict, dict], dict] | None = None) -> Path:
    """Finish the spool that a capture or replay left behind. Returns the trace's path.

    ended: makes metadata of the writer's totals, where it came to its end, and of the metadata so far.
    Raises TraceError where there is none, or where its writer still lives.
    """
    output = Path(output)
    directory = output if output.name.endswith(".spool") else spool_of(output)
    if directory is output:
        output = output.with_name(output.name.removeprefix(".").removesuffix(".spool"))
    if not directory.is_dir():
        raise TraceError(f"nothing to recover for {output}: there is no {directory}",
                         "name the output that the capture or replay was given")
    metadata, schema = _spool_metadata(directory)
    with open(directory / ROWS_FILE, "rb") as file:
        if not _lock(file, _LAST_WORDS_S):
            raise TraceError(f"{directory} is still being written", "stop its capture or replay with Ctrl-C")
        if _is_published(output, metadata):
            shutil.rmtree(directory)
            return output
        refuse_existing(output, force)
        held = Spooled(directory, schema, metadata)
        if not held.has_layout:
            raise TraceError(f"{directory} holds no rows: its writer died before the first",
                             "record it again, with --force")
        metadata = {**held.metadata(), **metadata, "recovered": True}
        if held.end is not None and ended is not None:
            metadata |= ended(held.end, metadata)
        elif not metadata.get("spool_whole"):
            metadata["import_warnings"] = [*metadata.get("import_warnings", []), _CUT]
        return _finish(directory, output, metadata, schema, force)


def _finish(directory, output, metadata, schema, force):
    # Cut and not only removed: whoever has it open would keep its space.
    with suppress(FileNotFoundError):
        os.truncate(directory / _RESERVE_FILE, 0)
    held = Spooled(directory, schema, metadata)
    with TraceWriter(output, held.schema, force=force, temporary=directory / _TRACE_FILE) as writer:
        _write_rows(held, writer)
        try:
            _note_trace(directory, writer.inode)
            writer.close(held.metadata())
        except BaseException:
            _note_trace(directory, None)
            raise
    shutil.rmtree(directory)
    return output


def _write_rows(held, writer):
    try:
        held.write_rows(writer)
    except OSError as error:
        raise output_error(writer.path, error) from error


def _spool_metadata(directory):
    """The metadata of a spool that was left behind, and the schema of its trace."""
    try:
        metadata = json.loads((directory / _METADATA_FILE).read_text())
        columns = [(name, COLUMN_TYPES[name]) for name in metadata["spool_columns"]]
    except (OSError, ValueError, KeyError) as error:
        raise TraceError(f"{directory} has no readable metadata ({error})", "record it again, with --force") from error
    return metadata, pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


def _note_trace(directory, inode):
    """Whoever is killed between giving the trace its name and removing the spool leaves both."""
    path = directory / _METADATA_FILE
    with suppress(OSError):  # a full disk: the trace does not get its name either
        _write_json(path, {**json.loads(path.read_text()), "spool_trace_inode": inode})


def _write_json(path, content):
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


def _is_published(output, metadata):
    try:
        return output.stat().st_ino == metadata.get("spool_trace_inode")
    except OSError:
        return False


def _lock(file, patience_s) -> bool:
    """Whether the rows are ours. The lock stands as long as any process that inherited the file keeps it open."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                return True  # a file system without locks
            if time.monotonic() >= deadline:
                return False
        time.sleep(0.05)


def _refuse_or_clear(directory, output, force):
    if not force:
        raise BlkreelError(f"an unfinished {output} is left from a run that died",
                           f"finish it with: blkreel recover {output}, or add --force to discard it")
    shutil.rmtree(directory)
