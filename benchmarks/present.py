"""From the directory of a benchmark to a document and its page."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from blkreel.analysis.report.export import View
from blkreel.analysis.report.page.compare_page import Attached
from blkreel.analysis.report.workloads import Score
from blkreel.analysis.scale.dataset import refuse_repeated
from blkreel.common.binning import grouped
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.storage_url import Location

from .catalog.collect import identity_of
from .catalog.result import canonical
from .charts.drives import drives_of, models_of
from .reports.page import page_of
from .reports.registry import REPORTS
from .reports.results import results_of
from .results.compared import compared
from .results.document import Results

Document = dict[str, Any]  # the results as JSON: docs/tests.md
NamedResults = tuple[Path, Results]  # directory of the test, which names it, and its results


def report_test(directory: str | Location, output: str | Path | None = None, *, force: bool = False,
                view: View | None = None,
                on_step: Callable[[int, int], None] = lambda done, total: None) -> Document:
    """The results of a test as a document; with `output`, also its page. on_step(done, total): progress.

    Raises OutputExists before anything is read, BlkreelError for a directory that is not a test.
    """
    view = view or View()
    view.check(output, force)
    return _written(results_of(Path(str(directory)), on_step), output, force, view)


def read_tests(directories: Sequence[str | Location],
               on_step: Callable[[str, int, int], None] = lambda path, done, total: None) -> list[NamedResults]:
    """The results of each test. Raises as `report_test`, UsageError for a test named twice, and for a copy."""
    paths = [Path(str(path)) for path in directories]
    refuse_repeated(paths)
    tests = [(path, results_of(path, partial(on_step, str(path)))) for path in paths]
    _refuse_copies(tests)
    return tests


def _refuse_copies(tests: Sequence[NamedResults]) -> None:
    """Raise UsageError if two of the tests are copies of one: a copy is no repetition."""
    originals: dict[bytes, Path] = {}
    for path, _ in tests:
        try:
            identity = canonical(identity_of(path))
        except BlkreelError:  # nothing is measured
            continue
        if (original := originals.setdefault(identity, path)) is not path:
            raise UsageError(f"{path} is a copy of {original}",
                             "name each test once: one test is not two repetitions")


def compare_results(tests: Sequence[NamedResults], output: str | Path | None = None, *, force: bool = False,
                    view: View | None = None) -> Document:
    """Results of one test on several drives as a document; with `output`, also its page. Raises as `report_test`."""
    paths, results = zip(*tests, strict=True)
    return _written(compared(paths, results), output, force, view or View())


def attached_results(tests: Sequence[NamedResults]) -> list[Attached]:
    """Results of benchmarks for the page of a comparison of runs, one for each benchmark."""
    groups = grouped(((results["test"], results["report"]), (path, results)) for path, results in tests)
    return [_attached(group) for group in groups.values()]


def _attached(group: Sequence[NamedResults]) -> Attached:
    paths, results = zip(*group, strict=True)
    content = cast(Document, results[0] if len(results) == 1 else compared(paths, results))
    drives = drives_of(content)
    report = REPORTS[content["report"]]
    invalid = [drive for drive in drives if drive.verdict["level"] == "invalid"]
    runs = {drive.key: value.repeats for drive in drives
            if drive not in invalid and (value := report.headline(drive)) is not None}
    title = str(content["test"] or content["report"])
    score = Score(title, "score", report.metric.better == "higher", report.metric.value_unit.text, runs)
    return Attached(content, score, models_of(drives),
                    lambda highlight, drives_file: page_of(content, highlight, drives_file),
                    [f"{title}: {drive.key} left out, invalid ({drive.verdict['reasons'][0]['text']})"
                     for drive in invalid])


def _written(document: Results, output: str | Path | None, force: bool, view: View) -> Document:
    content = cast(Document, document)
    view.check_drives(models_of(drives_of(content)))
    view.write(content, lambda: page_of(content, view.highlight, view.drives_file), output, force)
    return content
