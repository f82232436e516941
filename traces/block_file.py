"""Reading the blocks of a file that may end anywhere: its writer may have been killed in the middle of one."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .blocks import LAYOUT, MAGIC, MAX_PAYLOAD_BYTES, ROWS, split_rows

_HEADER = struct.Struct("<IHHIIQ")


@dataclass(frozen=True)
class Block:
    """Where one block stands. end_bytes: where the next one begins."""

    kind: int
    rows: int
    payload_at: int
    end_bytes: int


class BlockFile:
    """The whole blocks of a file. begin_bytes: what stands between the layout and there is no longer held.

    columns: those of the layout block, as (name, numpy code); None where not even that one is whole. layout_bytes:
    where it ends.
    """

    def __init__(self, path: Path, begin_bytes: int = 0):
        self._file = open(path, "rb", buffering=0)
        self._begin_bytes = begin_bytes
        self.columns: list[tuple[str, str]] | None = None
        self.layout_bytes = 0
        first = self._block_at(0)
        if first and first.kind == LAYOUT:
            self.columns = [tuple(column) for column in self.json(first)["columns"]]
            self.layout_bytes = first.end_bytes
            self._types = [(name, np.dtype("<" + code)) for name, code in self.columns]
            self._begin_bytes = max(begin_bytes, first.end_bytes)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._file.close()

    def blocks(self, until_bytes: int | None = None) -> Iterator[Block]:
        """All blocks behind the layout, up to the last whole one before until_bytes."""
        at = self._begin_bytes
        while self.columns and (block := self._block_at(at)):
            if until_bytes is not None and block.end_bytes > until_bytes:
                return
            yield block
            at = block.end_bytes

    def rows(self, until_bytes: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """The columns of each block of rows."""
        for block in self.blocks(until_bytes):
            if block.kind == ROWS:
                yield split_rows(self._types, block.rows, self._payload(block))

    def json(self, block: Block) -> dict:
        """What a note or an end block says."""
        return json.loads(self._payload(block))

    def _block_at(self, at):
        self._file.seek(at)
        header = self._file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, kind, _, rows, _, length = _HEADER.unpack(header)
        end = at + _HEADER.size + length
        if magic != MAGIC or length > MAX_PAYLOAD_BYTES or end > self._file.seek(0, 2):
            return None
        return Block(kind, rows, at + _HEADER.size, end)

    def _payload(self, block):
        self._file.seek(block.payload_at)
        return self._file.read(block.end_bytes - block.payload_at)
