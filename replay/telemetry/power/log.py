"""Power from a CSV file that a meter or another machine wrote, during a run or added after its end."""

import codecs
import csv
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from blkreel.common.errors import BlkreelError, UsageError, os_errors
from blkreel.common.units import counted

from .samples import UNIX_SINCE_S, ClockPairs, PowerSamples, cleaned

_TIME_NAMES = re.compile(r"time|date|second|^t\b|elapsed|stamp", re.IGNORECASE)
_POWER_NAMES = re.compile(r"power|watt|^p\b|^[muµμk]?w\b|\([muµμk]?w\)|\[[muµμk]?w\]", re.IGNORECASE)
_TOTAL_NAMES = re.compile(r"\btot|\bsum\b|^(power|watts?|[pw])\b(?!.*factor)", re.IGNORECASE)
# At the end of a column's name: Time (ms), power_mW, 12V current uA.
_UNIT = re.compile(r"(?:^|[\s_,(\[])(n|nano|u|µ|μ|micro|m|milli|k|kilo|)"
                   r"(?:s|secs?|seconds?|w|watts?|v|volts?|a|amps?|amperes?)[)\]]?$", re.IGNORECASE)
_PREFIXES = {"": 1.0, "n": 1e-9, "nano": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "micro": 1e-6, "m": 1e-3, "milli": 1e-3,
             "k": 1e3, "kilo": 1e3}
_EXAMPLE = "write it as --power-log FILE,offset=SECONDS,columns=TIME:WATTS"
# A time since 1970 in one of these units lies between 2001 and 2286; relative times are in seconds, if none is named.
_LATEST_S = 1e10
_UNIX_UNITS_S = ((1e9, 1e10, 1.0), (1e12, 1e13, 1e-3), (1e15, 1e16, 1e-6), (1e18, 1e19, 1e-9))
_MOST_BYTES = 1 << 30
_SAMPLE_LINES = 20  # from which the separator and the number of columns are found
_MOST_OFFSET_S = 4e9
_LONGEST_LINE = 1 << 16
_REPEATED_S = 900.0  # less than what clocks are set back at the end of summer time; samples may be out of order by less


@dataclass(frozen=True)
class PowerLog:
    """offset_s: added to the log's times. columns: time and watts, or time, volts and amperes; each a name in the
    first line, or a number from 1. Empty: the columns named time and power, else the first two. The prefix of a unit
    at the end of a name (mW, mA, ms) counts.
    of_several_runs: times since a run's start are refused, because they do not identify the run.
    """

    path: Path
    offset_s: float = 0.0
    columns: tuple[str, ...] = ()
    of_several_runs: bool = False

    def read(self, pairs: ClockPairs, start_ns: int) -> PowerSamples:
        """Samples on CLOCK_MONOTONIC. start_ns: the run's start, from which relative times count.

        Raises BlkreelError if the file cannot be read, has no such columns, or holds no sample.
        """
        rows = _rows(self.path)
        columns, first_row = self._columns(rows)
        units = _units(rows[0] if first_row else (), columns)
        factor = math.prod(unit or 1.0 for unit in units[1:])
        seconds: list[float] = []
        watts, invalid = [], 0
        for row in rows[first_row:]:
            time_s = _time_s(row, columns[0], units[0], seconds[-1] if seconds else 0.0)
            power = _product(row, columns[1:])
            if time_s is None or power is None:
                invalid += 1
                continue
            seconds.append(time_s)
            watts.append(power * factor)
        if not seconds:
            raise self._no_sample()
        notes = [f"{counted(invalid, 'line')} without a time and watts left out"] if invalid else []
        absolute = np.array(seconds) >= UNIX_SINCE_S
        if self.of_several_runs and not absolute[0]:
            raise self._relative_times()
        time_ns = np.round(np.array(seconds) * 1e9).astype(np.int64) + round(self.offset_s * 1e9)
        if absolute.any():
            notes += pairs.notes
        time_ns = np.where(absolute, pairs.monotonic_ns(time_ns), time_ns + start_ns)
        return cleaned(time_ns, watts, notes)

    @property
    def is_absolute(self) -> bool:
        """Whether its times are since 1970. Raises as read() does."""
        rows = _rows(self.path)
        columns, first_row = self._columns(rows)
        unit_s = _units(rows[0] if first_row else (), columns)[0]
        for row in rows[first_row:]:
            if (time_s := _time_s(row, columns[0], unit_s)) is not None:
                return time_s >= UNIX_SINCE_S
        raise self._no_sample()

    def for_several_runs(self) -> "PowerLog":
        """The same for each run of a test. Raises UsageError if it exists already and its times are relative."""
        is_absolute = True
        with suppress(BlkreelError):  # not written yet, or only its first line
            is_absolute = self.is_absolute
        if not is_absolute:
            raise self._relative_times()
        return replace(self, of_several_runs=True)

    def option_text(self) -> str:
        """As parse_power_log() takes it, in any working directory."""
        columns = f",columns={self.columns[0]}:{'*'.join(self.columns[1:])}" if self.columns else ""
        return f"{self.path.absolute()},offset={self.offset_s!r}{columns}"

    def _no_sample(self) -> BlkreelError:
        return BlkreelError(f"{self.path}: no line with a time and watts", _EXAMPLE)

    def _relative_times(self) -> UsageError:
        return UsageError(f"{self.path}: its times are not since 1970, but a test has several runs",
                          "let the meter write times since 1970, or add the power of one run after the test: "
                          "blkreel power TEST/steps/NAME --log FILE,offset=SECONDS")

    def _columns(self, rows: Sequence[Sequence[str]]) -> tuple[list[int], int]:
        """The indices of the columns, and of the first row that holds values."""
        if not rows:
            raise BlkreelError(f"{self.path} is empty", "give the file that the meter wrote")
        head = [word.strip() for word in rows[0]]
        has_head = _number(head[0]) is None and _date_s(head[0]) is None
        width = max(len(row) for row in rows[:_SAMPLE_LINES])
        if self.columns:
            return [self._column(word, head if has_head else [], width) for word in self.columns], int(has_head)
        if has_head:
            times = [index for index, name in enumerate(head) if _TIME_NAMES.search(name)]
            powers = [index for index, name in enumerate(head) if _POWER_NAMES.search(name) and index not in times[:1]]
            # Of several rails none is the drive's power, unless one is the total or has no further name.
            if len(powers) > 1:
                powers = [index for index in powers if _TOTAL_NAMES.search(head[index])]
                if len(powers) != 1:
                    raise BlkreelError(f"{self.path} has several columns of power: {', '.join(head)}", _EXAMPLE)
            if times and powers:
                return [times[0], powers[0]], 1
        if width != 2:
            names = ", ".join(head) if has_head else f"{width} columns without names"
            raise BlkreelError(f"{self.path}: columns of time and watts not found in: {names}", _EXAMPLE)
        return [0, 1], int(has_head)

    def _column(self, word: str, head: Sequence[str], width: int) -> int:
        names = [name.lower() for name in head]
        if word.lower() in names:
            return names.index(word.lower())
        if word.isdecimal() and len(word) < 10 and 1 <= int(word) <= width:
            return int(word) - 1
        raise BlkreelError(f"{self.path}: no column {word!r}; it has {', '.join(head) or f'{width} without names'}",
                           _EXAMPLE)


def parse_power_log(text: str) -> PowerLog:
    """`FILE[,offset=SECONDS][,columns=TIME:WATTS | TIME:VOLTS*AMPERES]`. Raises UsageError."""
    path, *settings = text.split(",")
    # The name of the file may contain commas.
    while settings and not re.match(r"(offset|columns)=", settings[0]):
        path += "," + settings.pop(0)
    offset_s = 0.0
    columns: tuple[str, ...] = ()
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "offset":
            number = _number(value)
            if number is None or abs(number) > _MOST_OFFSET_S:
                raise UsageError(f"invalid --power-log: offset {value!r} is not a number of seconds", _EXAMPLE)
            offset_s = number
        elif key == "columns":
            time, _, power = value.partition(":")
            columns = (time.strip(), *(word.strip() for word in power.split("*")))
            if len(columns) > 3 or not all(columns):
                raise UsageError(f"invalid --power-log: columns {value!r} are not TIME:WATTS or TIME:VOLTS*AMPERES",
                                 _EXAMPLE)
        else:
            raise UsageError(f"invalid --power-log: {setting!r} is neither offset= nor columns=", _EXAMPLE)
    if not path:
        raise UsageError("invalid --power-log: no file name", _EXAMPLE)
    return PowerLog(Path(path), offset_s, columns)


def _rows(path: Path) -> list[list[str]]:
    with os_errors(BlkreelError, f"{path} cannot be read", f"ls -l {path}"):
        if path.stat().st_size > _MOST_BYTES:
            raise BlkreelError(f"{path} is larger than 1 GiB", "cut out the part of the run")
        data = path.read_bytes()
        # Loggers on Windows write UTF-16, with a byte order mark.
        utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if utf_16 else "utf-8-sig", errors="replace").replace("\0", "")
    lines = [line[:_LONGEST_LINE] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    separator = _separator(lines[:_SAMPLE_LINES])
    if separator == ";":
        # With a semicolon between the values, the comma is their decimal point.
        lines = [line.replace(",", ".") for line in lines]
    if separator == " ":
        return [line.split() for line in lines]
    # Line by line, so that an unclosed quotation mark makes only its own line invalid.
    return [[word.strip() for word in next(csv.reader([line], delimiter=separator))] for line in lines]


def _separator(lines: Sequence[str]) -> str:
    """The separator in most lines: a meter may write other text in between."""
    for separator in (";", "\t", ","):
        if sum(separator in line for line in lines) > len(lines) / 2:
            return separator
    return " "


def _units(head: Sequence[str], columns: Sequence[int]) -> list[float | None]:
    """The unit at the end of each column's name, in s, W, V or A; None without one."""
    matches = [_UNIT.search(head[column].strip()) if column < len(head) else None for column in columns]
    return [_PREFIXES[match[1].lower()] if match else None for match in matches]


def _time_s(row: Sequence[str], column: int, unit_s: float | None, before_s: float = 0.0) -> float | None:
    """Seconds, since 1970 or relative, of a number or an ISO 8601 date. unit_s: of the numbers, None if it is not
    named. before_s: of the sample before."""
    if column >= len(row):
        return None
    value = _number(row[column])
    if value is None:
        return _date_s(row[column], before_s)
    if unit_s and abs(value * unit_s) < _LATEST_S:
        return value * unit_s
    for least, most, unit_s in _UNIX_UNITS_S:
        if least <= value < most:
            return value * unit_s
    return value if abs(value) < UNIX_SINCE_S else None


def _date_s(text: str, before_s: float = 0.0) -> float | None:
    """In local time if it has no zone; of an hour that a clock shows twice the second, if the log is past the first."""
    if not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:", text):
        return None
    try:
        first_s, second_s = (datetime.fromisoformat(text).replace(fold=fold).timestamp() for fold in (0, 1))
    except (ValueError, OverflowError, OSError):
        return None
    return second_s if before_s - first_s > _REPEATED_S else first_s


def _product(row: Sequence[str], columns: Sequence[int]) -> float | None:
    factors = [_number(row[column]) if column < len(row) else None for column in columns]
    return None if None in factors else math.prod(factor for factor in factors if factor is not None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
