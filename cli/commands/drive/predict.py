"""`blkreel predict`: what a trace takes on drives that were fitted to runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.analysis.metrics.definitions.registry import METRICS
from blkreel.analysis.metrics.partials.distributions import PERCENTILES
from blkreel.analysis.report.columns import WITHHELD
from blkreel.cli.options import completion
from blkreel.cli.options.device import device_option, note_numbers
from blkreel.cli.options.types import as_json
from blkreel.cli.ui.progress import progress
from blkreel.common.console import Console, notice
from blkreel.common.emulated import FittedFacts
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.common.text_table import TextColumn, fitting, lines_of
from blkreel.common.units import digits, time_unit
from blkreel.common.verdict import enough
from blkreel.replay.plan.mapping import DoesNotFit
from blkreel.replay.predict.prediction import Prediction, drive_file, predict
from blkreel.replay.simulated import spec
from blkreel.traces.format.reader import open_trace

# Metrics whose errors a drive's file has.
CHECKED = (METRICS["load_time"], METRICS["read_p99"])
ADDED = METRICS["added_by_drive"]


@click.command()
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@click.argument("drives", nargs=-1, required=True, metavar="DRIVE.toml...",
                type=click.Path(readable=False, path_type=Path))
@device_option
@click.option("--compute", metavar="xN",
              help="Divide the computing time between the I/Os of each thread, as on a faster machine: x4; none: leave "
                   "it out.")
@as_json
def command(trace: str, drives: tuple[Path, ...], device: int | None, compute: str | None, as_json: bool) -> None:
    """Predict load time and read p99 of a trace on drives, without the drives.

    The trace is replayed on simulated drives that `blkreel model-drive` fitted to runs. Beside each figure is the
    largest error that such predictions had for traces that were measured on that drive. A trace without known
    dependencies has no load time: it is replayed at its captured times.

    \b
    blkreel predict game.parquet drives/*.toml
    blkreel predict sample:game-load a.toml b.toml --json
    blkreel predict game.parquet drives/*.toml --compute x4
    """
    opened = open_trace(trace)
    note_numbers(opened, [device])
    predictions = []
    for path in drives:
        simulated = spec.parse(drive_file(path))
        try:
            predictions.append(_Row(path, simulated.fitted or {},
                                    predict(opened, simulated, device, progress, compute=compute)))
        except DoesNotFit as error:
            raise UsageError(f"{path}: drive too small: {error.message}", "name the file of a larger drive") from None
    predictions.sort(key=lambda row: (row.load_time_ns() is None, row.load_time_ns() or row.of.read_p99_ns or 0))
    if as_json:
        print_json({"version": 1, "trace": trace, "compute": compute,
                    "predictions": [row.document() for row in predictions]})
        return
    _show(predictions)


@dataclass(frozen=True)
class _Row:
    """One drive. facts: of its file. of: what the trace takes on it."""

    file: Path
    facts: FittedFacts
    of: Prediction

    @property
    def name(self) -> str:
        return printable(self.facts.get("drive") or self.file.stem)

    def document(self) -> dict[str, Any]:
        values = {metric.column: value for metric, value in self.values()}
        errors = {f"{metric.key}_error": self.facts.get(f"{metric.key}_error") for metric in CHECKED}
        return {"file": str(self.file), "drive": self.name, "firmware": self.facts.get("firmware"),
                "pace": self.of.pace, **values, "limits": list(self.of.limits),
                "withheld": [metric.key for metric, _ in self.values() if metric.key in self.of.withheld],
                "held_out": self.facts.get("held_out"), **errors}

    def values(self) -> list[tuple[Metric, int | None]]:
        p99_ns = self.of.read_p99_ns if enough(self.of.reads, PERCENTILES["p99"]) else None
        values_ns = zip((*CHECKED, ADDED), (self.of.load_time_ns, p99_ns, self.of.added_by_drive_ns), strict=True)
        return [(metric, None if metric.key in self.of.withheld else value_ns) for metric, value_ns in values_ns]

    def load_time_ns(self) -> int | None:
        return self.values()[0][1]

    def error(self, metric: Metric) -> str:
        """`4.1 %`; in brackets if the drive was fitted to the same traces."""
        error: float | None = self.document()[f"{metric.key}_error"]
        if error is None:
            return "unknown"
        return f"{error * 100:.1f} %" if self.facts.get("held_out") else f"({error * 100:.1f} %)"


def _show(rows: list[_Row]) -> None:
    columns = [TextColumn("drive", [row.name for row in rows], right=False)]
    for index, metric in enumerate((*CHECKED, ADDED)):
        values_ns = [row.values()[index][1] for row in rows]
        if all(value is None for value in values_ns) and not any(metric.key in row.of.withheld for row in rows):
            continue
        scale, unit = time_unit(values_ns)
        columns.append(TextColumn(metric.title, [
            WITHHELD if metric.key in row.of.withheld else digits(None if value is None else value / scale)
            for row, value in zip(rows, values_ns, strict=True)], unit))
        if metric in CHECKED:
            columns.append(TextColumn("error", [row.error(metric) for row in rows]))
    console = Console()
    console.print_lines(lines_of(fitting(columns, console.width)))
    console.print_lines(["simulated, not measured; error: the largest that was found for traces measured on the drive"])
    for text in dict.fromkeys(limit for row in rows for limit in row.of.limits):
        limited = [row.name for row in rows if text in row.of.limits]
        notice(text if len(limited) == len(rows) else f"{', '.join(limited)}: {text}")
    if all(row.of.load_time_ns is None for row in rows):
        notice("no load time: the trace does not tell what its I/Os waited for")
    if few := [row.of.reads for row in rows if row.of.reads > 0 and row.values()[1][1] is None]:
        notice(f"no read p99: n too small (n={few[0]:,})")
    if any(row.facts.get("held_out") is False for row in rows):
        notice("errors in brackets: of the traces that the drive was fitted to, so those of others are larger")
