"""SPC trace format 1.0 (UMass Financial, WebSearch): ASU, LBA, size in bytes, r or w, seconds, optional fields.

The LBA counts blocks of a size that the file does not state.
"""

from collections.abc import Iterator

from blkreel.common.errors import UsageError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import Batch, ImportOptions, LinePattern, op_codes, scaled
from blkreel.traces.importers.text_table import Column, Rows, TextFormat

_OPS = {b"r": OPS["read"], b"R": OPS["read"], b"w": OPS["write"], b"W": OPS["write"]}


class Spc(TextFormat):
    name = "spc"
    title = "SPC-1 traces, as of UMass"
    resolution_ns = 1000
    pattern = LinePattern(r"\d+,\d+,\d+,[rwRW],\d+\.\d+(?:,.*)?")
    columns = (Column("asu", "int"), Column("lba", "int"), Column("size", "int"), Column("op", "text"),
               Column("time", "decimal", 9))
    extra_fields = True

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        if options.block_bytes is None:
            raise UsageError(f"{source.path} counts blocks of a size that it does not state",
                             "give the size, as the publisher of the trace states it: --block-size 512")
        yield from super().batches(source, account, options)

    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        assert options.block_bytes is not None
        return Batch(rows["time"], scaled(rows["lba"], options.block_bytes), rows["size"], op_codes(rows["op"], _OPS),
                     rows.positions, device=rows["asu"])
