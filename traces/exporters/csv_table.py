"""CSV with one row per I/O. Column names carry the unit, as in a trace; unknown values are -1, as in a trace."""

from collections.abc import Callable
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from blkreel.common.printable import storable
from blkreel.traces.format.schema import FLAGS, OP_NAMES
from blkreel.traces.format.trace import Trace

from .export_format import Account, ExportFormat, batches, device_names, thread_names


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    devices, comms = device_names(trace, -1), thread_names(trace)
    writer = None
    for columns in batches(trace, account):
        arrays = {name: pa.array(values) for name, values in columns.items()}
        arrays["op"] = _texts(columns["op"], OP_NAMES.__getitem__)
        arrays["flags"] = _texts(columns["flags"], lambda flags: "+".join(
            name for name, bit in FLAGS.items() if flags & bit))
        arrays["device"] = _texts(columns["device"],
                                  lambda number: devices[number] if 0 <= number < len(devices) else str(number))
        arrays["thread_name"] = _texts(columns["tid"], lambda tid: comms.get(tid, ""))
        table = pa.table(arrays)
        if writer is None:
            file.write((",".join(table.schema.names) + "\n").encode())
            options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
            writer = pyarrow.csv.CSVWriter(file, table.schema, write_options=options)
        writer.write_table(table)
        account.records += table.num_rows
    if writer is not None:
        writer.close()


def _texts(codes: np.ndarray, text_of: Callable[[int], str]) -> pa.Array:
    """The text of each code. There are few different ones."""
    values, at = np.unique(codes, return_inverse=True)
    texts = pa.array([storable(text_of(int(value))) for value in values], pa.string())
    return texts.take(pa.array(at))


FORMAT = ExportFormat("csv", "CSV, with units in the header", ".csv", _write)
