"""Fields of text lines and the numbers in them, for a block of lines at once, in native code.

For event texts, whose lines have differing fields, so that they are no table. A field is a position in the block.
native/text_lines.h specifies the functions; calls release the GIL.
"""

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from blkreel.common.system import native_library
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.text_table import TextSource, line_blocks

# Bytes next to a field may be read where a line has none.
_PADDING = b" " * 8
_LIBRARY = Path(__file__).with_name("libblkreel-text-lines.so")
_BY_BLANKS = b""
_SEED = int.from_bytes(os.urandom(8), "little")

Fields = tuple[np.ndarray, np.ndarray]


class _Split(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("starts", "ends", "first", "count", "begins", "breaks")]


_P, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "count": (None, [_P, _SIZE, _SIZE, _INT, ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE)]),
    "split": (_SIZE, [_P, _SIZE, _SIZE, _INT, ctypes.POINTER(_Split)]),
    "field": (None, [ctypes.POINTER(_Split), _P, _SIZE, _P, ctypes.c_int64, _P, _P]),
    "integers": (None, [_P, _P, _P, _SIZE, _P, _P]),
    "grouped_integers": (None, [_P, _P, _P, _SIZE, _P, _P]),
    "hexadecimals": (None, [_P, _P, _P, _SIZE, _P, _P]),
    "decimals": (None, [_P, _P, _P, _SIZE, ctypes.c_uint8, _INT, _INT, _P, _P]),
    "codes": (ctypes.c_int64, [_P, _P, _P, _SIZE, ctypes.c_uint64, _P, _P]),
}


class Lines:
    """The lines of a block and their fields, which blanks delimit, or a single `separator`, as in CSV.

    Between separators fields are without blanks and quotes around them; a separator between quotes is text, up to the
    end of the line. block: whole lines. first_number: of its first line. A field is a pair of int64 arrays, start and
    end, with a position in `text` for each line. Where a line lacks the field, both are 0. count: int64, fields of each
    line.
    """

    def __init__(self, block: bytes, first_number: int, separator: bytes = _BY_BLANKS):
        native = _native()
        self._padded = _PADDING + block + _PADDING
        self.text = np.frombuffer(self._padded, np.uint8)
        span = (_address(self.text), len(_PADDING), len(_PADDING) + len(block), ord(separator) if separator else -1)
        line_count, field_count = _SIZE(), _SIZE()
        native.count(*span, line_count, field_count)
        self._starts, self._ends = np.empty((2, field_count.value), np.int64)
        self._first, self.count, self._begins, self._breaks = np.empty((4, line_count.value), np.int64)
        self._split = _Split(*map(_address, (self._starts, self._ends, self._first, self.count, self._begins,
                                             self._breaks)))
        native.split(*span, self._split)
        self.numbers = np.arange(first_number, first_number + len(self))

    def __len__(self) -> int:
        return len(self.count)

    def field(self, index: int | np.ndarray, at: np.ndarray | None = None) -> Fields:
        """Start and end of a field of each line, or of the lines with the indexes `at`.

        index: one for all lines, or one for each; a negative number counts from the last field.
        """
        at = None if at is None else _int64(at)
        rows = len(self) if at is None else len(at)
        indexes = _int64(np.broadcast_to(index, rows)) if isinstance(index, np.ndarray) else None
        starts, ends = np.empty((2, rows), np.int64)
        _native().field(self._split, _address(at), rows, _address(indexes), 0 if indexes is not None else index,
                        _address(starts), _address(ends))
        return starts, ends

    def byte(self, positions: np.ndarray) -> np.ndarray:
        byte_values: np.ndarray = self.text[positions]
        return byte_values

    def integers(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unsigned decimal numbers as uint64, and where they are valid: 1 to 20 digits, below 2^64."""
        return self._numbers(_native().integers, np.uint64, starts, ends)

    def hexadecimals(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers as 0x1F in uint64, and where they are valid: 0x and 1 to 16 digits."""
        return self._numbers(_native().hexadecimals, np.uint64, starts, ends)

    def scaled_decimals(self, starts: np.ndarray, ends: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray]:
        """Decimal numbers in units of 10^-places as int64, and where they are valid. At most `places` digits follow the
        point.
        """
        return self._numbers(_native().decimals, np.int64, starts, ends, ord("."), places, False)

    def grouped_integers(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unsigned numbers with or without separators of thousands, as in 16.384, as uint64, and where they are valid.
        """
        return self._numbers(_native().grouped_integers, np.uint64, starts, ends)

    def grouped_decimals(self, starts: np.ndarray, ends: np.ndarray, point: bytes, places: int
                         ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers as 1.079,943800 in units of 10^-places as int64, and where they are valid. point: of the fraction.
        """
        return self._numbers(_native().decimals, np.int64, starts, ends, ord(point), places, True)

    def mapped(self, starts: np.ndarray, ends: np.ndarray, value_of: Callable[[bytes], int]) -> np.ndarray:
        """value_of(text) of each field as int64; it is called once per distinct text, in the order of appearance."""
        codes, firsts = self.codes(starts, ends)
        values = [value_of(self.slice(starts[at], ends[at])) for at in firsts.tolist()]
        field_values: np.ndarray = np.array(values, np.int64)[codes]
        return field_values

    def texts(self, starts: np.ndarray, ends: np.ndarray, value_of: Callable[[bytes], bytes] = lambda text: text
              ) -> pa.DictionaryArray:
        """value_of(text) of each field as a dictionary array of bytes."""
        numbers: dict[bytes, int] = {}
        codes = self.mapped(starts, ends, lambda text: numbers.setdefault(value_of(text), len(numbers)))
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(numbers), pa.binary()))

    def codes(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number (int32) of the text of each field, 0 for the first distinct text, and the row in which each
        distinct text appears first.
        """
        codes, firsts = np.empty(len(starts), np.int32), np.empty(len(starts), np.int64)
        starts, ends = _int64(starts), _int64(ends)
        count = _native().codes(_address(self.text), _address(starts), _address(ends), len(starts), _SEED,
                                _address(codes), _address(firsts))
        if count < 0:
            raise MemoryError
        return codes, firsts[:count]

    def digits(self, starts: np.ndarray, ends: np.ndarray, most: int, *, at_end: bool = False) -> np.ndarray:
        """The number of digits at the start of each field, or at its end, at most `most`."""
        digits = np.zeros(len(starts), np.int64)
        going = ends > starts
        for _ in range(most):
            going &= self.is_digit(ends - 1 - digits if at_end else starts + digits) & (digits < ends - starts)
            if not going.any():
                break
            digits += going
        return digits

    def is_digit(self, positions: np.ndarray) -> np.ndarray:
        byte = self.byte(positions)
        digit: np.ndarray = (byte >= ord("0")) & (byte <= ord("9"))
        return digit

    def bracketed_number(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, whether it is negative, whether it is valid) of a number in brackets at the end of lines, as [-5]."""
        starts, ends = self.field(-1, at)
        bracketed = (self.byte(starts) == ord("[")) & (self.byte(ends - 1) == ord("]"))
        negative = self.byte(starts + 1) == ord("-")
        value, valid = self.integers(np.where(bracketed, starts + 1 + negative, 0), np.where(bracketed, ends - 1, 0))
        return value, negative, bracketed & valid

    def bracketed_text(self, at: np.ndarray, indexes: Iterable[int | np.ndarray]) -> Fields:
        """From the last field of `indexes` that begins with a bracket to the bracket that ends the line."""
        starts = np.zeros(len(at), np.int64)
        for index in indexes:
            begin, _ = self.field(index, at)
            starts = np.where(self.byte(begin) == ord("["), begin + 1, starts)
        ends = self.field(-1, at)[1] - 1
        has = (starts > 0) & (self.byte(ends) == ord("]")) & (ends > starts)
        return np.where(has, starts, 0), np.where(has, ends, 0)

    def slice(self, start: int, end: int) -> bytes:
        return self._padded[start:end]

    def line(self, index: int) -> bytes:
        """The text of a line, without its end."""
        return self._padded[self._begins[index]:self._breaks[index]]

    def account_for(self, mask: np.ndarray, count: Callable[..., None], reason: str,
                    at: np.ndarray | None = None) -> None:
        """Report the lines of a mask by `count`: Account.reject or Account.ignore. The mask is of all lines, or of
        those with the indexes `at`."""
        number = int(np.count_nonzero(mask))
        if number:
            first = int(np.argmax(mask)) if at is None else int(at[np.argmax(mask)])
            count(reason, int(self.numbers[first]), self.line(first), number)

    def _numbers(self, read: Any, type: type[np.generic], starts: np.ndarray, ends: np.ndarray, *how: int
                 ) -> tuple[np.ndarray, np.ndarray]:
        values, valid = np.empty(len(starts), type), np.empty(len(starts), bool)
        starts, ends = _int64(starts), _int64(ends)
        read(_address(self.text), _address(starts), _address(ends), len(starts), *how, _address(values),
             _address(valid))
        return values, valid


def grouped_integer(text: bytes) -> int:
    """The number in a text with or without separators of thousands of any locale, as in 67,890 or 67 890."""
    return int(b"".join(re.findall(rb"\d", text)))


def blocks_of_lines(source: SourceFile | TextSource, account: Account,
                    prepare: Callable[[bytes], bytes] = lambda block: block,
                    separator: bytes = _BY_BLANKS) -> Iterator[Lines]:
    """The lines of a file block by block. prepare: changes the text of a block. separator: of the fields."""
    number = 1
    for block in line_blocks(source, account):
        yield Lines(prepare(block.removeprefix(b"\xef\xbb\xbf") if number == 1 else block), number, separator)
        number += block.count(b"\n")


def _int64(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int64)


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


@functools.cache
def _native() -> SimpleNamespace:
    """Loaded when the first block is split."""
    return native_library(_LIBRARY, "text_lines", _SIGNATURES)
