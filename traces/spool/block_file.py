"""Reads the blocks of a file that may be damaged, or end inside a block because its writer was killed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar

import numpy as np

from blkreel.common.files.typed_document import parse_typed

from .blocks import HEADER, LAYOUT, MAGIC, MAX_PAYLOAD_BYTES, ROWS, checksum_of, split_rows

T = TypeVar("T")

class _Layout(TypedDict):
    columns: list[list[str]]


_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Block:
    """Offsets of one block. end_bytes: start of the next one."""

    kind: int
    rows: int
    payload_at: int
    end_bytes: int


class BlockFile:
    """The sound blocks of a file. begin_bytes: blocks between the layout and this offset were dropped.

    columns: (name, numpy code) of the layout block; None if it is incomplete or damaged. layout_bytes: its end.
    damaged_bytes: skipped so far by blocks() or rows(), between sound blocks or as a whole block with another checksum.
    A part of a block at the end is not counted: its writer was killed, or still writes.
    """

    def __init__(self, path: Path, begin_bytes: int = 0):
        self._file = open(path, "rb", buffering=0)
        self._begin_bytes = begin_bytes
        self.damaged_bytes = 0
        self.columns: list[tuple[str, str]] | None = None
        self.layout_bytes = 0
        first = self._block_at(0)
        if first and first.kind == LAYOUT:
            try:
                columns = [(name, code) for name, code in self.json(first, _Layout)["columns"]]
                self._types = [(name, np.dtype("<" + code)) for name, code in columns]
            except (ValueError, TypeError):  # TypeError: no code of numpy
                return
            self.columns = columns
            self.layout_bytes = first.end_bytes
            self._begin_bytes = max(begin_bytes, first.end_bytes)

    def __enter__(self) -> "BlockFile":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def blocks(self, until_bytes: int | None = None) -> Iterator[Block]:
        """All sound blocks after the layout that end at until_bytes or before."""
        at = self._begin_bytes
        limit = self._file.seek(0, 2) if until_bytes is None else until_bytes
        while self.columns and at < limit:
            block = self._block_at(at)
            if block is None:
                next_at = self._next_block(at + 1, limit)
                if next_at is None:
                    self.damaged_bytes += 0 if self._is_cut(at, limit) else limit - at
                    return
                self.damaged_bytes += next_at - at
                at = next_at
                continue
            if block.end_bytes > limit:
                return
            yield block
            at = block.end_bytes

    def rows(self, until_bytes: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """The columns of each block of rows."""
        for block in self.blocks(until_bytes):
            if block.kind == ROWS:
                yield self.rows_of(block)

    def rows_of(self, block: Block) -> dict[str, np.ndarray]:
        return split_rows(self._types, block.rows, self._payload(block))

    def json(self, block: Block, kind: type[T]) -> T:
        """The content of a note or an end block. kind: as of mismatch(). Raises ValueError for another one."""
        return parse_typed(self._payload(block), kind)

    def _block_at(self, at: int) -> Block | None:
        """The block at an offset; None where none begins, or it is incomplete or damaged."""
        block = self._header_at(at)
        if block is None:
            return None
        self._file.seek(at)
        header = self._file.read(HEADER.size)
        magic, kind, zero, rows, checksum, length = HEADER.unpack(header)
        whole = checksum_of(HEADER.pack(magic, kind, zero, rows, 0, length), *self._chunks(length))
        return block if whole == checksum else None

    def _header_at(self, at: int) -> Block | None:
        """The block whose header is at an offset and which ends in the file. Its checksum is not compared."""
        self._file.seek(at)
        header = self._file.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        magic, kind, _, rows, _, length = HEADER.unpack(header)
        end = at + HEADER.size + length
        if magic != MAGIC or length > MAX_PAYLOAD_BYTES or end > self._file.seek(0, 2):
            return None
        return Block(kind, rows, at + HEADER.size, end)

    def _chunks(self, length: int) -> Iterator[bytes]:
        while length and (chunk := self._file.read(min(length, _CHUNK_BYTES))):
            length -= len(chunk)
            yield chunk

    def _next_block(self, at: int, limit: int) -> int | None:
        """The offset of the first sound block from here on."""
        while at < limit:
            self._file.seek(at)
            data = self._file.read(min(_CHUNK_BYTES, limit - at))
            offset = data.find(_MAGIC_BYTES)
            while offset >= 0:
                if self._block_at(at + offset):
                    return at + offset
                offset = data.find(_MAGIC_BYTES, offset + 1)
            if len(data) < _CHUNK_BYTES:
                return None
            at += len(data) - len(_MAGIC_BYTES) + 1  # the magic may be at the border
        return None

    def _is_cut(self, at: int, limit: int) -> bool:
        """Whether the rest is the beginning of a block, and not a damaged one."""
        self._file.seek(at)
        begin = self._file.read(len(_MAGIC_BYTES))
        return _MAGIC_BYTES.startswith(begin) and (self._header_at(at) is None or limit - at < HEADER.size)

    def _payload(self, block: Block) -> bytes:
        self._file.seek(block.payload_at)
        return self._file.read(block.end_bytes - block.payload_at)
