"""Facts in the file of a fitted drive about its runs, and the reads of another run for which its slowdown holds."""

from typing import Any, TypedDict

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import mismatch
from blkreel.traces.format.metadata_types import FittedAccount
from blkreel.traces.format.schema import OPS

# The table of the file.
FITTED = "fitted"


class FittedFacts(TypedDict, total=False):
    """reads_from_bytes, reads_to_bytes: sizes of the reads beside the backgrounds of the runs; missing if no run had
    one. slowdown_by_writes_open: runs whose slowdown the runs leave open."""

    drive: str
    firmware: str
    runs: int
    traces: int
    held_out: bool
    load_time_error: float
    read_p99_error: float
    slowdown_by_writes_error: float
    slowdown_by_writes_open: int
    reads_from_bytes: int
    reads_to_bytes: int
    version: str


def fitted_facts(path: str, document: dict[str, Any]) -> FittedFacts | None:
    """Of a drive's file; None if a user wrote it. Raises UsageError for facts of other types."""
    if FITTED not in document:
        return None
    if problem := mismatch(document[FITTED], FittedFacts, FITTED):
        raise UsageError(f"{path}: {problem}", "fit it again: blkreel model-drive RUN... -o DRIVE.toml")
    facts: FittedFacts = document[FITTED]
    return facts


class FittedReads:
    """Counts the reads of a run whose wait for writes was fitted."""

    def __init__(self, facts: FittedFacts):
        self._from_bytes, self._to_bytes = facts.get("reads_from_bytes"), facts.get("reads_to_bytes")
        self._is_open = bool(facts.get("slowdown_by_writes_open"))
        self._read_bytes = self._other_bytes = 0

    def add(self, op: np.ndarray, length_bytes: np.ndarray) -> None:
        read_bytes = length_bytes[op == OPS["read"]]
        self._read_bytes += int(read_bytes.sum())
        if self._from_bytes is not None and self._to_bytes is not None:
            self._other_bytes += int(read_bytes[(read_bytes < self._from_bytes) | (read_bytes > self._to_bytes)].sum())

    def account(self) -> FittedAccount:
        return FittedAccount(reads_from_bytes=self._from_bytes, reads_to_bytes=self._to_bytes, is_open=self._is_open,
                             read_bytes=self._read_bytes, other_bytes=self._other_bytes)
