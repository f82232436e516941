"""`amended.json` beside the records of a run: values computed after the records were written.

Its keys replace those of the metadata key `run`. The records themselves do not change.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from blkreel.common.errors import BlkreelError, TraceError, os_errors
from blkreel.common.files.json_file import write_json
from blkreel.common.files.storage_url import Location
from blkreel.common.files.typed_document import parse_typed

from .metadata_types import Run, with_all_parts
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
    with os_errors(BlkreelError, f"cannot write {path}", f"make room there: df -h {path.parent}"):
        write_json(path, document)


def amended(records: Location, metadata: Metadata) -> Metadata:
    """The metadata of a run with later values and all parts. Those of another run change nothing. Raises TraceError."""
    if "run" not in metadata:
        return metadata
    changes = _changes(records.with_name(FILE), metadata)
    return {**metadata, "run": with_all_parts({**metadata["run"], **changes})}


def _changes(path: Location, metadata: Metadata) -> Metadata:
    try:
        document = parse_typed(path.read_bytes(), _Document)
    except OSError:
        return {}
    except ValueError as error:
        raise TraceError(f"{path} is damaged: {error}", "restore it from a copy, or remove it, and the run has the "
                         f"values of its end again: rm {path}") from None
    if document["version"] > VERSION:
        raise TraceError(f"{path} has version {document['version']}, this blkreel reads up to {VERSION}",
                         "update blkreel")
    return cast(Metadata, document["run"]) if document["epoch_ns"] == metadata.get("epoch_ns") else {}
