"""fio iolog, version 3: `time_us file action offset length`. The source of the format is iolog.c of fio."""

from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blkreel.traces.format.schema import CHECKS, OPS, ZONE_MANAGEMENT
from blkreel.traces.format.trace import Trace

from .export_format import Account, ExportFormat, batches, chosen, device_names, is_op, joined

_ACTIONS = {"read": "read", "write": "write", "flush": "sync", "discard": "trim", "zone_append": "write"}
# fio reads the length as an unsigned 32-bit number. Pieces of this size keep the alignment of any drive.
_LONGEST_BYTES = 1 << 31
# The kernel has no I/O of 4 GiB. Others are split up to this length, so that no row becomes millions of lines.
_LONGEST_SPLIT_BYTES = 64 << 30
_LINES = 65_536  # at a time
# fio drops the delay that follows time 0.
_FIRST_US = 1


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    used = sorted({int(number) for batch in trace.batches(["device"]) for number in np.unique(batch["device"])})
    names = device_names(trace, used[-1])
    # Names, not paths: fio would write to the drives of these paths.
    file.write(b"fio version 3 iolog\n")
    for action in ("add", "open"):
        file.writelines(f"{_FIRST_US} {names[number]} {action}\n".encode() for number in used)
    last_us = _FIRST_US
    for columns in batches(trace, account):
        rows = _rows_of_lines(columns, account)
        longest_bytes = int(rows["length_bytes"].max(initial=0))
        step = max(1, _LINES // max(1, -(-longest_bytes // _LONGEST_BYTES)))
        for begin in range(0, len(rows["op"]), step):
            lines, last_us = _lines({name: values[begin:begin + step] for name, values in rows.items()}, names)
            account.records += len(lines)
            file.write(joined(lines))
    file.writelines(f"{last_us} {names[number]} close\n".encode() for number in used)


def _rows_of_lines(columns: dict[str, np.ndarray], account: Account) -> dict[str, np.ndarray]:
    """The rows of a batch that become lines, with the columns of lines."""
    without = account.omit_ops(columns, ("write_zeroes", *ZONE_MANAGEMENT, *CHECKS))
    empty = (columns["length_bytes"] == 0) & ~is_op(columns, "flush") & ~without
    account.omit("length_bytes is 0", empty)
    endless = (columns["length_bytes"] > _LONGEST_SPLIT_BYTES) & ~without
    account.omit("length_bytes above 64 GiB", endless)
    rows = chosen(columns, ~(without | empty | endless))
    account.lose_columns(rows, set(), set())
    account.lose("op zone_append, as a write", is_op(rows, "zone_append"))
    account.lose("submit_ns below 1 µs", rows["submit_ns"] % 1000 != 0)
    account.lose("length_bytes above 2 GiB, as several records", rows["length_bytes"] > _LONGEST_BYTES)
    return {name: rows[name] for name in ("submit_ns", "op", "offset_bytes", "length_bytes", "device")}


def _lines(rows: dict[str, np.ndarray], names: list[str]) -> tuple[pa.Array, int]:
    """The lines of rows, and the time of the last one."""
    rows = _split(rows)
    time_us = rows["submit_ns"] // 1000 + _FIRST_US
    actions = pa.array([_ACTIONS.get(name, "") for name in OPS])
    text = pc.binary_join_element_wise(
        pa.array(time_us).cast(pa.string()), pa.array(names).take(pa.array(rows["device"])),
        actions.take(pa.array(rows["op"])), pa.array(rows["offset_bytes"]).cast(pa.string()),
        pc.binary_join_element_wise(pa.array(rows["length_bytes"]).cast(pa.string()), "\n", ""), " ")
    return text, int(time_us[-1])


def _split(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of at most _LONGEST_BYTES."""
    if rows["length_bytes"].max() <= _LONGEST_BYTES:
        return rows
    pieces = np.maximum(-(-rows["length_bytes"] // _LONGEST_BYTES), 1)
    at = np.repeat(np.arange(len(pieces)), pieces)
    skipped_bytes = (np.arange(len(at)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * _LONGEST_BYTES
    split = {name: values[at] for name, values in rows.items()}
    split["offset_bytes"] = split["offset_bytes"] + skipped_bytes
    split["length_bytes"] = np.minimum(split["length_bytes"] - skipped_bytes, _LONGEST_BYTES)
    return split


FORMAT = ExportFormat("iolog3", "fio iolog, version 3", ".iolog", _write)
