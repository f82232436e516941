"""Reads a text table block by block: lines of delimited fields become columns; invalid lines are counted.

pyarrow parses whole blocks. A block with any invalid line is checked line by line; its valid lines are parsed again.
"""

import csv
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from .account import Account
from .source_file import SourceFile
from .source_format import Batch, ImportOptions, LinePattern, SourceFormat

BLOCK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
# Not above 2^63, so that pyarrow's int64 takes them.
_DIGITS = rb"(?:\d{1,18}|[0-8]\d{18}|9[01]\d{17}|92[01]\d{16})"
_DATETIME = rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_KINDS = {"datetime": _DATETIME,
          "int": rb"-?" + _DIGITS, "decimal": rb"-?\d{1,18}(?:[.,]\d{0,18})?", "text": rb"[^\r\n]*?",
          "skip": rb"[^\r\n]*?"}
_WIDE_PLACES = 18
# How decimals are parsed: without fractions, with the places of their unit, or with more, which are rounded.
_Decimals = Literal["integer", "unit", "wide"]
_BLANKS = re.compile(rb"[ \t]+")


@dataclass(frozen=True)
class Column:
    """A field of each line.

    kind: `int` gives int64; `decimal` gives int64, the value times 10^places, rounded; `text` gives a dictionary array
    of bytes; `datetime` gives int64 ns since 1970 of an ISO 8601 text; `skip` is not read. empty: value of an empty
    number; None: such a line is rejected.
    """

    name: str
    kind: Literal["int", "decimal", "text", "datetime", "skip"]
    places: int = 0
    empty: int | None = None


@dataclass
class Rows:
    """Valid lines. columns: int64 arrays and, of text, pyarrow arrays of bytes. positions: their line numbers."""

    columns: dict[str, Any]
    positions: np.ndarray

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]


@dataclass
class TextTable:
    """The layout of a text table.

    delimiter: a single byte, or None for runs of blanks. extra_fields: whether lines may have more fields.
    decimal_point: of decimals. quoted: whether fields may be in double quotes. is_header: whether a line is a header,
    which may be the first line only. note: the reason to ignore a line that is no record, "" to skip it uncounted,
    None to reject it; called with line number and line, for invalid lines only.
    """

    columns: Sequence[Column]
    delimiter: bytes | None = b","
    extra_fields: bool = False
    decimal_point: str = "."
    quoted: bool = False
    is_header: Callable[[bytes], bool] = lambda line: False
    note: Callable[[int, bytes], str | None] = lambda number, line: None
    _fractions: bool = field(default=False, init=False)
    _wide: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._separator = self.delimiter or b" "
        fields = []
        for column in self.columns:
            text = _KINDS[column.kind]
            if column.kind in ("text", "skip"):
                text = rb"[^\r\n" + re.escape(self._separator) + rb"]*"
            elif column.empty is not None:
                text = rb"(?:" + text + rb")?"
            fields.append(rb"[ \t]*" + text + rb"[ \t]*" if self.delimiter else text)
        self._line = re.compile(re.escape(self._separator).join(fields)
                                + (rb"(?:" + re.escape(self._separator) + rb"[^\r\n]*)?" if self.extra_fields else b""))
        self._field = {column.name: re.compile(text) for column, text in zip(self.columns, fields, strict=True)}

    def rows(self, source: SourceFile, account: Account) -> Iterator[Rows]:
        """The valid lines of a file, in order. Counts all records that it reads, and rejects invalid lines."""
        number = 1
        for block in line_blocks(source, account):
            if number == 1:
                block = block.removeprefix(_BOM)
                first = block[:block.find(b"\n")]
                if self.is_header(first.rstrip(b"\r")):
                    block, number = block[len(first) + 1:], 2
            lines = count_lines(block)
            if block:
                yield from self._parsed(block, lines, number, account)
            number += lines

    def _parsed(self, block: bytes, lines: int, number: int, account: Account) -> Iterator[Rows]:
        columns = self._read(self._even(block), lines)
        if columns is not None:
            account.read(lines)
            yield Rows(columns, np.arange(number, number + lines))
            return
        valid: list[bytes] = []
        positions: list[int] = []
        for at, raw in enumerate(block.split(b"\n")[:lines], number):
            line = self._even(raw.rstrip(b"\r"))
            if self._is_valid(line):
                if self.extra_fields and not self.quoted:
                    line = self._separator.join(line.split(self._separator)[:len(self.columns)])
                valid.append(line)
                positions.append(at)
            elif line.strip():
                self._refuse(at, raw, line, account)
        yield from self._halves(valid, np.array(positions, np.int64), account)

    def _halves(self, lines: list[bytes], positions: np.ndarray, account: Account) -> Iterator[Rows]:
        """Lines that look valid; pyarrow may still refuse some, such as too many digits."""
        if not lines:
            return
        columns = self._read(b"\n".join(lines) + b"\n", len(lines))
        if columns is not None:
            account.read(len(lines))
            yield Rows(columns, positions)
        elif len(lines) == 1:
            account.read(1)
            account.reject("a number is out of range", int(positions[0]), lines[0])
        else:
            half = len(lines) // 2
            yield from self._halves(lines[:half], positions[:half], account)
            yield from self._halves(lines[half:], positions[half:], account)

    def _refuse(self, number: int, raw: bytes, line: bytes, account: Account) -> None:
        reason = self.note(number, raw)
        if reason == "":
            return
        account.read(1)
        if reason is not None:
            account.ignore(reason, number, raw)
        else:
            account.reject(self._fault(line), number, raw)

    def _is_valid(self, line: bytes) -> bool:
        if not self.quoted:
            return self._line.fullmatch(line) is not None
        fields = self._fields(line)
        return (len(fields) >= len(self.columns) and (self.extra_fields or len(fields) == len(self.columns))
                and all(self._field[column.name].fullmatch(text)
                        for column, text in zip(self.columns, fields, strict=False) if column.kind != "text"))

    def _fields(self, line: bytes) -> list[bytes]:
        if not self.quoted:
            return line.split(self._separator)
        try:
            words = next(csv.reader([line.decode("latin-1")], delimiter=self._separator.decode()), [])
        except csv.Error:
            return []
        return [word.encode("latin-1") for word in words]

    def _fault(self, line: bytes) -> str:
        """Why a line is invalid."""
        fields = self._fields(line)
        if len(fields) < len(self.columns) or len(fields) > len(self.columns) and not self.extra_fields:
            return f"not {len(self.columns)} fields"
        for column, text in zip(self.columns, fields, strict=False):
            if not self._field[column.name].fullmatch(text):
                if not text.strip():
                    return f"{column.name} is empty"
                digits = text.strip().lstrip(b"-").isdigit()
                return f"{column.name} is out of range" if digits else f"{column.name} is not a number"
        return "a control character"

    def _even(self, text: bytes) -> bytes:
        """Text with single blanks between fields, if blanks delimit."""
        if self.delimiter is not None:
            return text
        if text[:1] == b" " or _has_uneven_blanks(text):
            text = _BLANKS.sub(b" ", text).replace(b"\n ", b"\n").replace(b" \n", b"\n").replace(b" \r", b"\r")
            text = text.strip(b" ")
        return text

    def _read(self, block: bytes, lines: int) -> dict[str, Any] | None:
        """The columns of a block, or None if any line is invalid."""
        names = [column.name if column.kind != "skip" else f"skip {at}" for at, column in enumerate(self.columns)]
        if self.extra_fields:
            count = block[:block.find(b"\n")].count(self._separator) + 1
            names += [f"extra {at}" for at in range(len(names), count)]
        wanted = [column for column in self.columns if column.kind != "skip"]
        if self._has_hexadecimal(block, names, wanted):
            return None
        # Where no decimal has a fraction, integers are parsed three times as fast.
        table = self._table(block, names, _types(wanted, "integer")) if not self._fractions else None
        if table is None:
            table = self._table(block, names, _types(wanted, "wide" if self._wide else "unit"))
            self._fractions |= table is not None
        if table is None and not self._wide and any(column.kind == "decimal" for column in wanted):
            # More digits than the unit has, as of floats: from here on they are read and rounded.
            table = self._table(block, names, _types(wanted, "wide"))
            self._wide = table is not None
        if table is None or table.num_rows != lines:
            return None
        columns: dict[str, Any] = {}
        for column in wanted:
            values = _numbers(table[column.name], column) if column.kind != "text" else _text(table[column.name])
            if values is None:
                return None
            columns[column.name] = values
        return columns

    def _has_hexadecimal(self, block: bytes, names: list[str], wanted: list[Column]) -> bool:
        """Whether a number is hexadecimal, which Arrow takes as an integer."""
        if not any(letter in block and b"0" + letter in block for letter in (b"x", b"X")):
            return False  # most blocks
        numbers = {column.name: pa.binary() for column in wanted if column.kind in ("int", "decimal")}
        table = self._table(block, names, numbers) if numbers else None
        return table is not None and any(
            pc.any(pc.match_substring(table[name], "x", ignore_case=True)).as_py() for name in numbers)

    def _table(self, block: bytes, names: list[str], types: dict[str, pa.DataType]) -> pa.Table | None:
        try:
            return pacsv.read_csv(
                pa.BufferReader(_arrow_copy(block)),
                read_options=pacsv.ReadOptions(column_names=names, block_size=1 << 20),
                parse_options=pacsv.ParseOptions(delimiter=self._separator.decode(),
                                                 quote_char='"' if self.quoted else False),
                convert_options=pacsv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=[""],
                    strings_can_be_null=False, check_utf8=False, decimal_point=self.decimal_point))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None


def _arrow_copy(block: bytes) -> pa.Buffer:
    """The bytes in memory of Arrow. A worker thread of Arrow may be the last to release what it has read; for an object
    of Python it then waits for the interpreter, and where that is about to exit, the process ends by SIGABRT."""
    buffer = pa.allocate_buffer(len(block))
    memoryview(buffer).cast("B")[:] = block
    return buffer


def _has_uneven_blanks(text: bytes) -> bool:
    """Whether there is a tab, or a blank next to a blank or a line end. numpy finds pairs faster than `in` does."""
    codes = np.frombuffer(text, np.uint8)
    blank = codes == ord(" ")
    white = blank | (codes == ord("\n")) | (codes == ord("\r"))
    return bool((blank[:-1] & white[1:]).any() or (white[:-1] & blank[1:]).any() or (codes == ord("\t")).any())


class TextFormat(SourceFormat):
    """A format with one record a line. pattern: of its lines; the other attributes are those of TextTable."""

    pattern: ClassVar[LinePattern]
    columns: ClassVar[Sequence[Column]]
    delimiter: ClassVar[bytes | None] = b","
    extra_fields: ClassVar[bool] = False

    def likeness(self, head: bytes) -> float:
        return self.pattern.likeness(head)

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        table = TextTable(self.columns, self.delimiter, self.extra_fields, is_header=self.pattern.is_header)
        for rows in table.rows(source, account):
            yield self.batch(rows, account, options)

    @abstractmethod
    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        """Valid lines as records."""


def _types(columns: Sequence[Column], decimals: _Decimals) -> dict[str, pa.DataType]:
    return {column.name: _type(column, decimals) for column in columns}


def _type(column: Column, decimals: _Decimals) -> pa.DataType:
    if column.kind == "int" or column.kind == "decimal" and decimals == "integer":
        return pa.int64()
    if column.kind == "datetime":
        return pa.timestamp("ns")
    if column.kind == "decimal":
        return pa.decimal128(38, _WIDE_PLACES if decimals == "wide" else column.places)
    return pa.dictionary(pa.int32(), pa.binary())


def _text(chunked: pa.ChunkedArray) -> pa.DictionaryArray:
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return chunked.unify_dictionaries().combine_chunks()


def _numbers(chunked: pa.ChunkedArray, column: Column) -> np.ndarray | None:
    """int64 values; None if an empty one is not allowed."""
    if chunked.null_count:
        if column.empty is None:
            return None
        chunked = chunked.fill_null(pa.scalar(0, chunked.type)) if column.empty == 0 else chunked
    array = chunked.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_timestamp(array.type):
        values = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    elif pa.types.is_decimal(array.type):
        values = _decimal_units(array, column.places)
        if values is None:
            return None
    else:
        values = (array.fill_null(0) if missing is not None else array).to_numpy(zero_copy_only=False)
        if column.kind == "decimal" and column.places:
            most = np.iinfo(np.int64).max // 10**column.places
            if len(values) and (values.min() < -most or values.max() > most):
                return None
            values = values * 10**column.places
    if missing is not None:
        values = values.copy()
        values[missing] = column.empty
    return np.asarray(values)


def _decimal_units(array: pa.Array, places: int) -> np.ndarray | None:
    """A decimal128 array as int64 in units of 10^-places; None if one exceeds int64."""
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset:array.offset + len(array)]
    low, high = words[:, 0], words[:, 1]
    if array.type.scale == places:
        if np.any(high != low >> 63):
            return None
        return low.copy()
    return _decimal_units(pc.round(array, places).cast(pa.decimal128(38, places)), places)


def count_lines(block: bytes) -> int:
    """The number of line ends. numpy counts them several times faster than `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


def line_blocks(source: SourceFile, account: Account) -> Iterator[bytes]:
    """Blocks of whole lines, each with its line end. A line longer than a block is rejected."""
    rest, number = b"", 1
    while data := source.read(BLOCK_BYTES - len(rest) if len(rest) < BLOCK_BYTES else BLOCK_BYTES):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) >= BLOCK_BYTES:
            account.read(1)
            account.reject(f"a line is longer than {BLOCK_BYTES >> 20} MiB", number, data[:100])
            while data and b"\n" not in data:
                data = source.read(BLOCK_BYTES)
            cut = data.find(b"\n") + 1
            # The lines keep their numbers: the long line becomes an empty one.
            data, cut = (b"\n" + data[cut:], 1) if data else (b"", 0)
        if cut:
            block = data[:cut]
            number += count_lines(block)
            yield block
        rest = data[cut:]
    if rest:
        if rest.strip(b"\r\n \t\x1a"):
            account.warn(f"{source.path}: the last line has no line end: its record may be cut")
        yield rest + b"\n"
