"""Reads a text table block by block: lines of delimited fields become columns; invalid lines are counted.

pyarrow's CSV reader takes whole blocks apart and converts them. A block in which that fails is taken apart as text, and
its cells are converted column by column, so that only the lines with an invalid cell are rejected.
"""

import csv
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from blkreel.common.binning import grouped
from blkreel.common.errors import TraceError

from .account import Account
from .source_file import SourceFile
from .source_format import Batch, ImportOptions, LinePattern, SourceFormat

# Arrow takes signals during a read by a handler and a thread of its own, and loses a Ctrl-C at the end of a read.
pa.enable_signal_handlers(False)

BLOCK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
_BLANKS = re.compile(rb"[ \t]+")
_LEARNING_LINES = 100
_EXTENT = ("offset", "length")
_MOST_PLACES = 18  # 20 digits may stand before the point of a decimal128
# What programs write for a missing number.
_NO_VALUE = ["", "-", "nan", "NaN", "NAN", "null", "NULL", "Null", "NA", "N/A", "<NA>", "None", "none", r"\N"]
_NUMBER = r"^[-+]?(?:\d{1,20}(?:\.\d*)?|\.\d+)$"
_WHOLE = r"^[-+]?\d{1,20}(?:\.0*)?$"
_LONG_NUMBER = r"^[-+]?\d+(?:\.\d*)?$"
_EXPONENT = r"^[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})[eE][-+]?\d{1,3}$"
# Only dates that exist, in the years that int64 nanoseconds hold.
_LEAP_YEAR = r"(?:1[7-9]|2[01])(?:0[48]|[2468][048]|[13579][26])|2000"
_DATE = (rf"(?:(?:1[7-9]|2[01])\d\d-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
         rf"|(?:0[13578]|1[02])-31)|(?:{_LEAP_YEAR})-02-29)")
_DATETIME = rf"^{_DATE}[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{{1,9}})?"
_ZONE = r"(?:Z|[-+](?:[01]\d|2[0-3])(?::?[0-5]\d)?)"


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

    delimiter: a single byte, or None for runs of blanks. extra_fields: whether lines may have more fields; most_fields:
    of those that are not empty, 0 for any number. quoted: whether fields may be in double quotes, which end on their
    line. is_header: whether a line is a header, which may be the first line only. skip_lines: lines before it that are
    no records. note: the reason to ignore a line that is no record, "" to skip it uncounted, None to reject it; called
    with line number and line, for invalid lines only.
    is_flush: which texts of the column `op` are flushes, whose `offset` and `length` may be anything.
    has_zones, has_decimal_commas: whether the lines read so far have such times or numbers.
    """

    columns: Sequence[Column]
    delimiter: bytes | None = b","
    extra_fields: bool = False
    quoted: bool = False
    is_header: Callable[[bytes], bool] = lambda line: False
    note: Callable[[int, bytes], str | None] = lambda number, line: None
    is_flush: Callable[[pa.Array], np.ndarray] | None = None
    skip_lines: int = 0
    most_fields: int = 0
    has_zones: bool = field(default=False, init=False)
    has_decimal_commas: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._separator = self.delimiter or b" "
        self._wanted = [(f"f{at}", column) for at, column in enumerate(self.columns) if column.kind != "skip"]
        # Decimal places of numbers as they are parsed; None: as int64, which is three times as fast.
        self._scales: dict[str, int | None] = {column.name: None for column in self.columns}
        separator = re.escape(self._separator)
        cell = rb'(?:"(?:[^"]|"")*"(?:[^"%b][^%b]*)?|(?:[^"%b][^%b]*)?)' % ((separator,) * 4)
        self._closed = re.compile(rb"%b(?:%b%b)*" % (cell, separator, cell))

    def rows(self, source: SourceFile, account: Account) -> Iterator[Rows]:
        """The valid lines of a file, in order. Counts all records that it reads, and rejects invalid lines."""
        number, at_start = 1, True
        for block in line_blocks(source, account):
            if number == 1:
                block = block.removeprefix(_BOM)
            while number <= self.skip_lines and block:
                block, number = block[block.find(b"\n") + 1:], number + 1
            while at_start and block and not (first := block[:block.find(b"\n")]).strip():
                block, number = block[len(first) + 1:], number + 1
            if at_start and block:
                at_start = False
                if self.is_header(first.rstrip(b"\r")):
                    block, number = block[len(first) + 1:], number + 1
                head = _learning_end(block)
                yield from self._checked(block[:head], number, account)
                block, number = block[head:], number + count_lines(block[:head])
            lines = count_lines(block)
            if block:
                yield from self._parsed(block, lines, number, account)
            number += lines

    @property
    def has_whole_times(self) -> bool:
        """Whether all times so far are written without a point."""
        return self._scales["time"] is None

    def _parsed(self, block: bytes, lines: int, number: int, account: Account) -> Iterator[Rows]:
        columns = self._read(self._even(block), lines)
        if columns is None:
            yield from self._checked(block, number, account)
            return
        account.read(lines)
        yield Rows(columns, np.arange(number, number + lines))

    def _checked(self, block: bytes, number: int, account: Account) -> Iterator[Rows]:
        """The valid lines of a block in which some may be invalid, and how its numbers are written."""
        raw = block.split(b"\n")
        lines = [line.removesuffix(b"\r") for line in raw] if self.delimiter \
            else [_BLANKS.sub(b" ", line.removesuffix(b"\r")).strip(b" ") for line in raw]
        faults: dict[int, str] = {}
        at = []
        for index, line in enumerate(lines):
            if not line.strip():
                continue  # no record
            if b"\r" in line:
                faults[index] = "a control character"
            elif self.quoted and b'"' in line and not self._closed.fullmatch(line):
                faults[index] = "a quoted field does not end on its line"
            else:
                at.append(index)
        cells, indexes = self._cells(lines, at, faults)
        columns: dict[str, Any] = {}
        fault_of = np.zeros(len(indexes), np.int64)
        reasons = [""]
        has_extent = ~self.is_flush(cells["op"]) if self.is_flush else np.ones(len(indexes), bool)
        for _, column in self._wanted:
            texts = cells[column.name]
            if column.kind == "text":
                columns[column.name] = texts.dictionary_encode()
                continue
            columns[column.name], bad = self.converted(texts, column)
            for reason, mask in bad.items():
                fault_of[mask & (fault_of == 0) & (has_extent | (column.name not in _EXTENT))] = len(reasons)
                reasons.append(f"{column.name} {reason}")
        valid = fault_of == 0
        for index in np.flatnonzero(~valid).tolist():
            faults[int(indexes[index])] = reasons[fault_of[index]]
        for index in sorted(faults):
            self._refuse(number + index, raw[index], faults[index], account)
        if not valid.all():
            columns = {name: values[valid] if isinstance(values, np.ndarray) else values.filter(pa.array(valid))
                       for name, values in columns.items()}
        if valid.any():
            account.read(int(valid.sum()))
            yield Rows(columns, number + indexes[valid])

    def _refuse(self, number: int, raw: bytes, fault: str, account: Account) -> None:
        reason = self.note(number, raw)
        if reason == "":
            return
        account.read(1)
        if reason is not None:
            account.ignore(reason, number, raw)
        else:
            account.reject(fault, number, raw)

    def _cells(self, lines: list[bytes], at: list[int], faults: dict[int, str]
               ) -> tuple[dict[str, pa.Array], np.ndarray]:
        """The text of the cells by column, and the indexes of their lines. Lines of too few fields become faults."""
        of_width = grouped((self._width(lines[index]), index) for index in at)
        tables = [pa.table({name: pa.array([], pa.binary()) for name, _ in self._wanted})]
        indexes = [np.empty(0, np.int64)]
        for width, all_same in of_width.items():
            same = all_same
            if width < len(self.columns) or width > len(self.columns) and not self.extra_fields:
                same = []
            elif 0 < self.most_fields < width:
                same = [index for index in same if self._ends_empty(lines[index], width - self.most_fields)]
            faults |= dict.fromkeys(set(all_same).difference(same),
                                    f"not {self.most_fields or len(self.columns)} fields")
            if not same:
                continue
            tables += self._texts([lines[index] for index in same], width)
            indexes.append(np.array(same, np.int64))
        cells, order = pa.concat_tables(tables), np.concatenate(indexes)
        if len(of_width) > 1:
            sorted_ = np.argsort(order)
            cells, order = cells.take(pa.array(sorted_)), order[sorted_]
        return {column.name: _one_chunk(cells[name]) for name, column in self._wanted}, order

    def _ends_empty(self, line: bytes, fields: int) -> bool:
        return not b"".join(line.rsplit(self._separator, fields)[1:]).strip()

    def _width(self, line: bytes) -> int:
        """The number of fields."""
        if not self.quoted or b'"' not in line:
            return line.count(self._separator) + 1
        return len(next(csv.reader([line.decode("latin-1")], delimiter=self._separator.decode())))

    def _texts(self, lines: list[bytes], width: int) -> list[pa.Table]:
        """The text of the cells of lines with `width` fields."""
        table = self._table(b"\n".join(lines) + b"\n", {name: pa.binary() for name, _ in self._wanted}, width)
        if table is None or table.num_rows != len(lines):
            raise TraceError(f"lost count of the lines of a block: {len(lines):,} lines with {width} fields, "
                             f"{table.num_rows if table else 0:,} rows", "report this as a bug with the file")
        return [table]

    def converted(self, cells: pa.Array, column: Column) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The numbers of a column as int64, and the masks of those that are invalid by reason."""
        texts = pc.ascii_trim_whitespace(cells.view(pa.string()))
        if self.delimiter != b",":
            commas = pc.replace_substring(texts, ",", ".")
            if column.kind != "datetime":
                self.has_decimal_commas |= pc.any(pc.and_(_match(commas, _NUMBER), _match(texts, ","))).as_py() or False
            texts = commas
        empty = _mask(pc.is_in(texts, pa.array(_NO_VALUE)))
        if column.kind == "datetime":
            values, valid = self._times(texts)
            bad = {"is not a date and time": ~empty & ~valid}
        else:
            values, bad = self._numbers(texts, column)
            bad = {reason: mask & ~empty for reason, mask in bad.items()}
        if column.empty is None:
            bad["is empty"] = empty
        else:
            values = np.where(empty, column.empty, values)
        return values, {reason: mask for reason, mask in bad.items() if mask.any()}

    def _numbers(self, texts: pa.Array, column: Column) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        usual = _match(texts, _NUMBER)
        numbers = pc.if_else(usual, texts, None)
        pointed = pc.any(_match(numbers, r"\.")).as_py()
        if pointed:
            numbers = pc.replace_substring_regex(numbers, r"(\.\d{18})\d+$", r"\1")
            is_long = pc.any(_match(numbers, rf"\.\d{{{column.places + 1}}}")).as_py() and column.kind == "decimal"
            self._scales[column.name] = max(self._scales[column.name] or 0, _MOST_PLACES if is_long else column.places)
        values, far = _units(numbers.cast(pa.decimal128(38, _MOST_PLACES)), column.places)
        is_number = _mask(usual)
        fraction = is_number & ~_mask(_match(texts, _WHOLE)) if column.kind == "int" and pointed \
            else np.zeros(len(texts), bool)
        far = (far & is_number) | (~is_number & _mask(_match(texts, _LONG_NUMBER)))
        if not is_number.all():
            for at in np.flatnonzero(_mask(_match(texts, _EXPONENT))).tolist():
                self._scales[column.name] = _MOST_PLACES if column.kind == "decimal" else 0
                exact = Decimal(texts[at].as_py()).scaleb(column.places)
                is_number[at] = True
                fraction[at] = column.kind == "int" and abs(exact) < 1 << 63 and exact != int(exact)
                far[at] = abs(exact) >= 1 << 63
                values[at] = 0 if far[at] else round(exact)
        return values, {"is not a number": ~is_number & ~far, "is not a whole number": fraction,
                        "is out of range": far & ~fraction}

    def _times(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """ns since 1970, and where they are valid. A time without a zone is taken as UTC."""
        local, zoned = _match(texts, _DATETIME + "$"), _match(texts, _DATETIME + _ZONE + "$")
        self.has_zones |= bool(pc.any(zoned).as_py())
        parts = [pc.if_else(mask, texts, None).cast(type_).cast(pa.int64()) for mask, type_ in
                 ((local, pa.timestamp("ns")), (zoned, pa.timestamp("ns", "UTC")))]
        values: np.ndarray = pc.coalesce(*parts, pa.scalar(0, pa.int64())).to_numpy(zero_copy_only=False)
        return values, _mask(pc.or_(local, zoned))

    def _even(self, text: bytes) -> bytes:
        """Text with single blanks between fields, if blanks delimit."""
        if self.delimiter is not None:
            return text
        if text[:1] == b" " or _has_uneven_blanks(text):
            text = _BLANKS.sub(b" ", text).replace(b"\n ", b"\n").replace(b" \n", b"\n").replace(b" \r", b"\r")
            text = text.strip(b" ")
        return text

    def _read(self, block: bytes, lines: int) -> dict[str, Any] | None:
        """The columns of a block, or None if any line is invalid or written otherwise than the lines before."""
        has_bare_return = b"\r" in block and block.count(b"\r") != block.count(b"\r\n")
        if has_bare_return or self._has_hexadecimal(block):
            return None
        table = self._table(block, {name: self._type(column) for name, column in self._wanted})
        if table is None or table.num_rows != lines:
            return None
        columns: dict[str, Any] = {}
        for name, column in self._wanted:
            values = _one_chunk(table[name]) if column.kind == "text" else _numbers(table[name], column)
            if values is None:
                return None
            columns[column.name] = values
        return columns

    def _type(self, column: Column) -> pa.DataType:
        if column.kind == "datetime":
            return pa.timestamp("ns", "UTC" if self.has_zones else None)
        if column.kind == "text":
            return pa.dictionary(pa.int32(), pa.binary())
        scale = self._scales[column.name]
        return pa.int64() if scale is None else pa.decimal128(38, scale)

    def _has_hexadecimal(self, block: bytes) -> bool:
        """Whether a number is hexadecimal, which Arrow takes as an integer."""
        if not any(letter in block and b"0" + letter in block for letter in (b"x", b"X")):
            return False  # most blocks
        numbers = {name: pa.binary() for name, column in self._wanted if column.kind in ("int", "decimal")}
        table = self._table(block, numbers) if numbers else None
        return table is not None and any(
            pc.any(pc.match_substring(table[name], "x", ignore_case=True)).as_py() for name in numbers)

    def _table(self, block: bytes, types: dict[str, pa.DataType], width: int | None = None) -> pa.Table | None:
        """The columns of a block by f0, f1 ...; None if pyarrow cannot read it. width: number of fields of a line."""
        width = width or self.most_fields or (None if self.extra_fields else len(self.columns))
        names = [f"f{at}" for at in range(width)] if width else None
        try:
            return pacsv.read_csv(
                pa.BufferReader(_arrow_copy(block)),
                read_options=pacsv.ReadOptions(column_names=names, autogenerate_column_names=names is None,
                                               block_size=1 << 20),
                parse_options=pacsv.ParseOptions(delimiter=self._separator.decode(),
                                                 quote_char='"' if self.quoted and b'"' in block else False),
                convert_options=pacsv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=[""],
                    strings_can_be_null=False, check_utf8=False,
                    decimal_point="," if self.has_decimal_commas else "."))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
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
        # Any run of blanks delimits, also tabs.
        return self.pattern.likeness(head if self.delimiter else _BLANKS.sub(b" ", head))

    def near_miss(self, head: bytes) -> str:
        return self.pattern.near_miss(head)

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        table = TextTable(self.columns, self.delimiter, self.extra_fields, is_header=self.pattern.is_header)
        for rows in table.rows(source, account):
            yield self.batch(rows, account, options)

    @abstractmethod
    def batch(self, rows: Rows, account: Account, options: ImportOptions) -> Batch:
        """Valid lines as records."""


def _one_chunk(chunked: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    array = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _match(texts: pa.Array, pattern: str) -> pa.Array:
    """Where texts match; as bytes, because they need not be UTF-8."""
    return pc.match_substring_regex(texts.view(pa.binary()), pattern)


def _mask(matches: pa.Array) -> np.ndarray:
    mask: np.ndarray = matches.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _numbers(chunked: pa.ChunkedArray, column: Column) -> np.ndarray | None:
    """int64 values; None if an empty one is not allowed, or one is out of range."""
    if chunked.null_count and column.empty is None:
        return None
    array = _one_chunk(chunked)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_decimal(array.type):
        values, far = _units(array, column.places)
        if far.any():
            return None
    else:
        values = (array.fill_null(0) if missing is not None else array).to_numpy(zero_copy_only=False)
        if column.kind == "decimal" and column.places:
            most = np.iinfo(np.int64).max // 10**column.places
            if len(values) and (values.min() < -most or values.max() > most):
                return None
            values = values * 10**column.places
    if missing is not None and column.empty is not None:
        values = np.where(missing, column.empty, values)
    return np.asarray(values)


def _units(array: pa.Array, places: int) -> tuple[np.ndarray, np.ndarray]:
    """A decimal128 array as int64 in units of 10^-places, 0 where it is null, and which of them exceed int64."""
    if array.type.scale != places:
        array = pc.round(array, places).cast(pa.decimal128(38, places))
    array = array.fill_null(pa.scalar(0, array.type)) if array.null_count else array
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset:array.offset + len(array)]
    low, high = words[:, 0], words[:, 1]
    return low.copy(), high != low >> 63


def _learning_end(block: bytes) -> int:
    """Where the first lines of a block end, which show how the numbers are written."""
    end = 0
    for _ in range(_LEARNING_LINES):
        end = block.find(b"\n", end) + 1
        if end in (0, len(block)):
            return len(block)
    return end


def count_lines(block: bytes) -> int:
    """The number of line ends. numpy counts them several times faster than `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


class TextSource(Protocol):
    """The text of a file; read() gives b"" at the end."""

    @property
    def path(self) -> Path: ...

    def read(self, count: int) -> bytes: ...


def line_blocks(source: SourceFile | TextSource, account: Account) -> Iterator[bytes]:
    """Blocks of whole lines, each with its line end. A line longer than a block is rejected."""
    tail, number = b"", 1
    while data := source.read(BLOCK_BYTES - len(tail) if len(tail) < BLOCK_BYTES else BLOCK_BYTES):
        data = tail + data
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
        tail = data[cut:]
    if tail:
        if tail.strip(b"\r\n \t\x1a"):
            account.warn(f"{source.path}: the last line has no line end: its record may be cut")
        yield tail + b"\n"
