"""Saved state of a drive's contents: how it was prepared, and what was written since.

One JSON file per drive, in BLKREEL_STATE_DIR, else /var/lib/blkreel/drives for root, else the user's state directory.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict

import numpy as np

from blkreel.common.files.json_file import write_json
from blkreel.common.files.safe_files import unlink
from blkreel.common.files.typed_document import field_mismatch, mismatch, read_json
from blkreel.common.installation import state_directory, state_errors
from blkreel.common.units import format_bytes
from blkreel.replay.simulated import state as simulated

from . import external_io
from .evidence import Evidence, evidence_of, identity_words, lost_by, power_of
from .external_io import sum_or_none
from .target import Target

# Earlier runs are summed up in one entry.
_MAX_RUNS = 64
_EARLIER = "earlier runs"
_OTHERS = "other programs"
# Fewer external writes are ignored.
OTHERS_LEAST_BYTES = 1 << 20
NOT_ERASED_AS_ASKED = "not erased, as asked"
# Fields of the first version; others that are missing get their defaults.
_FIRST = ("name", "prepared_at", "scale", "seed", "idle_ns", "filled_bytes", "written_since_bytes",
          "discarded_since_bytes", "notes")


class Ranges(Protocol):
    """Ranges [start, end) of bytes in ascending order."""

    @property
    def start(self) -> np.ndarray: ...
    @property
    def end(self) -> np.ndarray: ...


class Blocks(Protocol):
    """Blocks of a drive in batches of ranges, up to `limit_bytes`."""

    @property
    def limit_bytes(self) -> int: ...
    def batches(self) -> Iterable[Ranges]: ...


class RunWrites(TypedDict):
    """Writes of a run since the preparation. Until it has ended, bytes are an upper bound; None without a bound."""

    by: str
    at: str | None
    written_bytes: int | None
    discarded_bytes: int | None
    ended: bool


class KernelCount(TypedDict):
    """power: see evidence.power_of(). discard_bytes: counts of earlier versions do not have it."""

    power: str
    write_bytes: int
    discard_bytes: NotRequired[int]


@dataclass
class DriveState:
    """name: None if unknown, or if a preparation was not finished.

    scale: 1.0 for the sizes of the method, less on a smaller drive. filled_bytes: everything below was written after
    the last erase. spans: written ranges, if there are gaps. payload: kind of the data. capacity_bytes: of the drive,
    which may change. usable_bytes: less if a part is spare. trace: the one that its blocks were written for.
    erased_by: None without an erase. verified_blocks: blocks of 4 KiB that were read back and right. since: later
    runs. counted: kernel's count after the preparation. identity: everything that determined the I/O.
    """

    name: str | None = None
    prepared_at: str | None = None
    scale: float = 1.0
    seed: int = 0
    idle_ns: int = 0
    filled_bytes: int = 0
    written_since_bytes: int = 0
    discarded_since_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    payload: dict[str, int] | None = None
    capacity_bytes: int = 0
    usable_bytes: int = 0
    spans: list[list[int]] = field(default_factory=list)
    trace: dict[str, Any] | None = None
    erased_by: str | None = None
    prepared_by: str | None = None
    verified_blocks: int = 0
    since: list[RunWrites] = field(default_factory=list)
    counted: KernelCount | None = None
    identity: dict[str, Any] | None = None

    def is_as_prepared(self, identity: Mapping[str, Any], payload: Mapping[str, Any] | None) -> bool:
        """Whether another preparation would change only the seed: no run wrote since.

        identity: of a State. External writes are not included (written_by_others()).
        """
        if self.name is None or self.identity is None or self.since:
            return False
        return {**self.identity, "seed": 0} == {**identity, "seed": 0} and self.payload == payload

    def was_erased_by(self, kind: str) -> bool:
        """Whether a preparation with this erase, one of erase.KINDS, would have the same result.

        `none` differs from all others; a drive without discard counts as erased by any other.
        """
        not_asked = NOT_ERASED_AS_ASKED in self.notes
        return not_asked if kind == "none" else not not_asked and self.erased_by in (kind, None)

    def covers(self, limit_bytes: int) -> bool:
        """Whether every byte below the limit was written since the drive was erased."""
        return self._holds_all and limit_bytes <= self.filled_bytes

    def covers_blocks(self, blocks: Blocks) -> bool:
        """Whether all these blocks were written since the drive was erased."""
        if not self._holds_all or not self.spans:
            return self.covers(blocks.limit_bytes)
        start, end = np.array(self.spans, np.int64).T
        for part in blocks.batches():
            at = np.searchsorted(start, part.start, "right") - 1
            if (at < 0).any() or (part.end > end[at]).any():
                return False
        return True

    @property
    def _holds_all(self) -> bool:
        """Whether all data of the preparation is still there."""
        return self.name is not None and not self.discarded_since_bytes and not any(
            run["discarded_bytes"] is None for run in self.since)

    def _data_spans(self) -> list[list[int]] | None:
        """Of the state `data`: what it wrote of the drive; None for others, whose name determines it."""
        spans: list[list[int]] | None = (self.identity or {}).get("spans")
        if mismatch(spans, list[list[int]], "spans") or not spans or any(len(span) != 2 for span in spans):
            return None  # of another state, or damaged
        return spans

    def account(self) -> dict[str, Any]:
        """As in the metadata of a run. spans, span_bytes, permuted, rest_ns: see Condition."""
        spans = self._data_spans()
        return {"name": self.name, "prepared_at": self.prepared_at, "scale": self.scale, "payload": self.payload,
                "written_since_bytes": self.written_since_bytes if self.name else None,
                "discarded_since_bytes": self.discarded_since_bytes if self.name else None,
                "since": self.since, "notes": self.notes, "usable_bytes": self.usable_bytes or None,
                "spans": spans, "span_bytes": sum(end - start for start, end in spans) if spans else None,
                "rest_ns": self.idle_ns if self.name else None, "permuted": bool((self.identity or {}).get("permuted")),
                "erased_by": self.erased_by, "verified_blocks": self.verified_blocks, "trace": self.trace}


def words(state: DriveState | Mapping[str, Any], now: datetime, others_bytes: int | None = None) -> str:
    """`client, prepared 2 h ago, 3.1 GB written since`. state: or its account. others_bytes: see written_by_others().

    A killed run counts with its upper bound, `up to`; a run without a bound may have written more, `at least`.
    """
    account = state.account() if isinstance(state, DriveState) else state
    if not account["name"]:
        notes = account.get("notes")
        return f"unknown: {notes[0]}" if notes else "unknown"
    parts = [account["name"]]
    if account.get("prepared_at"):
        parts.append(f"prepared {ago((now - datetime.fromisoformat(account['prepared_at'])).total_seconds())}")
    return ", ".join([*parts, _since_words(account, others_bytes)])


def _since_words(account: Mapping[str, Any], others_bytes: int | None) -> str:
    runs = account.get("since") or []
    amounts = [f"{format_bytes(account[key])} {verb}" for key, verb in (
        ("written_since_bytes", "written"), ("discarded_since_bytes", "discarded")) if account.get(key)]
    if any(run["written_bytes"] is None or run["discarded_bytes"] is None for run in runs):
        amount = "at least " + (" and ".join(amounts) or "something written")
    elif not amounts:
        amount = "nothing written"
    else:
        amount = ("" if all(run["ended"] for run in runs) else "up to ") + " and ".join(amounts)
    by_others = f", and {format_bytes(others_bytes)} by others" if others_bytes else ""
    return f"{amount} since{by_others}"


def ago(seconds: float) -> str:
    """`3 min ago`. A clock that was set back makes it `0 s ago`."""
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(0, round(seconds / unit))} {name} ago"
    return f"{round(seconds / 86400)} days ago"


def load(target: Target) -> DriveState:
    """The saved state; one without a name if there is none, or if the drive's size or contents have changed."""
    state, evidence = _stored(target)
    if state.name and state.capacity_bytes not in (0, target.size_bytes):
        return DriveState(notes=[f"it was {state.name} with {format_bytes(state.capacity_bytes)}, and has "
                                 f"{format_bytes(target.size_bytes)} now"])
    discards = any(run["discarded_bytes"] != 0 for run in state.since)
    lost = lost_by(target, evidence, discards=discards) if state.name and evidence else None
    return DriveState(notes=[f"it was {state.name}, and {lost}"]) if lost else _with_external_discards(target, state)


def _with_external_discards(target: Target, state: DriveState) -> DriveState:
    """The state with what other programs discarded since the preparation, such as fstrim, as an entry of `since`.

    The drive answers reads of discarded blocks without its flash, so the state does not cover them any more. The kernel
    counts no more than was asked for, because it trims discards to the granularity of the drive.
    """
    now, own_bytes = _count_beside(target, state.counted), sum_or_none(run["discarded_bytes"] for run in state.since)
    if now is None or state.counted is None or "discard_bytes" not in state.counted or own_bytes is None:
        return state
    external_bytes = now["discard_bytes"] - state.counted["discard_bytes"] - own_bytes
    if external_bytes <= 0:
        return state
    entry: RunWrites = {"by": _OTHERS, "at": None, "written_bytes": 0, "discarded_bytes": external_bytes, "ended": True}
    return replace(state, since=[*state.since, entry],
                   discarded_since_bytes=state.discarded_since_bytes + external_bytes)


class _Stored(TypedDict):
    state: dict[str, Any]
    evidence: NotRequired[Evidence | None]


def _stored(target: Target) -> tuple[DriveState, Evidence | None]:
    """The state as it was saved, with the evidence of that time."""
    try:
        document = read_json(file_of(target), _Stored)
        stored, evidence = document["state"], document.get("evidence")
        names = {field.name for field in fields(DriveState)}
        if field_mismatch(stored, DriveState) or any(name not in stored for name in _FIRST):
            return DriveState(), None
        if any(len(span) != 2 for span in stored.get("spans", [])) or not _is_time(stored["prepared_at"]):
            return DriveState(), None
        state = DriveState(**{name: value for name, value in stored.items() if name in names})
        if not state.since and (state.written_since_bytes or state.discarded_since_bytes):
            state.since = [{"by": _EARLIER, "at": state.prepared_at, "written_bytes": state.written_since_bytes,
                            "discarded_bytes": state.discarded_since_bytes, "ended": True}]
    except (OSError, ValueError):
        # A damaged or older file counts as none: the state is unknown.
        return DriveState(), None
    return state, evidence


def _is_time(text: str | None) -> bool:
    """Whether it is null, or a time with its zone."""
    try:
        return text is None or datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def save(target: Target, state: DriveState, *, is_written: bool = False) -> None:
    """Save it. is_written: blkreel writes to the drive from now on. Raises BlkreelError if it cannot be saved."""
    write_beside(target, file_of(target), {"drive": target.drive.name, "model": target.drive.model,
                                         "state": asdict(state),
                                         "evidence": evidence_of(target, is_written=is_written)})


def forget(target: Target) -> None:
    """Remove the saved state and an unfinished preparation. Raises BlkreelError if that fails."""
    with state_errors(f"cannot remove the state of {target.path}"):
        for path in (file_of(target), progress_file(target)):
            unlink(path)


def start_fresh(targets: Iterable[Target]) -> None:
    """At the start of a command: reset the simulated drives that do not keep their state (`state=keep`)."""
    for target in targets:
        if target.simulated is not None and target.simulated.state == "fresh":
            simulated.erase(target.simulated)
            forget(target)


def write_beside(target: Target, path: Path, document: Mapping[str, Any]) -> None:
    """Replace a document atomically and durably. Raises BlkreelError if that fails."""
    with state_errors(f"cannot save the state of {target.path} in {path.parent}"):
        write_json(path, {"version": 1, **document})


def about_to_write(target: Target, written_bytes: int | None, discarded_bytes: int | None,
                   by: str = "blkreel") -> Callable[[int, int], None]:
    """Save the upper bounds of writes and discards before the first of them; None without a bound.

    So a killed run leaves a state that promises too little, not too much. Call the returned function with
    (written_bytes, discarded_bytes) at the end. An interrupted preparation cannot be resumed after this.
    """
    at = datetime.now(UTC).isoformat(timespec="microseconds")

    def save_result(written_bytes: int, discarded_bytes: int) -> None:
        state, _ = _stored(target)
        entry = next((run for run in state.since if run["at"] == at and run["by"] == by and not run["ended"]), None)
        if entry is None:
            return  # the drive was prepared again meanwhile
        entry.update({"written_bytes": written_bytes, "discarded_bytes": discarded_bytes, "ended": True})
        if not written_bytes and not discarded_bytes:
            state.since.remove(entry)
        _save_summed(target, state)

    if written_bytes == 0 and discarded_bytes == 0:
        return save_result
    unlink(progress_file(target))
    state = load(target)
    # A drive that was never prepared has no state to change.
    if state.name:
        state.since.append({"by": by, "at": at, "written_bytes": written_bytes, "discarded_bytes": discarded_bytes,
                            "ended": False})
        _save_summed(target, state, is_written=True)
    return save_result


def _save_summed(target: Target, state: DriveState, *, is_written: bool = False) -> None:
    while len(state.since) > _MAX_RUNS:
        first, second = state.since[:2]
        state.since[:2] = [{"by": _EARLIER, "at": first["at"],
                            "written_bytes": sum_or_none((first["written_bytes"], second["written_bytes"])),
                            "discarded_bytes": sum_or_none((first["discarded_bytes"], second["discarded_bytes"])),
                            "ended": first["ended"] and second["ended"]}]
    state.written_since_bytes = sum(run["written_bytes"] or 0 for run in state.since)
    state.discarded_since_bytes = sum(run["discarded_bytes"] or 0 for run in state.since)
    save(target, state, is_written=is_written)


def count_now(target: Target) -> KernelCount | None:
    """The kernel's count of bytes written to the whole drive since it was attached; None for a file."""
    count = external_io.count_of(target)
    if count is None:
        return None
    return {"power": power_of(target), "write_bytes": count.write_bytes, "discard_bytes": count.discard_bytes}


def written_by_others(target: Target, state: DriveState) -> int | None:
    """External writes to the drive since it was prepared, in bytes, on all its partitions.

    None if they are unknown, such as after the drive was detached.
    """
    if not state.name or any(run["written_bytes"] is None for run in state.since):
        return None
    now = _count_beside(target, state.counted)
    if now is None or state.counted is None:
        return None
    others_bytes = now["write_bytes"] - state.counted["write_bytes"] - state.written_since_bytes
    return others_bytes if others_bytes >= OTHERS_LEAST_BYTES else 0


def changed_since(target: Target, then: KernelCount | None) -> int | None:
    """Bytes written to the whole drive and discarded since count_now() was `then`; None if unknown."""
    now = _count_beside(target, then)
    if now is None or then is None:
        return None
    discarded_bytes = now["discard_bytes"] - then["discard_bytes"] if "discard_bytes" in then else 0
    return now["write_bytes"] - then["write_bytes"] + discarded_bytes


def _count_beside(target: Target, then: KernelCount | None) -> KernelCount | None:
    """The count of now, if it goes on from `then`; None if it began anew, or is unknown."""
    now = count_now(target)
    return now if now and then and now["power"] == then["power"] else None


def progress_file(target: Target) -> Path:
    """The file of an unfinished preparation, beside the state."""
    return file_of(target).with_suffix(".preparing")


def file_of(target: Target) -> Path:
    return state_directory() / (hashlib.sha256(os.fsencode(identity_words(target))).hexdigest()[:24] + ".json")
