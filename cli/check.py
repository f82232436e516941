"""`blkreel check`: whether a trace is whole and sound."""

import json
import sys

import click

from blkreel.cli.options import as_json
from blkreel.traces.check import check
from blkreel.traces.errors import TraceError
from blkreel.traces.reader import open_trace


@click.command()
@click.argument("trace", type=click.Path(readable=False))
@as_json
def command(trace, as_json):
    """Read all of a trace or a run, and hold its rows to the format.

    Exit code 0: whole and sound. 1: damaged, or against the format. 3: sound, but what it
    records is not complete (lost events, a partial run).

    \b
    blkreel check game.parquet
    blkreel check run/
    """
    opened = open_trace(trace)
    findings = check(opened)
    if as_json:
        print(json.dumps({"version": 1, "path": str(opened.path), "rows": findings.rows,
                          "errors": findings.errors, "warnings": findings.warnings}))
    for warning in findings.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if findings.errors:
        raise TraceError(f"{opened.path} breaks the format: {'; '.join(findings.errors)}", "record it again")
    if not as_json:
        state = "sound, but not complete" if findings.warnings else "whole and sound"
        print(f"{opened.path}: {findings.rows:,} rows, {state}")
    return 3 if findings.warnings else 0
