"""Runs of a catalog in a comparison: what `comparison` works out of a drive's runs is stored in tables/entries/.

A stored entry is used only for the same runs, by the content of their files in order, and the same code. So a file that
is missing, old, damaged or of another version costs time and no digit. Its checksum is keyed to the user and the
machine: figures in a catalog that came from somebody else are worked out from its partials.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

import blkreel
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.analysis.report import document
from blkreel.analysis.report.verdict import Document
from blkreel.common.binning import sum_of
from blkreel.common.errors import SafetyError
from blkreel.common.files.safe_files import StrPath, write_file
from blkreel.common.files.typed_document import parse_typed
from blkreel.common.installation import keyed_hash
from blkreel.traces.format.metadata_types import with_all_parts

from .catalog import Catalog
from .result import Result, canonical

ENTRIES = "tables/entries"
_CODE = ("analysis", "common")  # of which an entry is made
_COMPRESSION = 1


class StoredRun(Measured):
    """A run of a catalog as if it had been read; its rows are not at hand. The partial is loaded when it is needed.

    content: SHA-256 of the file of the result, which has that of the partial.
    """

    def __init__(self, catalog: Catalog, result: Result, content: str):
        """Raises CatalogError if the partial is missing, damaged or of another version."""
        catalog.partial_content(result)
        metadata = result["metadata"] or {}
        if "run" in metadata:
            metadata = {**metadata, "run": with_all_parts(metadata["run"])}
        values = {"path": Path(result["path"]), "metadata": metadata, "rows": result["rows"],
                  "records": None, "identity": result["measured"]["records"]}
        self.__dict__.update(values, catalog=catalog, result=result, content=content)

    catalog: Catalog
    result: Result
    content: str

    @cached_property
    def partial(self) -> Partial:
        return self.catalog.partial(self.result)

    def group(self) -> str:
        """Names the file of the entry that this run belongs to. Others of the same name replace each other."""
        result = self.result
        return hashlib.sha256(canonical([
            result["label"], result["drive"], result["workload"]["checksum"], result["pace"], result["state"],
            self.account.payload or None])).hexdigest()[:32]


class _StoredEntry(document.Entry):
    def __init__(self, document: Document, measured: list[Measured]):
        self.__dict__.update(document=document, measured=measured)

    @cached_property
    def partial(self) -> Partial:
        return sum_of(run.partial for run in self.measured)


def entry(runs: list[Measured]) -> document.Entry:
    """As document.entry(), from tables/entries/ if all runs are of one catalog."""
    stored = [run for run in runs if isinstance(run, StoredRun)]
    if len(stored) < len(runs):
        return document.entry(runs)
    key = hashlib.sha256(canonical([code_of(*_CODE), [str(run.path) for run in stored],
                                    [run.content for run in stored]])).hexdigest()
    path = stored[0].catalog.directory / ENTRIES / f"{stored[0].group()}.bin"
    cached = _read(path, key)
    if cached is not None:
        return _StoredEntry(cached, runs)
    new_entry = document.entry(runs)
    _write(path, key, new_entry.document)
    return new_entry


def _read(path: Path, key: str) -> Document | None:
    try:
        checksum, _, content = path.read_bytes().partition(b"\n")
        if not checksum or checksum.decode() != _checksum(key, content):
            return None
        return parse_typed(zlib.decompress(content), Document)
    except (OSError, ValueError, zlib.error):
        return None


def _write(path: Path, key: str, document: Document) -> None:
    """Atomically. A catalog that cannot be written is compared without stored entries."""
    try:
        text = json.dumps(document)
        if json.loads(text) != document:
            return
    except TypeError:  # what JSON cannot hold is worked out each time
        return
    content = zlib.compress(text.encode(), _COMPRESSION)
    checksum = _checksum(key, content)
    if not checksum:
        return
    with suppress(OSError, SafetyError):
        write_file(path, checksum.encode() + b"\n" + content, force=True, sync=False)


def _checksum(key: str, content: bytes) -> str:
    """Empty where this user has no secret."""
    return keyed_hash("catalog entry", key.encode() + b"\n" + content)


@cache
def code_of(*folders: str) -> str:
    """Hash of name, size and time of each file of the package in these folders: what another version made is made
    again."""
    root = Path(blkreel.__file__).parent
    files = sorted(file for name in folders for file in _files(root / name))
    return hashlib.sha256(repr((blkreel.__version__, files)).encode()).hexdigest()


def _files(directory: StrPath) -> Iterator[tuple[str, int, int]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            else:
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
