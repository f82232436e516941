"""`blkreel precondition`: put a drive into a known state."""

import json
import re
import sys
from dataclasses import asdict

import click

from blkreel.cli.live_steps import LiveSteps, shown_name
from blkreel.cli.options import TIME_NS, as_json, no_live, payload
from blkreel.cli.progress import progress
from blkreel.replay import safety
from blkreel.replay.erase import KINDS
from blkreel.replay.idle import ORIGINAL as ALL_IDLE
from blkreel.replay.mapping import parse_map
from blkreel.replay.memory import keep_small
from blkreel.replay.pace import ORIGINAL
from blkreel.replay.payload import Payload
from blkreel.replay.plan import plan_trace
from blkreel.replay.precondition import Preparation
from blkreel.replay.states import STATES, about, state_for
from blkreel.replay.target import find_target
from blkreel.traces.errors import UsageError
from blkreel.traces.reader import open_trace
from blkreel.traces.units import format_bytes, format_count, format_ns, parse_size_bytes


@click.command()
@click.argument("device", type=click.Path(readable=False))
@click.option("--state", "name", required=True, metavar="STATE", help="; ".join(f"{k}: {v}" for k, v in STATES.items()))
@click.option("--destroy", metavar="SERIAL", help="The drive's serial: consent to lose all data on it.")
@click.option("--erase", metavar="|".join(KINDS), help="How it is erased first. " + "; ".join(
    f"{name}: {what}" for name, what in KINDS.items()) + ". [default: discard; none with --state trace]")
@click.option("--span", "spans", multiple=True, metavar="SIZE|FROM-TO",
              help="With --state data, what is written: the first 64GB, or 64GB-96GB. May be repeated.")
@click.option("--trace", type=click.Path(readable=False), metavar="TRACE", help="With --state trace, which one.")
@click.option("--map", "wanted_map", metavar="MAP", help="With --state trace, as in blkreel replay.")
@click.option("--device", "of_trace", type=int, metavar="N", help="With --state trace, which device of it.")
@click.option("--permutation", is_flag=True, help="The random writes of enterprise take each block once.")
@click.option("--idle", type=TIME_NS, help="How long it rests at the end, instead of the state's own time.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True,
              help="Of the data and of the random order.")
@payload
@click.option("--restart", is_flag=True, help="Begin anew, instead of going on with what was interrupted.")
@click.option("--dry-run", is_flag=True, help="Print the steps, and touch nothing.")
@no_live
@as_json
def command(device, name, destroy, erase, spans, trace, wanted_map, of_trace, permutation, idle, seed, compressible,
            duplicates, restart, dry_run, no_live, as_json):
    """Put a drive into a known state, so that measurements on it can be compared and repeated.

    All data on it is lost: a real drive has to be named by its serial with --destroy. The sizes are meant for
    drives of 256 GiB and more; smaller ones get the same fractions. Interrupted, by Ctrl-C or by a reboot, the same
    command goes on where it was. In the end it reads some of it back. A replay records the state, and how much was
    written since.

    \b
    blkreel precondition /dev/nvme1n1 --state client --dry-run
    sudo blkreel precondition /dev/nvme1n1 --state client --destroy S6B0NL0T1234
    sudo blkreel precondition /dev/nvme1n1 --state fresh --erase format --destroy S6B0NL0T1234
    sudo blkreel precondition /dev/nvme1n1 --state data --span 64GB --destroy S6B0NL0T1234
    sudo blkreel precondition /dev/nvme1n1 --state trace --trace game.parquet --destroy S6B0NL0T1234
    sudo blkreel precondition /dev/loop5 --state full
    """
    target = find_target(device)
    if target.is_nil and not target.is_simulated:
        raise UsageError(f"{device} is no drive: there is nothing to prepare", "list drives with: blkreel drives")
    of = _trace(target, trace, wanted_map, of_trace) if trace else {}
    if not trace and (wanted_map or of_trace is not None):
        raise UsageError("--map and --device are of a trace", "name it: --state trace --trace FILE")
    state = state_for(name, target.size_bytes, target.block_bytes, seed=seed, rest_ns=idle, permuted=permutation,
                      spans=[_span(one) for one in spans] or None, erase=bool(erase and erase != "none") or None, **of)
    if idle and not any(step.plan is None for step in state.steps):
        raise UsageError(f"the state {name} does not rest, so --idle changes nothing", "leave it out; client rests")
    live = LiveSteps(shown_name(target), live=False if no_live else None)
    preparation = Preparation(target, state, seed, live, Payload(compressible, duplicates),
                              erase=erase or "discard", restart=restart,
                              say=lambda text: print(f"blkreel: {text}", file=sys.stderr))
    preparation.check()
    if dry_run:
        _show_steps(target, state, preparation.erase, as_json)
        return
    safety.check(target, writes=True, destroy=destroy, argv=["blkreel", *sys.argv[1:]])
    prepared = preparation.run()
    if as_json:
        print(json.dumps({"version": 1, "device": str(target.path), "state": asdict(prepared)}))
        return
    print(f"{target.path} is now in the state {prepared.name}: {about(name)}")
    rested = f", rested for {format_ns(state.rest_ns)}" if state.rest_ns else ""
    print(f"  {format_bytes(preparation.written_bytes)} written{rested}{_scaled(state)}")
    if prepared.verified_blocks:
        print(f"  {format_count(prepared.verified_blocks)} blocks of 4 KiB read back, all as written")
    for note in prepared.notes:
        print(f"  {note}")


def _trace(target, path, wanted_map, device) -> dict:
    """What state_for() wants to know of a trace: the blocks that a replay would write beforehand."""
    keep_small()
    opened = open_trace(path)
    with progress("reading the trace", opened.rows) as task:
        plan = plan_trace(opened, target, pace=ORIGINAL, idle=ALL_IDLE, wanted_map=parse_map(wanted_map), device=device,
                          on_rows=task.update)
    (drive,) = plan.drives
    return {"prefill": drive.prefill, "trace": plan.prepared_as(drive)}


def _span(text) -> tuple[int, int]:
    """`64GB` is the first so many bytes, `64GB-96GB` what lies between."""
    first, dash, last = text.partition("-")
    if not re.search(r"\d", first) or (dash and not last):
        raise UsageError(f"--span {text!r} is no span", "write it like 64GB, or 64GB-96GB")
    return (parse_size_bytes(first), parse_size_bytes(last)) if dash else (0, parse_size_bytes(first))


def _show_steps(target, state, erase, as_json):
    if as_json:
        steps = [{"what": step.what, "bytes": step.total_bytes, "depth": step.depth, "rounds": step.rounds,
                  "rest_ns": step.rest_ns}
                 for step in state.steps]
        print(json.dumps({"version": 1, "dry_run": True, "device": str(target.path), "state": state.name,
                          "scale": state.scale, "erase": erase if state.erases else None,
                          "usable_bytes": state.usable_bytes, "steps": steps}))
        return
    print(f"would put {target.path} into the state {state.name}{_scaled(state)}; nothing touched")
    for step in state.steps:
        rounds = f", up to {step.rounds} times" if step.rounds > 1 else ""
        size = format_ns(step.rest_ns) if step.plan is None else format_bytes(step.total_bytes)
        how = f", by {erase}" if step.erases and erase != "none" else ", not done" if step.erases else ""
        print(f"  {step.what:<24} {size}{rounds}{how}")


def _scaled(state) -> str:
    return f", sizes and times scaled to {state.scale:.3g} of the method's" if state.scale < 1 else ""
