"""SYSTOR '17 (SNIA IOTTA 4964): Timestamp, Response, IOType, LUN, Offset, Size; seconds and bytes.

Timestamp is the time of issue: timestamp + response is in the order of the lines, which are written at completion.
It is accurate to 1 us. A blank IOType means that no response was recorded, so that the operation is unknown.
"""

import numpy as np

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import UNKNOWN_OP, Batch, ImportOptions, LinePattern, mapped
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_NO_RESPONSE = -2
_OPS = {b"R": OPS["read"], b"W": OPS["write"], b"": _NO_RESPONSE}


class Systor17(TextFormat):
    name = "systor17"
    title = "SYSTOR '17 traces of LUNs"
    clock = "realtime"
    resolution_ns = 1000
    pattern = LinePattern(r"\d{9,11}\.\d+,(?:\d+\.\d+)?,[RW]?,\d+,\d+,\d+",
                          r"(?i)timestamp,response,iotype,lun,offset,size")
    columns = (Column("time", "decimal", 9), Column("response", "decimal", 9, empty=-1), Column("op", "text"),
               Column("lun", "int"), Column("offset", "int"), Column("size", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        op = mapped(rows["op"], lambda text: _OPS.get(text, UNKNOWN_OP))
        answered = op != _NO_RESPONSE
        if not answered.all():
            account.ignore("no response was recorded, so that the operation is unknown",
                           int(rows.positions[np.argmin(answered)]), count=int((~answered).sum()))
        return Batch(rows["time"][answered], rows["offset"][answered], rows["size"][answered],
                     op[answered].astype(np.int8), rows.positions[answered], latency_ns=rows["response"][answered],
                     device=rows["lun"][answered])
