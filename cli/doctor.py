"""`blkreel doctor`: what this machine lacks, and the command that mends it."""

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table

from blkreel.cli.checks import all_checks
from blkreel.cli.options import as_json

_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[red]missing[/]"}


@click.command()
@as_json
def command(as_json):
    """Check this machine for what capture and replay need. Each thing missing comes with the command that mends it.

    Nothing is changed: BPF programs are loaded and let go, an io_uring is opened and closed. Exit code 1 where
    something needed is missing.

    \b
    sudo blkreel doctor
    sudo blkreel doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    checks = all_checks()
    ready = not any(check.status == "missing" for check in checks)
    if as_json:
        print(json.dumps({"version": 1, "ready": ready, "checks": [dataclasses.asdict(check) for check in checks]}))
    else:
        _show(checks, ready)
    return 0 if ready else 1


def _show(checks, ready):
    table = Table(box=None, pad_edge=False)
    for column in ("for", "what", "", "found", "to mend it"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(check.area, check.name, _MARKS[check.status], check.detail, check.remedy)
    console = Console()
    console.print(table)
    console.print("ready" if ready else "not ready: mend what is missing", highlight=False)
