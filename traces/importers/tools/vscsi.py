"""Binary traces of VMware's vscsiStats, versions 1 and 2, as CloudPhysics published them.

Records of 32 or 40 bytes, little-endian, without a header: version 2 adds the response time. The times are in
microseconds, at the issue of the command. The layout is that of the reader in libCacheSim.
"""

from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account, account_for
from blkreel.traces.importers.source_file import SourceFile, read_head
from blkreel.traces.importers.source_format import INVALID, Batch, ImportOptions, SourceFormat, scaled

_RECORDS = {
    1: np.dtype([("serial", "<u4"), ("length_bytes", "<u4"), ("segments", "<u4"), ("command", "<u2"),
                 ("version", "<u2"), ("block", "<u8"), ("time_us", "<u8")]),
    2: np.dtype([("command", "<u2"), ("version", "<u2"), ("serial", "<u4"), ("length_bytes", "<u4"),
                 ("segments", "<u4"), ("block", "<u8"), ("time_us", "<u8"), ("response_us", "<u8")]),
}
# SCSI operation codes: READ and WRITE of 6, 10, 12 and 16 bytes, SYNCHRONIZE CACHE.
_OPS = {0x08: "read", 0x28: "read", 0xA8: "read", 0x88: "read", 0x0A: "write", 0x2A: "write", 0xAA: "write",
        0x8A: "write", 0x35: "flush", 0x91: "flush"}
_OTHER_COMMAND = -1
_OP_OF = np.array([OPS[_OPS[code]] if code in _OPS else _OTHER_COMMAND for code in range(256)], np.int8)
_BLOCK_BYTES = 512
_US_NS = 1000
_BATCH_RECORDS = 1 << 17
_HEAD_RECORDS = 16


class Vscsi(SourceFormat):
    name = "vscsi"
    title = "vscsiStats of VMware, versions 1 and 2"
    resolution_ns = _US_NS

    def likeness(self, head: bytes) -> float:
        return max(_likeness(head, version) for version in _RECORDS)

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        head = read_head(source.path)
        version = max(_RECORDS, key=lambda version: _likeness(head, version))
        if not _likeness(head, version):
            raise TraceError(f"{source.path} has no record of vscsiStats of version 1 or 2 at its beginning",
                             "name a binary trace of vscsiStats, or another format")
        record = _RECORDS[version]
        account.unit = "byte"
        position = 0
        while data := source.read(_BATCH_RECORDS * record.itemsize):
            count, left = divmod(len(data), record.itemsize)
            records = np.frombuffer(data, record, count)
            account.read(count + bool(left))
            if left:
                account.reject("an incomplete record", position + count * record.itemsize)
            yield _batch(records, version, position + np.arange(count) * record.itemsize, account)
            position += len(data)


def _batch(records: np.ndarray, version: int, positions: np.ndarray, account: Account) -> Batch:
    other_version = records["version"] >> 8 != version
    account_for(other_version, positions, account.reject, f"a record of another version than {version}")
    op = _OP_OF[records["command"] & 0xFF]
    other_command = ~other_version & (op == _OTHER_COMMAND)
    account_for(other_command, positions, account.ignore, "SCSI commands other than reads, writes and flushes")
    chosen = ~other_version & ~other_command
    records, op = records[chosen], op[chosen]
    is_flush = op == OPS["flush"]
    return Batch(_scaled(records["time_us"], _US_NS), np.where(is_flush, 0, _scaled(records["block"], _BLOCK_BYTES)),
                 np.where(is_flush, 0, records["length_bytes"].astype(np.int64)), op, positions[chosen],
                 latency_ns=_scaled(records["response_us"], _US_NS) if version == 2 else None)


def _scaled(values: np.ndarray, factor: int) -> np.ndarray:
    """Unsigned 64-bit values times a factor; INVALID beyond the range."""
    return np.where(values < 1 << 62, scaled(values.astype(np.int64) & (1 << 62) - 1, factor), INVALID)


def _likeness(head: bytes, version: int) -> float:
    record = _RECORDS[version]
    count = min(len(head) // record.itemsize, _HEAD_RECORDS)
    if not count:
        return 0.0
    records = np.frombuffer(head, record, count)
    is_record = (records["version"] >> 8 == version) & (records["version"] & 0xFF == 0) & (records["command"] < 256)
    return float(is_record.mean())
