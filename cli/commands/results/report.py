"""`blkreel report`: one trace, one run, or the results of one benchmark."""

from pathlib import Path

import click
from rich.markup import escape

from blkreel.analysis.frames.document import FrameOptions
from blkreel.analysis.report import frame_lines, present, terminal
from blkreel.analysis.report.export import View
from blkreel.analysis.scale import ReadOptions
from blkreel.benchmarks.present import report_test
from blkreel.benchmarks.results.directory import is_test
from blkreel.cli.options import completion
from blkreel.cli.options.detail import detail_options
from blkreel.cli.options.report import TRACE, frame_options, page_options, print_result, read_options, reading
from blkreel.cli.ui import benchmark_summary
from blkreel.cli.ui.progress import progress
from blkreel.cli.ui.replay_summary import summary_lines
from blkreel.common.console import Console, Detail
from blkreel.common.errors import UsageError
from blkreel.common.files.storage_url import Location


@click.command()
@click.argument("trace", type=TRACE, shell_complete=completion.traces)
@page_options
@frame_options
@detail_options("why", "everything")
@read_options
def command(trace: Location, output: Path | None, figure: str | None, gap_ns: int, force: bool, as_json: bool,
            view: View, detail: Detail, read_options: ReadOptions, frames: FrameOptions | None) -> None:
    """Show one trace, run or benchmark as a table and a page.

    TRACE: a trace, a directory of `blkreel replay` or a directory of `blkreel test`.

    \b
    blkreel report game.parquet -o game.html
    blkreel report run/ -o run.html --force
    blkreel report run/ --format svg --chart read-tail -o tail.svg
    blkreel report run/ --format csv -o tables/
    blkreel report run/ --figure read_p99
    blkreel report run/ --all --why
    blkreel report run/ --gap 25ms --json
    blkreel report game.parquet --frames game_2026-11-25_20-15-00.csv --frames-run run/ -o stutter.html
    """
    if is_test(trace):
        if frames:
            raise UsageError("--frames needs a captured trace, not a benchmark", "name the trace")
        with progress("reading", total=1) as task:
            document = report_test(
                trace, output, force=force, view=view,
                on_step=lambda done, total: task.update(done / max(1, total), f"{done} of {total} steps"))

        def show(console: Console) -> None:
            benchmark_summary.show(document, console, detail)
    else:
        with reading() as on_rows:
            document = present.report(trace, output, gap_ns=gap_ns, force=force, on_rows=on_rows, view=view,
                                      read_options=read_options, frames=frames)

        def show(console: Console) -> None:
            if frames:
                lines = frame_lines.frame_lines(document["frames"], detail.everything, console.width)
                console.print_lines(map(escape, lines))
            console.print_lines(map(escape, summary_lines(document, detail, console.width)))
            if detail.everything:
                console.print_lines(terminal.report_lines(document, console.width))

    print_result(document, show, output, as_json, view, figure)
