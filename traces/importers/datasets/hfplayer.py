"""CSV of hfplayer (University of Minnesota, FAST '17), from traces of NetApp controllers. A header names the columns.

A record of phase 0 is the arrival of an I/O, with its latency. LBA and NBLKS count blocks of 512 bytes.
"""

import numpy as np

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import UNKNOWN_OP, Batch, ImportOptions, LinePattern, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_BLOCK_BYTES = 512
_ARRIVAL = 0
_US_PLACES = 3
_HEADER = ("#DUMP_OFFSET.I,ELAPSED_USECS.D,ELAPSED_TICKS.I,CMD.S,INFLIGHT_IOS.I,TS.I,SEQID.I,LUN_SSID.I,OP.I,PHASE.I,"
           "LBA.I,NBLKS.I,LATENCY_TICKS.I,HOST_ID.I,HOST_LUN.I,LATENCY_USECS.D")


class Hfplayer(TextFormat):
    name = "hfplayer"
    title = "CSV of hfplayer"
    pattern = LinePattern(r"\d+,\d+(?:\.\d*)?,\d+,(?:RD|WR)\w*(?:,-?\d+){11},-?\d+(?:\.\d*)?",
                          _HEADER.replace(".", r"\."))
    columns = (Column("dump_offset", "skip"), Column("time", "decimal", _US_PLACES), Column("ticks", "skip"),
               Column("command", "skip"), Column("in_flight", "skip"), Column("ts", "skip"), Column("sequence", "skip"),
               Column("lun", "int"), Column("op", "int"), Column("phase", "int"), Column("lba", "int"),
               Column("blocks", "int"), Column("latency_ticks", "skip"), Column("host", "skip"),
               Column("host_lun", "skip"), Column("latency", "decimal", _US_PLACES, empty=-1))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        arrivals = rows["phase"] == _ARRIVAL
        if not arrivals.all():
            account.ignore("not the arrival of an I/O (PHASE)", int(rows.positions[np.argmin(arrivals)]),
                           count=int((~arrivals).sum()))
        op = np.select([rows["op"] == 0, rows["op"] == 1], [OPS["read"], OPS["write"]], UNKNOWN_OP).astype(np.int8)
        return Batch(rows["time"][arrivals], scaled(rows["lba"][arrivals], _BLOCK_BYTES),
                     scaled(rows["blocks"][arrivals], _BLOCK_BYTES), op[arrivals], rows.positions[arrivals],
                     latency_ns=rows["latency"][arrivals], device=rows["lun"][arrivals])
