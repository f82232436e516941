"""The directory of a test while it runs: test.json and one run for each measuring step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

from blkreel.benchmarks.benchmark_file import FILE, VERSION, BenchmarkDocument, BenchmarkHeader, damaged, read_test
from blkreel.benchmarks.step import DONE, FAILED, SKIPPED, WAITING, BenchmarkStep
from blkreel.common.errors import BlkreelError, OutputExists, os_errors
from blkreel.common.files.json_file import write_json
from blkreel.common.files.output_lock import directory_locked, refuse_in_use
from blkreel.common.files.safe_files import clear_directory, directory_at
from blkreel.replay.engine.engine import Payload
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
        again = f"resume with: blkreel test --resume {self.directory}" if self.path.exists() else \
            "run the same command again"
        with os_errors(BlkreelError, f"cannot write {self.path}", f"free disk space, then {again}"):
            write_json(self.path, document)

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
    with os_errors(BlkreelError, f"cannot create {directory}", "use another output"):
        with directory_at(directory, create=True):
            pass
        with directory_locked(directory):
            if any(directory.iterdir()):
                _clear(directory, force)
            record.save()  # on a full disk the directory stays empty, so that the same command can be repeated
            with directory_at(directory / "steps", create=True):
                pass
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
    with os_errors(BlkreelError, f"cannot remove the test in {directory}", "use another output"):
        clear_directory(directory, layout)


# What resuming needs, beyond what read_test() checks. interrupted: becomes part of the name of a directory.
_NEEDED = ("test", "overrides", "recipe", "quick", "scale", "seed", "drive", "device", "payload", "erase", "label",
           "ended_at")
_NEEDED_OF_DRIVE = ("serial_hash", "size_bytes", "path", "model", "backing_file")
_NEEDED_OF_STEP = ("started_at", "ended_at", "result", "error", "interrupted")


def read_resumable(directory: Path) -> tuple[BenchmarkDocument, bool]:
    """As read_test(), but with all keys that resuming needs. Raises OutputInUse while another command runs the test."""
    refuse_in_use(directory)
    document, is_private = read_test(directory)
    needed: list[tuple[str, Mapping[str, Any], Sequence[str]]] = [
        ("", document, _NEEDED), ("drive.", document.get("drive", {}), _NEEDED_OF_DRIVE),
        ("payload.", document.get("payload", {}), tuple(Payload().account())),
        *((f"steps[{number}].", step, _NEEDED_OF_STEP) for number, step in enumerate(document["steps"]))]
    if missing := next((f"{path}{key}" for path, part, keys in needed for key in keys if key not in part), None):
        raise damaged(directory / FILE, f"{missing} is missing")
    if document["label"] is None:
        raise damaged(directory / FILE, "label is not a string")
    return document, is_private
