"""The traces and runs in a directory, a pattern, or a place in object storage."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blkreel.common.errors import TraceError, UsageError, os_errors
from blkreel.common.files.output_lock import OutputInUse, refuse_in_use, spool_of
from blkreel.common.files.storage_url import Location, StorageUrl, parse_location
from blkreel.traces.format.footer import refuse_unfinished
from blkreel.traces.format.overrides import FILE as OVERRIDES
from blkreel.traces.format.reader import BASELINE, CATALOG, LATENCY_LOG, RUN_RECORDS, TEST
from blkreel.traces.telemetry.file import FILE as TELEMETRY

_PATTERN = re.compile(r"[*?\[]")
_SUFFIX = ".parquet"
_BESIDE_RECORDS = {BASELINE, TELEMETRY, OVERRIDES, LATENCY_LOG}


@dataclass
class Dataset:
    """locations: traces and runs, in the order named, and within a directory by name, 2 before 10.

    tests: directories of tests beside them, which are left out: their steps are not runs of their own.
    """

    locations: list[Location] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def expand(named: Iterable[str | Path | StorageUrl]) -> Dataset:
    """The traces of `named`: each a trace, a run, a directory or a pattern of them, by path or URL.

    Hidden names, the telemetry beside a run, runs that are being written, and the tables of catalogs are skipped. A run
    without its records, unfinished or copied in part, stays in the list, and its baseline does not. Raises TraceError
    for a directory or a pattern without traces, UsageError for a trace named twice. A path that does not exist stays in
    the list; opening it fails.
    """
    dataset = Dataset()
    for location in named:
        before = len(dataset.locations), len(dataset.tests)
        where = parse_location(location)
        if isinstance(where, StorageUrl):
            _add_url(dataset, where)
        else:
            _add_path(dataset, where)
        if before == (len(dataset.locations), len(dataset.tests)):
            if not isinstance(where, StorageUrl):
                refuse_unfinished(where / RUN_RECORDS, where)
                if (where / CATALOG).is_file():
                    raise TraceError(f"{where} is a catalog of results",
                                     f"compare these: blkreel compare --catalog {where}")
            raise TraceError(f"{where} holds no trace and no run",
                             f"name files that end in {_SUFFIX}, or directories that `blkreel replay -o` made")
        if before[0] == len(dataset.locations):
            name = Path(dataset.tests[before[1]]).name if isinstance(where, StorageUrl) else dataset.tests[before[1]]
            words = "copy them here first, then" if isinstance(where, StorageUrl) else "compare them as tests"
            raise TraceError(f"{where} holds tests only, of which each step is a run",
                             f"{words}: blkreel compare {name} ...")
    refuse_repeated(dataset.locations)
    return dataset


def _add_path(dataset: Dataset, path: Path) -> None:
    if path.is_dir():
        _add_directory(dataset, path, set())
    elif _PATTERN.search(str(path)) and not path.exists():
        root = Path(path.anchor)
        for match in sorted(root.glob(str(path.relative_to(root))), key=_natural):
            if match.is_dir() and not (match / RUN_RECORDS).is_file() and "**" in str(path):
                continue  # what it holds matches by itself
            if match.is_dir():
                _add_directory(dataset, match, set())
            elif _is_trace(match.name):
                dataset.locations.append(match.parent if match.name == RUN_RECORDS else match)
    else:
        dataset.locations.append(path)


def _add_directory(dataset: Dataset, directory: Path, real_paths: set[Path]) -> None:
    """real_paths: of the directories above and beside, because a link may lead back."""
    real = directory.resolve()
    if real in real_paths:
        return
    real_paths.add(real)
    if (directory / RUN_RECORDS).is_file():
        dataset.locations.append(directory)
    elif (directory / TEST).is_file():
        dataset.tests.append(str(directory))
    elif not (directory / CATALOG).is_file():
        with os_errors(TraceError, f"{directory} cannot be read", f"ls -ld {directory}"):
            inside = sorted(directory.iterdir(), key=_natural)
        if spool_of(directory / RUN_RECORDS).is_dir():
            with suppress(OutputInUse):
                refuse_in_use(directory / RUN_RECORDS)
                dataset.locations.append(directory)
            return
        if (directory / BASELINE / RUN_RECORDS).is_file() and _is_of_a_run(path.name for path in inside):
            dataset.locations.append(directory)
            return
        for path in inside:
            if path.is_dir() and not path.name.startswith("."):
                _add_directory(dataset, path, real_paths)
            elif _is_trace(path.name):
                dataset.locations.append(path)


def _is_of_a_run(names: Iterable[str]) -> bool:
    """Whether a directory has nothing but what lies beside the records of a run."""
    return {name for name in names if not name.startswith(".")} <= _BESIDE_RECORDS


def _add_url(dataset: Dataset, url: StorageUrl) -> None:
    pattern = _PATTERN.search(url.text if url.protocol not in ("http", "https") else url.text.partition("?")[0])
    if url.suffix == _SUFFIX and not pattern:
        dataset.locations.append(url)
        return
    opened: Any = StorageUrl.filesystem  # untyped, as fsspec is
    with url.errors():
        filesystem, path = opened(url)
        filesystem.invalidate_cache()  # or a long-lived process would list what was there at first
        listed = filesystem.glob(path) if pattern else filesystem.find(path)
        # What matches a pattern may be a directory.
        names = [name for path in listed for name in
                 ([path] if path.endswith(_SUFFIX) or not pattern else filesystem.find(path))]
    base = url.text[:pattern.start()].rpartition("/")[0] if pattern else url.text.rstrip("/")
    root = opened(StorageUrl(base + "/"))[1].rstrip("/") if pattern else path.rstrip("/")
    names = [name[len(root):].strip("/") for name in names]
    if names == [""]:
        dataset.locations.append(url)  # an object of another name than a trace's
        return
    tests = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == TEST}
    runs = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == RUN_RECORDS}
    catalogs = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == CATALOG}
    for run in [folder.rpartition("/")[0] for folder in runs if folder.rpartition("/")[2] == BASELINE]:
        above = f"{run}/" if run else ""
        if _is_of_a_run(name.removeprefix(above).partition("/")[0] for name in names if name.startswith(above)):
            runs.add(run)
    for test in sorted(tests, key=_natural):
        dataset.tests.append(str(StorageUrl(f"{base}/{test}".rstrip("/"))))
    locations: set[str] = set()
    for name in names:
        above = name.split("/")[:-1]
        folders = {"/".join(above[:depth]) for depth in range(len(above) + 1)}
        hidden = any(part.startswith(".") for part in above)
        if hidden or folders & (tests | catalogs) or not _is_trace(name.rpartition("/")[2]):
            continue
        inside = folders & runs
        locations.add(min(inside, key=len) if inside else name)
    dataset.locations += [StorageUrl(f"{base}/{name}".rstrip("/")) for name in sorted(locations, key=_natural)]


def _is_trace(name: str) -> bool:
    return name.endswith(_SUFFIX) and not name.startswith(".") and name != TELEMETRY


def _natural(path: object) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def refuse_repeated(locations: Iterable[Location]) -> None:
    """Raise UsageError if two of the locations are the same run."""
    distinct: set[Location] = set()
    for location in locations:
        where: Location = location if isinstance(location, StorageUrl) else location.resolve()
        where = where.parent if where.name == RUN_RECORDS else where
        if where in distinct:
            raise UsageError(f"{location} is named twice", "name each run once: one run is not two repetitions")
        distinct.add(where)
