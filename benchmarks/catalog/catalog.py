"""A catalog: a directory of immutable results that git, rsync and object storage copy. No server; readers need no lock.

    catalog.json              format and version
    results/ID.json           a result (result.py)
    partials/SHA256.bin       the partial of a run, by the hash of its content
    tables/*.parquet          a copy of the results for queries, written again when it is old (tables.py)
    tables/entries/*.bin      what a comparison works out of a drive's runs, made again when it is old (stored.py)

A result appears under its name only when it is whole, after its partial. So a kill or a full disk leaves a partial
that no result names, and copying all files of one catalog into another merges the two.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import pyarrow as pa

from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.analysis.metrics.partials.partial_file import VERSION as PARTIAL_VERSION
from blkreel.analysis.metrics.partials.partial_file import load as load_partial
from blkreel.common.errors import OutputExists, UsageError, os_errors
from blkreel.common.files.output_lock import directory_locked
from blkreel.common.files.safe_files import read_plain, unlink, write_file
from blkreel.common.files.typed_document import parse_typed
from blkreel.common.progress import Progress, unseen
from blkreel.traces.format.reader import CATALOG, RUN_RECORDS, TEST
from blkreel.traces.format.writer import output_errors

from . import tables
from .collect import Step, collected
from .result import CatalogError, NewerVersion, Result, damaged, dump, parse

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "blkreel catalog", 1
_NAMED_MATCHES = 5
_FEWEST_DIGITS = 4
_TURN_S = 30.0  # an add holds the lock while it writes two files

Added = Literal["added", "unchanged", "replaced"]


class _Header(TypedDict):
    format: Literal["blkreel catalog"]
    version: int


class Catalog:
    """An opened catalog. progress: shows what takes long. damaged: file -> error of the results that the last query
    could not read."""

    def __init__(self, directory: Path, progress: Progress = unseen):
        self.directory, self.progress = directory, progress
        self.damaged: dict[Path, CatalogError] = {}

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, create: bool = False, progress: Progress = unseen) -> Catalog:
        """create: make an empty catalog where there is none. Raises CatalogError if it is no catalog, damaged or of a
        later version, BlkreelError if it cannot be created."""
        path = Path(directory)
        header = path / CATALOG
        if create and not header.exists():
            _refuse_other_directory(path)
            with output_errors(path), suppress(OutputExists):  # another process was first
                write_file(header, f'{{"format": "{FORMAT}", "version": {VERSION}}}\n')
        try:
            if link := next((path / name for name in ("results", "partials", "tables") if (path / name).is_symlink()),
                            None):
                raise ValueError(f"{link.name} is a symbolic link, which could lead elsewhere")
            content = parse_typed(read_plain(header), _Header)
            if content["version"] < 1:
                raise ValueError("version is less than 1")
        except FileNotFoundError:
            raise CatalogError(f"{path} is not a catalog: no {CATALOG}",
                               f"create it: blkreel results add RUN --catalog {path}") from None
        except OSError as error:
            raise CatalogError(f"{header} cannot be read: {error.strerror}", f"ls -l {header}") from None
        except ValueError as error:
            raise damaged(header, str(error)) from None
        if content["version"] > VERSION:
            raise NewerVersion(f"{header} has version {content['version']}, this blkreel reads up to {VERSION}",
                               "update blkreel")
        return cls(path, progress)

    @property
    def results(self) -> Path:
        return self.directory / "results"

    def path_of(self, id_: str) -> Path:
        return self.results / f"{id_}.json"

    def partial_path(self, result: Result) -> Path | None:
        partial = result["partial"]
        return self.directory / "partials" / f"{partial['sha256']}.bin" if partial else None

    def add(self, path: str | os.PathLike[str], *, host: str | None = None,
            on_step: Step = lambda done, total: None) -> tuple[Result, Added]:
        """Add the run or test of a directory: (its result, what happened).

        The same result twice is one. It is replaced if its verdict, metrics or partial differ now, as after
        `blkreel power`, `blkreel test --resume` or an update. Raises BlkreelError for what is no run or test, and
        if the catalog cannot be written; then it is as before.
        """
        result, partial = collected(Path(path), host=host, on_step=on_step)
        return self.put(result, partial)

    def put(self, result: Result, partial: bytes | None) -> tuple[Result, Added]:
        """As add(), of a result that collected() gave. Commands that change one catalog at once take turns."""
        with output_errors(self.directory), directory_locked(self.directory, _TURN_S):
            return self._put(result, partial)

    def _put(self, result: Result, partial: bytes | None) -> tuple[Result, Added]:
        content = dump(result)
        parse(content, result["path"])  # a result that nobody can read would hide the others of its drive
        path, before = self.path_of(result["id"]), None
        if path.exists():
            before = self._result(path)
            if before is not None and _content(before) == _content(result) and self._has_partial(before):
                return before, "unchanged"
        partial_path = self.partial_path(result)
        if partial is not None and partial_path is not None:
            write_file(partial_path, partial, force=True)
        write_file(path, content, force=True)
        if before is not None and (old := self.partial_path(before)) and old != partial_path:
            self._remove_unused(old)
        return result, "replaced" if before is not None else "added"

    def remove(self, result: Result) -> None:
        """Remove a result, and its partial unless another result has the same one. Raises OSError, OutputInUse."""
        with directory_locked(self.directory, _TURN_S):
            unlink(self.path_of(result["id"]))
            if partial := self.partial_path(result):
                self._remove_unused(partial)

    def _remove_unused(self, partial: Path) -> None:
        """Equal runs have one partial. The checksum counts in a damaged result too: it may be restored."""
        if not any(_may_name(self.results / name, partial.stem.encode()) for name in self._names()):
            unlink(partial)

    def entry(self, id_: str) -> Result:
        """The result of an id or of the beginning of one. Raises UsageError if none or several begin with it,
        CatalogError if its file is damaged."""
        return tables.read_result(self.path_of(self.find(id_)))

    def find(self, id_: str) -> str:
        """The whole id. Raises UsageError if no result, or more than one, begins with it."""
        matches = sorted(name.removesuffix(".json") for name in self._names() if name.startswith(id_))
        if len(matches) == 1 and len(id_) >= _FEWEST_DIGITS:
            return matches[0]
        if id_ in matches:
            return id_
        if len(matches) > 1:
            raise UsageError(f"{id_}: {len(matches)} results begin with it",
                             f"give more digits, as of one of: {', '.join(matches[:_NAMED_MATCHES])}")
        if matches:
            raise UsageError(f"{id_}: an id has at least {_FEWEST_DIGITS} digits", f"give more digits: {matches[0]}")
        raise UsageError(f"{id_}: no such result in {self.directory}",
                         f"list them: blkreel results list --catalog {self.directory}")

    def entries(self) -> pd.DataFrame:
        """One row for each result, by id: the columns of tables/results.parquet (docs/catalog.md)."""
        import pandas

        frame: pd.DataFrame = self.result_table().to_pandas()
        frame["started_at"] = pandas.to_datetime(frame["started_at"], utc=True, format="ISO8601", errors="coerce")
        return frame

    def metrics(self) -> pd.DataFrame:
        """One row for each result and metric: id, key, value, unit, low, high, n, better (docs/catalog.md)."""
        frame: pd.DataFrame = self.metric_table().to_pandas()
        return frame

    def result_table(self) -> pa.Table:
        """entries() as an Arrow table."""
        return self._refreshed().results

    def metric_table(self) -> pa.Table:
        """metrics() as an Arrow table."""
        return self._refreshed(with_metrics=True).metrics

    def partial(self, result: Result) -> Partial:
        """The partial of a run. Raises CatalogError if it is missing, damaged or of another version."""
        try:
            return load_partial(self.partial_content(result))
        except ValueError as error:
            raise damaged(self.partial_path(result), str(error)) from None

    def partial_content(self, result: Result) -> bytes:
        """The file of the partial of a run. Raises as partial()."""
        described, path = result["partial"], self.partial_path(result)
        assert described is not None and path is not None, "a test has no partial"
        if described["version"] != PARTIAL_VERSION:
            raise CatalogError(f"{path} has partials of version {described['version']}, this blkreel reads "
                               f"{PARTIAL_VERSION}", f"add the run again: blkreel results add {result['path']}")
        with os_errors(CatalogError, f"{path} cannot be read",
                       f"add the run again: blkreel results add {result['path']}"):
            content = read_plain(path)
        if hashlib.sha256(content).hexdigest() != described["sha256"]:
            raise damaged(path, "its checksum differs")
        return content

    def refresh(self) -> None:
        """Write the tables if results were added, changed or removed."""
        self._refreshed()

    def _refreshed(self, *, with_metrics: bool = False) -> tables.Tables:
        try:
            read = tables.refreshed(self.results, self.directory / "tables", self.progress,
                                    with_metrics=with_metrics)
        except FileNotFoundError:  # git keeps no empty directory
            read = tables.Tables(tables.RESULT_SCHEMA.empty_table(), tables.METRIC_SCHEMA.empty_table(), {})
        self.damaged = dict(read.damaged)
        return read

    def _names(self) -> list[str]:
        try:
            return [path.name for path in self.results.iterdir() if tables.is_result(path.name)]
        except FileNotFoundError:
            return []

    def _result(self, path: Path) -> Result | None:
        """None if it is damaged: adding the result replaces it. Raises NewerVersion: it would lose content."""
        try:
            return tables.read_result(path)
        except NewerVersion:
            raise
        except CatalogError:
            return None

    def _has_partial(self, result: Result) -> bool:
        try:
            return result["partial"] is None or self.partial(result) is not None
        except CatalogError:
            return False


def _content(result: Result) -> dict[str, object]:
    """What a repeated add compares: not where and when it was added."""
    added = ("path", "host", "added_at", "added_by", "checksum")
    content: dict[str, object] = {key: value for key, value in result.items() if key not in added}
    if results := result["results"]:
        content["results"] = {key: value for key, value in results.items() if key not in ("path", "blkreel")}
    return content


def _may_name(path: Path, checksum: bytes) -> bool:
    """Whether the file of a result has the checksum; also if it cannot be read."""
    try:
        return checksum in read_plain(path)
    except OSError:
        return True


def _refuse_other_directory(path: Path) -> None:
    """Raises CatalogError for a directory of something else, which would be mixed with the catalog."""
    try:
        is_other = any(entry.name in (RUN_RECORDS, TEST) for entry in path.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise CatalogError(f"{path} is not a directory", "name another: --catalog DIR") from None
    if is_other:
        raise CatalogError(f"{path} is a run or a test, not a catalog", "name another directory: --catalog DIR")
