"""`blkreel.open`: traces, runs and tests from Python."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from blkreel.analysis import study
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.benchmarks.results import directory
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.traces.format.reader import open_trace

from .reports.results import results_of
from .results.directory import is_test
from .results.document import Results

if TYPE_CHECKING:
    import pandas as pd


def open_study(paths: study.Paths, *, gap_ns: int = DEFAULT_GAP_NS, exact: bool | None = None,
               jobs: int | None = None) -> Study:
    """Open a trace, a run's directory, a test's directory, or several of them.

    paths: one path or URL, a trace that ships ("sample:game-load"), a pattern ("runs/*"), a list of them, or
    {label: path}. gap_ns: idle time after which a new burst starts. exact: exact percentiles for any number of I/Os;
    None: up to 4 million I/Os, beyond that within 0.4 %. jobs: processes that read large traces; None: as many as
    cores. Only the footers of files are read before a metric is needed. Raises BlkreelError for other paths.
    """
    options = gap_ns, exact, jobs
    if isinstance(paths, str | PathLike) and not study.matching(str(paths)):
        if is_test(paths):
            return Study(_steps_of(Path(paths)), *options, several=True, test=Path(paths))
        return Study(study.traces_of(str(paths)), *options)
    return Study(study.open_all(paths, _traces_of), *options, several=True)


class Study(study.Study):
    """As analysis.study.Study. A test is the runs of its steps, by the names of the steps."""

    def __init__(self, parts: study.Labeled, gap_ns: int, exact: bool | None, jobs: int | None, *,
                 several: bool = False, test: Path | None = None):
        super().__init__(parts, gap_ns, exact, jobs, several=several)
        self._test = test

    @cached_property
    def results(self) -> Results:
        """Of a test: its published results, as `blkreel report --json` gives them. Raises UsageError of others."""
        return results_of(self._of_test("results"))

    @property
    def steps(self) -> pd.DataFrame:
        """Of a test: its steps in order, their status, and their labels. Raises UsageError of others."""
        import pandas

        lines = [{"step": step.id, "title": step.title, "do": step.do, "status": step.status, **step.labels}
                 for step in directory.load(self._of_test("steps")).steps]
        return pandas.DataFrame(lines).set_index("step")

    def _of_test(self, what: str) -> Path:
        if self._test is None:
            raise UsageError(f"only a test has {what}", "open a directory that `blkreel test -o` made")
        return self._test


def _traces_of(path: str) -> study.Labeled:
    if not is_test(path):
        return study.traces_of(path)
    return [(f"{Path(path).name}/{label}", trace) for label, trace in _steps_of(Path(path))]


def _steps_of(test: Path) -> study.Labeled:
    steps = [step for step in directory.load(test).steps if step.is_measured]
    if not steps:
        raise BlkreelError(f"{test}: no measurement of this test is finished",
                           f"resume it: blkreel test --resume {test}")
    return [(step.id, open_trace(test / step.directory)) for step in steps if step.directory]
