"""How writes lie on blocks of 4 to 64 KiB: a table without a picture."""

from collections.abc import Sequence

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.metrics.partials.alignment import BLOCK_BYTES
from blkreel.analysis.report.document import Entry


def alignment(entries: Sequence[Entry], id_: str) -> Chart | None:
    """entries: of a report.document.Section. None without writes."""
    rows = []
    for entry in entries:
        shares = entry.shown["figures"]["write"]["alignment"]
        for size in BLOCK_BYTES:
            name = f"{size // 1024}k"
            if shares[f"unaligned_{name}"] is not None:
                rows.append(Row({"block_bytes": size, "unaligned": shares[f"unaligned_{name}"],
                                 "repeated": shares[f"repeated_{name}"]}, entry.shown["label"],
                                group=entry.shown["label"] if len(entries) > 1 else ""))
    if not rows:
        return None
    columns = (Column("block_bytes", "Block", "block"),
               Column("unaligned", "Not aligned", "share",
                      formula="writes that begin or end within a block / all writes"),
               Column("repeated", "Again into a block", "share",
                      formula="writes that begin in the block in which the previous write to the drive ended / all "
                              "writes"))
    return Chart(id_, "Alignment of writes", Table("Share of the writes, by size of block", columns, tuple(rows)))
