"""FIU traces (SNIA IOTTA 390, 391): ns, pid, process, LBA, sectors, W or R, major, minor, MD5 of the content."""

import numpy as np

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import INVALID, Batch, ImportOptions, LinePattern, joined, op_codes, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_SECTOR_BYTES = 512


class Fiu(TextFormat):
    name = "fiu"
    title = "FIU traces, with a hash of the content"
    pattern = LinePattern(r"\d+ \d+ \S+ \d+ \d+ [RW] \d+ \d+(?: \S+)?")
    columns = (Column("time", "int"), Column("pid", "int"), Column("process", "text"), Column("lba", "int"),
               Column("sectors", "int"), Column("op", "text"), Column("major", "text"), Column("minor", "text"))
    delimiter = None
    extra_fields = True

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        pid = rows["pid"]
        valid = (pid >= 0) & (pid <= np.iinfo(np.int32).max)
        return Batch(np.where(valid, rows["time"], INVALID), scaled(rows["lba"], _SECTOR_BYTES),
                     scaled(rows["sectors"], _SECTOR_BYTES),
                     op_codes(rows["op"], {b"R": OPS["read"], b"W": OPS["write"]}), rows.positions,
                     device=joined(rows["major"], rows["minor"], b":"), tid=np.where(valid, pid, -1),
                     process=rows["process"])
