"""Write man pages: blkreel(1) and one page for each command, from the help texts of the installed command.

    python man_pages.py DIRECTORY      prints the name of each file
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from blkreel import __version__
from blkreel.cli.command_table import all_commands, find_command
from blkreel.cli.main import cli, main

_SPECIAL = {"\\": "\\e", "-": "\\-", "`": "\\(ga", "'": "\\(aq", "^": "\\(ha", "~": "\\(ti"}
EXAMPLE_MARK = "\b"  # click: the next paragraph is printed as it is


def escape(text: str) -> str:
    """Text as roff prints it: a hyphen that can be copied, no request at the start of a line."""
    for character, roff in _SPECIAL.items():
        text = text.replace(character, roff)
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in text.split("\n"))


def description(text: str) -> Iterator[str]:
    """A docstring as roff: paragraphs, and examples without filling."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith(EXAMPLE_MARK):
            yield from (".RS 4", ".nf", escape(paragraph.removeprefix(EXAMPLE_MARK).strip("\n")), ".fi", ".RE")
        else:
            yield escape(" ".join(paragraph.split()))


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and isinstance(parameter, click.Option):
            yield from (".TP", f"\\fB{escape(record[0])}\\fR", escape(record[1]))


def page(name: str, command: click.Command, context: click.Context, summary: str, see_also: list[str]) -> str:
    """The page of one command. name: as typed, such as "blkreel replay"."""
    usage = " ".join(command.collect_usage_pieces(context))
    # click gives the docstring as help; its form feed ends the part that is for users.
    text = inspect.cleandoc((command.help or "").partition("\f")[0])
    paragraphs, _, examples = text.partition(f"\n\n{EXAMPLE_MARK}")
    lines = [f'.TH {escape(name.replace(" ", "-")).upper()} 1 "" "blkreel {__version__}" "blkreel"',
             ".SH NAME", f"{escape(name.replace(' ', '-'))} \\- {escape(summary)}",
             ".SH SYNOPSIS", f"\\fB{escape(name)}\\fR {escape(usage)}",
             ".SH DESCRIPTION", *description(paragraphs)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for subcommand, about in all_commands().items():
            lines += [".TP", f"\\fB{escape(page_name(subcommand))}\\fR(1)", escape(about)]
    lines += [".SH OPTIONS", *options(command, context)]
    if examples:
        lines += [".SH EXAMPLES", *description(EXAMPLE_MARK + examples)]
    exit_codes = (main.__doc__ or "").partition("Exit codes:")[2].replace("`", "")
    lines += [".SH EXIT STATUS", *description(exit_codes.strip())]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{escape(other)}\\fR(1)" for other in see_also)]
    return "\n".join(lines) + "\n"


def page_name(command: str) -> str:
    """blkreel-results-add, of the command `results add`."""
    return f"blkreel-{command.replace(' ', '-')}"


def write_pages(directory: Path) -> list[str]:
    """Write all pages; returns the names of their files."""
    commands = all_commands()
    root = click.Context(cli, info_name="blkreel")
    pages = {"blkreel": page("blkreel", cli, root, (cli.help or "").partition("\n")[0].rstrip("."),
                             [page_name(name) for name in commands])}
    for name, about in commands.items():
        command = find_command(name)
        context = click.Context(command, info_name=name, parent=root)
        pages[page_name(name)] = page(f"blkreel {name}", command, context, about.rstrip("."), ["blkreel"])
    for name, text in pages.items():
        (directory / f"{name}.1").write_text(text)
    return [f"{name}.1" for name in pages]


if __name__ == "__main__":
    print("\n".join(write_pages(Path(sys.argv[1]))))
