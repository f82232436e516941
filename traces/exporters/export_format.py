"""What an export format is: a name, a writer, and the account of what the format cannot express."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import pyarrow as pa

from blkreel.common.limits import check_state
from blkreel.common.progress import ProgressTask
from blkreel.traces.format.schema import FLAGS, OPS, OPTIONAL_COLUMNS, RUN_SCHEMA, UNKNOWN
from blkreel.traces.format.trace import Trace

Columns = Mapping[str, np.ndarray]
BATCH_ROWS = 32_768  # a row takes up to 2 KB as text and its parts
# Of a batch with its text, which is in memory beside what is stored for threads and I/Os in flight.
_BATCH_BYTES = 80 << 20
# A time may have any value, and every row has an operation, an offset and a length.
_ALWAYS_GIVEN = ("submit_ns", "op", "offset_bytes", "length_bytes", "device")


@dataclass
class Account:
    """What became of the rows of a trace.

    records: records in the file. omitted: rows without a record, by reason. not_expressed: rows with a value that the
    format has no place for, by column; flags by `flags.NAME`.
    """

    progress: ProgressTask = field(default_factory=ProgressTask, compare=False)
    rows: int = 0
    records: int = 0
    omitted: dict[str, int] = field(default_factory=dict)
    not_expressed: dict[str, int] = field(default_factory=dict)

    def count_rows(self, count: int) -> None:
        self.rows += count
        self.progress.update(self.rows)

    def omit(self, reason: str, rows: np.ndarray) -> None:
        """rows: mask of the rows that are left out."""
        _add(self.omitted, reason, int(rows.sum()))

    def omit_ops(self, columns: Columns, ops: Sequence[str]) -> np.ndarray:
        """Leave out the rows with these operations, each counted under its name. Returns their mask."""
        for name in ops:
            self.omit(name, is_op(columns, name))
        return is_op(columns, *ops)

    def lose(self, what: str, rows: np.ndarray) -> None:
        """rows: mask of the rows whose value is lost."""
        _add(self.not_expressed, what, int(rows.sum()))

    def lose_columns(self, columns: Columns, expressed: set[str], flags: set[str]) -> None:
        """Count the values of the columns and flags that are not expressed. expressed: columns; flags: names."""
        for name, values in columns.items():
            if name == "flags":
                for flag, bit in FLAGS.items():
                    if flag not in flags:
                        self.lose(f"flags.{flag}", values & bit != 0)
            elif name not in expressed and name not in _ALWAYS_GIVEN:
                self.lose(name, values != UNKNOWN.get(name, -1))


@dataclass(frozen=True)
class ExportFormat:
    """name: of --format. title: for lists. suffix: of the usual file name.

    write: writes the rows of a trace to a file and fills the account. The file can seek.
    """

    name: str
    title: str
    suffix: str
    write: Callable[[Trace, IO[bytes], Account], None]


def batches(trace: Trace, account: Account) -> Iterator[dict[str, np.ndarray]]:
    """The rows with all known columns, in submit order; counts them."""
    for columns in columns_in(trace):
        account.count_rows(len(columns["op"]))
        yield columns


def columns_in(trace: Trace, groups: range | None = None) -> Iterator[dict[str, np.ndarray]]:
    """The rows with all known columns, of all row groups or of some."""
    names = [name for name in trace.schema.names if name in RUN_SCHEMA.names or name in OPTIONAL_COLUMNS]
    for batch in trace.batches(names, BATCH_ROWS, groups=groups):
        yield {name: batch[name].to_numpy() for name in names}


def check_export_state(trace: Trace, stored_bytes: int, keys: str) -> None:
    """As check_state(), beside a batch and its text."""
    check_state(_BATCH_BYTES + stored_bytes, trace.footer.size_bytes, keys)


def chosen(columns: Columns, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of a mask."""
    return dict(columns) if rows.all() else {name: values[rows] for name, values in columns.items()}


def device_names(trace: Trace, highest: int) -> list[str]:
    """A name for each device number up to `highest`, unique and without blanks."""
    names: list[str] = []
    used: set[str] = set()
    devices = trace.metadata.get("devices") or []
    for number in range(max(highest + 1, len(devices))):
        stored_name = devices[number].get("name") if number < len(devices) else None
        name = "_".join(str(stored_name or "").split()) or f"device{number}"
        while name in used:
            name = f"{name}.{number}"
        names.append(name)
        used.add(name)
    return names


def thread_names(trace: Trace) -> dict[int, str]:
    """The names of the threads that the metadata lists."""
    return {int(tid): str(thread.get("comm") or "") for tid, thread in trace.threads.items()}


def is_op(columns: Columns, *names: str) -> np.ndarray:
    """Mask of the rows with one of these operations."""
    mask: np.ndarray = np.isin(columns["op"], [OPS[name] for name in names])
    return mask


def joined(text: pa.Array) -> bytes:
    """The strings of an array one after another, as its data buffer holds them."""
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset:text.offset + len(text) + 1]
    return bytes(memoryview(text.buffers()[2])[offsets[0]:offsets[-1]])


def _add(counts: dict[str, int], key: str, count: int) -> None:
    if count:
        counts[key] = counts.get(key, 0) + count
