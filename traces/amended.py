"""What became known of a run after its records were written: `amended.json` beside them.

Its keys stand for those of the run's account. The records themselves stay as they were written.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from .errors import BlkreelError
from .json_file import write_json

FILE = "amended.json"
VERSION = 1


def amend(trace, changes: dict, why: str) -> None:
    """changes: keys of the run's account with their new values. Raises BlkreelError where it cannot be written."""
    path = trace.path.with_name(FILE)
    document = {"version": VERSION, "epoch_ns": trace.metadata["epoch_ns"], "why": why,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "run": {**_changes(path, trace.metadata), **changes}}
    try:
        write_json(path, document)
    except OSError as error:
        raise BlkreelError(f"cannot write {path}: {error.strerror}", f"make room there: df -h {path.parent}") from error


def amended(records: Path, metadata: dict) -> dict:
    """The metadata of a run, with what became known later. A file that is damaged, or of another run that once had
    this name, changes nothing."""
    changes = _changes(records.with_name(FILE), metadata) if "run" in metadata else {}
    return {**metadata, "run": {**metadata["run"], **changes}} if changes else metadata


def _changes(path, metadata) -> dict:
    try:
        told = json.loads(path.read_text())
        mine = told["version"] == VERSION and told["epoch_ns"] == metadata.get("epoch_ns")
        return dict(told["run"]) if mine else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
