"""Rows on their way to a trace: kept safe as they come, made into Parquet at the end.

A Parquet file without its footer is unreadable, so a capture that dies would lose everything. The spool
is an Arrow IPC stream, readable up to its last whole batch; finish() sorts it into the trace.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from .errors import BlkreelError, TraceError
from .reorder import in_submit_order
from .waits import with_rows_waited_on
from .writer import TraceWriter, output_error, refuse_existing, table_of

_ROWS_FILE, _METADATA_FILE = "rows.arrows", "metadata.json"
_FLUSH_ROWS = 65_536
_FLUSH_AFTER_S = 0.5  # a kill loses less than a second of rows


class Spool:
    """Takes rows in any order of submission; finish() gives the trace its final name.

    Stands in the directory `.NAME.spool` beside the output; recover() finishes one that was left behind.
    Raises OutputExists, or BlkreelError when the disk is full: what was appended before stays finishable.
    """

    def __init__(self, output, schema: pa.Schema, metadata: dict, *, force: bool = False):
        self.output = Path(output)
        self.rows = 0
        self._schema = schema
        self._force = force
        self._metadata = dict(metadata)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._flushed_at = time.monotonic()
        refuse_existing(self.output, force)
        self.directory = spool_of(self.output)
        if self.directory.exists():
            _refuse_or_clear(self.directory, self.output, force)
        try:
            self.directory.mkdir()
            self._file = open(self.directory / _ROWS_FILE, "wb", buffering=0)
            self._stream = pa.ipc.new_stream(self._file, schema)
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

    def note(self, metadata: dict) -> None:
        """Merge into the metadata that a recovered trace would carry."""
        self._metadata.update(metadata)
        try:
            self._save_metadata()
        except OSError as error:
            raise output_error(self.output, error) from error

    def flush(self) -> None:
        """Hand the gathered rows to the kernel: from here on they survive the death of this process."""
        if not self._waiting_rows:
            return
        try:
            for batch in pa.concat_tables(self._waiting).combine_chunks().to_batches():
                self._stream.write_batch(batch)
        except OSError as error:
            raise output_error(self.output, error) from error
        self._waiting, self._waiting_rows = [], 0
        self._flushed_at = time.monotonic()

    def finish(self, metadata: dict) -> Path:
        """Sort the rows into the trace, give it its name, remove the spool. Returns the trace's path.

        When the disk is full for the trace, the spool stays: `blkreel recover` finishes it once there is space.
        """
        self.flush()
        self._metadata.update(metadata)
        self._stream.close()
        self._file.close()
        return _finish(self.directory, self.output, self._metadata, self._force)

    def discard(self) -> None:
        """Remove the spool; no trace is written."""
        self._file.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _save_metadata(self):
        temporary = self.directory / (_METADATA_FILE + ".tmp")
        temporary.write_text(json.dumps({**self._metadata, "spool_pid": os.getpid()}))
        temporary.replace(self.directory / _METADATA_FILE)


def spool_of(output: Path) -> Path:
    """Where the spool of an output stands."""
    return output.with_name(f".{output.name}.spool")


def recover(output, *, force: bool = False) -> Path:
    """Finish the spool that a capture or replay left behind. Returns the trace's path.

    Raises TraceError where there is none, or where its writer still lives.
    """
    output = Path(output)
    directory = output if output.name.endswith(".spool") else spool_of(output)
    if directory is output:
        output = output.with_name(output.name.removeprefix(".").removesuffix(".spool"))
    if not directory.is_dir():
        raise TraceError(f"nothing to recover for {output}: there is no {directory}",
                         "name the output that the capture or replay was given")
    refuse_existing(output, force)
    try:
        metadata = json.loads((directory / _METADATA_FILE).read_text())
    except (OSError, ValueError) as error:
        raise TraceError(f"{directory} has no readable metadata ({error})", "record it again") from error
    if _is_alive(metadata.pop("spool_pid")):
        raise TraceError(f"{directory} is still being written", "stop its capture or replay with Ctrl-C")
    return _finish(directory, output, {**metadata, "recovered": True}, force)


def _finish(directory, output, metadata, force):
    with TraceWriter(output, _spool_schema(directory), force=force) as writer:
        for table in with_rows_waited_on(in_submit_order(lambda: spooled_batches(directory)), directory):
            writer.write({name: table[name].to_numpy() for name in table.column_names})
        writer.close(metadata)
    shutil.rmtree(directory)
    return output


def _spool_schema(directory) -> pa.Schema:
    try:
        with pa.OSFile(str(directory / _ROWS_FILE)) as file:
            return pa.ipc.open_stream(file).schema
    except (OSError, pa.ArrowException) as error:
        raise TraceError(f"{directory} holds no rows: its writer died before the first", "record it again") from error


def spooled_batches(directory) -> Iterator[pa.RecordBatch]:
    """What a spool holds, up to the last whole batch."""
    with pa.OSFile(str(directory / _ROWS_FILE)) as file:
        stream = pa.ipc.open_stream(file)
        while True:
            try:
                batch = stream.read_next_batch()
            except (StopIteration, OSError, pa.ArrowException):
                return
            if batch.num_rows:
                yield batch


def _refuse_or_clear(directory, output, force):
    if not force:
        raise BlkreelError(f"an unfinished {output} is left from a run that died",
                           f"finish it with: blkreel recover {output}, or add --force to discard it")
    shutil.rmtree(directory)


def _is_alive(pid) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
