"""Blocks of columns between Python and a helper, through a pipe or in a file.

A stream is one layout block, then rows and notes in any order, then one end block. A stream without an end block was
cut off because its writer died; block_file.py reads up to that point. traces/native/blocks.h is the same in C.

    header   24 bytes, little endian: magic u32, kind u16, zero u16, rows u32, checksum u32, payload_bytes u64
    layout   JSON {"stream": name, "version": 2, "columns": [[name, "i8"], ...]}
    rows     one array per column in the order of the layout, each padded with zeros to 8 bytes
    note     JSON object; its key "note" names the kind
    end      JSON object: the writer's totals

The checksum is the CRC-32 of the header, with 0 in its place, and of the payload; 1 stands for 0. Blocks in a file
have it. In a pipe, which cannot be damaged, it is 0.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

import numpy as np

from blkreel.common.errors import BlkreelError

VERSION = 2  # of the codes of operations, too
MAGIC = 0x314B4C42  # "BLK1"
LAYOUT, ROWS, NOTE, END = 1, 2, 3, 4
MAX_PAYLOAD_BYTES = 1 << 30  # a greater length means that the stream is out of step
HEADER = struct.Struct("<IHHIIQ")


class BlockStreamError(BlkreelError):
    """The stream violates the block format, or ends inside a block."""


@dataclass(frozen=True)
class Rows:
    """One block of rows. columns: name to 1-D array of `count` values, views into one buffer."""

    columns: dict[str, np.ndarray]
    count: int


@dataclass(frozen=True)
class Note:
    """A message beside the rows: progress, thread names, losses."""

    fields: dict[str, Any]


@dataclass(frozen=True)
class End:
    """The last block: the writer's totals."""

    fields: dict[str, Any]


class BlockReader:
    """Iterates over a helper's blocks: Rows, Note, and End as the last one.

    Raises BlockStreamError if the layout is not `stream` with exactly `columns`, if a block is
    damaged, and where the pipe ends without an End block.
    """

    def __init__(self, file: BinaryIO, stream: str, columns: list[tuple[str, str]]):
        self._file = file
        self._stream = stream
        self._columns = columns
        self._types = [(name, np.dtype("<" + code)) for name, code in columns]

    def __iter__(self) -> Iterator[Rows | Note | End]:
        kind, _, payload = self._block()
        if kind != LAYOUT:
            raise BlockStreamError(f"{self._stream} stream starts with block kind {kind}, not a layout")
        self._check_layout(json.loads(payload))
        while True:
            kind, rows, payload = self._block()
            if kind == ROWS:
                yield Rows(split_rows(self._types, rows, payload), rows)
            elif kind == NOTE:
                yield Note(json.loads(payload))
            elif kind == END:
                yield End(json.loads(payload))
                return
            else:
                raise BlockStreamError(f"{self._stream} stream holds a block of unknown kind {kind}")

    def _check_layout(self, layout: object) -> None:
        wanted = {"stream": self._stream, "version": VERSION, "columns": [list(c) for c in self._columns]}
        if layout != wanted:
            raise BlockStreamError(
                f"the helper's {self._stream} layout differs from this version of blkreel",
                "install blkreel again: docs/install.md")

    def _block(self) -> tuple[int, int, bytes]:
        header = self._exactly(HEADER.size, at_boundary=True)
        magic, kind, _, rows, _, length = HEADER.unpack(header)
        if magic != MAGIC or length > MAX_PAYLOAD_BYTES:
            raise BlockStreamError(f"{self._stream} stream is out of step (magic {magic:#x}, length {length})")
        return kind, rows, self._exactly(length)

    def _exactly(self, count: int, at_boundary: bool = False) -> bytes:
        data = self._file.read(count)
        if len(data) != count:
            where = "between two blocks, without its end block" if at_boundary and not data else "inside a block"
            raise BlockStreamError(f"{self._stream} stream ended {where}: its writer died")
        return data


class BlockWriter:
    """Writes a block stream to a helper. `file` is unbuffered or flushed by the caller."""

    def __init__(self, file: BinaryIO, stream: str, columns: list[tuple[str, str]], *, checksums: bool):
        self._file = file
        self._checksums = checksums
        self._types = [(name, np.dtype("<" + code)) for name, code in columns]
        self._json(LAYOUT, {"stream": stream, "version": VERSION, "columns": [list(c) for c in columns]})

    def rows(self, columns: dict[str, np.ndarray]) -> None:
        """Write one block. Every column of the layout is required; all have the same length."""
        count = len(columns[self._types[0][0]])
        parts = []
        for name, dtype in self._types:
            data = np.ascontiguousarray(columns[name], dtype)
            if len(data) != count:
                raise ValueError(f"column {name} has {len(data)} rows, not {count}")
            parts.append(data.tobytes())
            parts.append(bytes(_padded(data.nbytes) - data.nbytes))
        self._write(ROWS, count, b"".join(parts))

    def note(self, fields: dict[str, Any]) -> None:
        self._json(NOTE, fields)

    def end(self, fields: dict[str, Any] | None = None) -> None:
        self._json(END, fields or {})

    def _json(self, kind: int, fields: dict[str, Any]) -> None:
        self._write(kind, 0, json.dumps(fields).encode())

    def _write(self, kind: int, rows: int, payload: bytes) -> None:
        header = HEADER.pack(MAGIC, kind, 0, rows, 0, len(payload))
        if self._checksums:
            header = HEADER.pack(MAGIC, kind, 0, rows, checksum_of(header, payload), len(payload))
        write_all(self._file, header + payload)


def write_all(file: IO[bytes], data: bytes | memoryview) -> None:
    """To an unbuffered file, which may take a part only: a pipe, or a file when the disk gets full."""
    view = memoryview(data)
    while view:
        view = view[file.write(view):]


def checksum_of(header: bytes, *payload: bytes) -> int:
    """The checksum of a block. header: with 0 as its checksum."""
    crc = zlib.crc32(header)
    for part in payload:
        crc = zlib.crc32(part, crc)
    return crc or 1


def split_rows(types: list[tuple[str, np.dtype]], rows: int, payload: bytes) -> dict[str, np.ndarray]:
    """The columns of a rows block, as views into its payload."""
    expected = sum(_padded(rows * dtype.itemsize) for _, dtype in types)
    if expected != len(payload):
        raise BlockStreamError(f"a block of {rows} rows has {len(payload)} bytes, not {expected}")
    columns, start = {}, 0
    for name, dtype in types:
        columns[name] = np.frombuffer(payload, dtype, rows, start)
        start += _padded(rows * dtype.itemsize)
    return columns


def _padded(nbytes: int) -> int:
    return (nbytes + 7) & ~7
