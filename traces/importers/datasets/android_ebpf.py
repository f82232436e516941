"""Mobile traces recorded with eBPF: proces, device, rw_flag, sector, size in sectors, timestamp in seconds.

`proces` is COMM-TID, `<...>` where the name is unknown; `device` is the kernel's dev_t. The source does not say which
event of the block layer a record is, and has the same extent twice within some ms: all records become rows.
"""

import numpy as np

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import Batch, ImportOptions, LinePattern, mapped, scaled, translated
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_SECTOR_BYTES = 512
_MINOR_BITS = 20  # of a dev_t inside the kernel
_OPS = {b"R": OPS["read"], b"W": OPS["write"], b"F": OPS["flush"], b"D": OPS["discard"]}


class AndroidEbpf(TextFormat):
    name = "android"
    title = "mobile traces recorded with eBPF"
    resolution_ns = 100
    lacks = ("event",)
    pattern = LinePattern(r"[^,]+-\d+,\d+,[A-Z]+,\d+,\d+,\d+\.\d+", r"process?,device,rw_flag,sector,size,timestamp")
    columns = (Column("process", "text"), Column("device", "text"), Column("op", "text"), Column("sector", "int"),
               Column("sectors", "int"), Column("time", "decimal", 9))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        return Batch(rows["time"], scaled(rows["sector"], _SECTOR_BYTES), scaled(rows["sectors"], _SECTOR_BYTES),
                     mapped(rows["op"], lambda text: _OPS.get(text[:1], -1)).astype(np.int8), rows.positions,
                     device=translated(rows["device"], _device), tid=mapped(rows["process"], _tid),
                     process=translated(rows["process"], _comm))


def _tid(text: bytes) -> int:
    digits = text.rpartition(b"-")[2]
    return int(digits) if digits.isdigit() and len(digits) < 10 else -1


def _comm(text: bytes) -> bytes:
    comm = text.rpartition(b"-")[0]
    return b"" if comm == b"<...>" else comm


def _device(text: bytes) -> bytes:
    """8388608 as 8:0."""
    if not text.isdigit() or len(text) > 10:
        return text
    return b"%d:%d" % (int(text) >> _MINOR_BITS, int(text) & (1 << _MINOR_BITS) - 1)
