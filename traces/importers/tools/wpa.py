"""Disk usage table of the Windows Performance Analyzer, exported as CSV.

Its columns and their order depend on the profile, so that they are found by the header. Separator, decimal point and
separators of thousands depend on the locale of the machine that exported it. Offsets are hexadecimal; the last one is
part of the extent; those of flushes are 2^64-1.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile, read_head
from blkreel.traces.importers.source_format import UNKNOWN_OP, Batch, ImportOptions, SourceFormat, head_lines

from .text_lines import Lines, blocks_of_lines

_OPS = {b"Read": OPS["read"], b"Write": OPS["write"], b"Flush": OPS["flush"]}
_SECONDS_PLACES = {"s": 9, "ms": 6, "us": 3, "µs": 3, "ns": 0}
_TITLES = {"op": "io type", "submit": "init time", "complete": "complete time", "begin": "min offset",
           "end": "max offset", "size": "size", "disk": "disk", "process": "process", "count": "count"}
_ADD_COLUMNS = "add the column to the table Disk Usage of the Windows Performance Analyzer, and export it again"
# Of numbers in French and Swiss exports: no-break spaces and a quotation mark, as UTF-8 and as Windows-1252.
_GROUPING = re.compile(rb"(?<=\d)(?:\xe2\x80\xaf|\xc2\xa0|\xe2\x80\x99|\xa0|\x92)(?=\d{3})")


class Wpa(SourceFormat):
    name = "wpa"
    title = "Windows Performance Analyzer, disk usage exported as CSV"
    resolution_ns = 100

    def likeness(self, head: bytes) -> float:
        lines = head_lines(head)
        if not lines:
            return 0.0
        titles = {_title(text)[0] for text in _split(lines[0])[0]}
        # Two titles are enough, so that a missing column is named.
        return len(titles & {"io type", "init time"}) / 2

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        lines = head_lines(read_head(source.path))
        table = _Table(str(source.path), lines)
        header_lines = 1
        for block in blocks_of_lines(source, account, _with_plain_grouping, table.separator):
            at = np.flatnonzero(block.count > 0)
            at, header_lines = at[header_lines:], header_lines if not len(at) else 0
            account.read(len(at))
            wrong = block.count[at] != table.fields
            block.account_for(wrong, account.reject, f"not {table.fields} fields", at)
            at = at[~wrong]
            grouped = table.is_sum(block, at)
            block.account_for(grouped, account.reject, "a sum of several I/Os, of a table with grouping", at)
            yield table.batch(block, at[~grouped], account)


class _Table:
    """The layout of one export. separator, point: of fields, and before fractions."""

    def __init__(self, name: str, lines: list[bytes]):
        titles, self.separator = _split(lines[0]) if lines else ([], b",")
        self.fields = len(titles)
        self._places: dict[str, int] = {}
        self._columns: dict[str, int] = {}
        for at, text in enumerate(titles):
            title, unit = _title(text)
            key = next((key for key, wanted in _TITLES.items() if wanted == title), None)
            if key in ("submit", "complete") and unit not in _SECONDS_PLACES or key == "size" and unit != "b":
                continue
            if key is not None:
                self._columns.setdefault(key, at)
                self._places[key] = _SECONDS_PLACES.get(unit, 0)
        for key in ("op", "submit", "begin"):
            if key not in self._columns:
                raise TraceError(f"{name} has no column {_TITLES[key].title()}", _ADD_COLUMNS)
        if "size" not in self._columns and "end" not in self._columns:
            raise TraceError(f"{name} has neither the column Size (B) nor Max Offset", _ADD_COLUMNS)
        self.point = _decimal_point([_fields(line, self.separator)[self._columns["submit"]] for line in lines[1:]
                                     if len(_fields(line, self.separator)) == self.fields])

    def is_sum(self, lines: Lines, at: np.ndarray) -> np.ndarray:
        """Which lines stand for several I/Os, as far as the table has their number."""
        if "count" not in self._columns:
            return np.zeros(len(at), bool)
        count, valid = lines.grouped_integers(*lines.field(self._columns["count"], at))
        return valid & (count > 1)

    def batch(self, lines: Lines, at: np.ndarray, account: Account) -> Batch:
        """The records of the lines with the indexes `at`. Rejects lines whose fields are no numbers."""
        def field(key: str) -> tuple[np.ndarray, np.ndarray]:
            return lines.field(self._columns[key], at)

        def texts(key: str, value_of: Callable[[bytes], bytes] = lambda text: text) -> pa.DictionaryArray | None:
            if key not in self._columns:
                return None
            starts, ends = field(key)
            return lines.texts(starts[valid], ends[valid], value_of)

        op = lines.mapped(*field("op"), lambda text: _OPS.get(text, UNKNOWN_OP)).astype(np.int8)
        is_flush = op == OPS["flush"]
        submit_ns, valid = self._time_ns(lines, at, "submit")
        begin, begin_valid = self._offset(lines, at, "begin")
        valid &= is_flush | begin_valid & (begin < 1 << 63)
        if "size" in self._columns:
            size, size_valid = lines.grouped_integers(*field("size"))
            valid &= size_valid & (size < 1 << 63)
        else:
            end, size_valid = self._offset(lines, at, "end")
            size = end - begin + np.uint64(1)
            valid &= is_flush | size_valid & (end >= begin) & (end < 1 << 63)
        latency_ns = None
        if "complete" in self._columns:
            complete_ns, complete_valid = self._time_ns(lines, at, "complete")
            latency_ns = complete_ns - submit_ns
            valid &= complete_valid & (latency_ns >= 0)
        lines.account_for(~valid, account.reject, "a number is invalid or out of range", at)
        return Batch(
            submit_ns[valid], np.where(is_flush, 0, begin.astype(np.int64))[valid],
            np.where(is_flush, 0, size.astype(np.int64))[valid], op[valid], lines.numbers[at][valid],
            latency_ns=None if latency_ns is None else latency_ns[valid],
            device=texts("disk", lambda text: b"disk" + text), process=texts("process"))

    def _time_ns(self, lines: Lines, at: np.ndarray, key: str) -> tuple[np.ndarray, np.ndarray]:
        return lines.grouped_decimals(*lines.field(self._columns[key], at), self.point, self._places[key])

    def _offset(self, lines: Lines, at: np.ndarray, key: str) -> tuple[np.ndarray, np.ndarray]:
        starts, ends = lines.field(self._columns[key], at)
        value, valid = lines.hexadecimals(starts, ends)
        if valid.all():
            return value, valid
        decimal, decimal_valid = lines.grouped_integers(starts, ends)
        return np.where(valid, value, decimal), valid | decimal_valid


def _with_plain_grouping(block: bytes) -> bytes:
    return block if block.isascii() else _GROUPING.sub(b"'", block)


def _split(line: bytes) -> tuple[list[bytes], bytes]:
    """The fields of a header, and the separator: the one of ; , and tab that gives most."""
    separator = max((b";", b",", b"\t"), key=line.count)
    return _fields(line, separator), separator


def _fields(line: bytes, separator: bytes) -> list[bytes]:
    """The fields of a line, without quotes."""
    parts, quoted, text = [], False, b""
    for piece in re.split(b'(["' + re.escape(separator) + b"])", line.strip()):
        if piece == b'"':
            quoted = not quoted
        elif piece == separator and not quoted:
            parts.append(text.strip())
            text = b""
        else:
            text += piece
    return [*parts, text.strip()]


def _title(text: bytes) -> tuple[str, str]:
    """A column's title in small letters, and its unit, as in `Init Time (s)`; `Process (Name)` is a process."""
    plain = text.decode(errors="replace").replace("μ", "µ").replace("�", "µ").strip().lower()
    title, _, unit = plain.partition(" (")
    return title, unit.rstrip(")")


def _decimal_point(times: list[bytes]) -> bytes:
    """The byte before the fraction: the last of . and , in the times."""
    for text in times:
        marks = [bytes([byte]) for byte in text if byte in b".,"]
        if marks:
            return marks[-1]
    return b"."
