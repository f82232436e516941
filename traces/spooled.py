"""What a spool holds: its rows in the order of a trace, and what stands beside them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from .block_file import BlockFile
from .blocks import END, NOTE
from .reorder import in_submit_order
from .schema import COLUMN_TYPES, LAYOUT_NAMES, OPTIONAL_COLUMNS
from .spool_notes import SpoolNotes
from .waits import with_rows_waited_on
from .writer import TraceWriter, table_of

ROWS_FILE = "rows.blocks"
_BATCH_ROWS = 32_768


class Spooled:
    """One look at a spool, up to its last whole block by now. metadata: what has been noted of it.

    schema: that of the trace, with those optional columns that the rows have; None where its writer died before
    the first row. end: the writer's totals, None where it did not come to its end.
    """

    def __init__(self, directory: Path, schema: pa.Schema, metadata: dict):
        self._path = directory / ROWS_FILE
        self._directory = directory
        self._metadata = metadata
        self._begin_bytes = self._until_bytes = metadata.get("spool_begin_bytes", 0)
        self._notes = SpoolNotes(metadata.get("threads"), metadata.get("files"))
        self.end: dict | None = None
        with BlockFile(self._path, self._begin_bytes) as blocks:
            self.has_layout = blocks.columns is not None
            self.schema = _with_optional(schema, blocks.columns or [])
            for block in blocks.blocks():
                self._until_bytes = block.end_bytes
                if block.kind == NOTE:
                    self._notes.take(blocks.json(block))
                elif block.kind == END:
                    self.end = blocks.json(block)

    def metadata(self) -> dict:
        """What has been noted, with what stands beside the rows, and without what concerns the spool only."""
        public = {key: value for key, value in self._metadata.items() if not key.startswith("spool_")}
        return {**self._notes.begun, **public, **self._notes.metadata()}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they came."""
        gathered, count = [], 0
        with BlockFile(self._path, self._begin_bytes) as blocks:
            for columns in blocks.rows(self._until_bytes):
                gathered.append(columns)
                count += len(columns["submit_ns"])
                # An idle capture makes ten small blocks a second, and a batch costs more than its few rows.
                if count >= _BATCH_ROWS:
                    yield self._batch(gathered)
                    gathered, count = [], 0
        if count:
            yield self._batch(gathered)

    def write_rows(self, writer: TraceWriter) -> None:
        """The rows in order of submission."""
        for table in with_rows_waited_on(in_submit_order(self.batches), self._directory):
            writer.write({name: table[name].to_numpy() for name in table.column_names})

    def _batch(self, blocks):
        joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        return table_of(joined, self.schema).to_batches()[0]


def _with_optional(schema, columns):
    """The schema, with those columns of the blocks that a trace may or may not have."""
    for name, code in columns:
        if name not in schema.names and name in OPTIONAL_COLUMNS and LAYOUT_NAMES[COLUMN_TYPES[name]] == code:
            schema = schema.append(pa.field(name, COLUMN_TYPES[name], nullable=False))
    return schema
