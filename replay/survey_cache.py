"""What passes over long traces found, kept so that the next replay of the same file starts at once.

In BLKREEL_CACHE_DIR, else in the user's cache directory. An entry is used only for the very file that it was made of,
told by its place on the disk, size, time of change and footer, and only where its own checksum is right; a directory
that cannot be written just means that nothing is kept. What was not used for the longest time goes first.
"""

import hashlib
import json
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from blkreel.traces.block_set import BlockSet
from blkreel.traces.reader import Trace

# A shorter trace is read through faster than anybody waits.
WORTH_ROWS = 1_000_000
_MOST_ENTRY_BYTES, _MOST_BYTES = 256 << 20, 1 << 30
_MAGIC = b"blkreel survey 1\n"
_MOST_FOOTER_BYTES = 16 << 20
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


def cache_directory() -> Path:
    if directory := os.environ.get("BLKREEL_CACHE_DIR"):
        return Path(directory)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "blkreel/surveys"


class Entry:
    """facts: as they were stored. Sets are read when they are asked for, so that one is in memory at a time."""

    def __init__(self, file, facts: dict, lengths: dict[str, int], at: int):
        self.facts = facts
        self._file, self._places = file, {}
        for name, length in lengths.items():
            self._places[name] = (at, length)
            at += length

    def __getitem__(self, name: str) -> bytes:
        at, length = self._places[name]
        return os.pread(self._file.fileno(), length, at)


def load(trace: Trace, what: str) -> Entry | None:
    """What store() was given under that name for this very file; None where it is not there or not sound."""
    if trace.rows < WORTH_ROWS:
        return None
    try:
        path = _path(trace, what)
        file = open(path, "rb", buffering=0)
        entry = _sound(file)
        os.utime(path)  # the one that was used last goes last
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None
    return entry


def store(trace: Trace, what: str, facts: dict, sets: dict[str, BlockSet]) -> None:
    """Keep it if it can be kept; nobody misses it otherwise."""
    if trace.rows < WORTH_ROWS or sum(blocks.memory_bytes for blocks in sets.values()) > _MOST_ENTRY_BYTES:
        return
    temporary = None
    try:
        path = _path(trace, what)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        with open(temporary, "wb", buffering=0) as file:
            _write(file, facts, sets)
        temporary.replace(path)
        _keep_below(path.parent, _MOST_BYTES)
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _write(file, facts, sets):
    """Magic; the sets, one by one; a description of them in JSON; its length and a checksum of all before."""
    checksum, lengths = 0, {}

    def put(data):
        nonlocal checksum
        checksum = zlib.crc32(data, checksum)
        view = memoryview(data)
        while view:
            view = view[file.write(view):]

    put(_MAGIC)
    for name, blocks in sets.items():
        saved = blocks.saved()
        lengths[name] = len(saved)
        put(saved)
    head = json.dumps({"facts": facts, "lengths": lengths}).encode()
    put(head)
    put(_LENGTH.pack(len(head)))
    put(_CHECKSUM.pack(checksum))


def _sound(file) -> Entry | None:
    size_bytes = os.fstat(file.fileno()).st_size
    tail_at = size_bytes - _LENGTH.size - _CHECKSUM.size
    checksum, left, part = 0, size_bytes - _CHECKSUM.size, bytearray(1 << 20)
    while left > 0 and (count := file.readinto(memoryview(part)[:min(left, len(part))])):
        checksum = zlib.crc32(memoryview(part)[:count], checksum)
        left -= count
    if _CHECKSUM.pack(checksum) != file.read(_CHECKSUM.size) or os.pread(file.fileno(), len(_MAGIC), 0) != _MAGIC:
        return None
    (length,) = _LENGTH.unpack(os.pread(file.fileno(), _LENGTH.size, tail_at))
    head = json.loads(os.pread(file.fileno(), length, tail_at - length))
    if len(_MAGIC) + sum(head["lengths"].values()) + length != tail_at:
        return None
    return Entry(file, head["facts"], head["lengths"], len(_MAGIC))


def _path(trace, what) -> Path:
    """Named by all that tells the file from others, and from itself before it was changed."""
    with open(trace.path, "rb") as file:
        status = os.fstat(file.fileno())
        # The last bytes of a Parquet file are the length of its footer, and its magic.
        file.seek(max(0, status.st_size - 8))
        footer_bytes = int.from_bytes(file.read(4), "little")
        file.seek(max(0, status.st_size - 8 - min(footer_bytes, _MOST_FOOTER_BYTES)))
        identity = f"{what}:{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:"
        return cache_directory() / (hashlib.sha256(identity.encode() + file.read()).hexdigest()[:32] + ".survey")


def _keep_below(directory, most_bytes):
    entries = sorted((path.stat().st_mtime_ns, path.stat().st_size, path) for path in directory.glob("*.survey"))
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)
        total -= size
