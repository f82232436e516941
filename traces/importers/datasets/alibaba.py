"""Alibaba block traces of 2020: device, R or W, offset and length in bytes, microseconds since 1970."""

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import Batch, ImportOptions, LinePattern, op_codes, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_MICROSECOND_NS = 1000


class Alibaba(TextFormat):
    name = "alibaba"
    title = "Alibaba block traces of 2020"
    clock = "realtime"
    resolution_ns = _MICROSECOND_NS
    pattern = LinePattern(r"\d+,[RW],\d+,\d+,\d+", r"device_id,opcode,offset,length,timestamp")
    columns = (Column("device", "int"), Column("op", "text"), Column("offset", "int"), Column("length", "int"),
               Column("time", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        return Batch(scaled(rows["time"], _MICROSECOND_NS), rows["offset"], rows["length"],
                     op_codes(rows["op"], {b"R": OPS["read"], b"W": OPS["write"]}), rows.positions,
                     device=rows["device"])
