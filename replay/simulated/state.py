"""State of a simulated drive between runs: cache, temperature, mapped blocks, clock.

One JSON file per drive in state_directory()/simulated, written at the end of a run: a killed run leaves the state from
before it.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TypedDict

from blkreel.common.errors import SafetyError
from blkreel.common.files.json_file import write_json
from blkreel.common.files.safe_files import directory_at, lock_file, open_own, unlink
from blkreel.common.files.typed_document import read_json
from blkreel.common.installation import state_directory, state_errors

from .spec import SimulatedDrive


class SimulatedState(TypedDict):
    """As drive_model.c takes and returns it. throttled: 0 or 1. mapped: bitmap of granules, as text."""

    clock_ns: int
    ios: int
    throttled: int
    granule_bytes: int
    cache_fill_bytes: float
    random_written_bytes: float
    temperature_c: float
    mapped: str


class _Stored(TypedDict):
    state: SimulatedState
    saved_at_ns: int


def fresh(drive: SimulatedDrive) -> SimulatedState:
    """The state of a drive that was never used: cold, empty, its clock at 0."""
    return {"clock_ns": 0, "ios": 0, "throttled": 0, "granule_bytes": drive.granule_bytes, "cache_fill_bytes": 0.0,
            "random_written_bytes": 0.0, "temperature_c": _tends_to_c(drive), "mapped": ""}


def load(drive: SimulatedDrive, now_ns: Callable[[], int] = time.time_ns) -> SimulatedState:
    """The state as of now: on the real clock the drive was idle since its last run."""
    return fresh(drive) if drive.state == "none" else read_state(_file(drive), drive, now_ns)


def read_state(path: Path, drive: SimulatedDrive, now_ns: Callable[[], int] = time.time_ns) -> SimulatedState:
    """The state in a file, as of now; that of a fresh drive if there is none for this drive."""
    try:
        stored = read_json(path, _Stored)
    except (OSError, ValueError):
        # A damaged file counts as none.
        return fresh(drive)
    state: SimulatedState = {**stored["state"]}
    saved_at_ns = stored["saved_at_ns"]
    if state["granule_bytes"] != drive.granule_bytes or not _is_map(state["mapped"], drive):
        return fresh(drive)
    if drive.is_virtual:
        return state
    return rested(drive, state, max(0, now_ns() - saved_at_ns))


def _is_map(text: str, drive: SimulatedDrive) -> bool:
    """Whether it has a hexadecimal digit for each four granules of the drive, or fewer."""
    return 4 * len(text) < drive.size_bytes // drive.granule_bytes + 8 and set(text) <= set("0123456789abcdef")


def save(drive: SimulatedDrive, state: SimulatedState, now_ns: Callable[[], int] = time.time_ns) -> None:
    """Raises BlkreelError if the directory cannot be written."""
    if drive.state != "none":
        write_state(_file(drive), drive, state, now_ns)


def write_state(path: Path, drive: SimulatedDrive, state: SimulatedState,
                now_ns: Callable[[], int] = time.time_ns) -> None:
    """Raises BlkreelError if the file cannot be written."""
    document = {"version": 1, "drive": drive.spec, "saved_at_ns": now_ns(), "state": state}
    with state_errors(f"cannot save the state of the simulated drive in {path.parent}"):
        write_json(path, document, indent=None)


def erase(drive: SimulatedDrive) -> None:
    """Reset the drive to the state before its first run."""
    with state_errors(f"cannot erase the simulated drive {drive.spec}"):
        unlink(_file(drive))


def rested(drive: SimulatedDrive, state: SimulatedState, duration_ns: int) -> SimulatedState:
    """The state after idle time: drive_model.c in closed form."""
    drained = drive["cache_drain"] * duration_ns / 1e9
    tends_to = _tends_to_c(drive)
    temperature = tends_to + (state["temperature_c"] - tends_to) * math.exp(-duration_ns / drive["thermal_time_ns"])
    throttled = temperature >= drive["throttle_at_c"] or (
        bool(state["throttled"]) and temperature >= drive["throttle_until_c"])
    return {**state, "clock_ns": state["clock_ns"] + duration_ns, "temperature_c": temperature,
            "throttled": int(throttled), "cache_fill_bytes": max(0.0, state["cache_fill_bytes"] - drained)}


def pass_time(drive: SimulatedDrive, duration_ns: int) -> None:
    """Add idle time to a virtual clock, at once; on the real clock the time has passed already."""
    state = load(drive)
    save(drive, rested(drive, state, duration_ns) if drive.is_virtual else state)


@contextmanager
def written_long_before(drive: SimulatedDrive | None) -> Iterator[None]:
    """What the block writes stays, without its effect on cache, random writes and temperature. None: does nothing."""
    if drive is None:
        yield
        return
    before = load(drive)
    yield
    save(drive, {**load(drive), "cache_fill_bytes": before["cache_fill_bytes"],
                 "random_written_bytes": before["random_written_bytes"], "temperature_c": before["temperature_c"],
                 "throttled": before["throttled"]})


class Running:
    """The drives of one run, locked while the block runs, as the helper takes and returns them."""

    def __init__(self, drives: tuple[SimulatedDrive, ...]):
        self._drives = drives

    def __enter__(self) -> "Running":
        """Raises SafetyError if a drive is in use, BlkreelError if the states could not be saved at the end."""
        with ExitStack() as stack:
            for drive in self._drives:
                if drive.state != "none":
                    stack.enter_context(_claimed(drive))
            self._load()
            self._claims = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._claims.close()

    def _load(self) -> None:
        drives = self._drives
        self._states = [load(drive) for drive in drives]
        for drive, state in zip(drives, self._states, strict=True):
            save(drive, state)

    def files(self) -> list[IO[str]]:
        """An open file for each drive: parameters and state in lines of `name value`."""
        return [parameter_file(drive, state) for drive, state in zip(self._drives, self._states, strict=True)]

    def take(self, totals: dict[str, Any] | None) -> None:
        """Save the states of the helper's totals, and remove them from there."""
        for drive, state in zip(self._drives, (totals or {}).pop("states", []), strict=False):
            save(drive, state)


@contextmanager
def _claimed(drive: SimulatedDrive) -> Iterator[None]:
    path = _file(drive).with_suffix(".lock")
    with (state_errors(f"cannot save the state of the simulated drive in {path.parent}"),
          directory_at(path.parent, create=True)):
        file = open(open_own(path, os.O_WRONLY | os.O_CREAT), "wb")
    with file:
        if not lock_file(file):
            raise SafetyError(f"{drive.spec} is in use by another run, or twice by this one",
                              f"give a second drive a name: {drive.spec},name=another")
        yield


def parameter_file(drive: SimulatedDrive, state: Mapping[str, Any]) -> IO[str]:
    """An open file of parameters and state in lines of `name value`, as the native model reads it."""
    file = tempfile.TemporaryFile("w+")
    for name, value in [*drive.parameters, *state.items()]:
        if value != "":
            file.write(f"{name} {value!r}\n" if not isinstance(value, str) else f"{name} {value}\n")
    file.flush()
    file.seek(0)
    return file


def _tends_to_c(drive: SimulatedDrive) -> float:
    """The temperature that an idle drive approaches."""
    return drive["ambient_c"] + drive["heating_c_per_w"] * drive["idle_w"]


def _file(drive: SimulatedDrive) -> Path:
    return state_directory() / "simulated" / f"{drive.identity}.json"
