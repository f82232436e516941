"""Traces of SSD and disk simulators: time, device, LBA, sectors, 1 read or 0 write.

MQSim counts ns, as an integer (its ASCII trace definitions: `1` is a read). DiskSim counts ms, with a decimal point
(its ASCII format: bit 0 of the flags is a read).
"""

import numpy as np

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import UNKNOWN_OP, Batch, ImportOptions, LinePattern, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_SECTOR_BYTES = 512
_COLUMNS = (Column("device", "int"), Column("lba", "int"), Column("sectors", "int"), Column("op", "int"))


class _Simulator(TextFormat):
    delimiter = None

    def near_miss(self, head: bytes) -> str:
        return ""  # five numbers with another delimiter may be anything, such as a log of fio

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        op = np.select([rows["op"] == 1, rows["op"] == 0], [OPS["read"], OPS["write"]], UNKNOWN_OP).astype(np.int8)
        return Batch(rows["time"], scaled(rows["lba"], _SECTOR_BYTES), scaled(rows["sectors"], _SECTOR_BYTES), op,
                     rows.positions, device=rows["device"])


class MqSim(_Simulator):
    name = "mqsim"
    title = "MQSim"
    assumed = "times in ns, extents in sectors of 512 bytes, 1 is a read"
    pattern = LinePattern(r"\d+ \d+ \d+ \d+ [01]")
    columns = (Column("time", "int"), *_COLUMNS)


class DiskSim(_Simulator):
    name = "disksim"
    title = "DiskSim, ASCII"
    assumed = "times in ms, extents in sectors of 512 bytes, 1 is a read"
    pattern = LinePattern(r"\d+\.\d+ \d+ \d+ \d+ [01]")
    columns = (Column("time", "decimal", 6), *_COLUMNS)
