"""`blkreel import`: convert a recording of another tool to a trace."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from blkreel.cli.options.types import NOT_TRUSTWORTHY, OUTPUT, SHARE, SIZE_BYTES, TIME_NS, as_json, force, public
from blkreel.cli.ui.trace_summary import show_trace, trace_document
from blkreel.common.console import notice, print_table
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.units import counted, format_count, format_ns
from blkreel.traces.format.schema import OP_NAMES
from blkreel.traces.importers import ImportOptions, Preview, format_titles, import_recording, preview_recording

_PREVIEW_ROWS = 10
_PREVIEW_COLUMNS = {"submit_ns": "submit (ns)", "latency_ns": "latency (ns)", "op": "op",
                    "offset_bytes": "offset (bytes)", "length_bytes": "length (bytes)", "device": "device",
                    "tid": "tid"}


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))
@click.option("-o", "--output", type=OUTPUT, help="Trace to write.")
@click.option("--format", "format_name", type=click.Choice(list(format_titles())), metavar="NAME",
              help="Format of the files. [default: detected from the content]")
@click.option("--device", "devices", metavar="NAME", multiple=True,
              help="Import only the I/O of this device of the source. Repeatable. [default: all devices]")
@click.option("--max-rejected", type=SHARE, default="1%", show_default=True, metavar="PERCENT",
              help="Share of invalid records above which the import fails.")
@click.option("--block-size", "block_bytes", type=SIZE_BYTES, metavar="SIZE",
              help="Block size of a source that counts blocks without stating their size.")
@click.option("--columns", metavar="FIELD=COLUMN[:UNIT],...",
              help="Columns of any CSV or Parquet file, with their units. docs/import.md has the fields.")
@click.option("--skip-lines", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Lines before the header or the first record of a text imported by --columns.")
@click.option("--clock-resolution", "clock_resolution_ns", type=TIME_NS, metavar="TIME",
              help="Resolution of the clock of the source, such as 1us. [default: of the format and the times]")
@click.option("--preview", is_flag=True, help="Print the first ten rows as they would be imported, and write nothing.")
@force
@public
@as_json
def command(files: tuple[Path, ...], output: Path | None, format_name: str | None, devices: tuple[str, ...],
            max_rejected: float, block_bytes: int | None, columns: str | None, skip_lines: int,
            clock_resolution_ns: int | None, preview: bool, force: bool, public: bool, as_json: bool) -> int:
    """Convert a recording of another tool to a trace. The format is detected from the content.

    Formats: docs/import.md. Files may be compressed with gzip, bzip2, xz or zstd. Several files make one trace. Each
    record becomes a row, or is counted as rejected or ignored with the reason, here and in the trace. For blktrace,
    FILE is the file of each CPU, or their common prefix, such as sda for sda.blktrace.0 and sda.blktrace.1.

    \b
    blkreel import sda -o sda.parquet
    blkreel import hm_0.csv.gz hm_1.csv.gz -o hm.parquet
    blkreel import volumes.csv --device 1058 -o volume.parquet
    blkreel import any.csv --preview --columns time=ts:us,op=type:0=read/1=write,offset=lba:sectors,length=size:bytes
    """
    options = ImportOptions(devices=devices, max_rejected=max_rejected, block_bytes=block_bytes,
                            columns=columns, skip_lines=skip_lines, clock_resolution_ns=clock_resolution_ns)
    if preview:
        _show_preview(preview_recording(list(files), _PREVIEW_ROWS, format_name=format_name, options=options), as_json)
        return 0
    if output is None:
        raise UsageError("missing option -o: the trace to write", f"blkreel import {files[0]} -o trace.parquet")
    result = import_recording(list(files), output, force=force, public=public, format_name=format_name, options=options)
    is_detected = format_name is None and columns is None
    document = trace_document(result.path, result.ios, result.bytes, result.metadata["duration_ns"], result.metadata)
    if as_json:
        print_json({**document, "detected": is_detected, "assumed": result.assumed or None,
                    "missing": result.missing, "warnings": result.warnings})
    else:
        show_trace(document)
        print(f"  format {result.metadata['source_format']}"
              + (", detected from the content" if is_detected else ""))
        for line in _account_lines(result.metadata):
            print(line)
    if result.assumed:
        notice(f"assumed for {result.metadata['source_format']}: {result.assumed}; if that is wrong, "
               "import by --columns")
    for line in result.warnings:
        notice(f"not complete: {line}" if line in result.missing else line)
    return NOT_TRUSTWORTHY if result.missing else 0


def _account_lines(metadata: Mapping[str, Any]) -> Iterator[str]:
    """The account of records and what the source lacks; nothing for blktrace, whose ledger counts events."""
    ledger = metadata["ledger"]
    if "records" not in ledger:
        return
    counts = [(verb, sum(tally["count"] for tally in ledger[verb].values())) for verb in ("rejected", "ignored")]
    yield (f"  {counted(ledger['records'], 'record')}: {counted(ledger['rows'], 'row')}, "
           + ", ".join(f"{format_count(count)} {verb}" for verb, count in counts))
    for reason, tally in ledger["ignored"].items():
        first = f" (first: {tally['example']})" if tally["example"] else ""
        yield f"  ignored: {format_count(tally['count'])} {reason}{first}"
    if ledger["clock_back_steps"]:
        steps = ledger["clock_back_steps"]
        yield (f"  {counted(steps, 'record')} out of order by up to "
               f"{format_ns(ledger['clock_back_largest_ns'])}, sorted by submit time")
    yield f"  the source lacks: {', '.join(metadata['source_lacks'])}"


def _show_preview(preview: Preview, as_json: bool) -> None:
    columns = {name: values for name, values in preview.columns.items() if name in _PREVIEW_COLUMNS}
    rows = [dict(zip(columns, values, strict=True))
            for values in zip(*(values.tolist() for values in columns.values()), strict=True)]
    for row in rows:
        row["op"] = OP_NAMES[row["op"]]
        row["device"] = preview.devices[row["device"]]
    if as_json:
        print_json({"version": 1, "format": preview.format, "preview": rows, "rejected": preview.rejected,
                    "ignored": preview.ignored})
        return
    print(f"format {preview.format}, the first {counted(len(rows), 'row')}:")
    names = [name for name in _PREVIEW_COLUMNS if name in columns]
    print_table({_PREVIEW_COLUMNS[name]: "left" if name in ("op", "device") else "right" for name in names},
                [[str(row[name]) for name in names] for row in rows])
    for line in [*preview.rejected, *preview.ignored]:
        notice(line)
