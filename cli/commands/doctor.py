"""`blkreel doctor`: check the requirements of capture and replay."""

import dataclasses
import os
from collections.abc import Sequence

import click
from rich.text import Text

from blkreel.cli.options.types import NOT_TRUSTWORTHY, as_json
from blkreel.cli.requirements import Check, all_checks
from blkreel.common.command_line import as_typed
from blkreel.common.console import Console, print_table, warn
from blkreel.common.files.json_file import print_json
from blkreel.common.units import format_ns
from blkreel.replay.run.calibrate import PATTERNS, Calibration, Step, calibrate, remember

_STATUS_STYLES = {"ok": "green", "note": "yellow", "missing": "red"}
_PATTERN_NAMES = {"poisson": "Poisson arrivals", "bursts": "bursts of 64"}


@click.command()
@click.option("--calibrate", "wants_calibration", is_flag=True,
              help="Measure the highest rate at which this machine issues I/Os on time, instead of checking it.")
@as_json
def command(wants_calibration: bool, as_json: bool) -> int:
    """Check requirements of capture and replay, and suggest fixes.

    Loads the BPF programs and opens an io_uring, then releases them; changes nothing. Exit code 1 if a
    requirement is missing.

    --calibrate replays plans of rising rate without a drive for up to 30 s, and stores the highest rate at which
    issue lateness stays below 100 µs at p99 and 10 ms at most. `blkreel replay` warns before a plan that exceeds it.
    Keep the machine idle meanwhile: rates measured beside other work are not stored (exit code 3), because they
    are not the machine's. Exit code 1 if no rate stays within the limits.

    \b
    sudo blkreel doctor
    sudo blkreel doctor --json | jq '.checks[] | select(.status != "ok")'
    sudo blkreel doctor --calibrate
    """
    if wants_calibration:
        return _calibrate(as_json)
    checks = [dataclasses.replace(check, remedy=as_typed(check.remedy)) for check in all_checks()]
    ready = not any(check.status == "missing" for check in checks)
    if as_json:
        print_json({"version": 1, "ready": ready, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        console = Console()
        print_table(dict.fromkeys(("for", "requirement", "status", "detail"), "left"),
                    [(check.area, check.name, Text(check.status, style=_STATUS_STYLES[check.status]), check.detail)
                     for check in checks], console)
        # Not in a cell of the table, where a wrapped command could not be copied.
        for check in checks:
            if check.remedy:
                console.print(f"to fix {check.name}: {check.remedy}", highlight=False, markup=False,
                              soft_wrap=True)
        console.print(conclusion(checks), highlight=False, soft_wrap=True)
    return 0 if ready else 1


def conclusion(checks: Sequence[Check]) -> str:
    """Which areas are ready, and whether a capture without BPF takes the place of one with it."""
    missing = dict.fromkeys(check.area for check in checks if check.status == "missing")
    if not missing:
        return "ready"
    works = {check.name for check in checks if check.status == "ok"}
    by_ftrace = "; capture then takes the source ftrace, which knows less of threads and files" \
        if "capture" in missing and {"helpers", "tracefs", "blk tracer"} <= works and os.geteuid() == 0 else ""
    return f"not ready for {', '.join(missing)}: a requirement is missing{by_ftrace}"


def _calibrate(as_json: bool) -> int:
    calibration = calibrate() if as_json else _calibrate_on_terminal()
    remember(calibration)
    if as_json:
        print_json({"version": 1, "calibration": calibration})
    if calibration["busy"]:
        warn([f"calibration not stored: {calibration['busy']}, so its rates are too low; stop other work, then repeat: "
              "blkreel doctor --calibrate"])
        return NOT_TRUSTWORTHY
    return 0 if max(calibration["faithful_iops"].values()) else 1


def _calibrate_on_terminal() -> Calibration:
    console = Console()
    steps: list[Step] = []
    with console.status("calibrating; keep the machine idle"):
        calibration = calibrate(steps.append)
    print_table({"arrivals": "left", "IOPS": "right", "lateness p50": "right", "p99": "right", "max": "right",
                 "verdict": "left", "cause": "left"},
                [(_PATTERN_NAMES[step.pattern], f"{step.iops:,}", format_ns(step.p50_ns), format_ns(step.p99_ns),
                  format_ns(step.max_ns), step.level, (step.cause or "") if step.level == "not faithful" else "")
                 for step in steps], console)
    console.print(calibration_sentence(calibration), highlight=False)
    return calibration


def calibration_sentence(calibration: Calibration) -> str:
    """The result of a calibration in one sentence."""
    if not max(calibration["faithful_iops"].values()):
        return ("Issue lateness exceeds the limit at each rate: stop other work on this machine, and set the "
                "performance governor.")
    parts = []
    for pattern in PATTERNS:
        faithful, excellent = calibration["faithful_iops"][pattern], calibration["excellent_iops"][pattern]
        if not faithful:
            parts.append(f"at no rate with {_PATTERN_NAMES[pattern]}")
            continue
        grade = " (excellent)" if excellent == faithful else f" (excellent up to {excellent:,})" if excellent else ""
        parts.append(f"up to {faithful:,} IOPS with {_PATTERN_NAMES[pattern]}{grade}")
    return f"Faithful replay {', and '.join(parts)}."
