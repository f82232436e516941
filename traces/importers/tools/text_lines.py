"""Splits blocks of text lines into fields, and reads numbers from them, for whole blocks at once.

For event texts, whose lines have differing fields, so that they are no table: a field is a position in the block, and
a number is read from the eight-byte words around it.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.text_table import line_blocks

_WORD = 8
# Numbers of up to 24 digits are read as words before a position.
_PADDING = b" " * 32
_ZEROS = np.uint64(0x3030303030303030)
_FEW_TEXTS = 32
_LONG_TEXT_BYTES = 256
# Masks of the first 0 to 8 bytes of a little-endian word.
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
_MOST_GROUPS = 7
_IS_GROUPING = np.isin(np.arange(256), list(b".,' "))
# Greatest uint64, in parts of 8 digits.
_TOP, _BELOW_TOP = 1844, 6744073709551615


class Lines:
    """The lines of a block and their fields, which blanks delimit.

    block: whole lines. first_number: of its first line. A field is a pair of arrays, start and end, with a position in
    `text` for each line. Where a line lacks the field, start equals end.
    """

    def __init__(self, block: bytes, first_number: int):
        self._padded = _PADDING + block + _PADDING
        self.text = np.frombuffer(self._padded, np.uint8)
        self._words = np.ndarray((len(self.text) - _WORD + 1,), "<u8", self._padded, strides=(1,))
        between = self.text <= ord(" ")
        edges = np.flatnonzero(between[1:] != between[:-1]) + 1
        # The last entry is the field that lines without one have.
        self.starts = np.append(edges[0::2], 0)
        self.ends = np.append(edges[1::2], 0)
        breaks = np.flatnonzero(self.text == ord("\n"))
        self.begins = np.concatenate([[len(_PADDING)], breaks[:-1] + 1]) if len(breaks) else breaks
        self.breaks = breaks
        self.first = np.searchsorted(self.starts[:-1], self.begins)
        self.count = np.searchsorted(self.starts[:-1], breaks) - self.first
        self.numbers = np.arange(first_number, first_number + len(breaks))

    def __len__(self) -> int:
        return len(self.breaks)

    def field(self, index: int | np.ndarray, at: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of a field of each line, or of the lines with the indexes `at`.

        index: one for all lines, or one for each; a negative number counts from the last field.
        """
        first, count = (self.first, self.count) if at is None else (self.first[at], self.count[at])
        place = np.where(index < 0, count + index, index) if isinstance(index, np.ndarray) or index < 0 else index
        token = np.where((place >= 0) & (place < count), first + place, len(self.starts) - 1)
        return self.starts[token], self.ends[token]

    def byte(self, positions: np.ndarray) -> np.ndarray:
        """The byte at each position."""
        found: np.ndarray = self.text[positions]
        return found

    def integers(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unsigned decimal numbers as uint64, and where they are valid: 1 to 20 digits, below 2^64."""
        length = ends - starts
        low, valid = self._digits(ends, length)
        valid &= (length > 0) & (length <= 20)
        if (length > _WORD).any():
            middle, middle_valid = self._digits(ends - _WORD, length - _WORD)
            low = middle * np.uint64(10**8) + low
            valid &= middle_valid
        if (length > 2 * _WORD).any():
            high, high_valid = self._digits(ends - 2 * _WORD, length - 2 * _WORD)
            valid &= high_valid & ((high < _TOP) | ((high == _TOP) & (low <= _BELOW_TOP)))
            low = high * np.uint64(10**16) + low
        return np.where(valid, low, np.uint64(0)), valid

    def scaled_decimals(self, starts: np.ndarray, ends: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray]:
        """Decimal numbers in units of 10^-places as int64, and where they are valid. At most `places` digits follow the
        point.
        """
        return self._decimals(starts, ends, b".", places, self.integers)

    def grouped_integers(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unsigned numbers with or without separators of thousands, as in 16.384, and where they are valid."""
        value, valid = np.zeros(len(starts), np.uint64), ends > starts
        end, scale = ends, np.uint64(1)
        going = valid
        for _group in range(_MOST_GROUPS):
            at = end - 4
            grouped = going & (at > starts) & _IS_GROUPING[self.text[at]]
            part, part_valid = self.integers(np.where(grouped, at + 1, starts), end)
            valid &= ~going | part_valid & ((end - starts <= 18) | grouped)
            value = np.where(going, value + part * scale, value)
            end, going, scale = np.where(grouped, at, end), grouped, scale * np.uint64(1000)
            if not going.any():
                break
        return value, valid & ~going

    def grouped_decimals(self, starts: np.ndarray, ends: np.ndarray, point: bytes, places: int
                         ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers as 1.079,943800 in units of 10^-places as int64, and where they are valid. point: of the fraction.
        """
        return self._decimals(starts, ends, point, places, self.grouped_integers)

    def hexadecimals(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers as 0x1F in uint64, and where they are valid: 0x and 1 to 16 digits."""
        length = ends - starts - 2
        low, valid = self._hex_digits(ends, length)
        high, high_valid = self._hex_digits(ends - _WORD, length - _WORD)
        valid &= high_valid & (length >= 1) & (length <= 2 * _WORD)
        valid &= (self.text[starts] == ord("0")) & (self.text[starts + 1] == ord("x"))
        return np.where(valid, high << np.uint64(32) | low, np.uint64(0)), valid

    def words(self, starts: np.ndarray, ends: np.ndarray, count: int) -> list[np.ndarray]:
        """The first 8 * count bytes of each field as little-endian words, filled up with zeros."""
        words = []
        for at in range(count):
            begin = np.minimum(starts + at * _WORD, len(self._words) - 1)
            words.append(self._words[begin] & _MASKS[np.clip(ends - begin, 0, _WORD)])
        return words

    def mapped(self, starts: np.ndarray, ends: np.ndarray, value_of: Callable[[bytes], int]) -> np.ndarray:
        """value_of(text) of each field as int64; it is called once per distinct text."""
        key = self.keys(starts, ends)
        result = np.empty(len(starts), np.int64)
        left = np.arange(len(starts))
        # Most fields have a few distinct texts: comparing all with each is faster than sorting them.
        for _ in range(_FEW_TEXTS):
            if not len(left):
                return result
            at = left[0]
            same = key[left] == key[at]
            result[left[same]] = value_of(self.slice(starts[at], ends[at]))
            left = left[~same]
        _, first, inverse = np.unique(key[left], return_index=True, return_inverse=True)
        values = [value_of(self.slice(starts[at], ends[at])) for at in left[first]]
        result[left] = np.array(values, np.int64)[inverse]
        return result

    def texts(self, starts: np.ndarray, ends: np.ndarray, value_of: Callable[[bytes], bytes] = lambda text: text
              ) -> pa.DictionaryArray:
        """value_of(text) of each field as a dictionary array of bytes."""
        numbers: dict[bytes, int] = {}
        codes = self.mapped(starts, ends, lambda text: numbers.setdefault(value_of(text), len(numbers)))
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(numbers), pa.binary()))

    def keys(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """A hash (uint64) of the text of each field."""
        length = ends - starts
        key: np.ndarray = length.astype(np.uint64)
        for word in self.words(starts, ends, (min(int(length.max(initial=0)), _LONG_TEXT_BYTES) + _WORD - 1) // _WORD):
            key = (key ^ word) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        for at in np.flatnonzero(length > _LONG_TEXT_BYTES).tolist():
            key[at] ^= np.uint64(hash(self.slice(starts[at], ends[at])) & 0xFFFFFFFFFFFFFFFF)
        return key

    def slice(self, start: int, end: int) -> bytes:
        return self._padded[start:end]

    def line(self, index: int) -> bytes:
        """The text of a line, without its end."""
        return self._padded[self.begins[index]:self.breaks[index]]

    def account_for(self, mask: np.ndarray, count: Callable[..., None], reason: str) -> None:
        """Report the lines of a mask by `count`: Account.reject or Account.ignore."""
        number = int(np.count_nonzero(mask))
        if number:
            first = int(np.argmax(mask))
            count(reason, int(self.numbers[first]), self.line(first), number)

    def _decimals(self, starts: np.ndarray, ends: np.ndarray, point: bytes, places: int,
                  integers: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
                  ) -> tuple[np.ndarray, np.ndarray]:
        at = np.full(len(starts), -1)
        for behind in range(places, -1, -1):
            place = ends - 1 - behind
            at = np.where((at < 0) & (place > starts) & (self.text[place] == ord(point)), place, at)
            if (at >= 0).all():
                break
        digits = np.where(at >= 0, ends - 1 - at, 0)
        whole, valid = integers(starts, np.where(at >= 0, at, ends))
        fraction, fraction_valid = self.integers(np.where(digits > 0, at + 1, 0), np.where(digits > 0, ends, 0))
        valid &= (fraction_valid | (digits == 0)) & (whole < (1 << 62) // 10**places)
        scale = np.uint64(10) ** (places - digits).astype(np.uint64)
        value = np.where(valid, whole * np.uint64(10**places) + fraction * scale, np.uint64(0))
        return value.astype(np.int64), valid

    def _digits(self, ends: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the last 8 digits before `ends`, or fewer; of length 0 or less: 0."""
        skipped = _MASKS[np.clip(_WORD - length, 0, _WORD)]
        word = (self._words[ends - _WORD] & ~skipped) | (_ZEROS & skipped)
        digits = word - _ZEROS
        valid = ((digits + np.uint64(0x7676767676767676) | digits) & np.uint64(0x8080808080808080)) == 0
        # Neighbors are joined: first to numbers of two digits, then of eight.
        pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
        mask = np.uint64(0x000000FF000000FF)
        value = ((pairs & mask) * np.uint64(0x000F424000000064)
                 + ((pairs >> np.uint64(16)) & mask) * np.uint64(0x0000271000000001)) >> np.uint64(32)
        return value, valid

    def _hex_digits(self, ends: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the last 8 hexadecimal digits before `ends`, or fewer; of length 0 or less: 0."""
        skipped = _MASKS[np.clip(_WORD - length, 0, _WORD)]
        word = (self._words[ends - _WORD] & ~skipped) | (_ZEROS & skipped)
        # The top bit of each byte: whether it is at least the first, and not above the last of a range.
        lower = word | np.uint64(0x2020202020202020)
        digit = word + np.uint64(0x5050505050505050) & ~(word + np.uint64(0x4646464646464646))
        letter = lower + np.uint64(0x1F1F1F1F1F1F1F1F) & ~(lower + np.uint64(0x1919191919191919))
        top = np.uint64(0x8080808080808080)
        valid = ((word & top) == 0) & (((digit | letter) & top) == top)
        is_letter = word >> np.uint64(6) & np.uint64(0x0101010101010101)
        value = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) + np.uint64(9) * is_letter
        value = (value << np.uint64(4) | value >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
        value = (value << np.uint64(8) | value >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
        return (value << np.uint64(16) | value >> np.uint64(32)) & np.uint64(0xFFFFFFFF), valid


class TableLines(Lines):
    """Lines of fields that a single `separator` delimits, as in CSV. Fields are without blanks and quotes around them.

    A separator between quotes is text.
    """

    def __init__(self, block: bytes, first_number: int, separator: bytes):
        super().__init__(block, first_number)
        self._word_starts, self._word_ends = self.starts, self.ends
        is_blank = self.count == 0
        ends = (self.text == ord(separator)) | (self.text == ord("\n"))
        if b'"' in block:
            quoted = np.bitwise_xor.accumulate(self.text == ord('"'))
            ends &= ~quoted | (self.text == ord("\n"))
        # Every field ends at a separator or at the end of its line.
        self.ends = np.append(np.flatnonzero(ends), 0)
        self.starts = np.concatenate([self.begins[:1], self.ends[:-2] + 1, [0]]) if len(self) else np.zeros(1, np.int64)
        last = np.searchsorted(self.ends[:-1], self.breaks)
        self.count = np.diff(last, prepend=-1)
        self.first = last - self.count + 1
        self.count = np.where(is_blank, 0, self.count)

    def field(self, index: int | np.ndarray, at: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        starts, ends = self._without_blanks(*super().field(index, at))
        quoted = (ends - starts >= 2) & (self.byte(starts) == ord('"')) & (self.byte(ends - 1) == ord('"'))
        if quoted.any():
            starts, ends = self._without_blanks(starts + quoted, ends - quoted)
        return starts, ends

    def _without_blanks(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        padded = (ends > starts) & ((self.byte(starts) <= ord(" ")) | (self.byte(ends - 1) <= ord(" ")))
        if not padded.any():
            return starts, ends
        words = len(self._word_starts) - 1
        first = np.searchsorted(self._word_starts[:-1], starts)
        inside = self.byte(starts) > ord(" ")
        begin = np.where(inside, starts, self._word_starts[np.minimum(first, words - 1)])
        last = np.searchsorted(self._word_ends[:-1], ends, "right") - 1
        end = np.where(self.byte(ends - 1) > ord(" "), ends, self._word_ends[np.maximum(last, 0)])
        # The first word after a field of blanks only begins behind the field, and may end there too.
        blank = padded & ((begin >= ends) | (end <= begin))
        return np.where(padded, np.where(blank, starts, begin), starts), \
            np.where(padded, np.where(blank, starts, end), ends)


def blocks_of_lines(source: SourceFile, account: Account) -> Iterator[Lines]:
    """The lines of a file, whose fields blanks delimit, block by block."""
    for number, block in _numbered(source, account):
        yield Lines(block, number)


def blocks_of_table(source: SourceFile, account: Account, separator: bytes,
                    prepare: Callable[[bytes], bytes] = lambda block: block) -> Iterator[TableLines]:
    """The lines of a file, whose fields a separator delimits, block by block. prepare: changes the text of a block."""
    for number, block in _numbered(source, account):
        yield TableLines(prepare(block), number, separator)


def _numbered(source: SourceFile, account: Account) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines with the number of their first line."""
    number = 1
    for block in line_blocks(source, account):
        yield number, block.removeprefix(b"\xef\xbb\xbf") if number == 1 else block
        number += block.count(b"\n")
