"""The volumes of a capture (dm, md, bcache): the kind of each, and its place on the devices below it."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from blkreel.common.device import SYS, Drive, block_directory, blocks_under, dm_targets, drive_of, whole_disk
from blkreel.common.errors import UsageError
from blkreel.common.system import integer_in, text_in
from blkreel.traces.format.metadata_types import Volume, VolumePart

_SECTOR_BYTES = 512  # of sysfs and of tables of dm

# Targets that are linear on one device: which word of their parameters is the device; its offset is the next one.
_DEVICE_WORD = {"linear": 0, "delay": 0, "flakey": 0, "crypt": 3}
_UUID_KINDS = {"CRYPT": "dm-crypt", "LVM": "dm (LVM)", "mpath": "dm-multipath"}


def volumes_from(blocks: Iterable[Path]) -> list[Volume]:
    """These devices as far as they are volumes, and the volumes below them. blocks: directories of sysfs."""
    volumes: dict[str, Volume] = {}

    def add(disk: Path) -> None:
        below = [slave.resolve() for slave in sorted((disk / "slaves").glob("*"))]
        if disk.name in volumes or not below:
            return
        volumes[disk.name] = _volume(disk, below)
        for block in below:
            add(whole_disk(block))

    for block in blocks:
        add(whole_disk(block))
    return list(volumes.values())


def loops_on(drives: Sequence[Drive], volumes: Sequence[Volume]) -> list[Volume]:
    """The loop devices among these drives, and below these volumes, whose image is on another of the drives, which has
    their I/O a second time."""
    captured = {drive.name for drive in drives}
    loops: list[Volume] = []
    for name in sorted(captured | {part["name"] for volume in volumes for part in volume["parts"]}):
        disk = SYS / "class/block" / name
        below = captured.intersection(_disks_of_image(disk)) - {name}
        if below:
            length_bytes = integer_in(disk / "size") * _SECTOR_BYTES
            loops.append({"name": name, "path": f"/dev/{name}", "label": "", "kind": "loop", "parts": [
                {"name": lower, "volume_offset_bytes": 0, "length_bytes": length_bytes, "offset_bytes": None}
                for lower in sorted(below)]})
    return loops


def _disks_of_image(loop: Path) -> set[str]:
    """The drives and volumes that the image of a loop device is on, through volumes and other loop devices; empty if it
    is none, or they are unknown: an image of another mount namespace, in memory or on a network mount."""
    disks: set[str] = set()

    def add_image(disk: Path) -> None:
        image = Path(text_in(disk / "loop/backing_file"))
        if image.name:
            with suppress(UsageError, OSError):
                blocks = [block_directory(drive_of(image))] if image.is_block_device() else blocks_under(image.parent)
                for block in blocks:
                    add(whole_disk(block))

    def add(disk: Path) -> None:
        if disk.name not in disks:
            disks.add(disk.name)
            for slave in (disk / "slaves").glob("*"):
                add(whole_disk(slave.resolve()))
            add_image(disk)

    add_image(loop)
    return disks


def _volume(disk: Path, below: list[Path]) -> Volume:
    label = text_in(disk / "dm/name")
    kind, parts = _of_md(disk, below) if (disk / "md").is_dir() else _of_dm(disk, below)
    return {"name": disk.name, "path": f"/dev/{disk.name.replace('!', '/')}", "label": label, "kind": kind,
            "parts": parts}


def _of_md(disk: Path, below: list[Path]) -> tuple[str, list[VolumePart]]:
    level = text_in(disk / "md/level")
    offsets = {block: integer_in(disk / f"md/dev-{block.name}/offset") if level == "raid1" else None for block in below}
    return f"md {level}", [_part(block, 0, integer_in(disk / "size"), offset) for block, offset in offsets.items()]


def _of_dm(disk: Path, below: list[Path]) -> tuple[str, list[VolumePart]]:
    """Also bcache, and any other volume without a table. The table takes root; without it no place is known."""
    targets = dm_targets(text_in(disk / "dev")) if (disk / "dm").is_dir() else None
    if targets is None:
        kind = re.sub(r"\d+$", "", disk.name).rstrip("-")
        if uuid := text_in(disk / "dm/uuid"):
            kind = next((name for prefix, name in _UUID_KINDS.items() if uuid.startswith(f"{prefix}-")), kind)
        return kind, [_part(block, 0, integer_in(disk / "size"), None) for block in below]
    block_of = {text_in(block / "dev"): block for block in below}
    parts = [_part(block_of[number], first, count, offset) for first, count, kind, parameters in targets
             for number, offset in places_of_target(kind, parameters) if number in block_of]
    kinds = dict.fromkeys(kind for _, _, kind, _ in targets)
    return f"dm-{'+'.join(kinds)}" if kinds else "dm", parts


def places_of_target(kind: str, parameters: str) -> list[tuple[str, int | None]]:
    """The devices of a line of a dm table, MAJOR:MINOR, and the first sector on each; None where it is not linear."""
    words = parameters.split()
    at = _DEVICE_WORD.get(kind)
    if at is not None and len(words) > at + 1 and words[at + 1].isdigit():
        return [(words[at], int(words[at + 1]))]
    return [(word, None) for word in dict.fromkeys(words) if re.fullmatch(r"\d+:\d+", word)]


def _part(block: Path, volume_sector: int, sectors: int, sector: int | None) -> VolumePart:
    start = integer_in(block / "start")  # of a partition
    return {"name": whole_disk(block).name, "volume_offset_bytes": volume_sector * _SECTOR_BYTES,
            "length_bytes": sectors * _SECTOR_BYTES,
            "offset_bytes": None if sector is None else (start + sector) * _SECTOR_BYTES}
