"""Text of `xperf -i trace.etl -a dumper`: one line per event, in columns that its header names for each kind of event.

    BeginHeader
              DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID, ...,   ByteOffset,     IOSize, ElapsedTime, ...
    EndHeader
              DiskRead,       8612,        xperf.exe (3984),      11844, ..., 0x018f0b8000, 0x00001000,         283, ...

Times are microseconds. An event is written at completion: the time of issue is TimeStamp - ElapsedTime.
"""

import re
from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import OP_NAMES, OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import Batch, ImportOptions, SourceFormat

from .text_lines import Lines, blocks_of_lines

_OPS = {b"DiskRead": OPS["read"], b"DiskWrite": OPS["write"], b"DiskFlush": OPS["flush"]}
_OTHER_EVENT, _NOTE = -1, -2
_NO_COLUMN = 1 << 20  # beyond those of any line
_BEGIN, _END = b"BeginHeader", b"EndHeader"
_HEADER_BYTES = 1 << 20  # of all kinds of events that Windows has
_PROCESS = re.compile(rb"(.*?)\s*\(\s*(-?\d+)\)")
# In the line about the recording. A buffer has at least one event.
_LOST = re.compile(rb"(?:events|buffers) lost: (\d+)", re.IGNORECASE)
_US_NS = 1000
_NEEDED = ("TimeStamp", "ElapsedTime", "DiskNum")
_EXTENT = ("ByteOffset", "IOSize")


class Xperf(SourceFormat):
    name = "xperf"
    title = "xperf -a dumper, text of Windows events"
    resolution_ns = _US_NS
    stamped_at = "completion"

    def likeness(self, head: bytes) -> float:
        return float(head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_BEGIN))

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        columns = _columns(source)
        in_header = True
        for lines in blocks_of_lines(source, account, separator=b","):
            kind = lines.mapped(*lines.field(0), _kind_of)
            account.lost_events += sum(int(count) for at in np.flatnonzero(kind == _NOTE).tolist()
                                       for count in _LOST.findall(lines.line(at)))
            # Lines of a single field are the limits of the header.
            is_record = (lines.count > 1) & (kind != _NOTE)
            if in_header:
                ends = np.flatnonzero(lines.mapped(*lines.field(0), lambda text: int(text == _END)))
                is_record[:int(ends[0]) + 1 if len(ends) else len(lines)] = False
                in_header = not len(ends)
            account.read(int(is_record.sum()))
            lines.account_for(is_record & (kind == _OTHER_EVENT), account.ignore, "other events")
            at = np.flatnonzero(is_record & (kind >= 0))
            yield _batch(lines, at, kind[at], columns, account)


def _batch(lines: Lines, at: np.ndarray, op: np.ndarray, columns: dict[int, dict[str, int]], account: Account
           ) -> Batch:
    def field(title: str) -> tuple[np.ndarray, np.ndarray]:
        # Each kind of event has its own columns.
        index = np.full(len(OPS), _NO_COLUMN)
        for kind, positions in columns.items():
            index[kind] = positions.get(title, _NO_COLUMN)
        return lines.field(index[op], at)

    time_us, valid = lines.integers(*field("TimeStamp"))
    elapsed_us, elapsed_valid = lines.integers(*field("ElapsedTime"))
    valid &= elapsed_valid & (time_us < 1 << 52) & (elapsed_us < 1 << 52)
    is_flush = op == OPS["flush"]
    (offset, offset_valid), (size, size_valid) = (_extent(lines, *field(title)) for title in _EXTENT)
    valid &= is_flush | offset_valid & size_valid
    lines.account_for(~valid, account.reject, "a field is not a number, or missing", at)
    at, op, is_flush = at[valid], op[valid], is_flush[valid]
    elapsed_ns = elapsed_us[valid].astype(np.int64) * _US_NS
    tid, tid_valid = lines.integers(*field("ThreadID"))
    starts, ends = field("Process Name ( PID)")
    pid = lines.mapped(starts, ends, lambda text: int(match[2]) if (match := _PROCESS.fullmatch(text)) else -1)
    has_threads = any("ThreadID" in positions for positions in columns.values())
    return Batch(time_us[valid].astype(np.int64) * _US_NS - elapsed_ns, np.where(is_flush, 0, offset[valid]),
                 np.where(is_flush, 0, size[valid]), op.astype(np.int8), lines.numbers[at], latency_ns=elapsed_ns,
                 device=lines.texts(*field("DiskNum"), value_of=lambda text: b"disk" + text),
                 tid=np.where(tid_valid & (tid < 1 << 31), tid, 0).astype(np.int32) if has_threads else None,
                 pid=pid, process=lines.texts(starts, ends, value_of=_name_of_process))


def _extent(lines: Lines, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value, valid = lines.hexadecimals(starts, ends)
    return value.astype(np.int64), valid & (value < 1 << 63)


def _kind_of(text: bytes) -> int:
    return _NOTE if text.startswith(b"OS Version:") else _OPS.get(text, _OTHER_EVENT)


def _name_of_process(text: bytes) -> bytes:
    match = _PROCESS.fullmatch(text)
    return match[1] if match else text


def _columns(source: SourceFile) -> dict[int, dict[str, int]]:
    """The position of each column by its title, for each operation."""
    with SourceFile(source.path) as file:
        _, _, tail = file.read(_HEADER_BYTES).partition(_BEGIN)
    header, end, _ = tail.partition(_END)
    if not end:
        raise TraceError(f"{source.path} has no header from BeginHeader to EndHeader",
                         "write the file again with: xperf -i TRACE.etl -o FILE -a dumper")
    kinds: dict[int, dict[str, int]] = {}
    for line in header.splitlines():
        titles = [b" ".join(title.split()) for title in line.split(b",")]
        if titles[0] in _OPS:
            kinds[_OPS[titles[0]]] = {title.decode(errors="replace"): at for at, title in enumerate(titles)}
    if not kinds:
        raise TraceError(f"{source.path} has no disk events", "record with: xperf -on DiskIO+PROC_THREAD+LOADER")
    for op, columns in kinds.items():
        needed = _NEEDED if op == OPS["flush"] else _NEEDED + _EXTENT
        if missing := [title for title in needed if title not in columns]:
            raise TraceError(f"{source.path}: the events of {OP_NAMES[op]}s have no column {missing[0]}",
                             "write the file again with: xperf -i TRACE.etl -o FILE -a dumper")
    return kinds
