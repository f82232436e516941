"""Figures that are kept beside the traces, so that a trace is read once however often it is compared.

A kept file holds what one trace was found to be for one burst gap, exact or not. It is believed only where it names
the trace's fingerprint (footer.py), these two, and this version of blkreel, and where its own checksum holds: whatever
else lies there is as if nothing did, and is written over. Only the process of the user writes, never a worker.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from blkreel import __version__
from blkreel.traces.places import Place, Url
from blkreel.traces.shipped import PREFIX, called

from ..partial import Partial
from ..partial_file import VERSION, load

SUFFIX = ".blkreel-partial"
# To read so few rows again takes no longer than to find what was kept of them.
WORTH_KEEPING_ROWS = 50_000
_FORMAT = 1
_NEVER_WRITTEN = ("http", "https", "data", "github", "git", "gist", "zip", "tar", "libarchive")


@dataclass(frozen=True)
class Key:
    """What the figures of a trace depend on. once_more.py has keys of other findings, with the same three methods."""

    fingerprint: str
    gap_ns: int
    exact: bool

    def header(self) -> dict:
        """What a kept file must say of itself to be believed, beside what all say."""
        return {"partial": VERSION, "fingerprint": self.fingerprint, "gap_ns": self.gap_ns, "exact": self.exact}

    @property
    def name(self) -> str:
        """In the name of the file: figures of another name are kept beside these, others take their place."""
        return f"{'exact' if self.exact else 'binned'}-{self.gap_ns}ns"

    def load(self, content: bytes) -> Partial:
        return load(content)


@dataclass
class Keeper:
    """enabled: whether to look and to keep. The counts are of traces; refused: where nothing could be kept, and why."""

    enabled: bool = True
    read: int = 0
    written: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    def look(self, records: Place, rows: int, key: Key):
        """What is kept of that trace, as key.load() gives it; None where nothing is that is sound and of this key.

        Threads may call it.
        """
        if not self._is_kept(records, rows):
            return None
        try:
            head, _, content = path_of(records, key).read_bytes().partition(b"\n")
            told = json.loads(head)
            if told != _header(key, content):
                return None
            return key.load(content)
        except Exception:  # whatever is wrong with it, the rows tell
            return None

    def keep(self, records: Place, rows: int, key: Key, dumped: Callable[[], bytes]) -> None:
        """Keep what dumped() gives, which key.load() reads. A place that may not be written is noted, and not
        tried again."""
        where = str(records.parent)
        if not self._is_kept(records, rows) or where in self.refused:
            return
        content = dumped()
        whole = json.dumps(_header(key, content)).encode() + b"\n" + content
        path = path_of(records, key)
        try:
            if isinstance(path, Url):
                if path.protocol in _NEVER_WRITTEN:
                    raise OSError(f"{path.protocol}:// is only read")
                path.write_bytes(whole)
            else:
                _write(path, whole, records)
        except Exception as error:  # a storage's library may raise anything, and none of it is the user's concern
            self.refused[where] = (getattr(error, "strerror", None) or str(error) or type(error).__name__)
        else:
            self.written += 1

    def account(self, traces: int) -> dict:
        """What the document says of it."""
        first = next(iter(self.refused.items()), None)
        return {"traces": traces, "from_kept": self.read, "kept_now": self.written,
                "not_kept": {"places": len(self.refused), "first": first[0], "why": first[1]} if first else None}

    def _is_kept(self, records, rows):
        if not self.enabled:
            return False
        if isinstance(records, Url):
            return True
        return rows >= WORTH_KEEPING_ROWS and not called(records).startswith(PREFIX)


def path_of(records: Place, key: Key) -> Place:
    """Where the figures of a trace file are kept: hidden, beside it."""
    return records.with_name(f".{records.name}.{key.name}{SUFFIX}")


def _header(key, content):
    return {"format": _FORMAT, "blkreel": __version__, **key.header(), "sha256": hashlib.sha256(content).hexdigest()}


def _write(path: Path, content: bytes, records: Path):
    """Whole or not at all, readable by whoever may read the trace."""
    status = records.stat()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), status.st_mode & 0o666)
            if os.geteuid() == 0:
                with suppress(OSError):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
