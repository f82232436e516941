"""The settings of ftrace: changed for a capture and restored, also after a capture that was killed."""

import fcntl
import json
import os
from pathlib import Path

from blkreel.common.command_line import AS_ROOT
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import parse_typed
from blkreel.common.system import MOUNTS, mount_points

STATE = Path("/run/blkreel-ftrace.json")
OTHER_SOURCE = "take another source: --source bpf"
_IN_USE = "end what uses it, or take another source: --source bpf"


def mounted_at(mounts: Path = MOUNTS) -> Path:
    """The mount point of tracefs. Raises BlkreelError if it is not mounted."""
    for place in mount_points("tracefs", mounts):
        return place
    raise BlkreelError("tracefs is not mounted", "mount -t tracefs nodev /sys/kernel/tracing")


class Settings:
    """Previous values, oldest first, in a file that outlives this process.

    The process that changed them locks the file: without a lock they are those of a killed capture, and the next
    one restores them.
    """

    def __init__(self, state: Path = STATE):
        self._file = os.fdopen(os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BlkreelError("another capture uses ftrace", _IN_USE) from None
        self._changed: list[list[str]] = self._left()
        self.had_leftovers = bool(self._changed)
        if self.had_leftovers:
            self.restore()

    def set(self, path: Path, value: str) -> None:
        """Write a setting. Its present value is saved first, in case of a kill."""
        before = chosen(path)
        if before == value:
            return
        self._changed.append([str(path), before])
        self._save()
        write(path, value)

    def restore(self) -> None:
        """Restore the values, newest first, except those of removed drives."""
        while self._changed:
            path, value = self._changed[-1]
            if Path(path).exists():
                write(Path(path), value)
            self._changed.pop()
        self._save()

    def close(self) -> None:
        self._file.close()

    def _left(self) -> list[list[str]]:
        try:
            changed = parse_typed(self._file.read(), list[list[str]])
        except ValueError:
            return []
        return [entry for entry in changed if len(entry) == 2]

    def _save(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        json.dump(self._changed, self._file)
        self._file.flush()


def chosen(path: Path) -> str:
    """The value of a setting: of a choice the one in brackets, of a size that was never used the text `expanded`."""
    text = path.read_text().strip()
    if "[" in text:
        return text.partition("[")[2].partition("]")[0]
    if "(expanded:" in text:
        return text.partition("(expanded:")[2].strip(" )")
    return text


def write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise BlkreelError(f"cannot set {path} to {value}: {error.strerror}",
                           AS_ROOT if isinstance(error, PermissionError) else OTHER_SOURCE) from error


def trace_to_any_end(drive: Drive) -> None:
    """Call it while the drive is traced. The kernel leaves out what lies beyond its size when it was enabled, and a
    drive may grow."""
    write(enable_of(drive).with_name("end_lba"), str(2**64 - 1))


def refuse_where_in_use(root: Path, drives: list[Drive]) -> None:
    """Raise where ftrace has another user: the decoder cannot read its events."""
    tracer = chosen(root / "current_tracer")
    if tracer != "nop":
        raise BlkreelError(f"ftrace is in use: its tracer is {tracer}", _IN_USE)
    events = (root / "set_event").read_text().split()
    if events:
        raise BlkreelError(f"ftrace is in use: it records {events[0]}", _IN_USE)
    for drive in drives:
        if (enable_of(drive)).read_text().strip() != "0":
            raise BlkreelError(f"{drive.path} is being traced already",
                               f"end its blktrace, or: blktrace -k {drive.path}")


def refuse_where_taken(mounts: Path = MOUNTS) -> None:
    """Raise where ftrace takes the events of the blktrace command, which would end without any."""
    for place in mount_points("tracefs", mounts):
        if chosen(place / "current_tracer") == "blk":
            raise BlkreelError("ftrace takes the events of blktrace: its tracer is blk",
                               f"end the capture or trace-cmd that uses it, or: echo nop > {place}/current_tracer")


def enable_of(drive: Drive) -> Path:
    return Path(f"/sys/block/{drive.name.replace('/', '!')}/trace/enable")
