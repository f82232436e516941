"""Tables on stdout."""

import errno
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import rich.console
from rich.table import Table
from rich.text import Text

from .command_line import as_typed
from .printable import printable


@dataclass(frozen=True)
class Detail:
    """How much a command prints. verbose: causes and settings too. why: the reasons of verdicts. everything: all rows
    and columns."""

    verbose: bool = False
    why: bool = False
    everything: bool = False


class Console(rich.console.Console):
    """Of stdout. Its width is that of the terminal, or COLUMNS, or 80."""

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines of rich markup as they are, none of them wrapped or cut."""
        for line in lines:
            self.print(line, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which main() turns into exit code 141; rich would exit with 1, as for a failure."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def print_table(columns: Mapping[str, str], rows: Iterable[Sequence[str | Text]],
                console: Console | None = None) -> None:
    """Print a table without borders. columns: headings, each with its form: left, right, or fixed (never wrapped).

    Cells are names from outside: a str is printed as it is, without markup.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, form in columns.items():
        table.add_column(heading, justify="right" if form == "right" else "left", no_wrap=form == "fixed",
                         overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    (console or Console()).print(table)


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        notice(f"warning: {as_typed(warning)}")


def notice(text: str) -> None:
    """Print a line about the running command on stderr."""
    print(f"blkreel: {printable(text)}", file=sys.stderr)
