"""Plain tables that fit a width: whole columns are left out, and no cell is cut or wrapped."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.markup import escape

GAP = 2
_NO_BREAK = "\u00a0"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[A-Za-zµ%])")
_NUMBER = re.compile(r"\d[\d.,]*")


@dataclass(frozen=True)
class TextColumn:
    """cells: one for each row. style: of rich, for a cell's text; "" for none."""

    title: str
    cells: Sequence[str]
    unit: str = ""
    right: bool = True
    styles: Sequence[str] = ()

    def heading(self) -> tuple[str, str]:
        """Two lines: the title and the unit, or a long title cut between two words, the unit behind it."""
        words = self.title.split()
        if len(words) < 2 or cell_len(self.title) <= max(map(cell_len, [*self.cells, self.unit]), default=0):
            return self.title, self.unit
        unit = f", {self.unit}" if self.unit else ""
        splits = [(" ".join(words[:at]), " ".join(words[at:]) + unit) for at in range(1, len(words))]
        return min(splits, key=lambda lines: max(map(cell_len, lines)))

    @cached_property
    def width(self) -> int:
        return max(map(cell_len, [*self.heading(), *self.cells]))


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The first column, and of the others those that fit beside it, the earlier before the later ones."""
    chosen, left = [columns[0]], width - columns[0].width
    for column in columns[1:]:
        if column.width + GAP <= left:
            chosen.append(column)
            left -= column.width + GAP
    return chosen


def in_parts(columns: Sequence[TextColumn], width: int) -> list[list[TextColumn]]:
    """All columns in tables that fit the width, each with the first column; a wide column has a table of its own."""
    parts: list[list[TextColumn]] = []
    left = list(columns[1:])
    while left or not parts:
        part = [columns[0]]
        while left and (len(part) == 1 or _width([*part, left[0]]) <= width):
            part.append(left.pop(0))
        parts.append(part)
    return parts


def lines_of(columns: Sequence[TextColumn]) -> list[str]:
    """The heading and the rows of a table as lines, with the styles as rich markup; the text itself is escaped."""
    headings = list(zip(*(column.heading() for column in columns), strict=True))
    rows = [headings[0], headings[1]] if any(headings[1]) else [headings[0]]
    lines = [_line(columns, row, ["bold"] * len(columns)) for row in rows]
    for index, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        lines.append(_line(columns, cells, [column.styles[index] if column.styles else "" for column in columns]))
    return lines


def shortened(text: str, width: int) -> str:
    """The text, or its beginning with `…` in at most `width` cells; never cut inside a number or right after one."""
    if cell_len(text) <= width:
        return text
    end = len(text)
    while end and cell_len(text[:end]) > width - 1:
        end -= 1
    for number in _NUMBER.finditer(text):
        if number.start() < end <= number.end():
            end = number.start()
    return text[:end].rstrip(" ,;:(") + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width`, cut between words, and not between a number and its unit. Lines that follow the first
    are indented."""
    start = text[:len(text) - len(text.lstrip())]
    lines = textwrap.wrap(_BEFORE_UNIT.sub(_NO_BREAK, text), max(20, width), subsequent_indent=start + "  ",
                          break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _width(columns: Sequence[TextColumn]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _line(columns: Sequence[TextColumn], cells: Sequence[str], styles: Sequence[str]) -> str:
    parts = []
    for column, cell, style in zip(columns, cells, styles, strict=True):
        padding = " " * (column.width - cell_len(cell))
        text = escape(cell)
        text = f"[{style}]{text}[/]" if style and cell else text
        parts.append(f"{padding}{text}" if column.right else f"{text}{padding}")
    return (" " * GAP).join(parts).rstrip()
