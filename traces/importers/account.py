"""The account of an import: records read = rows + rejected + ignored, by reason."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blkreel.common.units import counted

_EXAMPLE_BYTES = 80


@dataclass
class Tally:
    """Records with one reason. example: `FILE: line 17: text` of the first of them."""

    count: int = 0
    example: str = ""

    def add(self, count: int, example: str) -> None:
        self.example = self.example or example
        self.count += count


@dataclass
class Account:
    """Counts every record of the source.

    rejected: records that are invalid. ignored: valid records that are not I/O of a chosen device, such as messages.
    back_steps: records earlier than the record before; back_largest_ns: the largest distance to the latest time
    before. lost_events: that the recording lost, as its tool reports. file: name of the file being read. unit: what a
    position counts, `line` or `byte`.
    """

    records: int = 0
    rows: int = 0
    rejected: dict[str, Tally] = field(default_factory=dict)
    ignored: dict[str, Tally] = field(default_factory=dict)
    back_steps: int = 0
    back_largest_ns: int = 0
    lost_events: int = 0
    warnings: list[str] = field(default_factory=list)
    file: str = ""
    unit: str = "line"

    def read(self, count: int) -> None:
        """Count records that were read, whatever becomes of them."""
        self.records += count

    def reject(self, reason: str, position: int, text: bytes | str = b"", count: int = 1) -> None:
        """Count invalid records. position: of the first of them."""
        self.rejected.setdefault(reason, Tally()).add(count, self.place(position, text))

    def ignore(self, reason: str, position: int, text: bytes | str = b"", count: int = 1) -> None:
        """Count records that do not become rows. position: of the first of them."""
        self.ignored.setdefault(reason, Tally()).add(count, self.place(position, text))

    def ignore_unplaced(self, reason: str, count: int) -> None:
        """Count records that do not become rows, and whose positions are unknown."""
        self.ignored.setdefault(reason, Tally()).add(count, "")

    def note_back_steps(self, count: int, largest_ns: int) -> None:
        """Count records earlier than the record before. largest_ns: their distance to the latest time before."""
        self.back_steps += count
        self.back_largest_ns = max(self.back_largest_ns, largest_ns)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def place(self, position: int, text: bytes | str = b"") -> str:
        """`FILE: line 17: text`, the text shortened."""
        excerpt = text if isinstance(text, str) else text[:_EXAMPLE_BYTES + 1].decode(errors="replace")
        if len(excerpt) > _EXAMPLE_BYTES:
            excerpt = excerpt[:_EXAMPLE_BYTES] + "..."
        return f"{self.file}: {self.unit} {position:,}" + (f": {excerpt.strip()}" if excerpt.strip() else "")

    def missing(self) -> list[str]:
        """What the recording had and the trace lacks."""
        lost = [f"{counted(self.lost_events, 'event')} lost during the recording"] if self.lost_events else []
        return [*lost, *self.lines(self.rejected, "rejected")]

    @property
    def rejected_records(self) -> int:
        return sum(tally.count for tally in self.rejected.values())

    @property
    def ignored_records(self) -> int:
        return sum(tally.count for tally in self.ignored.values())

    def lines(self, tallies: dict[str, Tally], verb: str) -> list[str]:
        """One line for each reason, most records first."""
        ordered = sorted(tallies.items(), key=lambda item: -item[1].count)
        return [f"{counted(tally.count, 'record')} {verb}: {reason}"
                + (f" (first: {tally.example})" if tally.example else "")
                for reason, tally in ordered]

    def ledger(self) -> dict[str, Any]:
        """The metadata key `ledger`."""
        return {"records": self.records, "rows": self.rows,
                "rejected": {reason: vars(tally).copy() for reason, tally in self.rejected.items()},
                "ignored": {reason: vars(tally).copy() for reason, tally in self.ignored.items()},
                "clock_back_steps": self.back_steps, "clock_back_largest_ns": self.back_largest_ns}


def account_for(mask: np.ndarray, positions: np.ndarray, count: Callable[..., None], reason: str) -> None:
    """Report the records of a mask by `count`: Account.reject or Account.ignore. positions: of all records."""
    if number := int(np.count_nonzero(mask)):
        count(reason, int(positions[np.argmax(mask)]), count=number)
