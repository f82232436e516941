"""The directory of a test while it runs: test.json and one run for each measuring step."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any, TypedDict

from blkreel.benchmarks.benchmark_file import (
    FILE,
    VERSION,
    BenchmarkDocument,
    BenchmarkHeader,
    RecipeCopy,
    damaged,
    read_test,
)
from blkreel.benchmarks.step import DONE, FAILED, SKIPPED, WAITING, BenchmarkStep
from blkreel.common.errors import BlkreelError, OutputExists
from blkreel.common.files.json_file import write_json
from blkreel.common.files.output_lock import directory_locked, refuse_in_use
from blkreel.common.files.safe_files import clear_directory, directory_at
from blkreel.common.files.typed_document import mismatch
from blkreel.replay.run.directory import LAYOUT as RUN_LAYOUT

RESULTS = "results.json"


@dataclass
class BenchmarkRecord:
    """A test in its directory. header: test.json without its version and steps."""

    __test__ = False  # not a test class of pytest

    directory: Path
    header: BenchmarkHeader
    steps: list[BenchmarkStep] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.directory / FILE

    def save(self) -> None:
        """Raises BlkreelError if the file cannot be written."""
        document = {"version": VERSION, **self.header, "steps": [step.document() for step in self.steps]}
        try:
            write_json(self.path, document)
        except OSError as error:
            raise BlkreelError(f"cannot write {self.path}: {error.strerror}",
                               f"free disk space, then resume with: blkreel test --resume {self.directory}") from error

    @property
    def left(self) -> list[BenchmarkStep]:
        """The steps that were not done."""
        return [step for step in self.steps if step.status not in (DONE, SKIPPED)]

    @property
    def unfinished(self) -> BenchmarkStep | None:
        return next(iter(self.left), None)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def create(directory: Path, header: BenchmarkHeader, steps: list[BenchmarkStep], *, force: bool) -> BenchmarkRecord:
    """A new test. Raises BlkreelError if the directory has other files, or holds a test and force is not set,
    OutputInUse while another command runs a test in it."""
    if directory.exists() and not directory.is_dir():
        raise BlkreelError(f"{directory} is a file, not a directory", "use another output")
    record = BenchmarkRecord(directory, header, steps)
    try:
        with directory_at(directory, create=True):
            pass
        with directory_locked(directory):
            if any(directory.iterdir()):
                _clear(directory, force)
            with directory_at(directory / "steps", create=True):
                pass
            record.save()
    except OSError as error:
        raise BlkreelError(f"cannot create {directory}: {error.strerror}", "use another output") from error
    return record


def _clear(directory: Path, force: bool) -> None:
    if not (directory / FILE).is_file():
        raise BlkreelError(f"{directory} exists and is not a test directory", "use another output")
    document, _ = read_test(directory)
    if not force:
        if any(step["status"] in (WAITING, FAILED) for step in document["steps"]):
            raise BlkreelError(f"{directory} holds an unfinished test", "resume it with: "
                               f"blkreel test --resume {directory}, or add --force to start again")
        raise OutputExists(directory)
    # Only what a test creates: the directory may also hold reports and notes of the user.
    runs = [escape(step["id"]) for step in document["steps"]]
    layout = {FILE: None, RESULTS: None, f".{FILE}.*.tmp": None, f".{RESULTS}.*.tmp": None, "steps": {
        name: RUN_LAYOUT for run in runs for name in (run, f"{run}.interrupted-[0-9]*")}}
    try:
        clear_directory(directory, layout)
    except OSError as error:
        raise BlkreelError(f"cannot remove the test in {directory}: {error.strerror}", "use another output") from error


class _Drive(TypedDict):
    serial_hash: str
    size_bytes: int
    path: str
    model: str
    backing_file: str


class _Payload(TypedDict):
    compressible_percent: int
    duplicates_percent: int


class _ResumableStep(TypedDict):
    """interrupted: becomes part of the name of a directory."""

    started_at: str | None
    ended_at: str | None
    result: dict[str, Any] | None
    error: str | None
    interrupted: int


class _Resumable(TypedDict):
    """Keys that resuming needs."""

    test: str
    overrides: dict[str, str]
    recipe: RecipeCopy
    quick: bool
    scale: float
    seed: int
    drive: _Drive
    device: str
    payload: _Payload
    erase: str
    label: str
    ended_at: str | None
    steps: list[_ResumableStep]


def read_resumable(directory: Path) -> tuple[BenchmarkDocument, bool]:
    """As read_test(), but with all keys that resuming needs. Raises OutputInUse while another command runs the test."""
    refuse_in_use(directory)
    document, is_private = read_test(directory)
    if wrong := mismatch(document, _Resumable):
        raise damaged(directory / FILE, wrong)
    return document, is_private
