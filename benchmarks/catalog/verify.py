"""Whether the files of a catalog are what was added: checksums, and metrics computed again."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from blkreel.analysis.metrics.definitions.metric import pace_names
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.common.errors import BlkreelError

from .catalog import Catalog
from .collect import collected, identity_of, metrics_of
from .result import CatalogError, MetricValue, Result
from .tables import is_result, read_result

_MOST_KEYS = 3
_PRECISION = 1e-12  # of sums in another order


@dataclass(frozen=True)
class Problem:
    """file: of the catalog. message: what is wrong. remedy: how to mend it."""

    file: str
    message: str
    remedy: str


@dataclass
class Verification:
    """results: number of files read. recomputed: number of results measured again from their runs. repaired: files of
    results that were added again."""

    results: int = 0
    recomputed: int = 0
    repaired: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return 1 if self.problems else 0

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "valid": not self.problems}


def verify(catalog: Catalog, *, runs: bool = True, repair: bool = False,
           on_result: Callable[[int, int], None] = lambda done, total: None) -> Verification:
    """runs: measure those again that are still in their directories. repair: add a result with a problem again from its
    run, where that is unchanged. on_result(done, total): progress."""
    report = Verification()
    files = sorted(catalog.results.iterdir()) if catalog.results.is_dir() else []
    partials: set[Path] = set()
    gone: list[str] = []
    moved: list[str] = []
    for index, path in enumerate(files):
        on_result(index, len(files))
        if not is_result(path.name):
            report.notes.append(f"{path} is no result: the temporary file of an add that was killed; rm {path}")
            continue
        report.results += 1
        try:
            result = read_result(path)
        except CatalogError as error:
            report.problems.append(Problem(str(path), error.message.removeprefix(f"{path} is "), error.remedy or ""))
            continue
        if partial := catalog.partial_path(result):
            partials.add(partial)
        before = len(report.problems)
        report.problems += _partial_problems(catalog, path, result)
        if runs:
            _compare_with_run(report, path, result, gone, moved)
        if repair and len(report.problems) > before and _added_again(catalog, result):
            del report.problems[before:]
            report.repaired.append(str(path))
    on_result(len(files), len(files))
    folder = catalog.directory / "partials"
    for path in sorted(set(folder.iterdir()) - partials if folder.is_dir() else ()):
        # A damaged result may name it.
        if not report.problems:
            report.notes.append(f"{path} belongs to no result: an add was interrupted; rm {path}")
    if gone:
        report.notes.append(f"{len(gone)} of {report.results} results: their run is not in its directory now, the "
                            f"first is {gone[0]}")
    if moved:
        report.notes.append(f"{len(moved)} results: their directory now has another run, the first is {moved[0]}")
    return report


def _added_again(catalog: Catalog, result: Result) -> bool:
    """Whether the run of the result was still in its directory, and replaced the result."""
    try:
        if identity_of(Path(result["path"])) != result["measured"]:
            return False
        catalog.add(result["path"], host=result["host"])
    except BlkreelError:
        return False
    return True


def _partial_problems(catalog: Catalog, path: Path, result: Result) -> Iterator[Problem]:
    if result["partial"] is None:
        return
    add = f"add the run again: blkreel results add {result['path']}"
    try:
        partial = catalog.partial(result)
    except CatalogError as error:
        yield Problem(str(catalog.partial_path(result)), error.message.partition(" ")[2], error.remedy or add)
        return
    metadata = result["metadata"] or {}
    paces = pace_names(metadata.get("run", {}).get("pace"))
    recomputed = metrics_of(figures(partial, RunTimes.of(metadata)), paces, result["verdict"].get("withheld", ()))
    if differing := _differing(result["metrics"], recomputed):
        yield Problem(str(path), f"{differing} not those of its partial: it was edited, or added by a version with "
                      f"other formulas ({result['added_by']})", add)


def _compare_with_run(report: Verification, path: Path, result: Result, gone: list[str], moved: list[str]) -> None:
    directory = Path(result["path"])
    if not directory.is_dir():
        gone.append(str(directory))
        return
    try:
        if identity_of(directory) != result["measured"]:
            moved.append(str(directory))
            return
        again, _ = collected(directory)
    except BlkreelError as error:
        report.notes.append(f"{directory} cannot be read: {error.message}")
        return
    report.recomputed += 1
    add = f"add it again: blkreel results add {directory}"
    if differing := _differing(result["metrics"], again["metrics"]):
        report.problems.append(Problem(str(path), f"{differing} not those of its run", add))
    elif result["verdict"] != again["verdict"]:
        report.problems.append(Problem(str(path), f"the verdict is {result['verdict']['level']}, of its run "
                                       f"{again['verdict']['level']} or for other reasons", add))
    elif result["drive"] != again["drive"] or result["workload"] != again["workload"]:
        report.problems.append(Problem(str(path), "drive or workload are not those of its run", add))


def _differing(stored: Mapping[str, MetricValue], again: Mapping[str, MetricValue]) -> str:
    """`read_p99, read_wait and 3 more metrics are`; empty if all are equal."""
    keys = [key for key in {**stored, **again} if key not in stored or key not in again or not math.isclose(
        stored[key]["value"], again[key]["value"], rel_tol=_PRECISION)]
    if not keys:
        return ""
    more = f" and {len(keys) - _MOST_KEYS} more metrics" if len(keys) > _MOST_KEYS else ""
    return f"{', '.join(keys[:_MOST_KEYS])}{more} {'is' if len(keys) == 1 else 'are'}"
