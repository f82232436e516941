"""Writes that are in flight on a drive after the command that issued them has ended.

They would destroy what the next user of the drive writes, so the drive stays claimed until the last of them is done:
the descriptors of the claim are registered in the helper's rings, and the kernel closes those after their last I/O. A
file beside the state of the drive says which command it was.
"""

import fcntl
import os
import struct
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from blkreel.common.command_line import running_command
from blkreel.common.errors import BlkreelError, SafetyError
from blkreel.common.files.json_file import write_json
from blkreel.common.files.safe_files import unlink
from blkreel.common.files.typed_document import read_json
from blkreel.common.system import closing_descriptor

from . import state
from .file_identity import identity_of
from .target import Target, find_target
from .usage import Kernel, backing_of

_CLOSE_WAIT_S = 1.0
_POLL_S = 0.05
# struct flock: type, whence, start, length, pid. The helper locks the first byte of the target.
_FLOCK = struct.Struct("hhqqi4x")


class Writer(TypedDict):
    """The command that writes to a drive.

    by: its verb. begun_s: since 1970. process_start: of process `pid`, in clock ticks since boot. path: of the node or
    file that it writes to.
    """

    by: str
    begun_s: float
    pid: int
    process_start: int
    path: str


class _Stored(TypedDict):
    writing: Writer


def is_locked(descriptor: int) -> bool:
    """Whether a helper has the device or file open for I/O, or its I/O is in flight.

    False also on a file system without locks. Raises OSError for a descriptor that is not open.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        os.fstat(descriptor)
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def begin(target: Target) -> None:
    """Note that this command writes to the target. Without a place for the note, only its name is missing later."""
    with suppress(OSError):
        writer: Writer = {"by": running_command(), "begun_s": time.time(),
                          "pid": os.getpid(), "process_start": _process_start(os.getpid()) or 0,
                          "path": str(target.path)}
        write_json(_file(target), {"version": 1, "writing": writer})


def end(target: Target) -> None:
    """All writes of the command are done."""
    with suppress(OSError):
        unlink(_file(target))


def late_writer(target: Target) -> Writer | None:
    """The command that has ended with writes in flight on the drive of the target; None without one."""
    try:
        writer = read_json(_file(target), _Stored)["writing"]
        if _process_start(writer["pid"]) == writer["process_start"]:
            return None
        descriptor = os.open(writer["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with closing_descriptor(descriptor):
        return writer if is_locked(descriptor) else None


def refuse(target: Target) -> None:
    """Raise SafetyError if a command has ended with writes in flight on the target, or on the drive or file below it.

    A command that was killed without any keeps the drive for some milliseconds.
    """
    deadline = time.monotonic() + _CLOSE_WAIT_S
    for layer in (target, *_below(target)):
        while writer := late_writer(layer):
            if time.monotonic() > deadline:
                raise SafetyError(f"{layer.path} is {words(writer)}", "wait until its writes are done: blkreel drives")
            time.sleep(_POLL_S)


def words(writer: Writer) -> str:
    """`being written by a command that ended: replay, begun 3 min ago`."""
    begun = state.ago(time.time() - writer["begun_s"])
    return f"being written by a command that ended: {writer['by']}, begun {begun}"


class WritesInFlight(BlkreelError):
    """The user ended a command that waited for its last writes."""

    exit_code = 6
    code = "writes_in_flight"

    def __init__(self, in_flight: str, drives: str):
        super().__init__(f"left {in_flight}: using {drives} before they are done loses data",
                         "see when they are done: blkreel drives")


def _below(target: Target) -> list[Target]:
    """The file or drive under a loop device."""
    backing, path = backing_of(target, Kernel()), target.drive.backing_file
    if not backing or not path or identity_of(path) != backing:
        return []
    try:
        return [find_target(path)]
    except BlkreelError:
        return []  # an empty file, or gone since


def _file(target: Target) -> Path:
    whole = replace(target, partition="", block=target.disk_block)
    return state.file_of(whole).with_suffix(".writing")


def _process_start(pid: int) -> int | None:
    """None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] not in ("Z", "X") else None
