"""test.json: the header, the steps and the progress of a benchmark, in the directory of the test."""

import os
from pathlib import Path
from typing import Any, Required, TypedDict

from blkreel.common.errors import TraceError
from blkreel.common.files.safe_files import directory_at, file_name
from blkreel.common.files.typed_document import mismatch, parse_json
from blkreel.replay.telemetry.options import OptionsAccount
from blkreel.traces.format.metadata_types import Device
from blkreel.traces.format.reader import TEST

from .step import DONE, FAILED, SKIPPED, WAITING, StepDocument

FILE = TEST
VERSION = 1
_STATUS = (WAITING, DONE, FAILED, SKIPPED)


class RecipeCopy(TypedDict):
    sha256: str
    text: str


class DriveSnapshot(TypedDict):
    """The state of the drive. at: time of the snapshot."""

    at: str
    name: str | None
    prepared_at: str | None
    written_bytes: int
    discarded_bytes: int


class BenchmarkHeader(TypedDict, total=False):
    """parameters_text: the parameters as text with units. overrides: what --set gave, as text. drive_after: the state
    of the drive after the last step. working_directory: that of the command which started the test. units: as of
    drive_units()."""

    test: str
    title: str
    report: str
    explain: str
    quick: bool
    scale: float
    parameters: dict[str, Any]
    parameters_text: dict[str, str]
    overrides: dict[str, str]
    recipe: RecipeCopy
    seed: int
    payload: dict[str, int]
    erase: str
    telemetry: OptionsAccount | None
    working_directory: str
    drive: Device
    units: list[str]
    drive_after: DriveSnapshot
    device: str
    usable_bytes: int
    block_bytes: int
    label: str | None
    started_at: str
    ended_at: str | None
    blkreel: str


class BenchmarkDocument(BenchmarkHeader):
    version: Required[int]
    steps: Required[list[StepDocument]]


def read_test(directory: Path) -> tuple[BenchmarkDocument, bool]:
    """(test.json, whether only root and this user can write to it). Raises TraceError for a missing or invalid file."""
    path = directory / FILE
    try:
        with directory_at(directory) as descriptor:
            # Without O_NONBLOCK, opening a FIFO of that name would block.
            file = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
            with open(file, "rb") as opened:
                is_private = _is_private(os.fstat(descriptor)) and _is_private(os.fstat(file))
                text = opened.read()
    except FileNotFoundError:
        raise TraceError(f"{directory} is not a test directory: no {FILE}",
                         "use a directory that `blkreel test -o` created") from None
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}", f"ls -l {path}") from None
    try:
        document = parse_json(text)
        version = document.get("version") if isinstance(document, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise TraceError(f"{path} has version {version}, this blkreel reads up to {VERSION}", "update blkreel")
        if wrong := mismatch(document, BenchmarkDocument):
            raise ValueError(wrong)
        for step in document["steps"]:
            if step["status"] not in _STATUS:
                raise ValueError(f"invalid step {step['id']}")
            if not isinstance((step.get("labels") or {}).get("repeat", 1), int):
                raise ValueError(f"the label repeat of step {step['id']} is not an integer")
            if step.get("directory") is not None:
                _check_inside(directory, step["directory"], step["id"])
    except ValueError as error:
        raise damaged(path, str(error)) from None
    return document, is_private


def damaged(path: Path, reason: str) -> TraceError:
    return TraceError(f"{path} is damaged: {reason}", "restore it from a copy, or report its runs: "
                                                      f"blkreel report {path.parent}/steps/*")


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def _check_inside(test: Path, directory: str, step: str) -> None:
    """Raise ValueError unless it is steps/NAME: files that are added to the run of a step must stay in the test."""
    steps, _, name = directory.partition("/")
    try:
        is_inside = steps == "steps" and bool(file_name(name))
    except ValueError:
        is_inside = False
    if not is_inside:
        raise ValueError(f"the directory of step {step} is not in steps/")
    if (test / steps).is_symlink() or (test / directory).is_symlink():
        raise ValueError(f"the directory of step {step} is a symbolic link, which could lead elsewhere")
