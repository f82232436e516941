"""What `report` and `compare` share: their options, their progress, how they end."""

import functools
import json
import sys
from contextlib import contextmanager
from pathlib import Path

import click

from blkreel.analysis import catalogue, export, figure
from blkreel.analysis.bursts import DEFAULT_GAP_NS
from blkreel.cli import options
from blkreel.cli.console import Console
from blkreel.cli.progress import progress
from blkreel.traces.errors import UsageError

_PATH = click.Path(readable=False, path_type=Path)
_OPTIONS = (
    click.option("-o", "--output", type=_PATH,
                 help="Write the page here: one HTML file that works offline. A name that ends in .png, .svg, .csv, "
                      ".json or .md asks for that format."),
    click.option("--format", "format_", type=click.Choice(export.FORMATS),
                 help="Pictures for articles, tables for programs. Without --chart -o is a directory of all of them; "
                      "json and markdown are one file, on stdout without -o."),
    click.option("--chart", metavar="ID", help="One chart alone, by the name that its file has."),
    click.option("--figure", metavar="KEY", help="Print one number, unrounded: read.bursts.throughput_mb_s."),
    click.option("--highlight", metavar="DRIVE",
                 help="The drive under test, by its label or words that it alone has: marked in every chart."),
    click.option("--drives", "drives", type=_PATH, metavar="FILE",
                 help="What no computer knows of drives: class, flash, price, predecessor, rivals (docs/reports.md)."),
    click.option("--gap", "gap_ns", type=options.TIME_NS, default=DEFAULT_GAP_NS, show_default="100ms",
                 help="Idle time after which a new burst starts."),
    options.force,
    options.as_json,
)


def page_options(command):
    """Options that say how a page is shown; the command gets --format, --chart, --highlight and --drives as one
    argument `view`, an export.View, checked before anything is read."""
    @functools.wraps(command)
    def with_view(*arguments, format_, chart, highlight, drives, **others):
        output = others["output"]
        if output is None and chart and not format_:
            raise UsageError("--chart needs a format or a name", f"add -o {chart}.svg, or --format csv")
        if output is None and format_ in ("html", "png", "svg"):
            whole = "-o FILE" if chart or format_ == "html" else "-o DIRECTORY, or --chart ID -o FILE for one of them"
            raise UsageError(f"--format {format_} needs a place to write to", f"add {whole}")
        if format_ == "csv" and output is None and not chart:
            raise UsageError("--format csv makes several tables", "add -o DIRECTORY, or --chart ID for one of them")
        view = export.View(format_ or "", chart, highlight, catalogue.load(drives) if drives else None)
        return command(*arguments, view=view, **others)

    for option in reversed(_OPTIONS):
        with_view = option(with_view)
    return with_view


@contextmanager
def reading():
    """Progress over all inputs: gives what `present` calls with each batch."""
    with progress("reading", total=1) as task:
        yield lambda path, done, total: task.update(done / max(1, total), f"{path}: {done:,} of {total:,} I/Os")


def result(document: dict, show, output: Path | None, as_json: bool, view: export.View | None = None,
           key: str | None = None) -> None:
    """Figures and the page's path on stdout; with --json the document alone, with --figure one number, with a format
    and no output that text."""
    for warning in view.warnings if view else ():
        click.echo(f"warning: {warning}", err=True)
    if key is not None:
        click.echo(figure.printed(document, key))
        return
    if as_json:
        # Piece by piece: of a trace of months the whole text would take more memory than its figures.
        sys.stdout.writelines(json.JSONEncoder(indent=1).iterencode(document))
        click.echo()
        return
    if view and view.text is not None:
        click.echo(view.text, nl=False)
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no width to fold a table for
    show(document, console)
    if output:
        click.echo(f"{'Charts' if output.is_dir() else 'Page'}: {output}")
