"""Options, progress and output that `report` and `compare` share."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from blkreel.analysis.charts.theme import NO_BRAND
from blkreel.analysis.frames.document import FrameOptions
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.report import drives_file, export, figure
from blkreel.analysis.report.page import brand
from blkreel.analysis.scale import ReadOptions
from blkreel.cli.ui.progress import progress
from blkreel.common.console import Console, notice
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.files.storage_url import Location, parse_location
from blkreel.common.printable import printable

from . import completion, types
from .types import NOT_TRUSTWORTHY, CommandFunction, add_options


class _Location(click.ParamType):  # type: ignore[type-arg]
    name = "trace"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        return parse_location(value)


TRACE = _Location()
_PAGE_OPTIONS = (
    click.option("-o", "--output", type=types.OUTPUT,
                 help="Write the report to this file: one HTML page that works offline, or by its suffix .png, .svg, "
                      ".csv, .json or .md."),
    click.option("--format", "format_", type=click.Choice(export.FORMATS),
                 help="Output format. Pictures and CSV need -o DIRECTORY, or --chart for one chart. json and markdown "
                      "go to stdout without -o. [default: by the suffix of -o]"),
    click.option("--chart", metavar="ID", help="Write one chart only. Its ID is its file name."),
    click.option("--figure", metavar="KEY", shell_complete=completion.metrics,
                 help="Print one metric, unrounded, with its unit, such as read_p99 (docs/method.md)."),
    click.option("--highlight", type=types.LABEL, metavar="DRIVE",
                 help="Highlight the drive under test in each chart. DRIVE: its label, or a unique part of it."),
    types.drives,
    click.option("--width", type=click.IntRange(200, 4000), metavar="PIXELS",
                 help="Width of pictures. [default: 640, of wide charts 1040]"),
    click.option("--scale", type=click.FloatRange(0.5, 8), metavar="FACTOR", default=export.SCALE, show_default=True,
                 help="Pixels of a PNG for each pixel of --width."),
    types.theme,
    click.option("--gap", "gap_ns", type=types.TIME_NS, default=DEFAULT_GAP_NS,
                 help="Idle time that separates two bursts. [default: 100ms]"),
    types.force,
    types.as_json,
)
_FRAME_OPTIONS = (
    click.option("--frames", type=types.PATH, metavar="FILE",
                 help="Show which frames waited for which I/O. FILE: frame times by MangoHud, PresentMon or CapFrameX "
                      "of the captured application (docs/reports.md)."),
    click.option("--frames-run", "run", type=TRACE, metavar="RUN", shell_complete=completion.traces,
                 help="Show which stutters would be gone on the drive of RUN, a replay of the trace at dependent "
                      "pace."),
    click.option("--frames-start", "start_ns", type=types.TIME_NS, metavar="TIME",
                 help="Time in the trace at which the clock of the frame log is 0. [default: from the file]"),
    click.option("--frames-process", "process", metavar="NAME",
                 help="Name or pid of the process that renders. [default: from the file, else the captured command]"),
)
_READ_OPTIONS = (
    click.option("--exact", is_flag=True,
                 help="Compute exact percentiles. [default: exact up to 4 million I/Os, within 0.4 % beyond]"),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N",
                 help="Number of reading processes. [default: number of cores]"),
    click.option("--cluster", metavar="ADDRESS",
                 help="Read with the workers of a Dask cluster. ADDRESS: its scheduler, tcp://HOST:8786."),
    click.option("--cache/--no-cache", default=True, show_default=True,
                 help="Cache metrics beside the traces, so that each trace is read once only (docs/scale.md)."),
    click.option("--skip-unreadable", is_flag=True,
                 help="Skip unreadable traces, list them and return exit code 3. [default: fail]"),
)


def page_options(command: CommandFunction) -> CommandFunction:
    """Add the options of the output.

    The command gets the options of the page as one argument `view`, an export.View. Conflicting
    options raise UsageError before anything is read.
    """
    @functools.wraps(command)
    def with_view(*arguments: Any, format_: str | None, chart: str | None, highlight: str | None,
                  drives: Path | None, width: int | None, scale: float, theme: Path | None, **parameters: Any) -> Any:
        if parameters["output"] is None:
            _refuse_missing_output(format_, chart)
        view = export.View(format_ or "", chart, highlight, drives_file.load(drives) if drives else None,
                           brand.load(theme) if theme else NO_BRAND, width or 0, scale)
        return command(*arguments, view=view, **parameters)

    return add_options(with_view, _PAGE_OPTIONS)


def _refuse_missing_output(format_: str | None, chart: str | None) -> None:
    if chart and not format_:
        raise UsageError("--chart: no format given", f"add -o {chart}.svg, or --format csv")
    if format_ in ("html", "png", "svg"):
        remedy = "-o FILE" if chart or format_ == "html" else "-o DIRECTORY, or --chart ID -o FILE"
        raise UsageError(f"--format {format_}: no output given", f"add {remedy}")
    if format_ == "csv" and not chart:
        raise UsageError("--format csv writes several tables: no output given",
                         "add -o DIRECTORY, or --chart ID for one of them")


def read_options(command: CommandFunction) -> CommandFunction:
    """Add the options of reading traces; the command gets them as one argument `read_options`.

    Exit code 3 if traces were skipped and the command itself succeeded.
    """
    @functools.wraps(command)
    def with_read_options(*arguments: Any, exact: bool, jobs: int | None, cluster: str | None, cache: bool,
                          skip_unreadable: bool, **parameters: Any) -> Any:
        if jobs is not None and cluster:
            raise UsageError("--jobs and --cluster exclude each other", "leave out one of them")
        options = ReadOptions(jobs, cluster, cache, skip_unreadable, exact)
        exit_code = command(*arguments, read_options=options, **parameters)
        for _, reason in options.left_out:
            notice(f"skipped: {reason}")
        return exit_code or (NOT_TRUSTWORTHY if options.left_out else exit_code)

    return add_options(with_read_options, _READ_OPTIONS)


@contextmanager
def reading() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress over all inputs; gives a function of (path, I/Os done, all I/Os)."""
    with progress("reading", total=1) as task:
        yield lambda path, done, total: task.update(done / max(1, total), f"{path}: {done:,} of {total:,} I/Os")


def print_result(document: dict[str, Any], show: Callable[[Console], None], output: Path | None,
                 as_json: bool, view: export.View, key: str | None = None) -> None:
    """Print the metrics and the path of the page; only the document with --json, only one metric with --figure."""
    for warning in view.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    if key is not None:
        click.echo(figure.with_unit(document, key))
        return
    if as_json:
        print_json(document, indent=1)
        return
    if view.text is not None:
        click.echo(view.text, nl=False)
        return
    show(Console())
    if output:
        click.echo(f"{'Charts' if output.is_dir() else 'Page'}: {printable(output)}")


def frame_options(command: CommandFunction) -> CommandFunction:
    """Add the options; the command gets them as one argument `frames`, None without --frames."""
    @functools.wraps(command)
    def with_frames(*arguments: Any, frames: Path | None, **parameters: Any) -> Any:
        own = {name: parameters.pop(name) for name in ("run", "start_ns", "process")}
        return command(*arguments, frames=None if frames is None else FrameOptions(frames, **own), **parameters)

    return add_options(with_frames, _FRAME_OPTIONS)
