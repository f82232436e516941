"""MSR Cambridge (SNIA IOTTA 388): FILETIME, host, disk, Read or Write, offset and size in bytes, response time.

Timestamp is the time of issue; it and the response time are in units of 100 ns, as the README of the traces states.
"""

from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_format import Batch, ImportOptions, LinePattern, joined, op_codes, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

# Of a FILETIME, which counts 100 ns since 1601, at the beginning of 1970.
_UNIX_EPOCH_TICKS = 116_444_736_000_000_000
_TICK_NS = 100
_OPS = {b"Read": OPS["read"], b"Write": OPS["write"], b"read": OPS["read"], b"write": OPS["write"]}


class MsrCambridge(TextFormat):
    name = "msr"
    title = "MSR Cambridge block traces"
    clock = "realtime"
    resolution_ns = _TICK_NS
    pattern = LinePattern(r"\d{17,19},[\w.-]+,\d+,(?i:read|write),-?\d+,-?\d+,-?\d+",
                          r"(?i)timestamp,hostname,disknumber")
    columns = (Column("time", "int"), Column("host", "text"), Column("disk", "text"), Column("op", "text"),
               Column("offset", "int"), Column("size", "int"), Column("response", "int"))

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        return Batch(scaled(rows["time"], _TICK_NS, -_UNIX_EPOCH_TICKS), rows["offset"], rows["size"],
                     op_codes(rows["op"], _OPS), rows.positions, latency_ns=scaled(rows["response"], _TICK_NS),
                     device=joined(rows["host"], rows["disk"], b"_"))
