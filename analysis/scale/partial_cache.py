"""Partials that are cached beside the traces, so that a trace is read once for any number of comparisons.

A cache file holds the partial of one trace for one burst gap, exact or binned. It is used only if it names the
identity of the trace (footer.py), these two and this version of blkreel, if its checksum holds, and if its I/Os and
bytes are those of the footer. The checksum is keyed to the user and the machine: a user who can write beside a trace
cannot forge results. Any other content counts as missing and is overwritten. Only the process of the user writes,
never a worker.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar

from blkreel import __version__
from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.analysis.metrics.partials.partial_file import VERSION, load
from blkreel.common.files.safe_files import write_file
from blkreel.common.files.storage_url import Location, StorageUrl
from blkreel.common.files.typed_document import parse_json
from blkreel.common.installation import keyed_hash, state_directory
from blkreel.traces.samples import PREFIX, called

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

SUFFIX = ".blkreel-partial"
# Reading fewer rows again takes no longer than a lookup.
MIN_ROWS = 50_000
_FORMAT = 2
_READ_ONLY = ("http", "https", "data", "github", "git", "gist", "zip", "tar", "libarchive")


class Key(Protocol[T_co]):
    """What a cached result depends on."""

    @property
    def name(self) -> str:
        """In the name of the cache file: results of another name stand beside each other."""

    def header(self) -> dict[str, Any]:
        """What a cache file must state to be used, beside what all state."""

    def load(self, content: bytes) -> T_co: ...


@dataclass(frozen=True)
class PartialKey:
    """The key of the partial of one trace. compare/second_pass.py has keys of other results.

    rows, op_bytes: number of rows and bytes by operation in the trace's footer; None: not recorded there.
    """

    identity: str
    gap_ns: int
    exact: bool
    rows: int
    op_bytes: Mapping[str, int] | None

    @property
    def name(self) -> str:
        return f"{'exact' if self.exact else 'binned'}-{self.gap_ns}ns"

    def header(self) -> dict[str, Any]:
        return {"partial": VERSION, "fingerprint": self.identity, "gap_ns": self.gap_ns, "exact": self.exact}

    def load(self, content: bytes) -> Partial:
        """Raises ValueError for a partial of other rows."""
        partial = load(content)
        classes = partial.classes()
        rows = sum(part.ops + part.unseen_ops for part in classes.values())
        if partial.runs != 1 or rows != self.rows:
            raise ValueError(f"a partial of {rows} rows in {partial.runs} runs, and the trace has {self.rows}")
        for op in ("read", "write"):
            moved_bytes = classes[op].bytes + classes[op].unseen_bytes
            if self.op_bytes is not None and moved_bytes != self.op_bytes.get(op, 0):
                raise ValueError(f"a partial of other {op}s: {moved_bytes} bytes")
        return partial


class NotWritten(TypedDict):
    """Directories that could not be written: how many, the first, and why."""

    locations: int
    first: str
    why: str


class CacheReport(TypedDict):
    """Numbers of traces: all, read from the cache, written to it."""

    traces: int
    read: int
    written: int
    not_written: NotWritten | None


@dataclass
class PartialCache:
    """enabled: whether to read and write. hits, written: numbers of traces. refused: directory -> why it was not
    written."""

    enabled: bool = True
    hits: int = 0
    written: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    def get(self, records: Location, rows: int, key: Key[T]) -> T | None:
        """The cached result of a trace; None if there is no valid one. Thread-safe."""
        if not self._is_cached(records, rows):
            return None
        try:
            head, _, content = path_of(records, key).read_bytes().partition(b"\n")
            header = _header(key, content)
            return key.load(content) if header is not None and parse_json(head) == header else None
        except Exception:  # a damaged file may fail in any way, and the rows replace it
            return None

    def put(self, records: Location, rows: int, key: Key[Any], dump: Callable[[], bytes]) -> None:
        """Write what dump() returns. A directory that cannot be written is noted and not tried again."""
        directory = str(records.parent)
        if not self._is_cached(records, rows) or directory in self.refused:
            return
        content = dump()
        header = _header(key, content)
        if header is None:
            self.refused[directory] = f"{state_directory()} cannot be written"
            return
        whole = json.dumps(header).encode() + b"\n" + content
        path = path_of(records, key)
        try:
            if isinstance(path, StorageUrl):
                if path.protocol in _READ_ONLY:
                    raise OSError(f"{path.protocol}:// is read-only")
                path.write_bytes(whole)
            else:
                _write(path, whole, Path(str(records)))
        except Exception as error:  # a storage library may raise anything, and the result does not depend on it
            self.refused[directory] = getattr(error, "strerror", None) or str(error) or type(error).__name__
        else:
            self.written += 1

    def report(self, traces: int) -> CacheReport:
        first = next(iter(self.refused.items()), None)
        return {"traces": traces, "read": self.hits, "written": self.written,
                "not_written": {"locations": len(self.refused), "first": first[0], "why": first[1]} if first else None}

    def _is_cached(self, records: Location, rows: int) -> bool:
        if not self.enabled:
            return False
        return isinstance(records, StorageUrl) or rows >= MIN_ROWS and not called(records).startswith(PREFIX)


def path_of(records: Location, key: Key[Any]) -> Location:
    """The cache file of a trace: hidden, beside it."""
    return records.with_name(f".{records.name}.{key.name}{SUFFIX}")


def _header(key: Key[Any], content: bytes) -> dict[str, Any] | None:
    """None where this user has no secret to key the checksum."""
    header = {"format": _FORMAT, "blkreel": __version__, **key.header()}
    checksum = keyed_hash("partial", json.dumps(header).encode() + b"\n" + content)
    return {**header, "checksum": checksum} if checksum else None


def _write(path: Path, content: bytes, records: Path) -> None:
    """Atomically, with the permissions of the trace."""
    status = records.stat()
    owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    write_file(path, content, force=True, mode=status.st_mode & 0o666, owner=owner, sync=False)
