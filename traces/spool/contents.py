"""The content of a spool: its rows in the order of a trace, and its notes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from blkreel.traces.format.names import NamesInRows
from blkreel.traces.format.schema import (
    COLUMN_TYPES,
    LAYOUT_NAMES,
    OPTIONAL_COLUMNS,
    TRACE_SCHEMA,
    UNKNOWN,
    USE_COLUMNS,
    USER_COLUMNS,
    WAKE_COLUMNS,
    Metadata,
    with_columns,
)
from blkreel.traces.format.writer import TraceWriter, table_of

from .block_file import BlockFile
from .blocks import END, HEADER, NOTE
from .causes import OP_USE, OP_WAKE, with_page_uses, with_rows_waited_on, with_wakes
from .notes import Note, SpoolNotes
from .reorder import in_submit_order
from .rows_child import Totals

ROWS_FILE = "rows.blocks"
_BATCH_ROWS = 32_768


class SpoolContents:
    """A spool up to its last complete block at this moment. metadata: of the spool.

    Its key `spool_origin_ns` is the time 0 of the trace, for a writer that finds the first submit only at the end.
    I/Os from before `spool_held_from_ns` whose completion was not seen are dropped like their neighbors: their rows
    come at the end of the recording, or when another I/O takes their tag.

    schema: of the trace, with the optional columns that the rows have. has_layout: False if the writer died before the
    first row. end: the writer's totals; None if it did not finish. damaged_bytes: of blocks that were skipped, and of
    notes and totals that have not their types.
    """

    def __init__(self, directory: Path, schema: pa.Schema, metadata: Metadata):
        self._path = directory / ROWS_FILE
        self._directory = directory
        self._metadata = metadata
        self._begin_bytes = self._until_bytes = metadata.get("spool_begin_bytes", 0)
        self._notes = SpoolNotes(metadata.get("threads"), metadata.get("files"))
        self._names: NamesInRows | None = None
        self._old_rows = 0
        self.end: Totals | None = None
        unread_bytes = 0
        with BlockFile(self._path, self._begin_bytes) as blocks:
            columns = blocks.columns or []
            self.schema = with_columns(schema, (name for name, code in columns if name in OPTIONAL_COLUMNS
                                                and LAYOUT_NAMES[COLUMN_TYPES[name]] == code))
            self._has_causes = any(name == "waited_on" for name, _ in columns)
            self.has_layout = _is_of_rows(columns) and {name for name, _ in columns} <= set(self.schema.names)
            for block in blocks.blocks():
                self._until_bytes = block.end_bytes
                try:
                    if block.kind == NOTE:
                        self._notes.take({**blocks.json(block, Note)})
                    elif block.kind == END:
                        self.end = blocks.json(block, Totals)
                except ValueError:
                    unread_bytes += HEADER.size + block.end_bytes - block.payload_at
            self.damaged_bytes = blocks.damaged_bytes + unread_bytes
        if metadata.get("page_uses") or self._notes.begun.get("page_uses"):
            names = (*USE_COLUMNS, *USER_COLUMNS) if "slept_ns" in self.schema.names else USE_COLUMNS
            self.schema = with_columns(self.schema, names)
        if "slept_ns" in self.schema.names:
            self.schema = with_columns(self.schema, WAKE_COLUMNS)

    def metadata(self) -> Metadata:
        """Metadata of the trace: with the notes, without the keys of the spool itself."""
        public = {key: value for key, value in self._metadata.items() if not key.startswith("spool_")}
        metadata = {**self._notes.begun, **public, **self._notes.metadata()}
        if self._old_rows and "ring" in metadata:
            metadata["ring"] = {**metadata["ring"], "dropped_rows": metadata["ring"]["dropped_rows"] + self._old_rows}
        return self._names.metadata(metadata) if self._names else metadata

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order of arrival."""
        gathered: list[dict[str, np.ndarray]] = []
        count = self._old_rows = 0
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
        """Write the rows in submit order. metadata() then has the names in these rows only."""
        names = NamesInRows(self.metadata())
        tables = with_wakes(with_page_uses(in_submit_order(self.batches, self._directory)))
        # Without causes, its temporary file would take space that the recording did not reserve.
        for table in with_rows_waited_on(tables, self._directory) if self._has_causes else tables:
            columns = {name: table[name].to_numpy() for name in table.column_names}
            names.add(columns)
            writer.write(columns)
        self._names = names

    def _batch(self, blocks: list[dict[str, np.ndarray]]) -> pa.RecordBatch:
        joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        if origin_ns := self._metadata.get("spool_origin_ns"):
            joined["submit_ns"] = joined["submit_ns"] - origin_ns
        if held_from_ns := self._metadata.get("spool_held_from_ns"):
            old = ((joined["submit_ns"] < held_from_ns) & (joined["latency_ns"] < 0)
                   & ~np.isin(joined["op"], (OP_USE, OP_WAKE)))
            self._old_rows += int(old.sum())
            joined = {name: values[~old] for name, values in joined.items()}
        return table_of(joined, self.schema).to_batches()[0]


def _is_of_rows(columns: list[tuple[str, str]]) -> bool:
    """Whether these are columns of a trace, with all that have no value for unknown."""
    return len(dict(columns)) == len(columns) and all(
        name in COLUMN_TYPES and LAYOUT_NAMES[COLUMN_TYPES[name]] == code for name, code in columns
    ) and {name for name in TRACE_SCHEMA.names if name not in UNKNOWN} <= {name for name, _ in columns}
