"""`blkreel import`: make a trace of another tool's recording."""

import json
import sys
from pathlib import Path

import click

from blkreel.cli.options import as_json, force
from blkreel.traces.importers import import_recording
from blkreel.traces.units import format_bytes, format_count, format_ns

_NOT_TRUSTWORTHY = 3


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(readable=False, path_type=Path),
              help="The trace to write.")
@force
@as_json
def command(files, output, force, as_json):
    """Make a trace of a recording that another tool made. Its format is told from its content.

    Known are binary files of blktrace: those of all CPUs, or what their names have in common, such as sda for
    sda.blktrace.0 and sda.blktrace.1. What could not be taken over is said here and in the trace.

    \b
    blkreel import sda -o sda.parquet
    blkreel import sda.blktrace.* nvme0n1.blktrace.* -o both.parquet
    """
    result = import_recording(list(files), output, force=force)
    document = _document(result)
    if as_json:
        print(json.dumps(document))
    else:
        _show(document)
    for line in result.warnings:
        print(f"blkreel: not complete: {line}" if line in result.missing else f"blkreel: {line}", file=sys.stderr)
    return _NOT_TRUSTWORTHY if result.missing else 0


def _document(result):
    metadata = result.metadata
    return {"version": 1, "path": str(result.path), "rows": sum(result.ios.values()), "ios": result.ios,
            "bytes": result.bytes, "duration_ns": metadata["duration_ns"],
            "file_bytes": result.path.stat().st_size, "devices": [one["path"] for one in metadata["devices"]],
            "source_format": metadata["source_format"], "lost": metadata["lost"]["total"],
            "in_flight_at_start": metadata["in_flight_at_start"], "in_flight_at_end": metadata["in_flight_at_end"],
            "ledger": metadata["ledger"], "missing": result.missing, "warnings": result.warnings}


def _show(document):
    print(f"{document['path']}: {format_count(document['rows'])} I/Os of {', '.join(document['devices'])} in "
          f"{format_ns(document['duration_ns'])}, {format_bytes(document['file_bytes'])}")
    print("  " + ", ".join(f"{op} {format_count(count)} ({format_bytes(document['bytes'][op])})"
                           for op, count in document["ios"].items() if count))
