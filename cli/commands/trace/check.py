"""`blkreel check`: verify that a trace is complete and valid."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.types import NOT_TRUSTWORTHY, OUTPUT, as_json, force, public
from blkreel.common.console import notice
from blkreel.common.errors import TraceError, UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.common.units import counted
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import how_to_repair, open_trace
from blkreel.traces.transform.repair import repair


@click.command()
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@click.option("--repair", "repairs", is_flag=True,
              help="Write a repaired trace to -o: rows sorted, dependencies renumbered or dropped.")
@click.option("-o", "--output", type=OUTPUT, help="Trace to write with --repair.")
@force
@public
@as_json
def command(trace: str, repairs: bool, output: Path | None, force: bool, public: bool, as_json: bool) -> int:
    """Verify that a trace or a run is complete and valid. Reads each row.

    A trace whose rows were removed, sorted or changed by another program is repaired by --repair: a dependency is
    dropped if the row that it names is missing. The input does not change.

    Exit code 0: complete and valid. 1: damaged, or not in the format. 3: valid, but not a complete recording,
    for example after lost events or an interruption.

    \b
    blkreel check game.parquet
    blkreel check run/
    blkreel check --repair cut.parquet -o game.parquet
    """
    if repairs != (output is not None):
        raise UsageError("--repair and -o belong together", "blkreel check --repair TRACE -o OUTPUT")
    opened = open_trace(trace, verify=False)
    repaired = repair(opened, output, force=force, public=public) if output else None
    if repaired:
        opened = open_trace(repaired.path)
        for line in repaired.lines():
            notice(line)
    findings = check(opened)
    if as_json:
        changes = repaired and {key: value for key, value in asdict(repaired).items() if key not in ("path", "rows")}
        print_json({"version": 1, "path": str(opened.path), "rows": findings.rows, "errors": findings.errors,
                    "warnings": findings.warnings, "repaired": changes})
    for warning in findings.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    if findings.errors:
        error = TraceError(f"{opened.path}: invalid: {'; '.join(findings.errors)}",
                           "record it again" if findings.beyond_repair else how_to_repair(opened))
        if not as_json:
            raise error
        notice(str(error))  # the document has the errors
        return error.exit_code
    if not as_json:
        state = "valid, but not complete" if findings.warnings else "complete and valid"
        print(f"{printable(opened.path)}: {counted(findings.rows, 'row')}, {state}")
    return NOT_TRUSTWORTHY if findings.warnings else 0
