"""`blkreel doctor`: what this machine lacks, and the command that mends it."""

import dataclasses
import json

import click
from rich.table import Table

from blkreel.cli.checks import all_checks
from blkreel.cli.console import Console
from blkreel.cli.options import as_json
from blkreel.replay.calibrate import PATTERNS, calibrate, remember
from blkreel.traces.units import format_ns

_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[red]missing[/]"}


_WORDS = {"poisson": "I/Os at random moments", "bursts": "bursts of 64"}


@click.command()
@click.option("--calibrate", "wants_calibration", is_flag=True,
              help="Find up to what rate this machine issues I/Os when they are due, instead of checking it.")
@as_json
def command(wants_calibration, as_json):
    """Check this machine for what capture and replay need. Each thing missing comes with the command that mends it.

    Nothing is changed: BPF programs are loaded and let go, an io_uring is opened and closed. Exit code 1 where
    something needed is missing.

    With --calibrate it replays plans of rising rate against a target of nothing, for less than half a minute, and
    remembers up to which rate the machine kept the limits of a run's verdict: a replay that asks for more is warned
    before it starts. Exit code 1 where it keeps them at no rate at all. Leave the machine alone meanwhile.

    \b
    sudo blkreel doctor
    sudo blkreel doctor --json | jq '.checks[] | select(.status != "ok")'
    sudo blkreel doctor --calibrate
    """
    if wants_calibration:
        return _calibrate(as_json)
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


def _calibrate(as_json):
    found = calibrate() if as_json else _shown_calibration()
    remember(found)
    if as_json:
        print(json.dumps({"version": 1, "calibration": found}))
    return 0 if max(found["faithful_iops"].values()) else 1


def _shown_calibration():
    console = Console()
    table = Table(box=None, pad_edge=False)
    for column in ("plan", "IOPS", "late, median", "99 %", "most", "", "because"):
        table.add_column(column, justify="left" if column in ("plan", "", "because") else "right")
    with console.status("calibrating; leave the machine alone"):
        found = calibrate(lambda step: table.add_row(
            _WORDS[step.pattern], f"{step.iops:,}", format_ns(step.p50_ns), format_ns(step.p99_ns),
            format_ns(step.max_ns), step.level, step.cause if step.level == "not faithful" else ""))
    console.print(table)
    console.print(calibration_sentence(found), highlight=False)
    return found


def calibration_sentence(found) -> str:
    """What the table comes to."""
    if not max(found["faithful_iops"].values()):
        return "This machine keeps no plan's times at all: see what else runs on it, and set the performance governor."
    parts = []
    for pattern in PATTERNS:
        faithful, excellent = found["faithful_iops"][pattern], found["excellent_iops"][pattern]
        if not faithful:
            parts.append(f"with {_WORDS[pattern]} at none of the rates")
            continue
        best = f" (excellent up to {excellent:,})" if 0 < excellent < faithful else ""
        best = " (excellent all the way)" if excellent == faithful else best
        parts.append(f"up to {faithful:,} IOPS with {_WORDS[pattern]}{best}")
    return f"This machine is faithful {', and '.join(parts)}."
