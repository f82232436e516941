"""The import of any CSV or Parquet file: `--columns` says which column is what, and in which unit.

time=ts:us@unix,op=type:0=read/1=write,offset=lba:sectors,length=size:bytes,latency=rt:100ns,device=vol,process=app

A column is named as in the header, or numbered from 1 in a file without one.
"""

import csv
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blkreel.common.errors import TraceError, UsageError, did_you_mean
from blkreel.common.units import counted
from blkreel.traces.format.footer import MAGIC, local_file, read_footer
from blkreel.traces.format.pages import PageCheck, PageError
from blkreel.traces.format.schema import OPS

from .account import Account
from .operation_letters import INVALID_CATEGORY, category_of, flags_of, op_of
from .source_file import SourceFile, read_head
from .source_format import INVALID, UNKNOWN_OP, Batch, ImportOptions, SourceFormat, head_lines, mapped, scaled
from .text_table import Column, TextTable

EXAMPLE = "time=ts:us@unix,op=type:R=read/W=write,offset=lba:sectors,length=size:bytes,latency=rt:us"
_TIME_UNITS_NS = {"ns": 1, "100ns": 100, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000, "datetime": 1}
_SIZE_UNITS_BYTES = {"bytes": 1, "sectors": 512, "kib": 1024, "pages": 4096, "mib": 1 << 20}
# From the epoch to 1970, in s: `unix` is 1970, 1601 is that of Windows.
_EPOCHS_S = {"unix": 0, "1970": 0, "1601": -11_644_473_600}
_COMPLETION = "completion"  # in place of the time of issue, which is a latency earlier
_TIMES, _SIZES, _TEXTS = ("time", _COMPLETION, "latency"), ("offset", "length"), ("op", "device", "process")
_INTEGERS = {"tid": (1 << 31) - 1, "cpu": (1 << 15) - 1}  # and the largest of each
_FIELDS = (*_TIMES, *_SIZES, *_TEXTS, *_INTEGERS)
_UNKNOWABLE = ("latency", *_INTEGERS)
_REQUIRED = ("time", "op", "offset", "length")
_DELIMITERS = (b",", b";", b"\t", b"|", b" ")
# Beside the letters of the kernel.
_OPS = {**{name: name for name in OPS}, "trim": "discard", "unmap": "discard"}
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class _Field:
    """column: its name, or its number from 1. factor: ns or bytes of a unit. places: decimal places of a unit."""

    column: str
    unit: str = ""
    epoch: str | None = None

    @property
    def factor(self) -> int:
        return _TIME_UNITS_NS.get(self.unit) or _SIZE_UNITS_BYTES.get(self.unit) or 1


@dataclass
class ColumnMapping(SourceFormat):
    """A format made from the text of --columns. Raises UsageError for a text that is none."""

    spec: str
    name = "columns"
    title = "any CSV or Parquet file, by --columns"
    remedy = "check the columns, units and operations of --columns, as in op=type:0=read/1=write"
    stamped_at: str = field(init=False, default="issue")  # type: ignore[misc]
    _fields: dict[str, _Field] = field(init=False, default_factory=dict)
    _ops: dict[str, int] = field(init=False, default_factory=dict)
    _has_zones: bool = field(init=False, default=False)
    _has_whole_times: bool = field(init=False, default=True)
    _beyond: dict[str, int] = field(init=False, default_factory=lambda: dict.fromkeys(_INTEGERS, 0))

    def __post_init__(self) -> None:
        for part in self.spec.split(","):
            name, _, column_and_unit = part.strip().partition("=")
            if name not in _FIELDS or not column_and_unit:
                raise UsageError(f"--columns: {part.strip()!r} is not FIELD=COLUMN",
                                 did_you_mean(name, _FIELDS, f"fields are {', '.join(_FIELDS)}; example: {EXAMPLE}"))
            column, _, unit = column_and_unit.partition(":")
            mapped_field = self._field(name, column, unit)
            if name == _COMPLETION:
                name, self.stamped_at = "time", "completion"
            if name in self._fields:
                raise UsageError(f"--columns names {name} twice", f"example: {EXAMPLE}")
            self._fields[name] = mapped_field
        required = (*_REQUIRED, "latency") if self.stamped_at == "completion" else _REQUIRED
        if absent := [name for name in required if name not in self._fields]:
            raise UsageError(f"--columns does not say which column is {' and '.join(absent)}", f"example: {EXAMPLE}")

    @property
    def clock(self) -> str:  # type: ignore[override]
        return "realtime" if self._fields["time"].epoch or self._has_zones else "relative"

    @property
    def resolution_ns(self) -> int:  # type: ignore[override]
        # Whole numbers show their resolution.
        return self._fields["time"].factor if self._has_whole_times else 1

    def likeness(self, head: bytes) -> float:
        return 0.0

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        if read_head(source.path).startswith(MAGIC):
            if options.skip_lines:
                raise UsageError(f"--skip-lines does not apply to a Parquet file: {source.path}", "leave it out")
            source.refuse_packed("a Parquet file")
            account.unit = "row"
            yield from self._of_parquet(source, account)
        else:
            yield from self._of_text(source, account, options.skip_lines)
        for name, count in self._beyond.items():
            self._beyond[name] = 0
            if count:
                remedy = f"; to number the threads: process={self._fields[name].column}" if name == "tid" else ""
                account.warn(f"{source.path}: {name} of {counted(count, 'record')} is unknown: no number from 0 to "
                             f"{_INTEGERS[name]:,}{remedy}")

    def _field(self, name: str, column: str, unit: str) -> _Field:
        if name == "op":
            for pair in filter(None, unit.split("/")):
                value, _, op = pair.partition("=")
                if op not in OPS:
                    raise UsageError(f"--columns: unknown operation {op!r} in {pair!r}",
                                     did_you_mean(op, OPS, f"operations are {', '.join(OPS)}"))
                self._ops[value.lower()] = OPS[op]
            return _Field(column)
        unit, _, epoch = unit.partition("@")
        units = _TIME_UNITS_NS if name in _TIMES else _SIZE_UNITS_BYTES if name in _SIZES else {}
        if units and unit.lower() not in units:
            raise UsageError(f"--columns: {name} has {'no unit' if not unit else f'the unknown unit {unit!r}'}",
                             f"units are {', '.join(units)}, as in {name}={column}:{next(iter(units))}")
        if unit and not units or epoch and name not in ("time", _COMPLETION):
            raise UsageError(f"--columns: {name} has no {'epoch' if epoch else 'unit'}", f"example: {EXAMPLE}")
        if epoch and epoch not in _EPOCHS_S:
            raise UsageError(f"--columns: unknown epoch {epoch!r}", f"epochs are {', '.join(_EPOCHS_S)}")
        return _Field(column, unit.lower(), epoch or None)

    def _op(self, text: bytes) -> int:
        word = text.decode(errors="replace").strip().lower()
        if self._ops:
            return self._ops.get(word, UNKNOWN_OP)
        return OPS[_OPS[word]] if word in _OPS else int(op_of(np.array([category_of(word.upper().encode())]))[0])

    def _is_flush(self, ops: pa.Array) -> np.ndarray:
        is_flush: np.ndarray = mapped(ops, self._op) == OPS["flush"]
        return is_flush

    def _flags(self, text: bytes) -> int:
        """The flags that the kernel's letters of an operation have."""
        word = text.decode(errors="replace").strip().lower()
        category = INVALID_CATEGORY if self._ops or word in _OPS else category_of(word.upper().encode())
        return 0 if category == INVALID_CATEGORY else int(flags_of(np.array([category]))[0])

    def _shift_units(self) -> int:
        """What to add to times, in their unit, to count from 1970. Times since 1601 in ns would exceed int64."""
        time = self._fields["time"]
        return _EPOCHS_S[time.epoch or "unix"] * 1_000_000_000 // time.factor

    def _of_text(self, source: SourceFile, account: Account, skip_lines: int) -> Iterator[Batch]:
        head = read_head(source.path)
        if not head_lines(head):
            raise TraceError(f"{source.path} is neither a text table nor a Parquet file", "name a CSV or Parquet file")
        lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")[skip_lines:]
        if not any(line.strip() for line in lines):
            raise UsageError(f"{source.path} has no lines after --skip-lines {skip_lines}", "skip fewer lines")
        delimiter, titles, numbers = self._layout(source, lines)
        by_number = {number: name for name, number in numbers.items()}
        columns = [self._column(by_number.get(number), number) for number in range(1, max(by_number) + 1)]
        # With more fields than titles, a field belongs to another title, or is the rest of a number with a comma.
        table = TextTable(columns, delimiter if delimiter != b" " else None, extra_fields=True, quoted=True,
                          is_header=lambda line: titles > 0, is_flush=self._is_flush, skip_lines=skip_lines,
                          most_fields=titles)
        for rows in table.rows(source, account):
            values = {name: self._values(name, rows[name]) for name in self._fields}
            yield self._batch(values, rows.positions)
            self._has_zones |= table.has_zones
        self._has_whole_times &= table.has_whole_times
        if table.has_decimal_commas:
            account.warn(f"{source.path}: commas inside numbers are read as decimal commas")

    def _layout(self, source: SourceFile, lines: list[bytes]) -> tuple[bytes, int, dict[str, int]]:
        """The delimiter, the number of titles in the header, 0 without one, and of each field's column, from 1."""
        names = {name: field.column for name, field in self._fields.items()}
        if all(column.isdigit() for column in names.values()):
            first = _first(lines)
            widths = {delimiter: len(_cells(first, delimiter)) for delimiter in _DELIMITERS}
            delimiter = max(_DELIMITERS, key=lambda delimiter: widths[delimiter])
            for name, column in names.items():
                if not 1 <= int(column) <= widths[delimiter]:
                    raise UsageError(f"{source.path} has {widths[delimiter]} columns, so that {name} cannot be column "
                                     f"{column}", f"its first line: {first[:80].decode(errors='replace')}")
            return delimiter, 0, {name: int(column) for name, column in names.items()}
        for number, line in enumerate(lines):
            for delimiter in _DELIMITERS:
                titles = _cells(line, delimiter)
                if not set(names.values()) <= set(titles):
                    continue
                if any(before.strip() for before in lines[:number]):
                    raise UsageError(f"{source.path} has {number:,} {'line' if number == 1 else 'lines'} before its "
                                     "header", f"leave them out: --skip-lines {number}")
                _refuse_twice(source, names.values(), titles)
                return delimiter, len(titles), {name: titles.index(column) + 1 for name, column in names.items()}
        titles = max((_cells(_first(lines), delimiter) for delimiter in _DELIMITERS), key=len)
        absent = next(column for column in names.values() if column not in titles)
        raise UsageError(f"{source.path} has no column {absent!r}",
                         did_you_mean(absent, titles, f"its first line has {', '.join(titles)}"))

    def _column(self, name: str | None, number: int) -> Column:
        if name is None:
            return Column(f"column {number}", "skip")
        unit = self._fields[name].unit
        if name in _TEXTS:
            return Column(name, "text")
        if unit == "datetime":
            return Column(name, "datetime")
        empty = -1 if name in _UNKNOWABLE else None
        if name == "time" and self._shift_units():
            return Column(name, "int")
        if name in _TIMES:
            # In units of 1 ns, so that a fraction of a unit is not lost.
            return Column(name, "decimal", len(str(_TIME_UNITS_NS[unit])) - 1, empty)
        return Column(name, "int", empty=empty)

    def _values(self, name: str, values: np.ndarray) -> np.ndarray | pa.Array:
        if name in ("offset", "length"):
            return scaled(values, self._fields[name].factor)
        if name == "time" and self._shift_units():
            return scaled(values, self._fields[name].factor, self._shift_units())
        if name == "latency":
            return np.where(values == -self._fields[name].factor, -1, values)  # -1 of any unit is unknown
        return values

    def _of_parquet(self, source: SourceFile, account: Account) -> Iterator[Batch]:
        try:
            PageCheck(read_footer(source.path)).check_file(source.path)
            file = pq.ParquetFile(local_file(source.path))
            names = file.schema_arrow.names
            for name, field_ in self._fields.items():
                if field_.column not in names:
                    raise UsageError(f"{source.path} has no column {field_.column!r} for {name}",
                                     did_you_mean(field_.column, names, f"it has {', '.join(names)}"))
            _refuse_twice(source, [field.column for field in self._fields.values()], names)
            row = 1
            for batch in file.iter_batches(_BATCH_ROWS, columns=[field.column for field in self._fields.values()]):
                account.read(batch.num_rows)
                values = {name: self._parquet_values(name, batch[field.column])
                          for name, field in self._fields.items()}
                yield self._batch(values, np.arange(row, row + batch.num_rows))
                row += batch.num_rows
        except (pa.ArrowException, OSError, PageError) as error:
            raise TraceError(f"cannot read {source.path}: {error}", "check that the Parquet file is whole") from error

    def _parquet_values(self, name: str, values: pa.Array) -> np.ndarray | pa.Array:
        if name in _TEXTS:
            if pa.types.is_floating(values.type):
                with suppress(pa.ArrowInvalid):  # pandas makes floats of whole numbers with missing values
                    values = values.cast(pa.int64())
            if name == "device" and pa.types.is_integer(values.type) and not values.null_count:
                return values
            return pc.dictionary_encode(values.cast(pa.string()).fill_null("").cast(pa.binary()))
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return self._parquet_numbers(name, values)
        shift = self._shift_units() if name == "time" else 0
        missing = values.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
            self._has_zones |= pa.types.is_timestamp(values.type) and values.type.tz is not None
            unit_ns = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}[values.type.unit]
            plain = scaled(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), unit_ns)
        elif self._fields[name].unit == "datetime":
            raise UsageError(f"column {self._fields[name].column!r} has the type {values.type}, not dates",
                             f"give its unit, as in {name}={self._fields[name].column}:s@unix")
        elif pa.types.is_integer(values.type):
            integers = values.fill_null(0).to_numpy(zero_copy_only=False)
            huge = integers > np.iinfo(np.int64).max
            plain = scaled(np.where(huge, 0, integers).astype(np.int64), self._fields[name].factor, shift)
            plain = np.where(huge, INVALID, plain)
        elif pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
            whole, rest = _whole_and_rest(values)
            factor = self._fields[name].factor
            plain = scaled(whole, factor, shift)
            plain = np.where(plain == INVALID, INVALID, plain + np.round(rest * factor).astype(np.int64))
            if name not in _TIMES:
                plain = np.where(rest == 0, plain, INVALID)  # as of a text
            if name in _UNKNOWABLE and pa.types.is_floating(values.type):
                missing |= np.isnan(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
        else:
            raise UsageError(f"column {self._fields[name].column!r} has the type {values.type}, not numbers",
                             f"name another column for {name}")
        if name == "time":
            self._has_whole_times &= pa.types.is_integer(values.type)
        if name == "latency":
            plain = np.where(plain == -self._fields[name].factor, -1, plain)
        return np.where(missing, -1 if name in _UNKNOWABLE else INVALID, plain)

    def _parquet_numbers(self, name: str, texts: pa.Array) -> np.ndarray:
        """Numbers or dates that are written as text, as in a text table."""
        table = TextTable([column := self._column(name, 0)])
        numbers, faults = table.converted(texts.cast(pa.string()).fill_null("").cast(pa.binary()), column)
        self._has_zones |= table.has_zones
        if name == "time":
            self._has_whole_times &= table.has_whole_times
        bad = np.logical_or.reduce([np.zeros(len(numbers), bool), *faults.values()])
        return np.asarray(self._values(name, np.where(bad, INVALID, numbers)))

    def _batch(self, values: dict[str, np.ndarray | pa.Array], positions: np.ndarray) -> Batch:
        submit_ns, latency_ns = values["time"], values.get("latency")
        if self.stamped_at == "completion":
            # Without a latency it is unknown when the I/O was issued.
            latency_ns = np.where(values["latency"] < 0, INVALID, values["latency"])
            submit_ns = np.where(submit_ns == INVALID, INVALID, submit_ns - latency_ns.clip(0, 1 << 61))
        # The kernel and Windows give flushes the sector 2^64-1, and a trace gives them no extent.
        has_extent = ~self._is_flush(values["op"])
        return Batch(submit_ns, np.where(has_extent, values["offset"], 0), np.where(has_extent, values["length"], 0),
                     mapped(values["op"], self._op).astype(np.int8), positions, latency_ns=latency_ns,
                     device=values.get("device"), tid=self._within(values, "tid"),
                     process=values.get("process"), flags=mapped(values["op"], self._flags).astype(np.int32),
                     cpu=self._within(values, "cpu"))

    def _within(self, values: dict[str, np.ndarray | pa.Array], name: str) -> np.ndarray | None:
        """-1 for numbers that the column of a trace does not hold, which are counted."""
        if name not in values:
            return None
        numbers = np.asarray(values[name])
        fits = (numbers >= 0) & (numbers <= _INTEGERS[name])
        self._beyond[name] += int(np.count_nonzero(~fits & (numbers != -1)))
        return np.where(fits, numbers, -1)


def _first(lines: Iterable[bytes]) -> bytes:
    return next(line for line in lines if line.strip())


def _refuse_twice(source: SourceFile, wanted: Iterable[str], titles: list[str]) -> None:
    """Raises UsageError if a wanted column has the name of another one."""
    if twice := next((column for column in wanted if titles.count(column) > 1), None):
        raise UsageError(f"{source.path} has several columns {twice!r}", "rename all but the one that is meant")


def _cells(line: bytes, delimiter: bytes) -> list[str]:
    """The fields of a line, without blanks around them; [] if a quoted one does not end."""
    text = line.decode(errors="replace").rstrip("\r")
    if delimiter == b" ":
        text = " ".join(text.split())
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter.decode(), strict=True), [])]
    except csv.Error:
        return []


def _whole_and_rest(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Fractional numbers as whole ones and their rest, 0 to 1: a float64 of both has no ns of today. INVALID and 0 if
    they are no numbers, or out of range."""
    type_ = values.type  # of a difference, decimal has one digit more
    values = values.cast(pa.decimal256(60, type_.scale) if pa.types.is_decimal(type_) else pa.float64())
    lower = pc.floor(values)
    rest = pc.subtract(values, lower).cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    approximate = lower.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    inside = np.abs(approximate) < float(1 << 62)  # False of NaN
    lower = pc.if_else(pa.array(inside), lower, pa.scalar(0, lower.type)).fill_null(pa.scalar(0, lower.type))
    whole = lower.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.where(inside, whole, INVALID), np.where(inside, rest, 0)

