"""What a simulated drive remembers from one run to the next: its cache, its heat, what was written, its clock.

One JSON file a drive in state_directory()/simulated, written when a run has ended: a run that is killed leaves the
state from before it.
"""

import fcntl
import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from blkreel.traces.errors import BlkreelError, SafetyError

from .drive_state import state_directory
from .simulated_spec import SimulatedDrive

_NUMBERS = {"clock_ns": int, "ios": int, "throttled": int, "granule_bytes": int, "cache_fill_bytes": float,
            "random_written_bytes": float, "temperature_c": float}


def fresh(drive: SimulatedDrive) -> dict:
    """The state of one that was never used: cold, empty, at the zero of its clock."""
    return {"clock_ns": 0, "ios": 0, "throttled": 0, "granule_bytes": drive.granule_bytes, "cache_fill_bytes": 0.0,
            "random_written_bytes": 0.0, "temperature_c": _tends_to_c(drive), "mapped": ""}


def load(drive: SimulatedDrive, now_ns: Callable[[], int] = time.time_ns) -> dict:
    """Its state as of now: on the real clock it has rested since its last run."""
    try:
        stored = json.loads(_file(drive).read_text())
        state = {name: kind(stored["state"][name]) for name, kind in _NUMBERS.items()}
        state["mapped"] = str(stored["state"]["mapped"])
        saved_at_ns = int(stored["saved_at_ns"])
    except (OSError, ValueError, KeyError, TypeError):
        # A damaged file is as good as none.
        return fresh(drive)
    if state["granule_bytes"] != drive.granule_bytes:
        return fresh(drive)
    if drive.is_virtual:
        return state
    return rested(drive, state, max(0, now_ns() - saved_at_ns))


def save(drive: SimulatedDrive, state: dict, now_ns: Callable[[], int] = time.time_ns) -> None:
    """Raises BlkreelError where the directory cannot be written."""
    path = _file(drive)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    document = {"version": 1, "drive": drive.spec, "saved_at_ns": now_ns(), "state": state}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document) + "\n")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BlkreelError(f"cannot remember the state of the simulated drive in {path.parent}: {error.strerror}",
                           "name another directory: export BLKREEL_STATE_DIR=DIR") from error


def erase(target) -> None:
    """Makes a simulated drive as it was before its first run."""
    try:
        _file(target.simulated).unlink(missing_ok=True)
    except OSError as error:
        raise BlkreelError(f"cannot erase the simulated drive {target.path}: {error.strerror}",
                           "name another directory: export BLKREEL_STATE_DIR=DIR") from error


def rested(drive: SimulatedDrive, state: dict, duration_ns: int) -> dict:
    """The state after so much time in which nothing was asked of it: what drive_model.c does, in closed form."""
    drained = drive["cache_drain"] * duration_ns / 1e9
    tends_to = _tends_to_c(drive)
    temperature = tends_to + (state["temperature_c"] - tends_to) * math.exp(-duration_ns / drive["thermal_time_ns"])
    throttled = temperature >= drive["throttle_at_c"] or (
        bool(state["throttled"]) and temperature >= drive["throttle_until_c"])
    return {**state, "clock_ns": state["clock_ns"] + duration_ns, "temperature_c": temperature,
            "throttled": int(throttled), "cache_fill_bytes": max(0.0, state["cache_fill_bytes"] - drained)}


def pass_time(target, duration_ns: int) -> None:
    """Lets a simulated drive rest for so long: at once on a virtual clock; on the real one the time has passed."""
    drive = target.simulated
    state = load(drive)
    save(drive, rested(drive, state, duration_ns) if drive.is_virtual else state)


class Running:
    """The drives of one run, as the helper takes and returns them; nobody else has them while the block runs."""

    def __init__(self, drives: tuple[SimulatedDrive, ...]):
        self._drives = drives

    def __enter__(self):
        """Raises SafetyError where one is in use, BlkreelError where their states could not be saved in the end."""
        with ExitStack() as stack:
            for drive in self._drives:
                stack.enter_context(_claimed(drive))
            self._load()
            self._claims = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._claims.close()

    def _load(self):
        drives = self._drives
        self._states = [load(drive) for drive in drives]
        for drive, state in zip(drives, self._states, strict=True):
            save(drive, state)

    def files(self) -> list:
        """An open file for each: parameters and state in lines of `name value`."""
        return [_told(drive, state) for drive, state in zip(self._drives, self._states, strict=True)]

    def take(self, told: dict | None) -> None:
        """What the helper's totals say of them. The states are saved, and taken out."""
        for drive, state in zip(self._drives, (told or {}).pop("states", []), strict=False):
            save(drive, state)


@contextmanager
def _claimed(drive):
    path = _file(drive).with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w")
    except OSError as error:
        raise BlkreelError(f"cannot remember the state of the simulated drive in {path.parent}: {error.strerror}",
                           "name another directory: export BLKREEL_STATE_DIR=DIR") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SafetyError(f"{drive.spec} is in use by another run, or twice in this one",
                              f"tell two such drives apart by a name: {drive.spec},name=another") from None
        yield


def _told(drive, state):
    file = tempfile.TemporaryFile("w+")
    for name, value in [*drive.parameters, *state.items()]:
        if value != "":
            file.write(f"{name} {value!r}\n" if not isinstance(value, str) else f"{name} {value}\n")
    file.flush()
    file.seek(0)
    return file


def _tends_to_c(drive) -> float:
    """Where the temperature goes at rest."""
    return drive["ambient_c"] + drive["heating_c_per_w"] * drive["idle_w"]


def _file(drive) -> Path:
    return state_directory() / "simulated" / f"{drive.identity}.json"
