"""Power from a CSV that was made elsewhere: a bench meter, a logger on another machine."""

import codecs
import csv
import math
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from blkreel.traces.errors import BlkreelError, UsageError

from .power_samples import UNIX_SINCE_S, ClockPairs, PowerSamples, tidied

_TIME_NAMES = re.compile(r"time|date|second|^t\b|elapsed|stamp", re.IGNORECASE)
_POWER_NAMES = re.compile(r"power|watt|^p\b|^w\b|\(w\)|\[w\]", re.IGNORECASE)
_EXAMPLE = "write --power-log FILE,offset=SECONDS,columns=TIME:WATTS"
# A time since 1970 in one of these units lies between 2001 and 2286; relative times are in seconds.
_UNIX_UNITS_S = ((1e9, 1e10, 1.0), (1e12, 1e13, 1e-3), (1e15, 1e16, 1e-6), (1e18, 1e19, 1e-9))
_MOST_BYTES = 1 << 30
_LOOKED_AT = 20  # lines
_MOST_OFFSET_S = 4e9  # any clock against any other
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True)
class PowerLog:
    """offset_s: what is to be added to the log's times. columns: time and watts, or time, volts and amperes; each a
    name in the first line, or a number counted from 1. Empty: the columns that are called so, else the first two.
    of_several_runs: whether times since a run's start tell nothing, as there are several.
    """

    path: Path
    offset_s: float = 0.0
    columns: tuple[str, ...] = ()
    of_several_runs: bool = False

    def read(self, pairs: ClockPairs, start_ns: int) -> PowerSamples:
        """On CLOCK_MONOTONIC. start_ns: the run's start, from which relative times count.

        Raises BlkreelError where the file cannot be read, has no such columns, or holds no sample.
        """
        rows = _rows(self.path)
        at, first = self._columns(rows)
        seconds, watts, rubbish = [], [], 0
        for row in rows[first:]:
            time_s, power_w = _time_s(row, at[0]), _product(row, at[1:])
            if time_s is None or power_w is None:
                rubbish += 1
                continue
            seconds.append(time_s)
            watts.append(power_w)
        if not seconds:
            raise BlkreelError(f"{self.path} holds no line of a time and watts", f"name its columns: {_EXAMPLE}")
        notes = [f"lines without a time and watts, left out: {rubbish:,}"] if rubbish else []
        absolute = np.array(seconds) >= UNIX_SINCE_S
        if self.of_several_runs and not absolute[0]:
            raise self._of_no_run()
        time_ns = np.round(np.array(seconds) * 1e9).astype(np.int64) + round(self.offset_s * 1e9)
        time_ns = np.where(absolute, pairs.monotonic_ns(time_ns), time_ns + start_ns)
        return tidied(time_ns, watts, notes)

    @property
    def is_absolute(self) -> bool:
        """Whether its times are since 1970, and so tell of several runs. Raises as read() does."""
        rows = _rows(self.path)
        at, first = self._columns(rows)
        times = [time_s for row in rows[first:] if (time_s := _time_s(row, at[0])) is not None]
        if not times:
            raise BlkreelError(f"{self.path} holds no line of a time and watts", f"name its columns: {_EXAMPLE}")
        return times[0] >= UNIX_SINCE_S

    def for_several_runs(self) -> "PowerLog":
        """The same for each run of a test. Raises UsageError where it is there already, and its times are no such."""
        is_absolute = True
        with suppress(BlkreelError):  # a log that is not written yet, or only its head
            is_absolute = self.is_absolute
        if not is_absolute:
            raise self._of_no_run()
        return replace(self, of_several_runs=True)

    def told(self) -> str:
        """As parse_power_log() takes it, wherever the command is called."""
        columns = f",columns={self.columns[0]}:{'*'.join(self.columns[1:])}" if self.columns else ""
        return f"{self.path.absolute()},offset={self.offset_s!r}{columns}"

    def _of_no_run(self) -> UsageError:
        return UsageError(f"the times of {self.path} are not since 1970, and a test has several runs",
                          "let the meter write times since 1970, or add the power of one run when all is over: "
                          "blkreel power TEST/steps/NAME --log FILE,offset=SECONDS")

    def _columns(self, rows) -> tuple[list[int], int]:
        """The numbers of the columns, and of the first row that holds values."""
        if not rows:
            raise BlkreelError(f"{self.path} is empty", "name the file that the meter wrote")
        head = [word.strip() for word in rows[0]]
        headed = _number(head[0]) is None and _date_s(head[0]) is None
        width = max(len(row) for row in rows[:_LOOKED_AT])
        if self.columns:
            return [self._column(word, head if headed else [], width) for word in self.columns], int(headed)
        if headed:
            times = [at for at, name in enumerate(head) if _TIME_NAMES.search(name)]
            powers = [at for at, name in enumerate(head) if _POWER_NAMES.search(name) and at not in times[:1]]
            if times and powers:
                return [times[0], powers[0]], 1
        if width != 2:
            names = ", ".join(head) if headed else f"{width} columns without names"
            raise BlkreelError(f"{self.path} does not tell which of its columns are time and watts: {names}", _EXAMPLE)
        return [0, 1], int(headed)

    def _column(self, word, head, width) -> int:
        folded = [name.lower() for name in head]
        if word.lower() in folded:
            return folded.index(word.lower())
        if word.isdigit() and 1 <= int(word) <= width:
            return int(word) - 1
        there = ", ".join(head) or f"{width}, without names"
        raise BlkreelError(f"{self.path} has no column {word!r}; there are: {there}", _EXAMPLE)


def parse_power_log(text: str) -> PowerLog:
    """`FILE[,offset=SECONDS][,columns=TIME:WATTS | TIME:VOLTS*AMPERES]`. Raises UsageError."""
    path, *settings = text.split(",")
    # Commas in the name of the file belong to it.
    while settings and not re.match(r"(offset|columns)=", settings[0]):
        path += "," + settings.pop(0)
    offset_s, columns = 0.0, ()
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "offset":
            offset_s = _number(value)
            if offset_s is None or abs(offset_s) > _MOST_OFFSET_S:
                raise UsageError(f"--power-log: offset {value!r} is not a number of seconds", _EXAMPLE)
        elif key == "columns":
            time, _, power = value.partition(":")
            columns = (time.strip(), *(word.strip() for word in power.split("*")))
            if len(columns) > 3 or not all(columns):
                raise UsageError(f"--power-log: columns {value!r} are not TIME:WATTS or TIME:VOLTS*AMPERES", _EXAMPLE)
        else:
            raise UsageError(f"--power-log: {setting!r} is neither offset= nor columns=", _EXAMPLE)
    if not path:
        raise UsageError("--power-log names no file", _EXAMPLE)
    return PowerLog(Path(path), offset_s, columns)


def _rows(path) -> list[list[str]]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BlkreelError(f"{path} is larger than 1 GiB", "cut what belongs to the run out of it")
        data = path.read_bytes()
        # Loggers on Windows write UTF-16, and say so in front.
        utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if utf_16 else "utf-8-sig", errors="replace").replace("\0", "")
    except OSError as error:
        raise BlkreelError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    lines = [line[:_LONGEST_LINE] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    separator = _separator(lines[:_LOOKED_AT])
    if separator == ";":
        # Where a semicolon stands between values, the comma is their decimal point.
        lines = [line.replace(",", ".") for line in lines]
    if separator == " ":
        return [line.split() for line in lines]
    # Line by line: a quotation mark that nothing closes spoils its own line, and not all behind it.
    return [[word.strip() for word in next(csv.reader([line], delimiter=separator))] for line in lines]


def _separator(lines) -> str:
    """That of most lines: a meter may write a word of its own in between."""
    for separator in (";", "\t", ","):
        if sum(separator in line for line in lines) > len(lines) / 2:
            return separator
    return " "


def _time_s(row, at) -> float | None:
    """Seconds, since 1970 or relative, of a number or of a date as ISO 8601 has it."""
    if at >= len(row):
        return None
    value = _number(row[at])
    if value is None:
        return _date_s(row[at])
    for least, most, unit_s in _UNIX_UNITS_S:
        if least <= value < most:
            return value * unit_s
    return value if abs(value) < UNIX_SINCE_S else None


def _date_s(text) -> float | None:
    """Without a zone it is this machine's own."""
    if not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:", text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _product(row, columns) -> float | None:
    value = 1.0
    for at in columns:
        factor = _number(row[at]) if at < len(row) else None
        if factor is None:
            return None
        value *= factor
    return value


def _number(text) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
