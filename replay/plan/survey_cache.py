"""Cache of the results of passes over long traces, so that the next replay of the same file starts at once.

It is in BLKREEL_CACHE_DIR, else in the user's cache directory. An entry is valid for one file identity: device, inode,
size, modification time and footer. It has a checksum of its own. If the directory cannot be written, nothing is cached.
The least recently used entries are removed first.
"""

import hashlib
import io
import json
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, cast

from blkreel.common.errors import SafetyError
from blkreel.common.files.safe_files import NewFile, unlink
from blkreel.common.files.typed_document import parse_typed
from blkreel.common.system import user_directory
from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.format.trace import Trace
from blkreel.traces.spool.blocks import write_all

# Shorter traces are read in about a second.
MIN_ROWS = 1_000_000
_MAX_ENTRY_BYTES, _MAX_BYTES = 256 << 20, 1 << 30
_MAGIC = b"blkreel survey 1\n"
_MAX_FOOTER_BYTES = 16 << 20
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


def cache_directory() -> Path:
    if directory := os.environ.get("BLKREEL_CACHE_DIR"):
        return Path(directory)
    return user_directory("XDG_CACHE_HOME", ".cache") / "blkreel/surveys"


class _Head(TypedDict):
    facts: dict[str, Any]
    lengths: dict[str, int]


class Entry:
    """facts: as given to store(). Sets are read on access, so that one is in memory at a time."""

    def __init__(self, file: BinaryIO, facts: dict[str, Any], lengths: dict[str, int], offset: int):
        self.facts = facts
        self._file = file
        self._ranges: dict[str, tuple[int, int]] = {}
        for name, length in lengths.items():
            self._ranges[name] = (offset, length)
            offset += length

    def __getitem__(self, name: str) -> bytes:
        offset, length = self._ranges[name]
        return os.pread(self._file.fileno(), length, offset)


def load(trace: Trace, key: str) -> Entry | None:
    """The entry stored under this key for this file; None if there is none or it is damaged."""
    if trace.rows < MIN_ROWS:
        return None
    try:
        return _load(_path(trace, key))
    except OSError:
        return None


def load_facts(key: str) -> dict[str, Any] | None:
    """The facts that store_facts() stored under this key; None if there are none or the entry is damaged."""
    entry = _load(_path_of(key.encode()))
    return entry.facts if entry else None


def _load(path: Path) -> Entry | None:
    try:
        file = open(path, "rb", buffering=0)
        entry = _checked(file)
        os.utime(path)  # for the order of removal
    except (OSError, ValueError, struct.error):
        return None
    return entry


def store(trace: Trace, key: str, facts: dict[str, Any], sets: dict[str, BlockSet]) -> None:
    """Store an entry if possible."""
    if trace.rows < MIN_ROWS or sum(blocks.memory_bytes for blocks in sets.values()) > _MAX_ENTRY_BYTES:
        return
    try:
        path = _path(trace, key)
    except OSError:
        return
    _store(path, facts, sets)


def store_facts(key: str, facts: dict[str, Any]) -> None:
    """Store facts that belong to no file, if possible. key: everything they depend on."""
    _store(_path_of(key.encode()), facts, {})


def _store(path: Path, facts: dict[str, Any], sets: dict[str, BlockSet]) -> None:
    with suppress(OSError, SafetyError):
        with NewFile(path, force=True, sync=False) as new:
            _write(new.file, facts, sets)
            new.publish()
        _remove_oldest(path.parent)


def _write(file: BinaryIO, facts: dict[str, Any], sets: dict[str, BlockSet]) -> None:
    """Format: magic; the sets; facts and lengths of the sets in JSON; length of the JSON; checksum of all before."""
    checksum, lengths = 0, {}

    def put(data: bytes | memoryview) -> None:
        nonlocal checksum
        checksum = zlib.crc32(data, checksum)
        write_all(file, data)

    put(_MAGIC)
    for name, blocks in sets.items():
        saved = blocks.saved()
        lengths[name] = len(saved)
        put(saved)
    head = json.dumps({"facts": facts, "lengths": lengths}).encode()
    put(head)
    put(_LENGTH.pack(len(head)))
    put(_CHECKSUM.pack(checksum))


def _checked(file: io.FileIO) -> Entry | None:
    size_bytes = os.fstat(file.fileno()).st_size
    tail_at = size_bytes - _LENGTH.size - _CHECKSUM.size
    checksum, left, part = 0, size_bytes - _CHECKSUM.size, bytearray(1 << 20)
    while left > 0 and (count := file.readinto(memoryview(part)[:min(left, len(part))])):
        checksum = zlib.crc32(memoryview(part)[:count], checksum)
        left -= count
    if _CHECKSUM.pack(checksum) != file.read(_CHECKSUM.size) or os.pread(file.fileno(), len(_MAGIC), 0) != _MAGIC:
        return None
    (length,) = _LENGTH.unpack(os.pread(file.fileno(), _LENGTH.size, tail_at))
    if length > tail_at:
        return None
    head = parse_typed(os.pread(file.fileno(), length, tail_at - length), _Head)
    lengths = head["lengths"].values()
    if len(_MAGIC) + sum(lengths) + length != tail_at or min(lengths, default=0) < 0:
        return None
    return Entry(cast(BinaryIO, file), head["facts"], head["lengths"], len(_MAGIC))


def _path(trace: Trace, key: str) -> Path:
    """The name of an entry is a hash of its key and the identity of the trace file."""
    with open(Path(str(trace.path)), "rb") as file:
        status = os.fstat(file.fileno())
        # A Parquet file ends with the length of its footer and a magic.
        file.seek(max(0, status.st_size - 8))
        footer_bytes = int.from_bytes(file.read(4), "little")
        file.seek(max(0, status.st_size - 8 - min(footer_bytes, _MAX_FOOTER_BYTES)))
        identity = f"{key}:{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:"
        return _path_of(identity.encode() + file.read())


def _path_of(identity: bytes) -> Path:
    return cache_directory() / (hashlib.sha256(identity).hexdigest()[:32] + ".survey")


def _remove_oldest(directory: Path) -> None:
    entries = sorted((path.stat().st_mtime_ns, path.stat().st_size, path) for path in directory.glob("*.survey"))
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= _MAX_BYTES:
            return
        unlink(path)
        total -= size
