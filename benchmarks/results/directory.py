"""The runs of a test's steps, read for one report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from blkreel.benchmarks.benchmark_file import FILE, BenchmarkDocument, read_test
from blkreel.benchmarks.recipe.recipe import procedure_checksum
from blkreel.benchmarks.step import DONE, FAILED, SKIPPED, BenchmarkStep
from blkreel.common.errors import BlkreelError, TraceError
from blkreel.common.files.storage_url import StorageUrl
from blkreel.traces.format.condition import UNKNOWN, Condition, payload_words
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.trace import Trace

from .document import Missing

_CHECKSUM_DIGITS = 12
# Inputs of a run that parameters of a benchmark do not fix -> the value that is not named.
_USUAL = {"map": "identity", "prefill": "", "polling": ""}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Test:
    """A test directory. document: its test.json, which may lack keys of the header."""

    path: Path
    document: BenchmarkDocument
    steps: list[BenchmarkStep]


def is_test(path: object) -> bool:
    """Whether the path is a local test directory."""
    return not isinstance(path, StorageUrl) and (Path(str(path)) / FILE).is_file()


def load(path: str | Path) -> Test:
    """Raises TraceError as read_test()."""
    directory = Path(path)
    document, _ = read_test(directory)
    return Test(directory, document, [BenchmarkStep.stored(step) for step in document["steps"]])


class Runs:
    """Reads the runs of a test and records those that cannot be read.

    metadata: by step id, of each run that was read. roles: the roles that the report uses. on_step(done, total) is
    called after each run.
    """

    def __init__(self, test: Test, on_step: Callable[[int, int], None] = lambda done, total: None):
        self.test = test
        self.metadata: dict[str, dict[str, Any]] = {}
        self.unreadable: dict[str, str] = {}
        self.roles: set[str] = set()
        self._on_step = on_step
        self._total = sum(step.is_measured for step in test.steps)

    def measured(self, role: str, measure: Callable[[Path, Trace], _T],
                 number: str | None = None) -> list[tuple[BenchmarkStep, _T]]:
        """(step, measure(directory, open trace)) of each finished step of that role.

        number: a label that must be an integer. Users write recipes too: a step without it is missing, the other
        steps are reported.
        """
        results: list[tuple[BenchmarkStep, _T]] = []
        self.roles.add(role)
        for step in self.test.steps:
            if step.role == role and step.is_measured:
                self._read(step, lambda directory, trace, step=step: results.append(  # type: ignore[misc]
                    (step, measure(directory, trace))), number)
        return results

    @property
    def simulated(self) -> bool:
        """Whether a run was on a simulated drive."""
        return any(Run.of(metadata).simulated for metadata in self.metadata.values())

    def read_rest(self) -> None:
        """Read the metadata of all other runs, since the verdict covers them too."""
        for step in self.test.steps:
            if step.is_measured and step.id not in self.metadata and step.id not in self.unreadable:
                self._read(step, lambda directory, trace: None)

    def _read(self, step: BenchmarkStep, use: Callable[[Path, Trace], None], number: str | None = None) -> None:
        assert step.directory is not None
        try:
            if number is not None and not isinstance(step.labels.get(number), int):
                raise TraceError(f"its label {number!r} is not an integer, which this report needs")
            directory = self.test.path / step.directory
            trace = open_trace(directory)
            if not trace.is_run:
                raise TraceError("its records are a captured trace, not those of a replay")
            use(directory, trace)
            self.metadata[step.id] = trace.metadata
        except BlkreelError as error:
            self.unreadable[step.id] = str(error)
        self._on_step(len(self.metadata) + len(self.unreadable), self._total)

    def inputs(self) -> dict[str, str]:
        """Inputs of the test beside its parameters, as texts: a recipe that is not built in and the traces by their
        checksums, the kind of data written, an erase that is not a discard, and what else its replays may have by
        default or by chance, such as a map that follows the drive's size. What is as usual is left out."""
        document = self.test.document
        traces = {Run.of(metadata).source.sha256 for metadata in self.metadata.values()}
        erase = document.get("erase") or ""
        recipe = document.get("recipe")
        procedure = procedure_checksum(document.get("test") or "", recipe["text"]) if recipe else ""
        texts = {"recipe": procedure[:_CHECKSUM_DIGITS],
                 "trace": ", ".join(sorted(sha256[:_CHECKSUM_DIGITS] for sha256 in traces if sha256)),
                 "data": payload_words(document.get("payload")), "erase": "" if erase == "discard" else erase}
        conditions = [Condition.of(metadata) for metadata in self.metadata.values()]
        for name, usual in _USUAL.items():
            values = dict.fromkeys(getattr(condition, name) or "as usual" for condition in conditions)
            texts[name] = ", ".join(values) if set(values) - {usual, "as usual", UNKNOWN} else ""
        return {name: text for name, text in texts.items() if text}

    def missing(self) -> list[Missing]:
        """Steps that failed, are waiting or cannot be read. Rounds skipped in steady state are not missing."""
        missing: list[Missing] = []
        for step in self.test.steps:
            why = self.unreadable.get(step.id)
            if step.status == FAILED:
                why = step.error or "failed"
            elif step.status not in (DONE, SKIPPED):
                why = "not done yet"
            elif step.status == DONE and step.measures and step.directory is None:
                why = "no records"
            if why:
                missing.append({"step": step.id, "title": step.title, "status": step.status, "why": why})
        return missing
