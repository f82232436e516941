"""`blkreel drives`: which drives there are, and which can be replayed on."""

import json

import click
from rich.table import Table

from blkreel.cli.console import Console
from blkreel.cli.options import as_json
from blkreel.replay import drive_state
from blkreel.replay.preparation_progress import state_words
from blkreel.replay.safety import confirmation, endangered_drive
from blkreel.replay.target import Target
from blkreel.replay.usage import Kernel, uses_of
from blkreel.traces.device import block_directory, list_drives
from blkreel.traces.units import format_bytes


@click.command()
@as_json
def command(as_json):
    """List drives: what they are, who uses them, the words that --destroy wants, and the state they are in.

    \b
    blkreel drives
    blkreel drives --json | jq '.drives[] | select(.uses == [])'
    """
    kernel = Kernel()
    entries = [_entry(drive, kernel) for drive in list_drives()]
    if as_json:
        print(json.dumps({"version": 1, "drives": entries}))
    else:
        _show(entries)


def _entry(drive, kernel):
    target = Target(drive.path, drive, drive.size_bytes, drive.logical_block_bytes, "", block_directory(drive))
    uses = [str(use) for use in uses_of(target, kernel)]
    owner = endangered_drive(target, kernel)
    state = drive_state.load(target)
    return {"path": drive.path, "kind": drive.kind, "model": drive.model, "size_bytes": drive.size_bytes,
            "serial": drive.serial, "destroy": confirmation(owner) if owner else None, "image": drive.backing_file,
            "read_only": drive.read_only, "uses": uses,
            "state": {**state.account(), "by_others_bytes": drive_state.written_by_others(target, state)},
            "state_words": state_words(target)}


def _show(entries):
    columns = ("drive", "model", "size", "in use", "--destroy", "state")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        # Whole, however narrow the terminal: it is there to be copied.
        table.add_column(name, no_wrap=name in ("drive", "--destroy"), overflow="fold")
    for entry in entries:
        table.add_row(
            entry["path"], entry["model"] or entry["image"] or entry["kind"], format_bytes(entry["size_bytes"]),
            "; ".join(entry["uses"]) or ("read-only" if entry["read_only"] else "no"),
            entry["destroy"] or "not needed", entry["state_words"])
    Console().print(table)
