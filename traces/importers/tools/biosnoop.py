"""Output of biosnoop, of the BCC tools in Python or of libbpf-tools.

    TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)
    0.000004    supervise      1950    xvda1     W 13092560   4096      0.01    0.74

A line is written at completion: the time of issue is TIME - LAT, and as exact as LAT, which has 10 us in the Python
version. Its T has only R and W, where requests without data, such as flushes, cannot be distinguished.
"""

import re
from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.operation_letters import category_of, flags_of, op_of
from blkreel.traces.importers.source_file import SourceFile, read_head
from blkreel.traces.importers.source_format import Batch, ImportOptions, SourceFormat, head_lines

from .text_lines import Lines, blocks_of_lines

# The first title differs in versions.
_TIME_TITLES = ("TIME(s)", "TIMESTAMP", "TIME")
_NEEDED = ("COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "LAT(ms)")
_SECTOR_BYTES = 512
_HEADER_LINES = 5
_PROMPT = re.compile(rb".*[#$%>]( .*|$)")
# Option -P: no blank stands between 7 or more digits of BYTES and the pattern.
_WITH_PATTERN = re.compile(rb"(\d{7})([SR?]) ")
_STARTING = b"Tracing block device I/O"
# To standard error, of BCC and of libbpf-tools; in the file by `2>&1`.
_LOST = re.compile(rb"(?:Possibly )?lost (\d+) (?:samples|events)", re.IGNORECASE)


class Biosnoop(SourceFormat):
    name = "biosnoop"
    title = "biosnoop of BCC"
    resolution_ns = 10_000
    stamped_at = "completion"

    def likeness(self, head: bytes) -> float:
        titles = _titles(head)
        return sum(title in titles for title in ("SECTOR", "BYTES", "LAT(ms)")) / 3

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        titles = _titles(read_head(source.path))
        if missing := [title for title in _NEEDED if title not in titles]:
            raise TraceError(f"{source.path} has no column {missing[0]}",
                             "record again with: biosnoop-bpfcc > FILE, and keep its first line")
        # The name may have blanks: fields behind it are counted from the end of the line.
        columns = {title: at - len(titles) for at, title in enumerate(titles)}
        for lines in blocks_of_lines(source, account, lambda block: _WITH_PATTERN.sub(rb"\1 \2 ", block)
                                     if "P" in titles else block):
            at = np.flatnonzero(lines.count > 0)
            # Also behind the start, where outputs are joined or the next prompt is pasted.
            starts, _ = lines.field(0, at)
            is_frame = [index for index in np.flatnonzero(~lines.is_digit(starts)).tolist()
                        if _is_frame(lines.line(at[index]), account)]
            at = np.delete(at, is_frame)
            account.read(len(at))
            yield _batch(lines, at, columns, account)


def _batch(lines: Lines, at: np.ndarray, columns: dict[str, int], account: Account) -> Batch:
    def field(title: str) -> tuple[np.ndarray, np.ndarray]:
        return lines.field(columns[title], at)

    starts, ends = lines.field(0, at)
    # The first line may not be the first I/O, and its time is 0.
    is_before = lines.byte(starts) == ord("-")
    complete_ns, valid = lines.scaled_decimals(starts + is_before, ends, 9)
    complete_ns = np.where(is_before, -complete_ns, complete_ns)
    latency_ns, latency_valid = lines.scaled_decimals(*field("LAT(ms)"), 6)
    queue_ns = None
    if "QUE(ms)" in columns:
        starts, ends = field("QUE(ms)")
        # libbpf-tools print -1.000 of a request that was not inserted into a scheduler's queue.
        is_unknown = lines.byte(starts) == ord("-")
        queue_ns, queue_valid = lines.scaled_decimals(starts + is_unknown, ends, 6)
        queue_ns = np.where(is_unknown, -1, queue_ns)
        valid &= queue_valid
    # A line without a drive has no field for it: there stands the process number.
    disk_starts, _ = field("DISK")
    has_drive = ~lines.is_digit(disk_starts)
    pid, pid_valid = lines.integers(*lines.field(np.where(has_drive, columns["PID"], columns["PID"] + 1), at))
    length, length_valid = lines.integers(*field("BYTES"))
    sector, sector_valid = lines.integers(*field("SECTOR"))
    category = lines.mapped(*field("T"), category_of)
    op = op_of(category)
    is_flush = op == OPS["flush"]
    valid &= latency_valid & pid_valid & length_valid & (length < 1 << 63) & (pid < 1 << 31)
    valid &= is_flush | (length == 0) | sector_valid & (sector < (1 << 63) // _SECTOR_BYTES)
    valid &= lines.count[at] >= len(columns) - 1
    empty = valid & (length == 0) & ~is_flush
    driveless = valid & ~empty & ~has_drive
    for mask, count, reason in ((~valid, account.reject, "a field is not a number, or missing"),
                                (empty, account.ignore, "requests without data whose operation is not recorded"),
                                (driveless, account.ignore, "requests without a drive")):
        lines.account_for(mask, count, reason, at)
    chosen = valid & ~empty & ~driveless
    at = at[chosen]
    name_starts, _ = lines.field(1, at)
    _, name_ends = lines.field(columns["PID"] - 1, at)
    has_name = name_ends > name_starts
    letters = category[chosen]
    return Batch((complete_ns - latency_ns)[chosen],
                 np.where(is_flush, np.uint64(0), sector)[chosen].astype(np.int64) * _SECTOR_BYTES,
                 length[chosen].astype(np.int64), op[chosen], lines.numbers[at], latency_ns=latency_ns[chosen],
                 queue_ns=None if queue_ns is None else queue_ns[chosen],
                 device=lines.texts(*lines.field(columns["DISK"], at)), tid=pid[chosen].astype(np.int32),
                 process=lines.texts(np.where(has_name, name_starts, 0), np.where(has_name, name_ends, 0)),
                 flags=flags_of(letters))


def _titles(head: bytes) -> list[str]:
    """The titles of the header, which may follow a prompt and a line about the start; the first one as TIME(s)."""
    for line in head_lines(head)[:_HEADER_LINES]:
        words = line.decode(errors="replace").split()
        if words[:1] and words[0] in _TIME_TITLES and words[1:2] == ["COMM"]:
            return ["TIME(s)", *words[1:]]
    return []


def _is_frame(line: bytes, account: Account) -> bool:
    """Whether the line is a header, a prompt with a command, the line about the start, ^C, or about lost events."""
    if lost := _LOST.match(line):
        account.lost_events += int(lost[1])
        return True
    words = line.decode(errors="replace").split()
    return words[0] in _TIME_TITLES and words[1:2] == ["COMM"] or line.startswith((_STARTING, b"^C")) \
        or _PROMPT.match(line) is not None
