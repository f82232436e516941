"""Tencent CBS (SNIA IOTTA 27917): seconds since 1970, sector, sectors, 0 read or 1 write, volume.

Tens of thousands of rows share a second, and times step back by some seconds. Copies that count bytes instead of
sectors need --block-size 1.
"""

import numpy as np

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import UNKNOWN_OP, Batch, ImportOptions, LinePattern, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_SECTOR_BYTES = 512


class TencentCbs(TextFormat):
    name = "tencent"
    title = "Tencent cloud block storage"
    clock = "realtime"
    resolution_ns = 1_000_000_000
    pattern = LinePattern(r"\d{9,10},\d+,\d+,[01],\d+")
    columns = (Column("time", "int"), Column("sector", "int"), Column("sectors", "int"), Column("op", "int"),
               Column("volume", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        block_bytes = options.block_bytes or _SECTOR_BYTES
        op = np.select([rows["op"] == 0, rows["op"] == 1], [OPS["read"], OPS["write"]], UNKNOWN_OP).astype(np.int8)
        return Batch(scaled(rows["time"], self.resolution_ns), scaled(rows["sector"], block_bytes),
                     scaled(rows["sectors"], block_bytes), op, rows.positions, device=rows["volume"])
