"""`blkreel precondition`: put a drive into a known state."""

import functools
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from blkreel.cli.options import completion
from blkreel.cli.options.device import note_numbers
from blkreel.cli.options.types import TIME_NS, as_json, destroy, dry_run, no_live, payload, seed
from blkreel.cli.ui.progress import progress
from blkreel.cli.ui.step_progress import StepProgress, display_name
from blkreel.common.console import notice, warn
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.limits import limit_memory_use
from blkreel.common.units import format_bytes, format_count, format_ns, parse_size_bytes
from blkreel.replay.drive import safety
from blkreel.replay.drive.erase import KINDS
from blkreel.replay.drive.target import Target, find_target
from blkreel.replay.drive.zones import zones_of
from blkreel.replay.engine.engine import Payload
from blkreel.replay.plan.mapping import parse_map
from blkreel.replay.plan.pace import ALL_IDLE, Pace
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.prepare.precondition import Preparation
from blkreel.replay.prepare.states import STATES, State, about, state_for
from blkreel.traces.format.reader import open_trace


@click.command()
@click.argument("device", type=click.Path(readable=False), shell_complete=completion.drives)
@click.option("--state", "name", required=True, metavar="STATE", shell_complete=completion.states,
              help="; ".join(f"{k}: {v}" for k, v in STATES.items()))
@destroy
@click.option("--erase", type=click.Choice(list(KINDS)), help="Erase the drive first. " + "; ".join(
    f"{name}: {what}" for name, what in KINDS.items()) + ". [default: discard; none with --state trace]")
@click.option("--span", "spans", multiple=True, metavar="SIZE|FROM-TO",
              help="Range that --state data writes: 64GB (the first 64 GB) or 64GB-96GB. Repeatable.")
@click.option("--trace", type=click.Path(readable=False), metavar="TRACE", help="Trace of --state trace.",
              shell_complete=completion.traces)
@click.option("--map", "wanted_map", metavar="MAP", help="Map of --state trace, as in `blkreel replay`.")
@click.option("--device", "of_trace", type=int, metavar="N", help="Device of the trace of --state trace.")
@click.option("--permutation", is_flag=True,
              help="Let the random writes of --state enterprise write each block exactly once.")
@click.option("--rest", type=TIME_NS, metavar="TIME", help="Idle time at the end. [default: that of the state]")
@seed
@payload
@click.option("--restart", is_flag=True, help="Start over instead of resuming an interrupted preconditioning.")
@dry_run
@no_live
@as_json
def command(device: str, name: str, destroy: str | None, erase: str | None, spans: tuple[str, ...], trace: str | None,
            wanted_map: str | None, of_trace: int | None, permutation: bool, rest: int | None, seed: int,
            compressible: int, duplicates: int, restart: bool, dry_run: bool, no_live: bool, as_json: bool) -> None:
    """Put a drive into a known state, so that measurements on it can be compared and repeated.

    Destroys all data on the drive; for a real drive, --destroy SERIAL confirms that. Sizes hold for drives of
    256 GiB and more, and are scaled down for smaller ones. After Ctrl-C or a reboot, the same command resumes.
    At the end a sample of the data is read back and verified. Each replay records the state, and how much was
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
        raise UsageError(f"{device}: not a drive", "list drives: blkreel drives")
    trace_blocks = _trace_blocks(target, trace, wanted_map, of_trace) if trace else {}
    state = state_for(name, target.size_bytes, target.block_bytes, seed=seed, rest_ns=rest, permuted=permutation,
                      spans=[_parse_span(span) for span in spans] or None,
                      erase=bool(erase and erase != "none") or None, zones=zones_of(target), **trace_blocks)
    if rest and not any(step.plan is None for step in state.steps):
        raise UsageError(f"--rest: the state {name} has no rest", "leave out --rest, or use --state client")
    if target.simulated is not None and target.simulated.state == "fresh" and not dry_run:
        description = device.removeprefix("nil:")
        raise UsageError(f"{target.path} would lose the state at once: it starts fresh with each command",
                         f'add a line to {description}: state = "keep"' if Path(description).is_file() else
                         f"keep it: {device},state=keep, for this command and the replay")
    preparation = Preparation(target, state, seed, StepProgress(display_name(target), False if no_live else None),
                              Payload(compressible, duplicates), erase=erase or "discard", restart=restart,
                              notify=notice)
    preparation.check()
    check = functools.partial(safety.check, target, writes=True, destroy=destroy)
    if dry_run:
        warn(safety.forecast(check))
        _show_steps(target, state, preparation.erase, as_json)
        return
    warn(check())
    prepared = preparation.run()
    if as_json:
        print_json({"version": 1, "device": str(target.path), "state": asdict(prepared)})
        return
    print(f"{target.path} is now in the state {prepared.name}: {about(name)}")
    rested = f", rested for {format_ns(state.rest_ns)}" if state.rest_ns else ""
    print(f"  {format_bytes(preparation.written_bytes)} written{rested}{_scaled(state)}")
    if prepared.verified_blocks:
        print(f"  {format_count(prepared.verified_blocks)} blocks of 4 KiB read back, all as written")
    for note in prepared.notes:
        print(f"  {note}")


def _trace_blocks(target: Target, path: str, wanted_map: str | None, device: int | None) -> dict[str, Any]:
    """Arguments of state_for(): the blocks that a replay of the trace would write first."""
    limit_memory_use()
    opened = open_trace(path)
    note_numbers(opened, [device])
    with progress("reading the trace", opened.rows) as task:
        # Only the blocks matter: a pace with times would refuse a source without them.
        plan = plan_trace(opened, target, pace=Pace("asap"), idle=ALL_IDLE, map_name=parse_map(wanted_map),
                          device=device, on_rows=task.update)
    (drive,) = plan.drives
    return {"prefill": drive.prefill, "trace": plan.prepared_as(drive)}


def _parse_span(text: str) -> tuple[int, int]:
    """`64GB` is the range from 0, `64GB-96GB` the one between."""
    first, dash, last = text.partition("-")
    if not re.search(r"\d", first) or (dash and not last):
        raise UsageError(f"invalid --span: {text!r}", "write it as 64GB or 64GB-96GB")
    return (parse_size_bytes(first), parse_size_bytes(last)) if dash else (0, parse_size_bytes(first))


def _show_steps(target: Target, state: State, erase: str, as_json: bool) -> None:
    if as_json:
        steps = [{"what": step.what, "bytes": step.total_bytes, "depth": step.depth, "rounds": step.rounds,
                  "rest_ns": step.rest_ns}
                 for step in state.steps]
        print_json({"version": 1, "dry_run": True, "device": str(target.path), "state": state.name,
                    "scale": state.scale, "erase": erase if state.erases else None,
                    "usable_bytes": state.usable_bytes, "steps": steps})
        return
    print(f"would put {target.path} into the state {state.name}{_scaled(state)}; dry run, nothing written")
    for step in state.steps:
        rounds = f", up to {step.rounds} times" if step.rounds > 1 else ""
        size = format_ns(step.rest_ns) if step.plan is None else format_bytes(step.total_bytes)
        how = f", by {erase}" if step.erases and erase != "none" else ", skipped" if step.erases else ""
        print(f"  {step.what:<24} {size}{rounds}{how}")


def _scaled(state: State) -> str:
    return f", sizes and times scaled to {state.scale:.3g} of the method's" if state.scale < 1 else ""
