"""Facts in the file of a fitted drive about its runs, and the reads of another run for which its slowdown holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from blkreel.common.emulated import FittedFacts
from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import mismatch
from blkreel.common.units import binary_size, format_share, size
from blkreel.common.verdict import NOT_FITTED_LIMIT
from blkreel.traces.format.metadata_types import FittedAccount
from blkreel.traces.format.schema import OPS

# Times what a fitted run wrote at most, up to which a write cache is as full as in the runs.
_MORE_WRITTEN = 2
# Times as many reads in flight as in the runs, up to which the queue of the drive is known.
_MORE_IN_FLIGHT = 2
# Writes for each read up to which what they cost reads changes little.
_WRITES_LIMIT = 0.05
_KEPT_ENDS = 1 << 16  # reads in flight are fewer
# The table of the file.
FITTED = "fitted"


def fitted_facts(path: str, document: dict[str, Any]) -> FittedFacts | None:
    """Of a drive's file; None if a user wrote it. Raises UsageError for facts of other types."""
    if FITTED not in document:
        return None
    if problem := mismatch(document[FITTED], FittedFacts, FITTED):
        raise UsageError(f"{path}: {problem}", "fit it again: blkreel model-drive RUN... -o DRIVE.toml")
    facts: FittedFacts = document[FITTED]
    return facts


class ReadsInFlight:
    """How many reads complete while each is in flight, itself included: what a queue of this depth does."""

    def __init__(self) -> None:
        self._ends_ns = np.empty(0, np.int64)

    def of(self, submit_ns: np.ndarray, complete_ns: np.ndarray) -> np.ndarray:
        """Of the next reads in the order of completion."""
        ends_ns = np.concatenate([self._ends_ns, complete_ns])
        number = np.arange(len(self._ends_ns), len(ends_ns)) + 1
        self._ends_ns = ends_ns[-_KEPT_ENDS:]
        in_flight: np.ndarray = number - np.searchsorted(ends_ns, submit_ns, "right")
        return in_flight


class FittedReads:
    """Counts the reads of a run whose wait for writes was fitted, and those in a queue that was."""

    def __init__(self, facts: FittedFacts):
        self._depth, self._in_flight = facts.get("reads_in_flight"), ReadsInFlight()
        self._reads = self._deeper_reads = self._own_reads = self._own_writes = 0
        self._from_bytes, self._to_bytes = facts.get("reads_from_bytes"), facts.get("reads_to_bytes")
        self._written_bytes = facts.get("written_bytes")
        self._is_open = bool(facts.get("slowdown_by_writes_open"))
        self._read_bytes = self._other_bytes = 0

    def add(self, rows: Mapping[str, np.ndarray], of_trace: Mapping[str, np.ndarray]) -> None:
        """All I/Os in the order of completion, and those of them that are not of a background."""
        op, length_bytes = of_trace["op"], of_trace["length_bytes"]
        read_bytes = length_bytes[op == OPS["read"]]
        self._own_reads += len(read_bytes)
        self._own_writes += int((op == OPS["write"]).sum())
        if self._depth:
            is_read = (rows["op"] == OPS["read"]) & (rows["complete_ns"] >= rows["submit_ns"])
            in_flight = self._in_flight.of(rows["submit_ns"][is_read], rows["complete_ns"][is_read])
            self._reads += len(in_flight)
            self._deeper_reads += int((in_flight > _MORE_IN_FLIGHT * self._depth).sum())
        self._read_bytes += int(read_bytes.sum())
        if self._from_bytes is not None and self._to_bytes is not None:
            self._other_bytes += int(read_bytes[(read_bytes < self._from_bytes) | (read_bytes > self._to_bytes)].sum())

    def account(self) -> FittedAccount:
        return FittedAccount(reads_from_bytes=self._from_bytes, reads_to_bytes=self._to_bytes, is_open=self._is_open,
                             read_bytes=self._read_bytes, other_bytes=self._other_bytes,
                             fitted_written_bytes=self._written_bytes, fitted_reads_in_flight=self._depth,
                             reads=self._reads, deeper_reads=self._deeper_reads, own_reads=self._own_reads,
                             own_writes=self._own_writes)


def many_writes(reads: int, writes: int) -> bool:
    """Whether the writes of a trace are so many that its reads depend on what they cost."""
    return reads > 0 and writes > _WRITES_LIMIT * reads


def limit_of_depth(account: FittedAccount) -> str | None:
    """The runs do not show how many reads the drive works on at once beyond those that they had in flight."""
    depth, reads = account.get("fitted_reads_in_flight"), account.get("reads", 0)
    deeper_reads = account.get("deeper_reads", 0)
    if not depth or deeper_reads <= NOT_FITTED_LIMIT * reads:
        return None
    return (f"load time and read p99 uncertain: {format_share(deeper_reads / reads)} of the reads are among more than "
            f"{_MORE_IN_FLIGHT * depth:,} in flight, and the runs that the drive was fitted to had up to {depth:,}")


def limit_of_fit(account: FittedAccount, written_bytes: int = 0) -> str | None:
    """Why the runs do not show what this many bytes of writes cost the reads; None if they do."""
    if account["reads_from_bytes"] is None or account["reads_to_bytes"] is None:
        return "slowdown by writes unknown: the drive was fitted to runs with few writes"
    if account["is_open"]:
        return "slowdown by writes uncertain: several models explain the runs that the drive was fitted to"
    most_bytes = account.get("fitted_written_bytes")
    if most_bytes is not None and written_bytes > _MORE_WRITTEN * most_bytes:
        return (f"slowdown by writes uncertain: {size(written_bytes)} are written, at most {size(most_bytes)} by a run "
                "that the drive was fitted to: a write cache that fills up beyond that is not fitted")
    share = account["other_bytes"] / account["read_bytes"] if account["read_bytes"] else 0
    if share > NOT_FITTED_LIMIT:
        sizes = " to ".join(binary_size(length_bytes) for length_bytes in dict.fromkeys(
            (account["reads_from_bytes"], account["reads_to_bytes"])))
        return (f"slowdown by writes uncertain: {format_share(round(share, 3))} of the bytes are in reads of other "
                f"sizes than the drive was fitted to, {sizes} (limit {format_share(NOT_FITTED_LIMIT)})")
    return None
