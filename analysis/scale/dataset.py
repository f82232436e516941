"""Which traces and runs a user means who names a directory, a pattern, or a place in object storage."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from blkreel.traces.errors import TraceError, UsageError
from blkreel.traces.places import Place, Url, place
from blkreel.traces.reader import RUN_RECORDS, TEST
from blkreel.traces.telemetry_file import FILE as TELEMETRY

_PATTERN = re.compile(r"[*?\[]")
_SUFFIX = ".parquet"


@dataclass
class Found:
    """places: traces and runs, in the order named, and within a directory by name, 2 before 10.

    tests: directories of tests that were found beside them and left out. Their steps are no runs of their own.
    """

    places: list[Place] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def expand(named) -> Found:
    """What `named` stands for: each a trace, a run, a directory or a pattern of them, by path or URL.

    Hidden names are passed over, as is the telemetry beside a run. Raises TraceError where a directory or a pattern
    holds nothing, UsageError for what is named twice. What does not exist is handed on: who opens it says so.
    """
    found = Found()
    for each in named:
        before = len(found.places), len(found.tests)
        where = place(each)
        (_add_url if isinstance(where, Url) else _add_path)(found, where)
        if before == (len(found.places), len(found.tests)):
            raise TraceError(f"{where} holds no trace and no run",
                             f"name files that end in {_SUFFIX}, or directories that `blkreel replay -o` made")
        if before[0] == len(found.places):
            name = Path(found.tests[before[1]]).name if isinstance(where, Url) else found.tests[before[1]]
            words = "copy them here first, then" if isinstance(where, Url) else "compare them as tests"
            raise TraceError(f"{where} holds tests only, of which each step is a run",
                             f"{words}: blkreel compare {name} ...")
    _refuse_repeated(found.places)
    return found


def _add_path(found, path):
    if path.is_dir():
        _add_directory(found, path, set())
    elif _PATTERN.search(str(path)) and not path.exists():
        root = Path(path.anchor)
        for match in sorted(root.glob(str(path.relative_to(root))), key=_natural):
            if match.is_dir() and not (match / RUN_RECORDS).is_file() and "**" in str(path):
                continue  # what it holds matches by itself
            if match.is_dir():
                _add_directory(found, match, set())
            elif _is_trace(match.name):
                found.places.append(match.parent if match.name == RUN_RECORDS else match)
    else:
        found.places.append(path)


def _add_directory(found, directory, seen):
    """seen: real paths above and beside, for a link may lead back."""
    real = directory.resolve()
    if real in seen:
        return
    seen.add(real)
    if (directory / RUN_RECORDS).is_file():
        found.places.append(directory)
    elif (directory / TEST).is_file():
        found.tests.append(str(directory))
    else:
        try:
            inside = sorted(directory.iterdir(), key=_natural)
        except OSError as error:
            raise TraceError(f"{directory} cannot be read: {error.strerror}", f"ls -ld {directory}") from None
        for each in inside:
            if each.is_dir() and not each.name.startswith("."):
                _add_directory(found, each, seen)
            elif _is_trace(each.name):
                found.places.append(each)


def _add_url(found, url):
    pattern = _PATTERN.search(url.text if url.protocol not in ("http", "https") else url.text.partition("?")[0])
    if url.suffix == _SUFFIX and not pattern:
        found.places.append(url)
        return
    with url.errors():
        filesystem, path = url.filesystem()
        filesystem.invalidate_cache()  # or a long-lived process would list what was there at first
        listed = filesystem.glob(path) if pattern else filesystem.find(path)
        # What matches a pattern may be a directory.
        names = [name for each in listed for name in
                 ([each] if each.endswith(_SUFFIX) or not pattern else filesystem.find(each))]
    base = url.text[:pattern.start()].rpartition("/")[0] if pattern else url.text.rstrip("/")
    root = Url(base + "/").filesystem()[1].rstrip("/") if pattern else path.rstrip("/")
    names = [name[len(root):].strip("/") for name in names]
    if names == [""]:
        found.places.append(url)  # an object of another name than a trace's
        return
    tests = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == TEST}
    runs = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == RUN_RECORDS}
    for test in sorted(tests, key=_natural):
        found.tests.append(str(Url(f"{base}/{test}".rstrip("/"))))
    places = set()
    for name in names:
        above = name.split("/")[:-1]
        folders = {"/".join(above[:depth]) for depth in range(len(above) + 1)}
        hidden = any(part.startswith(".") for part in above)
        if hidden or folders & tests or not _is_trace(name.rpartition("/")[2]):
            continue
        inside = folders & runs
        places.add(min(inside, key=len) if inside else name)
    found.places += [Url(f"{base}/{name}".rstrip("/")) for name in sorted(places, key=_natural)]


def _is_trace(name):
    return name.endswith(_SUFFIX) and not name.startswith(".") and name != TELEMETRY


def _natural(path):
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _refuse_repeated(places):
    seen = set()
    for each in places:
        where = each if isinstance(each, Url) else each.resolve()
        where = where.parent if where.name == RUN_RECORDS else where
        if where in seen:
            raise UsageError(f"{each} is named twice", "name each run once: one run is not two repetitions")
        seen.add(where)
