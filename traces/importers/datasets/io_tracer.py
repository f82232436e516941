"""Block device traces of io-tracer (cacheMon), its files ds_*.csv.gz; docs/TRACE_FORMAT.md there defines the columns.

Time is that of completion, in the recording machine's local time; submit = time - latency. There is no device.
"""

import numpy as np
import pyarrow as pa

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import UNKNOWN_OP, Batch, ImportOptions, LinePattern, mapped, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_SECTOR_BYTES = 512
_NO_IO = -2
_OPS = {b"read": OPS["read"], b"write": OPS["write"], b"flush": OPS["flush"], b"discard": OPS["discard"],
        b"secure_erase": _NO_IO, b"none": _NO_IO}
# One for all files, because a recording is rotated over many.
_DEVICE = pa.array([b"unknown"], pa.binary())


class IoTracer(TextFormat):
    name = "io-tracer"
    title = "io-tracer, block device traces"
    resolution_ns = 1000
    lacks = ("device",)
    pattern = LinePattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?,\d+,[^,]*,\d+,[A-Za-z_]+,\d+,\d+(?:\.\d+)?,\d+.*",
                          r"timestamp,pid,command,sector,operation,size,latency_ms,tid")
    columns = (Column("time", "datetime"), Column("pid", "int"), Column("command", "text"), Column("sector", "int"),
               Column("op", "text"), Column("size", "int"), Column("latency", "decimal", 6), Column("tid", "int"))
    extra_fields = True

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        op = mapped(rows["op"], lambda text: _OPS.get(text.lower(), UNKNOWN_OP))
        io = op != _NO_IO
        if not io.all():
            account.ignore("the operation is none or secure_erase", int(rows.positions[np.argmin(io)]),
                           count=int((~io).sum()))
        tid, limit = rows["tid"][io], np.iinfo(np.int32).max
        has_tid = (tid > 0) & (tid <= limit)
        latency_ns = rows["latency"][io]
        device = pa.DictionaryArray.from_arrays(pa.array(np.zeros(int(io.sum()), np.int32)), _DEVICE)
        return Batch(rows["time"][io] - latency_ns.clip(0, 1 << 61), scaled(rows["sector"][io], _SECTOR_BYTES),
                     rows["size"][io], op[io].astype(np.int8), rows.positions[io], latency_ns=latency_ns,
                     device=device, tid=np.where(has_tid, tid, -1), pid=rows["pid"][io],
                     process=rows["command"].filter(pa.array(io)))
