"""What is known of a drive's contents: the state it was put into, and how much was written since.

One JSON file a drive, in BLKREEL_STATE_DIR, else /var/lib/blkreel/drives for root, else the user's state directory.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from . import foreign
from .target import Target

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Runs that are told one by one; of those before them only the sums are kept.
_RUNS_KEPT = 64
_EARLIER = "earlier runs"
# Less is no use of the drive that anybody would have to know of.
OTHERS_LEAST_BYTES = 1 << 20
NOT_ERASED_AS_ASKED = "not erased, as asked"
# The first version of the record had these; the others are filled in.
_FIRST = ("name", "prepared_at", "scale", "seed", "idle_ns", "filled_bytes", "written_since_bytes",
          "discarded_since_bytes", "notes")


@dataclass
class DriveState:
    """name: None while unknown, or where a preparation did not come to its end.

    scale: 1.0 where the state's sizes are those of the method, less on a drive too small for them.
    filled_bytes: everything below was written after the last erase. spans: what was, where there are gaps between.
    payload: with what kind of data. capacity_bytes: of the drive, which may change. usable_bytes: less where a part
    is spare. trace: for which one its blocks were written. erased_by: how, None for not at all. verified_blocks: of
    4 KiB that were read back and found as they should be. since: what runs did to it, `{"by", "at", "written_bytes",
    "discarded_bytes", "ended"}`: bytes are the most it can be until the run has ended, None where nobody can tell.
    counted: by the kernel, when it was prepared. identity: all that decided what was issued.
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
    capacity_bytes: int = 0
    usable_bytes: int = 0
    spans: list[list[int]] = field(default_factory=list)
    trace: dict | None = None
    erased_by: str | None = None
    prepared_by: str | None = None
    verified_blocks: int = 0
    since: list[dict] = field(default_factory=list)
    counted: dict | None = None
    identity: dict | None = None

    def is_as_prepared(self, identity: dict, payload: dict | None) -> bool:
        """Whether another preparation would change nothing but the seed: nothing was done to it since.

        identity: of a State. What others did is not known here (written_by_others).
        """
        if self.name is None or self.identity is None or self.since:
            return False
        return {**self.identity, "seed": 0} == {**identity, "seed": 0} and self.payload == payload

    def was_erased_by(self, kind: str) -> bool:
        """Whether a preparation that erases so, one of erase.KINDS, would leave what is there now.

        None that did not erase, as it was asked not to, counts as one that did; a drive that has no discard does.
        """
        not_asked = NOT_ERASED_AS_ASKED in self.notes
        return not_asked if kind == "none" else not not_asked and self.erased_by in (kind, None)

    def covers(self, limit_bytes: int) -> bool:
        """Whether every byte below the limit was written since the drive was erased."""
        return self._holds_all and limit_bytes <= self.filled_bytes

    def covers_blocks(self, blocks) -> bool:
        """The same of Extents or PlacedBlocks, wherever they lie."""
        if not self._holds_all or not self.spans:
            return self.covers(blocks.limit_bytes)
        start, end = np.array(self.spans, np.int64).T
        for part in blocks.batches():
            at = np.searchsorted(start, part.start, "right") - 1
            if (at < 0).any() or (part.end > end[at]).any():
                return False
        return True

    @property
    def _holds_all(self) -> bool:
        """Whether what was written in the preparation is there still."""
        return self.name is not None and not self.discarded_since_bytes and not any(
            run["discarded_bytes"] is None for run in self.since)

    def account(self) -> dict:
        """As a run's metadata tells it."""
        return {"name": self.name, "prepared_at": self.prepared_at, "scale": self.scale, "payload": self.payload,
                "written_since_bytes": self.written_since_bytes if self.name else None,
                "discarded_since_bytes": self.discarded_since_bytes if self.name else None,
                "since": self.since, "notes": self.notes, "usable_bytes": self.usable_bytes or None,
                "erased_by": self.erased_by, "verified_blocks": self.verified_blocks, "trace": self.trace}


def words(state: DriveState | dict, now: datetime, others_bytes: int | None = None) -> str:
    """`client, prepared 2 h ago, 3.1 GB written since`. state: or its account. others_bytes: see written_by_others().

    A run that did not tell how it ended has written less than it is counted with, `up to`; one without a bound
    may have written more, `at least`.
    """
    told = state if isinstance(state, dict) else state.account()
    if not told["name"]:
        notes = told.get("notes")
        return f"unknown: {notes[0]}" if notes else "unknown"
    parts = [told["name"]]
    if told.get("prepared_at"):
        parts.append(f"prepared {ago((now - datetime.fromisoformat(told['prepared_at'])).total_seconds())}")
    return ", ".join([*parts, _since_words(told, others_bytes)])


def _since_words(told, others_bytes):
    runs = told.get("since") or []
    amounts = [f"{format_bytes(told[key])} {verb}" for key, verb in (
        ("written_since_bytes", "written"), ("discarded_since_bytes", "discarded")) if told.get(key)]
    if any(run["written_bytes"] is None or run["discarded_bytes"] is None for run in runs):
        amount = "at least " + (" and ".join(amounts) or "something written")
    elif not amounts:
        amount = "nothing written"
    else:
        amount = ("" if all(run["ended"] for run in runs) else "up to ") + " and ".join(amounts)
    others = f", and {format_bytes(others_bytes)} by others" if others_bytes else ""
    return f"{amount} since{others}"


def ago(seconds: float) -> str:
    """`3 min ago`. A clock that was set back makes it `0 s ago`."""
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(0, round(seconds / unit))} {name} ago"
    return f"{round(seconds / 86400)} days ago"


def state_directory() -> Path:
    if directory := os.environ.get("BLKREEL_STATE_DIR"):
        return Path(directory)
    if os.geteuid() == 0:
        return Path("/var/lib/blkreel/drives")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / "blkreel/drives"


def load(target: Target) -> DriveState:
    """What is remembered; an unnamed state where nothing is, or where the drive has another size than it had."""
    try:
        stored = json.loads(_file(target).read_text())["state"]
        for one in fields(DriveState):
            if one.name not in stored and one.name not in _FIRST:
                stored[one.name] = one.default if one.default is not MISSING else one.default_factory()
        state = DriveState(**{one.name: stored[one.name] for one in fields(DriveState)})
        if not state.since and (state.written_since_bytes or state.discarded_since_bytes):
            state.since = [{"by": _EARLIER, "at": state.prepared_at, "written_bytes": state.written_since_bytes,
                            "discarded_bytes": state.discarded_since_bytes, "ended": True}]
    except (OSError, ValueError, KeyError, TypeError):
        # A damaged or older file is as good as none: the state is then unknown, which every reader must handle.
        return DriveState()
    if state.name and state.capacity_bytes not in (0, target.size_bytes):
        return DriveState(notes=[f"it was {state.name} with {format_bytes(state.capacity_bytes)}, and has "
                                 f"{format_bytes(target.size_bytes)} now"])
    return state


def save(target: Target, state: DriveState) -> None:
    """Remember it. Raises BlkreelError where the directory cannot be written."""
    write_beside(target, _file(target), {"drive": target.drive.name, "model": target.drive.model,
                                         "state": asdict(state)})


def write_beside(target: Target, path: Path, document: dict) -> None:
    """Put a document in the place of another, whole and on the disk. Raises BlkreelError where that cannot be done."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w") as file:
            file.write(json.dumps({"version": 1, **document}, indent=1) + "\n")
            file.flush()
            # Without it a power cut may leave the new name with nothing under it.
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BlkreelError(f"cannot remember the state of {target.path} in {path.parent}: {error.strerror}",
                           "name another directory: export BLKREEL_STATE_DIR=DIR") from error


def about_to_write(target: Target, written_bytes: int | None, discarded_bytes: int | None,
                   by: str = "blkreel") -> Callable[[int, int], None]:
    """Remember I/O that changes the drive by so much at most, None for without a bound, before the first of it.

    So whoever is killed meanwhile leaves a state that promises too little, not too much. What it returns is told
    (written_bytes, discarded_bytes) as they were in the end. A preparation that was interrupted cannot go on after it.
    """
    at = datetime.now(UTC).isoformat(timespec="microseconds")

    def was(written_bytes: int, discarded_bytes: int) -> None:
        state = load(target)
        mine = [run for run in state.since if run["at"] == at and run["by"] == by and not run["ended"]]
        if not mine:
            return  # it was prepared anew meanwhile
        mine[0] |= {"written_bytes": written_bytes, "discarded_bytes": discarded_bytes, "ended": True}
        if not written_bytes and not discarded_bytes:
            state.since.remove(mine[0])
        _save_summed(target, state)

    if written_bytes == 0 and discarded_bytes == 0:
        return was
    progress_file(target).unlink(missing_ok=True)
    state = load(target)
    # A drive never prepared has nothing to spoil.
    if state.name:
        state.since.append({"by": by, "at": at, "written_bytes": written_bytes, "discarded_bytes": discarded_bytes,
                            "ended": False})
        _save_summed(target, state)
    return was


def remember_writes(target: Target, written_bytes: int, discarded_bytes: int, by: str = "blkreel") -> None:
    """Add what was done to the drive since it was prepared."""
    about_to_write(target, written_bytes, discarded_bytes, by)(written_bytes, discarded_bytes)


def _save_summed(target, state):
    while len(state.since) > _RUNS_KEPT:
        first, second = state.since[:2]
        sums = {key: None if None in (first[key], second[key]) else first[key] + second[key]
                for key in ("written_bytes", "discarded_bytes")}
        state.since[:2] = [{"by": _EARLIER, "at": first["at"], **sums, "ended": first["ended"] and second["ended"]}]
    state.written_since_bytes = sum(run["written_bytes"] or 0 for run in state.since)
    state.discarded_since_bytes = sum(run["discarded_bytes"] or 0 for run in state.since)
    save(target, state)


def count_now(target: Target) -> dict | None:
    """The kernel's count of what was written to the whole drive; None where nobody counts.

    It begins anew with the machine, and with whatever else is attached under the name.
    """
    count = foreign.count_of(target)
    if count is None:
        return None
    return {"power": power_of(target), "write_bytes": count.write_bytes}


def written_by_others(target: Target, state: DriveState) -> int | None:
    """What the kernel saw written to the drive since it was prepared, less what is known of.

    None where it was not there all the time. What was written to another partition of the drive counts too.
    """
    if not state.name or any(run["written_bytes"] is None for run in state.since):
        return None
    written_bytes = written_since(target, state.counted)
    if written_bytes is None:
        return None
    others_bytes = written_bytes - state.written_since_bytes
    return others_bytes if others_bytes >= OTHERS_LEAST_BYTES else 0


def written_since(target: Target, then: dict | None) -> int | None:
    """What the kernel saw written to the whole drive since count_now() was `then`; None where it cannot tell."""
    now = count_now(target)
    if not now or not then or {**now, "write_bytes": 0} != {**then, "write_bytes": 0}:
        return None
    return now["write_bytes"] - then["write_bytes"]


def power_of(target: Target) -> str:
    """Stays the same as long as the machine is on and the drive has not been away from it."""
    parts = []
    # The latter came with Linux 5.15.
    for path in (BOOT_ID, *([target.disk_block / "diskseq"] if target.disk_block else [])):
        with suppress(OSError):
            parts.append(path.read_text().strip())
    return ":".join(parts)


def progress_file(target: Target) -> Path:
    """Where an unfinished preparation is noted, beside the state."""
    return _file(target).with_suffix(".preparing")


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
