"""`blkreel results history`: how a metric changed over dates, firmware or kernels."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc

from blkreel.analysis.charts.theme import NO_BRAND
from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.analysis.report import export
from blkreel.analysis.report.page import brand
from blkreel.benchmarks.catalog import Catalog
from blkreel.benchmarks.history import AXES, By, History, Selected, Selection, document_of, history_of, selected
from blkreel.benchmarks.history.document import junit_of, lines, outcome, outcome_line
from blkreel.benchmarks.history.page import chart_id, page_of
from blkreel.benchmarks.history.selection import COLUMNS
from blkreel.cli.options import catalog as options
from blkreel.cli.options import completion, types
from blkreel.cli.options.detail import detail_options
from blkreel.common.console import Console, Detail
from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.files.json_file import print_json
from blkreel.common.files.output_lock import write_output
from blkreel.common.printable import printable
from blkreel.traces.format.writer import output_errors, refuse_output

_CHANGED = 4  # exit code
_FORMATS = ("html", "png", "svg", "csv", "markdown")
_MOST_KEYS = 12  # in an error message


@click.command()
@click.argument("workload")
@options.drive
@click.option("--by", type=click.Choice(AXES), default="date", show_default=True,
              help="Compare days (UTC), firmware versions or kernels.")
@click.option("--metric", "metrics", multiple=True, metavar="KEY", shell_complete=completion.metrics,
              help="Metric to search, such as read_p99. Repeatable. [default: the headline metric]")
@click.option("--where", multiple=True, metavar="COLUMN=TEXT",
              help="Only results with this text in unit, pace, state, host, firmware or kernel. Repeatable.")
@click.option("--fail-on-change", is_flag=True,
              help="Return exit code 4 if a metric changed for the worse by more than 2 %, and 3 if that cannot be "
                   "decided.")
@click.option("--accepted-until", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE",
              help="Changes up to this date do not fail.")
@types.allow_simulated
@click.option("--junit", type=types.OutputPath(), metavar="FILE",
              help="Write the decision of --fail-on-change to this file as JUnit XML.")
@click.option("-o", "--output", type=types.OUTPUT,
              help="Write a page that works offline to this file; or the chart of one metric by the suffix .png or "
                   ".svg, its table by .csv or .md.")
@types.theme
@options.catalog
@detail_options("everything")
@types.force
@types.as_json
def command(workload: str, drive_texts: tuple[str, ...], by: By, metrics: tuple[str, ...], where: tuple[str, ...],
            fail_on_change: bool, accepted_until: datetime | None, allow_simulated: bool,
            junit: Path | None, output: Path | None, theme: Path | None, catalog: Path | None, detail: Detail,
            force: bool, as_json: bool) -> int:
    """Show how a metric changed on one drive: steps with their date, size and interval.

    WORKLOAD: title, file name or beginning of the checksum. The results must be of one model, unit, pace and state; a
    message names the option that selects one of several. The search finds steps, not single slow nights; it needs 12
    nights, or 12 runs by version.

    \b
    blkreel results history "game load" --drive "990 Pro"
    blkreel results history sample:game-load --drive lab-1 --by firmware --metric load_time --metric read_p99
    blkreel results history "game load" --drive "990 Pro" -o history.html
    blkreel results history "game load" --drive "990 Pro" --fail-on-change --junit history.xml
    """
    if not fail_on_change:
        for name, value in (("--accepted-until", accepted_until), ("--allow-simulated", allow_simulated),
                            ("--junit", junit)):
            if value:
                raise UsageError(f"{name}: nothing to decide", "add --fail-on-change")
    format_ = export.format_of(output, _FORMATS) if output else ""
    for path in filter(None, (junit, output)):
        refuse_output(path, force)
    colors = brand.load(theme) if theme else NO_BRAND
    opened = options.opened(catalog)
    chosen = selected(opened.result_table().to_pylist(), Selection(workload, drive_texts, _where(where)), by)
    options.warn_damaged(opened.damaged.values())
    histories = _histories(opened, chosen, metrics, by)
    if output is not None and format_ not in ("html", "markdown") and len(histories) > 1:
        raise UsageError(f"-o {output}: one picture or table of {len(histories)} metrics",
                         "name one --metric, or a page")
    accepted = accepted_until.date() if accepted_until else None
    outcomes = [outcome(history, accepted, allow_simulated) for history in histories] if fail_on_change else []
    if output is not None:
        chart = None if format_ in ("html", "markdown") else chart_id(histories[0])
        export.write(page_of(histories, chosen, colors), format_, output, chart, force)
    if junit is not None:
        with output_errors(junit):
            write_output(junit, junit_of(outcomes, chosen), force=force)
    if as_json:
        print_json(document_of(histories, chosen, by, outcomes))
    else:
        console = Console()
        console.print_lines(printable(line) for line in lines(histories, chosen, console.width, detail.everything))
        if output is not None:
            click.echo(f"{'Page' if format_ == 'html' else 'Output'}: {printable(output)}")
        for own_outcome in outcomes:
            click.echo(printable(outcome_line(own_outcome)), err=True)
    if any(outcome.status == "changed" for outcome in outcomes):
        return _CHANGED
    undecided = any(outcome.status == "unknown" for outcome in outcomes)
    return types.NOT_TRUSTWORTHY if undecided or opened.damaged else 0


def _where(texts: Sequence[str]) -> dict[str, str]:
    """Column -> text. Raises UsageError."""
    where = {}
    for text in texts:
        column, _, value = text.partition("=")
        if column not in COLUMNS or not value:
            raise UsageError(f"--where {text}: not COLUMN=TEXT", f"COLUMN is one of: {', '.join(COLUMNS)}")
        where[column] = value
    return where


def _histories(catalog: Catalog, chosen: Selected, keys: Sequence[str], by: By) -> list[History]:
    """Raises UsageError for a metric that the results do not have."""
    table = catalog.metric_table()
    ids = [row["id"] for row in chosen.rows]
    table = table.filter(pc.is_in(table["id"].cast("string"), value_set=pa.array(ids, "string")))
    choices = sorted(set(table["key"].to_pylist()))
    # Not that of the latest result: where its verdict withholds the usual one, it has another.
    headlines = Counter(row["headline"] for row in chosen.rows if row["headline"])
    wanted = list(dict.fromkeys(keys)) or [key for key, _ in headlines.most_common(1)] or [""]
    histories = []
    for key in wanted:
        own = table.filter(pc.equal(table["key"].cast("string"), key)).to_pylist()
        usable = f"use {', '.join(choices[:_MOST_KEYS])}{' …' if len(choices) > _MOST_KEYS else ''}"
        if not own:
            raise UsageError(f"--metric {key or 'KEY'}: the results do not have it", did_you_mean(key, choices, usable))
        text = metric_of(key, own[-1]["unit"], own[-1]["better"])
        try:
            histories.append(history_of(chosen.rows, {row["id"]: row["value"] for row in own}, text, by))
        except ValueError as error:
            raise UsageError(f"--metric {key}: {error}", usable) from None
    return histories
