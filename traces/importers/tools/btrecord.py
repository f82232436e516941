"""Files DEVICE.replay.CPU of btrecord, for btreplay: little-endian 64-bit words (btrecord.h of blktrace, version 1).

Header: version, time of the first bunch, bunches, I/Os. Each bunch: I/Os (1 to 512), time in ns; then of each I/O the
sector, the bytes, and 0 for a write or 1 for a read. The I/Os of a bunch have one time.
"""

import re
from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import INVALID, UNKNOWN_OP, Batch, ImportOptions, SourceFormat, scaled

_WORD_BYTES = 8
_HEADER_WORDS, _BUNCH_WORDS, _IO_WORDS = 4, 2, 3
_MAJOR_VERSION = 1
_MOST_BUNCH_IOS = 512
_READ_BYTES = 4 << 20
_SECTOR_BYTES = 512
_LARGEST = 1 << 62
_CPU = re.compile(r"\.replay\.(\d{1,4})(?:\.|$)")


class Btrecord(SourceFormat):
    name = "btrecord"
    title = "files of btrecord, for btreplay"

    def likeness(self, head: bytes) -> float:
        count = _HEADER_WORDS + _BUNCH_WORDS + _IO_WORDS
        words = np.frombuffer(head, "<u8", min(len(head) // _WORD_BYTES, count))
        if len(words) < count or words[0] >> 16 != _MAJOR_VERSION:
            return 0.0
        _, _, bunches, total, ios, _, _, length_bytes, op = words.tolist()
        return float(0 < bunches <= total and 0 < ios <= _MOST_BUNCH_IOS and not length_bytes % _SECTOR_BYTES
                     and op & 0xffffffff <= 1)

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        account.unit = "byte"
        header_bytes = _HEADER_WORDS * _WORD_BYTES
        header = np.frombuffer(source.read(header_bytes).ljust(header_bytes, b"\0"), "<u8")
        if header[0] >> 16 != _MAJOR_VERSION:
            raise TraceError(f"{source.path} is not a file of btrecord version {_MAJOR_VERSION}",
                             "name a file DEVICE.replay.CPU that btrecord wrote")
        cpu = _CPU.search(source.path.name)
        begin, tail, ios = header_bytes, b"", 0
        shared_time = False
        while data := source.read(_READ_BYTES):
            data = tail + data
            words = np.frombuffer(data, "<u8", len(data) // _WORD_BYTES)
            starts, counts, used = _bunches(words, begin, source)
            if counts.sum():
                account.read(int(counts.sum()))
                yield _batch(words, starts, counts, begin, int(cpu[1]) if cpu else None)
            ios += int(counts.sum())
            shared_time |= bool((counts > 1).any())
            begin, tail = begin + used * _WORD_BYTES, data[used * _WORD_BYTES:]
        if tail:
            account.read(1)
            account.reject("the file ends inside a bunch", begin)
        if int(header[3]) > ios:  # btrecord may write more I/Os than its header counts
            account.warn(f"{source.path} has {ios:,} complete I/Os, and its header counts {int(header[3]):,}")
        if shared_time:
            account.warn(f"{source.path}: the I/Os of a bunch have the time of the bunch, up to 10 ms before their own "
                         "unless btrecord had --max-bunch-time")


def _bunches(words: np.ndarray, begin: int, source: SourceFile) -> tuple[np.ndarray, np.ndarray, int]:
    """The first word and the number of I/Os of each complete bunch, and the number of words in all of them."""
    values = words.tolist()
    starts, counts = [], []
    at = 0
    while at < len(values):
        count = values[at]
        if not 0 < count <= _MOST_BUNCH_IOS:
            raise TraceError(f"{source.path}: the bunch at byte {begin + at * _WORD_BYTES:,} has {count:,} I/Os, not 1 "
                             f"to {_MOST_BUNCH_IOS}", "record it again: the file is damaged")
        end = at + _BUNCH_WORDS + count * _IO_WORDS
        if end > len(values):
            break
        starts.append(at)
        counts.append(count)
        at = end
    return np.array(starts, np.int64), np.array(counts, np.int64), at


def _batch(words: np.ndarray, starts: np.ndarray, counts: np.ndarray, begin: int, cpu: int | None) -> Batch:
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(starts, counts) + _BUNCH_WORDS + within * _IO_WORDS
    direction = words[at + 2] & np.uint64(0xffffffff)  # the rest of the word is padding
    op = np.full(total, UNKNOWN_OP, np.int8)
    op[direction == 0], op[direction == 1] = OPS["write"], OPS["read"]
    return Batch(_signed(words[np.repeat(starts, counts) + 1]), scaled(_signed(words[at]), _SECTOR_BYTES),
                 _signed(words[at + 1]), op, begin + at * _WORD_BYTES,
                 cpu=None if cpu is None else np.full(total, cpu, np.int16))


def _signed(words: np.ndarray) -> np.ndarray:
    return np.where(words < _LARGEST, words, 0).astype(np.int64) + np.where(words < _LARGEST, 0, INVALID)
