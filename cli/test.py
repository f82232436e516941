"""`blkreel test`: carry a published test out on a drive, from its states to its figures."""

import json
import sys
from pathlib import Path

import click

from blkreel import __version__
from blkreel.cli.live_steps import LiveSteps, shown_name
from blkreel.cli.options import as_json, force, no_live, payload
from blkreel.cli.telemetry_options import telemetry_options
from blkreel.cli.test_plan import explain, list_tests, show_steps, time_words
from blkreel.cli.test_results import write_results
from blkreel.cli.test_shown import show
from blkreel.replay import erase as erasing
from blkreel.replay import safety
from blkreel.replay.memory import keep_small
from blkreel.replay.payload import Payload
from blkreel.replay.recipe import load_recipe, parse_recipe
from blkreel.replay.recipe_steps import steps_of
from blkreel.replay.states import REFERENCE_BYTES
from blkreel.replay.target import find_target
from blkreel.replay.testing import Testing, check_states, check_traces, check_unchanged
from blkreel.replay.testing_record import StepRecord, TestRecord, create, document_to_go_on, now
from blkreel.traces.device import describe
from blkreel.traces.errors import BlkreelError, UsageError

NOT_TRUSTWORTHY = 3


@click.command()
@click.argument("name", required=False, metavar="[NAME|FILE.toml]")
@click.option("--list", "listed", is_flag=True, help="Say what tests there are.")
@click.option("--explain", "explained", is_flag=True, help="Say what the test does, and its parameters.")
@click.option("--on", "device", metavar="DEVICE", help="The drive to test.")
@click.option("-o", "--output", type=click.Path(readable=False, path_type=Path), metavar="DIR",
              help="The directory of the test.")
@click.option("--resume", type=click.Path(readable=False, path_type=Path), metavar="DIR",
              help="Go on with a test that ended early.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Another value of a parameter; repeatable.")
@click.option("--quick", is_flag=True, help="About a minute, to try it: not the method's lengths.")
@click.option("--fit", is_flag=True, help="Shrink its sizes to a small drive, in proportion, as states shrink.")
@click.option("--label", metavar="TEXT", help="A name for the drive in reports. [default: its model]")
@click.option("--seed", default=1, show_default=True, help="Of the data and of the random order.")
@click.option("--destroy", metavar="SERIAL", help="The drive's serial: consent to lose all data on it.")
@click.option("--erase", type=click.Choice(erasing.KINDS), default="discard", show_default=True,
              help="How states erase the drive; format and sanitize through nvme-cli.")
@payload
@telemetry_options
@click.option("--dry-run", is_flag=True, help="Print the steps, and touch nothing.")
@no_live
@force
@as_json
def command(name, listed, explained, device, output, resume, sets, quick, fit, label, seed, destroy, erase,
            compressible, duplicates, telemetry, dry_run, no_live, force, as_json):
    """Carry a published test out on a drive: its states, rests, measurements and figures.

    Each measuring step is a run of its own in DIR/steps, with everything that a run holds; DIR/results.json has the
    figures. A test that was interrupted goes on with --resume. All data on the drive is lost: a real one has to be
    named by its serial with --destroy. Ends with 3 where the result cannot be trusted.

    \b
    blkreel test --list
    blkreel test mixed-burst --explain
    sudo blkreel test mixed-burst --on /dev/nvme1n1 -o tests/a --destroy S6B0NL0T1234
    sudo blkreel test mixed-random --on /dev/loop5 -o tests/try --quick --fit
    sudo blkreel test consistency --on /dev/nvme1n1 -o tests/b --set states=full+op25 --destroy S6B0NL0T1234
    sudo blkreel test --resume tests/a --destroy S6B0NL0T1234
    """
    if listed:
        list_tests(as_json)
        return 0
    keep_small()
    telemetry = telemetry.for_several_runs()
    if resume is not None:
        _refuse_with_resume(name, output, sets, quick or fit)
        testing = _resumed(resume, device, destroy, telemetry, no_live)
    elif not name:
        raise click.UsageError("Missing the name of a test: `blkreel test --list` tells them.")
    else:
        recipe = load_recipe(name)
        if explained:
            explain(recipe, as_json)
            return 0
        if not device or not (output or dry_run):
            raise click.UsageError("Missing option '--on': the drive to test." if not device else
                                   "Missing option '-o' / '--output': the directory of the test.")
        target = find_target(device)
        if target.is_nil and not target.is_simulated:
            raise UsageError(f"{device} is no drive: there is nothing to measure",
                             "give it the properties of one: nil:64GiB,write_bandwidth=500MB/s (docs/replay.md)")
        scale = min(1.0, target.size_bytes / REFERENCE_BYTES) if fit else 1.0
        given = _parsed(sets)
        settled = recipe.settle(given, quick=quick, scale=scale)
        steps = steps_of(recipe, settled, size_bytes=target.size_bytes, block_bytes=target.block_bytes, seed=seed)
        check_states(steps, target, erase)
        check_traces(steps, target)
        if dry_run:
            show_steps(recipe, settled, steps, target, scale, as_json)
            return 0
        safety.check(target, writes=True, destroy=destroy, argv=["blkreel", *sys.argv[1:]])
        head = _head(recipe, given, settled, target, quick=quick, scale=scale, seed=seed, label=label,
                     payload=Payload(compressible, duplicates), erase=erase, telemetry=telemetry)
        testing = _testing(create(output, head, steps, force=force), target, destroy, telemetry, no_live)
    testing.run()
    document = write_results(testing.record.directory)
    if as_json:
        print(json.dumps(document))
    else:
        show(document)
    return NOT_TRUSTWORTHY if document["verdict"]["level"] == "invalid" else 0


def _head(recipe, given, settled, target, *, quick, scale, seed, label, payload, erase, telemetry) -> dict:
    return {"test": recipe.name, "title": recipe.title, "report": recipe.report, "explain": recipe.summary,
            "quick": quick, "scale": scale, "parameters": {key: _plain(value) for key, value in settled.items()},
            "shown": {key: recipe.parameters[key].shown(value) for key, value in settled.items()},
            "given": given, "recipe": {"sha256": recipe.sha256, "text": recipe.source},
            "seed": seed, "payload": payload.account(), "erase": erase, "telemetry": telemetry.account(),
            "directory": str(Path.cwd()), "drive": describe(target.drive),
            "device": str(target.path), "usable_bytes": target.size_bytes, "block_bytes": target.block_bytes,
            "label": label or target.drive.model or target.drive.name,
            "started_at": now(), "ended_at": None, "blkreel": __version__}


def _testing(record, target, destroy, telemetry, no_live) -> Testing:
    live = LiveSteps(shown_name(target), live=False if no_live else None)

    def begin_step(number, steps):
        _tell_step(number, steps)
        live.begin(number, steps)

    return Testing(record, target, record.head["seed"], live, destroy, ["blkreel", *sys.argv[1:]],
                   Payload(**record.head["payload"]), erase=record.head["erase"], say=_say,
                   replay_options={"telemetry": telemetry}, on_step=begin_step)


def _resumed(directory: Path, device, destroy, telemetry, no_live) -> Testing:
    """Everything as it was begun: the recipe too, of which test.json holds a copy."""
    stored = document_to_go_on(directory)
    target = find_target(device or stored["device"])
    check_unchanged(stored, target)
    recipe = parse_recipe(stored["test"], stored["recipe"]["text"].encode())
    settled = recipe.settle(_as_given(recipe, stored), quick=stored["quick"], scale=stored["scale"])
    steps = steps_of(recipe, settled, size_bytes=target.size_bytes, block_bytes=target.block_bytes,
                     seed=stored["seed"])
    if [step.id for step in steps] != [step["id"] for step in stored["steps"]]:
        raise BlkreelError(f"{directory} has other steps than this blkreel would carry out",
                           "go on with the version that began it, or begin anew")
    records = [StepRecord(step) for step in steps]
    for record, step in zip(records, stored["steps"], strict=True):
        record.restore(step)
    head = {key: value for key, value in stored.items() if key not in ("steps", "version")}
    record = TestRecord(directory, head, records)
    if record.unfinished is not None:
        safety.check(target, writes=True, destroy=destroy, argv=["blkreel", *sys.argv[1:]])
    return _testing(record, target, destroy, telemetry.or_as_begun(stored.get("telemetry")), no_live)


def _as_given(recipe, stored) -> dict[str, str]:
    """What --set said, traces where they lie as seen from here."""
    begun_in, given = Path(stored.get("directory", ".")), dict(stored["given"])
    for name, words in given.items():
        if recipe.parameters[name].kind == "trace" and not Path(words).exists() and (begun_in / words).exists():
            given[name] = str(begun_in / words)
    return given


def _refuse_with_resume(name, output, sets, shortened) -> None:
    if name or output or sets or shortened:
        raise UsageError("--resume goes on with a test as it was begun",
                         "leave out its name, -o, --set, --quick, --fit")


def _parsed(sets) -> dict[str, str]:
    given = {}
    for words in sets:
        key, equals, value = words.partition("=")
        if not equals:
            raise UsageError(f"--set {words!r} has no value", "write it like --set depth=8")
        given[key.strip()] = value.strip()
    return given


def _plain(value):
    """As JSON has it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, int | float | str) else str(value)


def _say(text) -> None:
    print(f"blkreel: {text}", file=sys.stderr)


def _tell_step(number, steps) -> None:
    left = time_words(steps[number - 1:])
    left = f" (left: {left})" if left else ""
    print(f"step {number} of {len(steps)}: {steps[number - 1].title}{left}", file=sys.stderr)
