"""Whether the rows of a trace are those that its metadata describes.

`waited_on` numbers rows, and survey and boundary state summarize them. A program that removes, adds, sorts or changes
rows often copies the metadata, which then describes other rows.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from blkreel.common.units import counted

from .schema import Metadata
from .trace import Trace

KEY = "integrity"
# The columns on which dependencies and boundary states rest. A change of any other column makes only the survey
# invalid, which is ignored in a file of other row groups.
COLUMNS = ["submit_ns", "latency_ns", "waited_on", "think_ns"]
_verified: set[str] = set()  # identities of files whose rows were read: a worker opens one file for each of its parts


class RowChecksums:
    """CRC-32 of the values of each of COLUMNS as little-endian int64, for rows that are added in order."""

    def __init__(self) -> None:
        self._crc = dict.fromkeys(COLUMNS, 0)
        self.rows = 0

    def add(self, columns: Mapping[str, Iterable[pa.Array]]) -> None:
        """The next rows: the arrays of each column."""
        for name in COLUMNS:
            for array in columns[name]:
                values = np.ascontiguousarray(array.to_numpy(zero_copy_only=False), "<i8")
                self._crc[name] = zlib.crc32(values.data, self._crc[name])
                self.rows += len(values) if name == COLUMNS[0] else 0

    def hexadecimal(self) -> dict[str, str]:
        return {name: f"{crc:08x}" for name, crc in self._crc.items()}

    def metadata(self, row_groups_at: list[int]) -> Metadata:
        """The key `integrity` and its value. row_groups_at: as Trace.row_groups_at."""
        return {KEY: {"rows": self.rows, "row_groups_at": row_groups_at, "crc32": self.hexadecimal()}}


def disagreement(trace: Trace) -> str | None:
    """How the rows differ from those that the metadata describes; None if they do not, or if it does not tell.

    Reads only the footer of a file that blkreel wrote: its row groups are where the metadata has them. The rows of a
    file that another program wrote are read once. Raises TraceError at a damaged page.
    """
    stored: Any = trace.metadata.get(KEY)
    rows = stored["rows"] if stored else _surveyed_rows(trace.metadata)
    if rows is not None and rows != trace.rows:
        return f"it has {counted(trace.rows, 'row')}, and its metadata describes {rows:,}"
    if not stored or stored["row_groups_at"] == trace.row_groups_at or trace.footer.identity in _verified:
        return None
    checksums = RowChecksums()
    for batch in trace.batches(COLUMNS):
        checksums.add({name: [batch[name]] for name in COLUMNS})
    changed = [name for name, crc in checksums.hexadecimal().items() if crc != stored["crc32"].get(name)]
    if changed:
        return f"{', '.join(changed)} {'differ' if len(changed) > 1 else 'differs'} from what its metadata describes"
    _verified.add(trace.footer.identity)
    return None


def _surveyed_rows(metadata: Metadata) -> int | None:
    """The number of rows by the survey, of a trace that was written before the key `integrity` existed."""
    try:
        devices: Any = metadata["survey"]["devices"].values()
        return int(sum(sum(device["ios"].values()) + device["left_out"] for device in devices))
    except (KeyError, TypeError, AttributeError):
        return None
