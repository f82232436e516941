"""blkreplay .load files: `start ; sector ; length ; op ; ...` in seconds and sectors, after a text preamble.

The preamble and the line of column names recur where files were joined; the clock restarts there at 0, so the times
that follow continue at the last time before.
"""

from collections.abc import Iterator

import numpy as np

from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import Batch, ImportOptions, LinePattern, SourceFormat, mapped, scaled
from blkreel.traces.importers.text_table import Column, TextTable

_SECTOR_BYTES = 512
_OPS = {b"R": OPS["read"], b"W": OPS["write"]}
_PREAMBLE = b"Copyright "
_HEADER = b"start ;"
_PATTERN = LinePattern(r" *\d+\.\d+ *; *\d+ *; *\d+ *; *[RW][A-Z]* *;.*")


class Blkreplay(SourceFormat):
    name = "blkreplay"
    title = "blkreplay .load files"

    def likeness(self, head: bytes) -> float:
        return 1.0 if b"\n" + _HEADER in b"\n" + head else _PATTERN.likeness(head)

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        preamble = _Preamble()
        table = TextTable([Column("start", "decimal", 9), Column("sector", "int"), Column("length", "int"),
                           Column("op", "text")], b";", extra_fields=True, note=preamble.note)
        base_ns, reached_ns, restarts = 0, 0, 0
        for rows in table.rows(source, account):
            start_ns = rows["start"]
            # How many restarts are before each row; the first line of column names is none.
            part = np.searchsorted(np.array(preamble.headers[1:], np.int64), rows.positions)
            for number in np.unique(part).tolist():
                of_part = part == number
                if number > restarts:
                    base_ns, restarts = reached_ns, number
                start_ns[of_part] = scaled(start_ns[of_part], 1, base_ns)
                reached_ns = max(reached_ns, int(start_ns[of_part].max()))
            yield Batch(start_ns, scaled(rows["sector"], _SECTOR_BYTES), scaled(rows["length"], _SECTOR_BYTES),
                        mapped(rows["op"], lambda text: _OPS.get(text.strip()[:1], -1)).astype(np.int8), rows.positions,
                        flags=mapped(rows["op"], lambda text: FLAGS["read_ahead"] if b"A" in text else 0))


class _Preamble:
    """Lines between a beginning of the preamble and the line of column names. headers: numbers of those lines."""

    def __init__(self) -> None:
        self.headers: list[int] = []
        self._inside = True

    def note(self, number: int, line: bytes) -> str | None:
        if line.startswith(_HEADER):
            self._inside = False
            self.headers.append(number)
            return ""
        self._inside = self._inside or line.startswith(_PREAMBLE)
        return "" if self._inside else None
