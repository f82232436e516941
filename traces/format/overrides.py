"""`amended.json` beside the records of a run: values computed after the records were written.

Its keys replace those of the metadata key `run`. The records themselves do not change.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from blkreel.common.errors import BlkreelError
from blkreel.common.files.json_file import write_json
from blkreel.common.files.storage_url import Location
from blkreel.common.files.typed_document import read_json

from .metadata_types import Run
from .schema import Metadata
from .trace import Trace

FILE = "amended.json"
VERSION = 1


class _Document(TypedDict):
    version: int
    epoch_ns: int | None
    run: Run


def amend(trace: Trace, changes: Metadata, why: str) -> None:
    """Write new values of keys of `run`. Raises BlkreelError if the file cannot be written."""
    path = Path(str(trace.path)).with_name(FILE)
    document = {"version": VERSION, "epoch_ns": trace.metadata["epoch_ns"], "why": why,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "run": {**_changes(path, trace.metadata), **changes}}
    try:
        write_json(path, document)
    except OSError as error:
        raise BlkreelError(f"cannot write {path}: {error.strerror}", f"make room there: df -h {path.parent}") from error


def amended(records: Location, metadata: Metadata) -> Metadata:
    """The metadata of a run with later values. A damaged file, or one of another run, changes nothing."""
    changes = _changes(records.with_name(FILE), metadata) if "run" in metadata else {}
    return {**metadata, "run": {**metadata["run"], **changes}} if changes else metadata


def _changes(path: Location, metadata: Metadata) -> Metadata:
    try:
        document = read_json(path, _Document)
    except (OSError, ValueError):
        return {}
    belongs = document["version"] == VERSION and document["epoch_ns"] == metadata.get("epoch_ns")
    return dict(document["run"]) if belongs else {}
