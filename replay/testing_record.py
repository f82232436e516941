"""What is remembered of a test, in its directory: what it is, its steps, and how far it has come (test.json)."""

import json
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from blkreel.traces.errors import BlkreelError, OutputExists, UsageError
from blkreel.traces.json_file import write_json
from blkreel.traces.reader import TEST as FILE

from .recipe_steps import TestStep

VERSION = 1
WAITING, DONE, FAILED, SKIPPED = "waiting", "done", "failed", "skipped"


@dataclass
class StepRecord:
    """result: of a measuring step, what a look at the test needs of its run; of a state, the state."""

    step: TestStep
    status: str = WAITING
    began_at: str | None = None
    ended_at: str | None = None
    result: dict | None = None
    error: str | None = None
    interrupted: int = 0  # how often it was begun in vain

    @property
    def directory(self) -> str | None:
        return f"steps/{self.step.id}" if self.step.measures else None

    def document(self) -> dict:
        step = self.step
        return {"id": step.id, "do": step.do, "title": step.title, "role": step.role, "labels": step.labels,
                "status": self.status, "directory": self.directory, "began_at": self.began_at,
                "ended_at": self.ended_at, "result": self.result, "error": self.error, "interrupted": self.interrupted}

    def restore(self, stored: dict) -> None:
        for name in ("status", "began_at", "ended_at", "result", "error", "interrupted"):
            setattr(self, name, stored[name])

    def reset(self) -> None:
        self.status, self.began_at, self.ended_at, self.result, self.error = WAITING, None, None, None, None


@dataclass
class TestRecord:
    """head: all of test.json but the steps."""

    __test__ = False

    directory: Path
    head: dict
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.directory / FILE

    def save(self) -> None:
        """Raises BlkreelError where it cannot be written."""
        document = {"version": VERSION, **self.head, "steps": [step.document() for step in self.steps]}
        try:
            write_json(self.path, document)
        except OSError as error:
            raise BlkreelError(f"cannot write {self.path}: {error.strerror}",
                               f"make room there, then go on with: blkreel test --resume {self.directory}") from error

    @property
    def unfinished(self) -> StepRecord | None:
        return next((step for step in self.steps if step.status not in (DONE, SKIPPED)), None)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def create(directory: Path, head: dict, steps: list[TestStep], *, force: bool) -> TestRecord:
    """A new test, all of it waiting. Raises BlkreelError where that would take something away that is no test."""
    if directory.exists():
        if not directory.is_dir():
            raise BlkreelError(f"{directory} is a file, and a test is a directory", "name another output")
        if any(directory.iterdir()):
            _clear(directory, force)
    elif not directory.parent.is_dir():
        raise BlkreelError(f"{directory.parent} is not a directory", f"mkdir -p {directory.parent}")
    try:
        (directory / "steps").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlkreelError(f"cannot make {directory}: {error.strerror}", "name another output") from error
    record = TestRecord(directory, head, [StepRecord(step) for step in steps])
    record.save()
    return record


def _clear(directory, force) -> None:
    if not (directory / FILE).is_file():
        if force:
            raise BlkreelError(f"{directory} is not a test, so --force does not replace it", "name another output")
        raise OutputExists(directory)
    stored = stored_document(directory)
    if not force:
        if any(step["status"] in (WAITING, FAILED) for step in stored["steps"]):
            raise BlkreelError(f"{directory} holds a test that did not end",
                               f"go on with it: blkreel test --resume {directory}, or add --force to begin anew")
        raise OutputExists(directory)
    shutil.rmtree(directory)


# What a test needs to go on. What came later (telemetry, directory, drive_left_as) may lack.
_HEAD = {"test": str, "given": dict, "recipe": dict, "quick": bool, "scale": (int, float), "seed": int, "drive": dict,
         "device": str, "payload": dict, "erase": str, "label": str}
_STEP = ("id", "status", "began_at", "ended_at", "result", "error", "interrupted")


def document_to_go_on(directory: Path) -> dict:
    """test.json, with all that a test needs to go on. Raises UsageError as stored_document(), and where it lacks."""
    stored = stored_document(directory)
    lacks = [key for key, kind in _HEAD.items() if not isinstance(stored.get(key), kind)]
    lacks += [f"{key} of a step" for key in _STEP if any(key not in step for step in stored["steps"])]
    lacks += [] if isinstance((stored.get("recipe") or {}).get("text"), str) else ["the recipe's text"]
    if lacks:
        raise _damaged(directory / FILE, f" (it lacks {lacks[0]})")
    return stored


def _damaged(path: Path, how: str = "") -> UsageError:
    return UsageError(f"{path} is damaged{how}", "its steps/ are whole runs: blkreel report DIR/steps/*")


def stored_document(directory: Path) -> dict:
    """test.json. Raises UsageError where there is none, or none that this version reads."""
    path = directory / FILE
    try:
        stored = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{directory} holds no test: {path} {error.strerror.lower()}",
                         "name the directory that `blkreel test ... -o` was given") from None
    except ValueError:
        raise _damaged(path) from None
    if not isinstance(stored, dict):
        raise _damaged(path)
    if stored.get("version") != VERSION:
        raise UsageError(f"{path} is of version {stored.get('version')}, and this blkreel reads {VERSION}",
                         "install the version that wrote it")
    steps = stored.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) and "status" in step for step in steps):
        raise _damaged(path, " (it lacks steps)")
    return stored
