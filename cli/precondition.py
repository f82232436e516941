"""`blkreel precondition`: put a drive into a known state."""

import json
import sys
from dataclasses import asdict

import click

from blkreel.cli.options import TIME_NS, as_json, payload
from blkreel.cli.progress import progress
from blkreel.replay import safety
from blkreel.replay.payload import Payload
from blkreel.replay.precondition import Preparation
from blkreel.replay.states import STATES, state_for
from blkreel.replay.target import find_target
from blkreel.traces.errors import UsageError
from blkreel.traces.units import format_bytes, format_ns


@click.command()
@click.argument("device", type=click.Path(readable=False))
@click.option("--state", "name", required=True, metavar="STATE", help="; ".join(f"{k}: {v}" for k, v in STATES.items()))
@click.option("--destroy", metavar="SERIAL", help="The drive's serial: consent to lose all data on it.")
@click.option("--idle", type=TIME_NS, help="How long it rests at the end, instead of the state's own time.")
@click.option("--seed", default=1, show_default=True, help="Of the data and of the random order.")
@payload
@click.option("--dry-run", is_flag=True, help="Print the steps, and touch nothing.")
@as_json
def command(device, name, destroy, idle, seed, compressible, duplicates, dry_run, as_json):
    """Put a drive into a known state, so that measurements on it can be compared and repeated.

    All data on it is lost: a real drive has to be named by its serial with --destroy. The sizes are meant for
    drives of 256 GiB and more; smaller ones get the same fractions. A replay records the state, and how much
    was written since.

    \b
    blkreel precondition /dev/nvme1n1 --state client --dry-run
    sudo blkreel precondition /dev/nvme1n1 --state client --destroy S6B0NL0T1234
    sudo blkreel precondition /dev/loop5 --state full
    """
    target = find_target(device)
    if target.is_nil and not target.is_simulated:
        raise UsageError(f"{device} is no drive: there is nothing to prepare", "list drives with: blkreel drives")
    state = state_for(name, target.size_bytes, target.block_bytes, seed=seed, rest_ns=idle)
    if dry_run:
        _show_steps(target, state, as_json)
        return
    safety.check(target, writes=True, destroy=destroy, argv=["blkreel", *sys.argv[1:]])
    preparation = Preparation(target, state, seed, progress, Payload(compressible, duplicates))
    prepared = preparation.run()
    if as_json:
        print(json.dumps({"version": 1, "device": str(target.path), "state": asdict(prepared)}))
        return
    print(f"{target.path} is now in the state {prepared.name}: {STATES.get(name, 'as asked')}")
    print(f"  {format_bytes(preparation.written_bytes)} written, rested for {format_ns(state.rest_ns)}{_scaled(state)}")
    for note in prepared.notes:
        print(f"  {note}")


def _show_steps(target, state, as_json):
    if as_json:
        steps = [{"what": step.what, "bytes": step.total_bytes, "depth": step.depth, "rounds": step.rounds,
                  "rest_ns": step.rest_ns}
                 for step in state.steps]
        print(json.dumps({"version": 1, "dry_run": True, "device": str(target.path), "state": state.name,
                          "scale": state.scale, "steps": steps}))
        return
    print(f"would put {target.path} into the state {state.name}{_scaled(state)}; nothing touched")
    for step in state.steps:
        rounds = f", up to {step.rounds} times" if step.rounds > 1 else ""
        size = format_ns(step.rest_ns) if step.plan is None else format_bytes(step.total_bytes)
        print(f"  {step.what:<22} {size}{rounds}")


def _scaled(state) -> str:
    return f", sizes and times scaled to {state.scale:.3g} of the method's" if state.scale < 1 else ""
