"""What `report` and `compare` share: their options, their progress, how they end."""

import json
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from blkreel.analysis.bursts import DEFAULT_GAP_NS
from blkreel.cli import options
from blkreel.cli.progress import progress


def page_options(command):
    """-o, --gap, --force, --json."""
    for option in (options.as_json, options.force,
                   click.option("--gap", "gap_ns", type=options.TIME_NS, default=DEFAULT_GAP_NS, show_default="100ms",
                                help="Idle time after which a new burst starts."),
                   click.option("-o", "--output", type=click.Path(dir_okay=False, readable=False, path_type=Path),
                                help="Write the page here: one HTML file that works offline.")):
        command = option(command)
    return command


@contextmanager
def reading():
    """Progress over all inputs: gives what `present` calls with each batch."""
    with progress("reading", total=1) as task:
        yield lambda path, done, total: task.update(done / max(1, total), f"{path}: {done:,} of {total:,} I/Os")


def result(document: dict, show, output: Path | None, as_json: bool) -> None:
    """Figures and the page's path on stdout; with --json the document alone."""
    if as_json:
        click.echo(json.dumps(document, indent=1))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no width to fold a table for
    show(document, console)
    if output:
        click.echo(f"Page: {output}")
