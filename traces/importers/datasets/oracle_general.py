"""oracleGeneral of libCacheSim: little-endian records of 24 bytes: u32 time, u64 object, u32 size, i64 next access.

It is for caches: it has no operation, so that all requests become reads, and its time counts seconds. The object of a
block trace is a block number; its block size is not stated.
"""

from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import INVALID, Batch, ImportOptions, SourceFormat, scaled

_RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
_BATCH_RECORDS = 1 << 17
_SAMPLE_RECORDS = 100
_MOST_RECORDS = 1 << 34  # of a file: text and pairs of 32-bit numbers are larger as 64-bit numbers
_NEVER = (-1, np.iinfo(np.int64).max)  # values of `next` without a later access


class OracleGeneral(SourceFormat):
    name = "oracle-general"
    title = "oracleGeneral of libCacheSim"
    resolution_ns = 1_000_000_000
    has_block_size = True
    lacks = ("operation",)

    def likeness(self, head: bytes) -> float:
        """Records whose times do not step back, whose size is not 0, and whose next access lies ahead."""
        count = min(len(head) // _RECORD.itemsize, _SAMPLE_RECORDS)
        if count < 2:
            return 0.0
        records = np.frombuffer(head, _RECORD, count)
        later = (records["next"] > np.arange(count)) & (records["next"] < _MOST_RECORDS) \
            | np.isin(records["next"], _NEVER)
        steps = np.diff(records["time"].astype(np.int64), prepend=int(records["time"][0]))
        plausible = later & (records["size"] > 0) & (records["size"] < 1 << 30) & (steps >= 0) & (steps < 1 << 20)
        return float(plausible.mean())

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        if options.block_bytes is None:
            raise UsageError(f"{source.path} counts blocks of a size that it does not state",
                             "give the size of its block numbers: --block-size 512")
        account.unit = "byte"
        at = 0
        while data := source.read(_BATCH_RECORDS * _RECORD.itemsize):
            count = len(data) // _RECORD.itemsize
            records = np.frombuffer(data, _RECORD, count)
            account.read(count)
            positions = at + np.arange(count) * _RECORD.itemsize
            at += count * _RECORD.itemsize
            if count * _RECORD.itemsize < len(data):
                account.read(1)
                account.reject("the file ends inside a record", at)
            block = np.where(records["object"] < 1 << 62, records["object"], 0).astype(np.int64)
            offset = np.where(records["object"] < 1 << 62, scaled(block, options.block_bytes), INVALID)
            yield Batch(scaled(records["time"].astype(np.int64), self.resolution_ns), offset,
                        records["size"].astype(np.int64), np.full(count, OPS["read"], np.int8), positions)
