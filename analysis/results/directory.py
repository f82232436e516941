"""A test's directory: what test.json says, and the runs of its steps."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from blkreel.traces.errors import BlkreelError, TraceError
from blkreel.traces.places import Url
from blkreel.traces.reader import TEST as TEST_FILE
from blkreel.traces.reader import Trace, open_trace

VERSION = 1
MEASURING = ("measure", "replay")


@dataclass(frozen=True)
class Step:
    """One step as test.json tells of it. directory: of its run; None where it has none."""

    id: str
    do: str
    title: str
    role: str | None
    labels: dict
    status: str
    directory: Path | None
    result: dict | None
    error: str | None

    @property
    def repeat(self) -> int:
        return self.labels.get("repeat", 1)

    @property
    def is_measured(self) -> bool:
        """Whether there are records of it."""
        return self.status == "done" and self.directory is not None


@dataclass(frozen=True)
class Test:
    """path: the directory. told: test.json. Steps in their order."""

    path: Path
    told: dict
    steps: list[Step] = field(default_factory=list)

    def parameter(self, name: str, default=None):
        return (self.told.get("parameters") or {}).get(name, default)


def is_test(path) -> bool:
    """Whether that is the directory of a test, which lies on this machine."""
    return not isinstance(path, Url) and (Path(path) / TEST_FILE).is_file()


def load(directory) -> Test:
    """Raises TraceError for a directory that is no test's, or whose test.json is damaged or of a later version."""
    directory = Path(directory)
    path = directory / TEST_FILE
    try:
        told = json.loads(path.read_text())
        if told["version"] > VERSION:
            raise TraceError(f"{path} has version {told['version']}; this blkreel reads up to {VERSION}",
                             "update blkreel")
        steps = [_step(directory, each) for each in told["steps"]]
    except FileNotFoundError:
        raise TraceError(f"{directory} is not the directory of a test (no {TEST_FILE})",
                         "name a directory that `blkreel test -o` made") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{path} is damaged ({type(error).__name__}: {error})",
                         "copy it again from where it was whole, or run the test again") from None
    return Test(directory, told, steps)


def _step(directory, told) -> Step:
    where = told.get("directory")
    return Step(told["id"], told["do"], told.get("title") or told["id"], told.get("role"), told.get("labels") or {},
                told["status"], directory / where if where else None, told.get("result"), told.get("error"))


class Runs:
    """The runs of a test's steps, read for one report. What could not be read is in `missing`, with the reason.

    opened: step id to metadata of each run that was read, in order. asked: the roles that the report is of.
    on_step(done, total) is told after each run.
    """

    def __init__(self, test: Test, on_step=lambda done, total: None):
        self.test = test
        self.opened: dict[str, dict] = {}
        self.unread: dict[str, str] = {}
        self.asked: set[str] = set()
        self._on_step = on_step
        self._total = sum(step.is_measured for step in test.steps)

    def measured(self, role: str, measure, number: str | None = None) -> list[tuple[Step, object]]:
        """(step, measure(step, its open trace)) of each done step of that role.

        number: a label without which the report can do nothing with a step. Recipes are anybody's: a step that lacks
        it is missing, and the others stand.
        """
        found = []
        self.asked.add(role)
        for step in self.test.steps:
            if step.role != role or not step.is_measured:
                continue
            try:
                if number is not None and not isinstance(step.labels.get(number), int):
                    raise TraceError(f"it has no number as its label {number!r}, which this report goes by")
                trace = open_trace(step.directory)
                found.append((step, measure(step, trace)))
                self.opened[step.id] = trace.metadata
            except BlkreelError as error:
                self.unread[step.id] = str(error)
            self._on_step(len(self.opened) + len(self.unread), self._total)
        return found

    def open_rest(self) -> None:
        """Read the account of each run that no figure is of: the verdict on the test is on these too."""
        for step in self.test.steps:
            if step.is_measured and step.id not in self.opened and step.id not in self.unread:
                try:
                    self.opened[step.id] = open_trace(step.directory).metadata
                except BlkreelError as error:
                    self.unread[step.id] = str(error)
                self._on_step(len(self.opened) + len(self.unread), self._total)

    def missing(self) -> list[dict]:
        """Steps that should have been measured and were not: waiting, failed, unreadable. Also states that failed.

        Rounds that were skipped because those before them were steady are not missing.
        """
        gone = []
        for step in self.test.steps:
            why = self.unread.get(step.id)
            if step.status == "failed":
                why = step.error or "failed"
            elif step.status not in ("done", "skipped"):
                why = "not done yet"
            elif step.status == "done" and step.do in MEASURING and step.directory is None:
                why = "it left no records"
            if why:
                gone.append({"step": step.id, "title": step.title, "status": step.status, "why": why})
        return gone


def arrays(trace: Trace, columns: list[str]):
    """The rows of a run batch by batch, as {column: array}."""
    for batch in trace.batches(columns):
        yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns}
