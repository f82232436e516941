"""oracleGeneral of libCacheSim: little-endian records of 24 bytes for cache simulators.

u32 time in s, u64 object, u32 size in bytes, i64 number of the next request of the object, counted from 1; -1: none.
An I/O is one request. Its object is the first sector of the I/O, with the device number in the upper 16 bits.
"""

from typing import IO

import numpy as np

from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError
from blkreel.common.limits import check_state
from blkreel.traces.format.schema import OPS, WRITES
from blkreel.traces.format.trace import Trace

from .export_format import Account, Columns, ExportFormat, chosen, columns_in, is_op

_RECORD = np.dtype([("time_s", "<u4"), ("object", "<u8"), ("size_bytes", "<u4"), ("next_request", "<i8")])
_SECTOR_BYTES = 512
_DEVICE_BIT = 48
_MOST_GROUP_ROWS = 1 << 20
# At the peak: of a row group, and of each object while those of two groups are joined.
_GROUP_BYTES, _OBJECT_BYTES = 96 << 20, 64
_REQUESTS = ("read", *WRITES)


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    """The next request of an object is known from the end, so row groups are read from the last to the first.

    Memory grows with the number of objects, 16 bytes each, as that of a simulator does. Raises TraceError for a row
    group of more than _MOST_GROUP_ROWS rows.
    """
    if max(trace.group_rows) > _MOST_GROUP_ROWS:
        raise TraceError(f"{trace.name} has a row group of {max(trace.group_rows):,} rows (limit {_MOST_GROUP_ROWS:,})",
                         f"write it again: {command_line('slice', trace.name, '--from', '0s', '-o', 'OUT.parquet')}")
    groups = range(len(trace.group_rows))
    records = [sum(int(_requests(columns).sum()) for columns in columns_in(trace, range(group, group + 1)))
               for group in groups]
    starts = np.cumsum([0, *records]).tolist()
    objects, requests = np.empty(0, np.uint64), np.empty(0, np.int64)
    for group in reversed(groups):
        parts = [_records(columns, account) for columns in columns_in(trace, range(group, group + 1))]
        group_records = np.concatenate(parts) if parts else np.empty(0, _RECORD)
        del parts
        objects, requests = _link(group_records, starts[group], objects, requests)
        check_state(_GROUP_BYTES + _OBJECT_BYTES * len(objects), trace.footer.size_bytes, "objects")
        file.seek(starts[group] * _RECORD.itemsize)
        file.write(group_records.tobytes())
        account.records += len(group_records)


def _requests(columns: Columns) -> np.ndarray:
    """Mask of the rows that become records: a simulator skips requests without size."""
    length_bytes = columns["length_bytes"]
    mask: np.ndarray = is_op(columns, *_REQUESTS) & (length_bytes > 0) & (length_bytes < 1 << 32)
    return mask


def _records(columns: Columns, account: Account) -> np.ndarray:
    account.count_rows(len(columns["op"]))
    requests = _requests(columns)
    account.omit_ops(columns, [name for name in OPS if name not in _REQUESTS])
    account.omit("length_bytes is 0 or above 4 GiB", is_op(columns, *_REQUESTS) & ~requests)
    rows = chosen(columns, requests)
    account.lose_columns(rows, set(), set())
    account.lose("op", np.ones(len(rows["op"]), bool))
    account.lose("submit_ns below 1 s", rows["submit_ns"] % 10**9 != 0)
    account.lose("offset_bytes below 512", rows["offset_bytes"] % _SECTOR_BYTES != 0)
    account.lose("submit_ns beyond 2^32 s", rows["submit_ns"] // 10**9 >= 1 << 32)
    records = np.zeros(len(rows["op"]), _RECORD)
    records["time_s"] = np.minimum(rows["submit_ns"] // 10**9, (1 << 32) - 1).clip(0)
    records["object"] = (rows["offset_bytes"] // _SECTOR_BYTES).astype(np.uint64) \
        | (rows["device"].astype(np.uint64) << np.uint64(_DEVICE_BIT))
    records["size_bytes"] = rows["length_bytes"]
    return records


def _link(records: np.ndarray, before: int, objects: np.ndarray,
          requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Set the next request of each record. before: number of records before these.

    objects: sorted; requests: the first request of each, after these records. Returns both with these records.
    """
    order = np.argsort(records["object"], kind="stable")
    sorted_objects = records["object"][order]
    numbers = order + before + 1
    last = np.ones(len(order), bool)  # of its object, among these records
    last[:-1] = sorted_objects[1:] != sorted_objects[:-1]
    following = np.full(len(order), -1, np.int64)
    following[:-1][~last[:-1]] = numbers[1:][~last[:-1]]
    if len(objects):
        at = np.searchsorted(objects, sorted_objects[last]).clip(max=len(objects) - 1)
        following[last] = np.where(objects[at] == sorted_objects[last], requests[at], -1)
    records["next_request"][order] = following
    first = np.roll(last, 1)
    later = ~np.isin(objects, sorted_objects[first])
    all_objects = np.concatenate([sorted_objects[first], objects[later]])
    all_requests = np.concatenate([numbers[first], requests[later]])
    by_object = np.argsort(all_objects, kind="stable")
    return all_objects[by_object], all_requests[by_object]


FORMAT = ExportFormat("oracle-general", "oracleGeneral of libCacheSim", ".oracleGeneral.bin", _write)
