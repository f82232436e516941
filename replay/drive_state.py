"""What is known of a drive's contents: the state it was put into, and how much was written since.

One JSON file a drive, in BLKREEL_STATE_DIR, else /var/lib/blkreel/drives for root, else the user's state directory.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from blkreel.traces.errors import BlkreelError

from .target import Target


@dataclass
class DriveState:
    """name: None while unknown, or where a preparation did not come to its end.

    scale: 1.0 where the state's sizes are those of the method, less on a drive too small for them.
    filled_bytes: everything below was written after the last erase. payload: with what kind of data.
    """

    name: str | None = None
    prepared_at: str | None = None
    scale: float = 1.0
    seed: int = 0
    idle_ns: int = 0
    filled_bytes: int = 0
    written_since_bytes: int = 0
    discarded_since_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    payload: dict | None = None

    def covers(self, limit_bytes: int) -> bool:
        """Whether every byte below the limit was written since the drive was erased."""
        return self.name is not None and limit_bytes <= self.filled_bytes and not self.discarded_since_bytes

    def account(self) -> dict:
        """As a run's metadata tells it."""
        return {"name": self.name, "prepared_at": self.prepared_at, "scale": self.scale,
                "payload": self.payload,
                "written_since_bytes": self.written_since_bytes if self.name else None}


def state_directory() -> Path:
    if directory := os.environ.get("BLKREEL_STATE_DIR"):
        return Path(directory)
    if os.geteuid() == 0:
        return Path("/var/lib/blkreel/drives")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / "blkreel/drives"


def load(target: Target) -> DriveState:
    """What is remembered; an unnamed state where nothing is."""
    try:
        stored = {"payload": None, **json.loads(_file(target).read_text())["state"]}
        return DriveState(**{one.name: stored[one.name] for one in fields(DriveState)})
    except (OSError, ValueError, KeyError, TypeError):
        # A damaged or older file is as good as none: the state is then unknown, which every reader must handle.
        return DriveState()


def save(target: Target, state: DriveState) -> None:
    """Remember it. Raises BlkreelError where the directory cannot be written."""
    path = _file(target)
    document = {"version": 1, "drive": target.drive.name, "model": target.drive.model, "state": asdict(state)}
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise BlkreelError(f"cannot remember the state of {target.path} in {path.parent}: {error.strerror}",
                           "name another directory: export BLKREEL_STATE_DIR=DIR") from error


def about_to_write(target: Target, written_bytes: int, discarded_bytes: int) -> Callable[[int, int], None]:
    """Remember I/O that changes the drive by so much at most, before the first of it.

    So whoever is killed meanwhile leaves a state that promises too little, not too much. What it returns may be told
    (written_bytes, discarded_bytes) as they were in the end.
    """
    known = load(target)
    remember_writes(target, written_bytes, discarded_bytes)

    def was(written_bytes: int, discarded_bytes: int) -> None:
        if known.name and asdict(load(target)) != asdict(known):
            save(target, known)
            remember_writes(target, written_bytes, discarded_bytes)

    return was


def remember_writes(target: Target, written_bytes: int, discarded_bytes: int) -> None:
    """Add what was done to the drive since it was prepared. A drive never prepared has nothing to spoil."""
    state = load(target)
    if state.name and (written_bytes or discarded_bytes):
        state.written_since_bytes += written_bytes
        state.discarded_since_bytes += discarded_bytes
        save(target, state)


def _file(target) -> Path:
    """By serial, so that a drive is known again under another name; an image by its file."""
    drive = target.drive
    if drive.serial_hash:
        identity = drive.serial_hash
    elif drive.backing_file:
        try:
            inode = Path(drive.backing_file).stat().st_ino
        except OSError:
            inode = 0
        identity = f"{drive.backing_file}:{inode}:{drive.size_bytes}"
    else:
        identity = f"{drive.name}:{drive.model}:{drive.size_bytes}"
    identity += f":{target.partition}"
    return state_directory() / (hashlib.sha256(identity.encode()).hexdigest()[:24] + ".json")
