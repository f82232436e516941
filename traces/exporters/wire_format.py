"""Messages of Protocol Buffers for many rows at once; the official library encodes one message at a time.

The encoding is that of https://protobuf.dev/programming-guides/encoding/. A part of a message is a matrix with the
bytes of each row, and which of them the row has: rows of one message differ in length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blkreel.common.printable import storable

VARINT, FIXED64, BYTES = 0, 1, 2
_VARINT_BITS = 7


@dataclass(frozen=True)
class Part:
    """data: uint8 (rows, width). used: bool, same shape."""

    data: np.ndarray
    used: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each row."""
        lengths: np.ndarray = np.count_nonzero(self.used, axis=1)
        return lengths

    def where(self, rows: np.ndarray) -> "Part":
        """Empty for the rows that are not in the mask."""
        return Part(self.data, self.used & rows[:, None])

    def tobytes(self) -> bytes:
        """The rows one after another."""
        content: bytes = self.data[self.used].tobytes()
        return content


def constant(content: bytes, rows: int) -> Part:
    """The same bytes in each row."""
    data = np.frombuffer(content, np.uint8)
    return Part(np.broadcast_to(data, (rows, len(data))), np.ones((rows, len(data)), bool))


def joined(*parts: Part) -> Part:
    """The parts of each row one after another."""
    return Part(np.hstack([part.data for part in parts]), np.hstack([part.used for part in parts]))


def varints(values: np.ndarray) -> Part:
    """Integers in 7 bits a byte; negative ones are their 64-bit two's complement."""
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    width = max(1, -(-int(bits.max(initial=0)).bit_length() // _VARINT_BITS))
    data, used = np.empty((len(bits), width), np.uint8), np.empty((len(bits), width), bool)
    goes_on = np.ones(len(bits), bool)
    for at in range(width):
        used[:, at] = goes_on
        low = (bits & np.uint64(0x7F)).astype(np.uint8)
        bits = bits >> np.uint64(_VARINT_BITS)
        goes_on = bits > 0
        data[:, at] = low | goes_on.astype(np.uint8) << np.uint8(_VARINT_BITS)
    return Part(data, used)


def varint(value: int) -> bytes:
    return varints(np.array([value])).tobytes()


def tag(number: int, kind: int) -> bytes:
    """What stands before the value of a field. number: of the field. kind: VARINT, FIXED64 or BYTES."""
    return varint(number << 3 | kind)


def integers(number: int, values: np.ndarray) -> Part:
    """A field with an integer."""
    return joined(constant(tag(number, VARINT), len(values)), varints(values))


def messages(number: int, *parts: Part) -> Part:
    """A field with a message, or with bytes, that consists of the parts."""
    content = joined(*parts)
    return joined(constant(tag(number, BYTES), len(content.data)), varints(content.lengths), content)


def texts(number: int, words: Sequence[str], which: np.ndarray) -> Part:
    """A field with one of several strings. which: index of the word for each row."""
    encoded = [storable(word).encode() for word in words]
    width = max(map(len, encoded), default=0)
    data = np.frombuffer(b"".join(word.ljust(width, b"\0") for word in encoded), np.uint8)
    data = data.reshape(len(encoded), width)
    used = np.arange(width) < np.array([len(word) for word in encoded])[:, None]
    return messages(number, Part(data[which], used[which]))


def numbers_of_rows(number: int, rows: int, row: np.ndarray, rank: np.ndarray, values: np.ndarray) -> Part:
    """A repeated field with 64-bit numbers. Each value belongs to a row, in which it has a rank from 0."""
    head = tag(number, FIXED64)
    width, count = len(head) + 8, int(rank.max(initial=-1)) + 1
    data, used = np.zeros((rows, count, width), np.uint8), np.zeros((rows, count, width), bool)
    data[row, rank, :len(head)] = np.frombuffer(head, np.uint8)
    data[row, rank, len(head):] = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)
    used[row, rank] = True
    return Part(data.reshape(rows, -1), used.reshape(rows, -1))


def integer(number: int, value: int) -> bytes:
    """A field with an integer, of a single message."""
    return tag(number, VARINT) + varint(value)


def content(number: int, value: bytes | str) -> bytes:
    """A field with a message, bytes or a string, of a single message."""
    encoded = storable(value).encode() if isinstance(value, str) else value
    return tag(number, BYTES) + varint(len(encoded)) + encoded
