"""`blkreel test`: run a published benchmark on a drive."""

import functools
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from blkreel import __version__
from blkreel.benchmarks.benchmark_file import FILE, BenchmarkDocument, BenchmarkHeader, damaged
from blkreel.benchmarks.recipe.recipe import Recipe, load_recipe, parse_recipe
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.benchmarks.runner.drive import check_unchanged, is_named_only, units_of
from blkreel.benchmarks.runner.record import BenchmarkRecord, create, now, read_resumable
from blkreel.benchmarks.runner.runner import BenchmarkRunner, check_states, check_traces, space_warning
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.cli.options import completion
from blkreel.cli.options.detail import detail_options
from blkreel.cli.options.telemetry import telemetry_options
from blkreel.cli.options.types import NOT_TRUSTWORTHY, OUTPUT, as_json, destroy, dry_run, force, no_live, payload, seed
from blkreel.cli.ui.benchmark_plan import explain, list_tests, show_steps, time_words
from blkreel.cli.ui.benchmark_summary import show, write_results
from blkreel.cli.ui.progress import progress
from blkreel.cli.ui.step_progress import StepProgress, display_name
from blkreel.common.command_line import running_words
from blkreel.common.console import Console, Detail, notice, warn
from blkreel.common.device import describe
from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.limits import limit_memory_use
from blkreel.replay.drive import erase as erasing
from blkreel.replay.drive import safety
from blkreel.replay.drive.state import start_fresh
from blkreel.replay.drive.target import Target, find_target
from blkreel.replay.engine.engine import Payload
from blkreel.replay.prepare.states import REFERENCE_BYTES
from blkreel.replay.telemetry.options import TelemetryOptions
from blkreel.traces.format.metadata_types import Device


@click.command()
@click.argument("name", required=False, metavar="[NAME|FILE.toml]", shell_complete=completion.benchmarks)
@click.option("--list", "listed", is_flag=True, help="List the benchmarks.")
@click.option("--explain", "explained", is_flag=True, help="Describe the benchmark and its parameters.")
@click.option("--on", "device", metavar="DEVICE", help="Drive to test.", shell_complete=completion.drives)
@click.option("-o", "--output", type=OUTPUT, metavar="DIR",
              help="Directory of the test to write.")
@click.option("--resume", type=click.Path(readable=False, path_type=Path), metavar="DIR",
              help="Resume an interrupted test.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set a parameter. Repeatable.",
              shell_complete=completion.parameters)
@click.option("--quick", is_flag=True, help="Shorten the benchmark to about a minute, for a trial.")
@click.option("--fit", is_flag=True, help="Scale sizes down for a small drive.")
@click.option("--label", metavar="TEXT", help="Name of the drive in reports. [default: its model]")
@seed
@destroy
@click.option("--erase", type=click.Choice(erasing.KINDS), default="discard", show_default=True,
              help="How to erase the drive. format and sanitize need nvme-cli.")
@payload
@telemetry_options
@dry_run
@detail_options("why")
@no_live
@force
@as_json
def command(name: str | None, listed: bool, explained: bool, device: str | None, output: Path | None,
            resume: Path | None, sets: tuple[str, ...], quick: bool, fit: bool, label: str | None, seed: int,
            destroy: str | None, erase: str, compressible: int, duplicates: int, telemetry: TelemetryOptions,
            dry_run: bool, detail: Detail, no_live: bool, force: bool, as_json: bool) -> int:
    """Run a published benchmark on a drive.

    Preconditions the drive, runs the measurements and computes the results. Each measurement is a run in
    DIR/steps; DIR/results.json has the results. Continue an interrupted test with --resume; for a file or a loop
    device, name it again with --on. Destroys all data on the drive; for a real drive, --destroy SERIAL confirms
    that. Exit code 3 if the results are not trustworthy.

    \b
    blkreel test --list
    blkreel test mixed-burst --explain
    sudo blkreel test mixed-burst --on /dev/nvme1n1 -o tests/a --destroy S6B0NL0T1234
    sudo blkreel test mixed-random --on /dev/loop5 -o tests/try --quick --fit
    sudo blkreel test consistency --on /dev/nvme1n1 -o tests/b --set states=full+op25 --destroy S6B0NL0T1234
    sudo blkreel test --resume tests/a --destroy S6B0NL0T1234
    sudo blkreel test --resume tests/try --on /dev/loop5
    """
    if listed:
        list_tests(as_json)
        return 0
    limit_memory_use()
    telemetry = telemetry.for_several_runs()
    if resume is not None:
        stored, is_private = read_resumable(resume)
        resumed = _resumed(resume, device, stored)
        if dry_run:
            show_steps(resumed.recipe, resumed.values, resumed.record.left, resumed.target,
                       stored["scale"], as_json)
            return 0
        runner = _resumed_runner(resumed, device, destroy, telemetry, no_live, is_private)
    elif not name:
        raise click.UsageError("Missing argument NAME: list the benchmarks with: blkreel test --list")
    else:
        recipe = load_recipe(name)
        if explained:
            explain(recipe, as_json)
            return 0
        if not device or not (output or dry_run):
            raise click.UsageError("Missing option '--on': drive to test." if not device else
                                   "Missing option '-o' / '--output': directory of the test.")
        target = find_target(device)
        if target.is_nil and not target.is_simulated:
            raise UsageError(f"{device}: not a drive",
                             "simulate one: nil:64GiB,write_bandwidth=500MB/s (docs/replay.md)")
        scale = min(1.0, target.size_bytes / REFERENCE_BYTES) if fit else 1.0
        overrides = _parsed(sets)
        values = recipe.resolve(overrides, quick=quick, scale=scale)
        steps = steps_of(recipe, values, size_bytes=target.size_bytes, block_bytes=target.block_bytes, seed=seed)
        check_states(steps, target, erase, progress)
        check_traces(steps, target)
        warn(filter(None, [space_warning(output, steps) if output else None]))
        check = functools.partial(safety.check, target, writes=True, destroy=destroy)
        if dry_run:
            warn(safety.forecast(check))
            show_steps(recipe, values, steps, target, scale, as_json)
            return 0
        assert output is not None
        warn(check())
        start_fresh([target])
        header = _header(recipe, overrides, values, target, quick=quick, scale=scale, seed=seed, label=label,
                     payload=Payload(compressible, duplicates), erase=erase, telemetry=telemetry)
        runner = _runner(create(output, header, steps, force=force), target, destroy, telemetry, no_live)
    runner.run()
    document = write_results(runner.record.directory)
    if as_json:
        print_json(document)
    else:
        show(document, Console(), detail)
    return NOT_TRUSTWORTHY if document["verdict"]["level"] == "invalid" else 0


def _header(recipe: Recipe, overrides: Mapping[str, str], values: Mapping[str, Any], target: Target, *,
            quick: bool, scale: float, seed: int, label: str | None, payload: Payload, erase: str,
          telemetry: TelemetryOptions) -> BenchmarkHeader:
    return {"test": recipe.name, "title": recipe.title, "report": recipe.report, "explain": recipe.summary,
            "quick": quick, "scale": scale, "parameters": {key: _json_value(value) for key, value in values.items()},
            "parameters_text": {key: recipe.parameters[key].format(value) for key, value in values.items()},
            "overrides": dict(overrides), "recipe": {"sha256": recipe.sha256, "text": recipe.source},
            "seed": seed, "payload": payload.account(), "erase": erase, "telemetry": telemetry.account(),
            "working_directory": str(Path.cwd()), "drive": cast(Device, describe(target.drive)),
            "units": units_of(target),
            "device": str(target.path), "usable_bytes": target.size_bytes, "block_bytes": target.block_bytes,
            "label": label or target.drive.model or target.drive.name,
            "started_at": now(), "ended_at": None, "blkreel": __version__}


def _runner(record: BenchmarkRecord, target: Target, destroy: str | None, telemetry: TelemetryOptions,
             no_live: bool) -> BenchmarkRunner:
    step_progress = StepProgress(display_name(target), live=False if no_live else None)

    def begin_step(number: int, steps: list[BenchmarkStep]) -> None:
        left = time_words(steps[number - 1:])
        print(f"step {number} of {len(steps)}: {steps[number - 1].title}{f' (left: {left})' if left else ''}",
              file=sys.stderr)
        step_progress.begin(number, steps)

    return BenchmarkRunner(record, target, record.header["seed"], step_progress, destroy,
                           Payload(**record.header["payload"]), erase=record.header["erase"], notify=notice,
                           telemetry=telemetry, on_step=begin_step)


@dataclass(frozen=True)
class _Resumed:
    """An interrupted test, with the stored recipe and parameters of test.json."""

    record: BenchmarkRecord
    recipe: Recipe
    values: Mapping[str, Any]
    target: Target


def _resumed(directory: Path, device: str | None, stored: BenchmarkDocument) -> _Resumed:
    target = find_target(device or stored["device"])
    check_unchanged(stored, target)
    try:
        recipe = parse_recipe(stored["test"], stored["recipe"]["text"].encode())
    except ValueError as error:
        raise damaged(directory / FILE, f"recipe.text is not valid TOML: {error}") from None
    values = recipe.resolve(_overrides(recipe, stored), quick=stored["quick"], scale=stored["scale"])
    steps = steps_of(recipe, values, size_bytes=target.size_bytes, block_bytes=target.block_bytes,
                     seed=stored["seed"])
    if [step.id for step in steps] != [step["id"] for step in stored["steps"]]:
        raise BlkreelError(f"cannot resume {directory}: this version of blkreel has other steps",
                           f"resume it with version {stored.get('blkreel', 'that started it')}, or start a new test")
    for step, document in zip(steps, stored["steps"], strict=True):
        step.restore(document)
    header = cast(BenchmarkHeader, {key: value for key, value in stored.items() if key not in ("steps", "version")})
    return _Resumed(BenchmarkRecord(directory, header, steps), recipe, values, target)


def _resumed_runner(resumed: _Resumed, device: str | None, destroy: str | None, telemetry: TelemetryOptions,
                    no_live: bool, is_private: bool) -> BenchmarkRunner:
    """The command line must name the drive, by --on or by --destroy: others may have changed test.json."""
    record, target = resumed.record, resumed.target
    if record.unfinished is not None:
        if device is None and is_named_only(target):
            raise SafetyError(f"this overwrites {target.path}, which only {record.path} names",
                              f"to confirm: {_called_with('--on', str(target.path))}")
        warn(safety.check(target, writes=True, destroy=destroy))
        telemetry = _with_meter(telemetry, record.header.get("telemetry"), is_private, record.path)
    return _runner(record, target, destroy, telemetry, no_live)


def _with_meter(telemetry: TelemetryOptions, account: Any, is_private: bool, path: Path) -> TelemetryOptions:
    """Use the stored meter unless the command line names one.

    Raises SafetyError for a program or a file that others may have put into test.json.
    """
    if not is_private and account and not telemetry.has_meter:
        for name in ("power_command", "power_log"):
            if account.get(name):
                option = f"--{name.replace('_', '-')}"
                raise SafetyError(f"{path} names {option} {shlex.quote(str(account[name]))}, and other users can write "
                                  "to that file or its directory",
                                  f"to confirm: {_called_with(option, str(account[name]))}")
    return telemetry.resumed_from(account)


def _called_with(*words: str) -> str:
    return shlex.join([*running_words(), *words])


def _overrides(recipe: Recipe, stored: BenchmarkHeader) -> dict[str, str]:
    """The stored arguments of --set, with paths of traces relative to the directory of the first start."""
    started_in, overrides = Path(stored.get("working_directory", ".")), dict(stored["overrides"])
    for name, words in overrides.items():
        if recipe.parameters[name].kind == "trace" and not Path(words).exists() and (started_in / words).exists():
            overrides[name] = str(started_in / words)
    return overrides


def _parsed(sets: tuple[str, ...]) -> dict[str, str]:
    overrides = {}
    for words in sets:
        key, equals, value = words.partition("=")
        if not equals:
            raise UsageError(f"invalid --set: {words!r} has no value", "write it as --set depth=8")
        overrides[key.strip()] = value.strip()
    return overrides


def _json_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_json_value(element) for element in value]
    return value if isinstance(value, int | float | str) else str(value)
