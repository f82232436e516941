"""`blkreel model`: fit a synthetic workload to a trace."""

from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.device import note_numbers
from blkreel.cli.options.types import OUTPUT, as_json, force, public
from blkreel.cli.ui.progress import progress
from blkreel.common import units
from blkreel.common.command_line import command_line
from blkreel.common.console import Console, notice
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.files.output_lock import write_output
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.printable import printable
from blkreel.common.text_table import TextColumn, fitting, lines_of
from blkreel.common.units import counted, format_count, format_ns
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.writer import output_errors, refuse_output
from blkreel.traces.model import (
    MOST_SAMPLED_IOS,
    PROPERTIES,
    SUFFIX,
    Comparison,
    WorkloadModel,
    compared,
    fio_job,
    generated,
    measured,
    model_text,
    modeled_trace,
    properties,
    read_model,
    sampled_ios,
    write_generated,
)


@click.command()
@click.argument("source", metavar="TRACE|MODEL.toml", type=click.Path(readable=False), shell_complete=completion.traces)
@click.option("-o", "--output", type=OUTPUT, help="File of the model to write.")
@click.option("--format", "format_name", type=click.Choice(["toml", "fio"]), default="toml", show_default=True,
              help="Format of -o: a model that blkreel reads, or a job file of fio.")
@click.option("--make-trace", type=OUTPUT, metavar="OUT.parquet", help="Write I/Os of the model as a trace.")
@click.option("--ios", type=click.IntRange(2, 1 << 40), metavar="N",
              help="I/Os of the trace to make. [default: as many as the modeled trace has]")
@click.option("--seed", type=click.IntRange(0, (1 << 63) - 1), default=1, show_default=True, metavar="N",
              help="Seed of the I/Os: the same one makes the same I/Os.")
@click.option("--device", type=click.IntRange(0), metavar="N",
              help="Model the I/Os of the device with this number: blkreel info.")
@force
@public
@as_json
def command(source: str, output: Path | None, format_name: str, make_trace: Path | None, ios: int | None, seed: int,
            device: int | None, force: bool, public: bool, as_json: bool) -> None:
    """Fit a synthetic workload to a trace, and make traces of it.

    The model has the operations, sizes, sequential streams, gaps between I/Os and their bursts, reuse of offsets, hot
    regions and latencies of the trace, and no names. A table compares the trace with I/Os made of the model.

    \b
    blkreel model game.parquet -o game.toml
    blkreel model game.toml --make-trace synthetic.parquet --ios 1000000 --seed 7
    blkreel model game.parquet --format fio -o game.fio
    """
    if output is None and make_trace is None:
        raise UsageError("nothing to write: neither -o nor --make-trace",
                         f"write the model: {command_line('model', source, '-o', 'MODEL.toml')}")
    for path in filter(None, (output, make_trace)):
        refuse_output(path, force)
    model, notes, most_sampled_ios = _model(source, device)
    job = fio_job(model) if output and format_name == "fio" else None
    with progress("making I/Os of the model"):
        measurement = (write_generated(model, make_trace, seed=seed, ios=ios, force=force, public=public,
                                       most_sampled_ios=most_sampled_ios) if make_trace else
                       measured(generated(model, seed), model.capacity_bytes, model.ios, most_sampled_ios))
    comparisons = compared(model.properties, properties(measurement))
    if output:
        with output_errors(output):
            write_output(output, job.text if job else model_text(model), force=force, owner=caller_of_sudo())
    not_expressed = job.not_expressed if job else []
    if as_json:
        print_json({"version": 1, "source": source, "path": output and str(output), "format": format_name,
                    "trace": make_trace and str(make_trace), "seed": seed, "ios": ios or model.ios, "notes": notes,
                    "not_expressed": not_expressed, "properties": [_row(comparison) for comparison in comparisons]})
    else:
        _show(model, comparisons, output, make_trace, ios)
    for note in notes:
        notice(note)
    if not_expressed:
        notice(f"fio does not express: {'; '.join(not_expressed)}")


def _model(source: str, device: int | None) -> tuple[WorkloadModel, list[str], int]:
    """The model, what it lacks, and the most I/Os of a sample."""
    if source.endswith(SUFFIX):
        if device is not None:
            raise UsageError("--device chooses a device of a trace, and a model has one", "leave out --device")
        return read_model(Path(source)), [], MOST_SAMPLED_IOS
    trace = open_trace(source)
    note_numbers(trace, [device])
    with progress("fitting the model", trace.rows) as task:
        return *modeled_trace(trace, device, task.update), sampled_ios(trace.footer.size_bytes)


def _row(comparison: Comparison) -> dict[str, object]:
    definition = PROPERTIES[comparison.key]
    return {"key": comparison.key, "title": definition.title, "unit": definition.unit, "trace": comparison.trace,
            "model": comparison.model, "relative_difference": comparison.relative_difference}


def _show(model: WorkloadModel, comparisons: list[Comparison], output: Path | None, make_trace: Path | None,
          ios: int | None) -> None:
    for path, what in ((output, f"model of {counted(model.ios, 'I/O')}"),
                       (make_trace, f"trace of {counted(ios or model.ios, 'I/O')}")):
        if path:
            print(f"{printable(path)}: {what}")
    rows = [(PROPERTIES[comparison.key].title, _text(comparison, comparison.trace), _text(comparison, comparison.model),
             _difference(comparison))
            for comparison in comparisons]
    titles = ("property", "trace", "model", "difference")
    columns = [TextColumn(title, cells, right=number > 0)
               for number, (title, cells) in enumerate(zip(titles, zip(*rows, strict=True), strict=True))]
    console = Console()
    console.print_lines(lines_of(fitting(columns, console.width)))
    if output and output.suffix == SUFFIX:
        print(f"next: {command_line('model', output, '--make-trace', 'OUT.parquet')}")
    elif make_trace:
        print(f"next: {command_line('info', make_trace)}")


def _text(comparison: Comparison, value: float | None) -> str:
    unit = PROPERTIES[comparison.key].unit
    if value is None:
        return units.MISSING
    if unit == "ns":
        return format_ns(value)
    if unit == "bytes":
        return units.size(value)
    if unit == "share":
        return f"{value * 100:.1f} %"
    return format_count(int(value)) if unit == "ios" else units.digits(value)


def _difference(comparison: Comparison) -> str:
    relative = comparison.relative_difference
    return "" if relative is None else units.format_change(relative)
