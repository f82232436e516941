"""`blkreel drives`: list the drives of this machine."""

from pathlib import Path
from typing import Any

import click

from blkreel.cli.options.types import as_json
from blkreel.common.console import print_table
from blkreel.common.device import Drive, block_directory, list_drives, zones_words
from blkreel.common.files.json_file import print_json
from blkreel.common.units import format_bytes
from blkreel.replay.drive import late_writes
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.claim import exclusive_use
from blkreel.replay.drive.safety import confirmation, endangered_drive
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.usage import Kernel, uses_of
from blkreel.replay.prepare.resume_point import state_words


@click.command()
@as_json
def command(as_json: bool) -> None:
    """List drives with their users, the argument of --destroy, and their state.

    \b
    blkreel drives
    blkreel drives --json | jq '.drives[] | select(.uses == [])'
    """
    kernel = Kernel()
    entries = [_entry(drive, kernel) for drive in list_drives()]
    if as_json:
        print_json({"version": 1, "drives": entries})
        return
    # "fixed" columns are never wrapped, so that they can be copied.
    print_table({"drive": "fixed", "model": "left", "transport": "left", "size": "left", "in use": "left",
                 "--destroy": "fixed", "state": "left"},
                [(entry["path"], entry["model"] or entry["image"] or entry["kind"], entry["transport"], _size(entry),
                  "; ".join(entry["uses"]) or ("read-only" if entry["read_only"] else "no"),
                  entry["destroy"] or "not needed", entry["state_words"]) for entry in entries])


def _size(entry: dict[str, Any]) -> str:
    parts = [format_bytes(entry["size_bytes"]), zones_words(entry["zoned"], entry["zone_bytes"])]
    return ", ".join(part for part in parts if part)


def _entry(drive: Drive, kernel: Kernel) -> dict[str, Any]:
    target = Target(Path(drive.path), drive, drive.size_bytes, drive.logical_block_bytes, "", block_directory(drive))
    owner = endangered_drive(target, kernel)
    state = drive_state.load(target)
    uses = [str(use) for use in uses_of(target, kernel)]
    return {"path": drive.path, "kind": drive.kind, "model": drive.model, "transport": drive.transport,
            "size_bytes": drive.size_bytes,
            "serial": drive.serial, "destroy": confirmation(owner) if owner else None, "image": drive.backing_file,
            "read_only": drive.read_only, "zoned": drive.zoned, "zone_bytes": drive.zone_bytes,
            "uses": uses or list(filter(None, [exclusive_use(drive.path)])),
            "writing": late_writes.late_writer(target),
            "state": {**state.account(), "by_others_bytes": drive_state.written_by_others(target, state)},
            "state_words": state_words(target)}
