"""Events block:* as text: the file `trace` of tracefs, `trace-cmd report` and `perf script`.

    fio-812     [001] d..1.  5124.123456: block_rq_issue: 8,0 R 4096 () 2048 + 8 none,0,0 [fio]
    fio     812 [001]  5124.123456:       block:block_rq_complete: 8,0 R () 2048 + 8 none,0,0 [0]

Extents are in sectors of 512 bytes; times are seconds of the trace clock. The formats of the events are those of
include/trace/events/block.h of the kernel; from Linux 6.9 on, the priority stands before the thread or the error.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.operation_letters import PASSTHROUGH, WRITE, WRITE_ZEROES, ZONE_MANAGEMENT, category_of
from blkreel.traces.importers.source_file import SourceFile, read_head
from blkreel.traces.importers.source_format import Batch, ImportOptions, SourceFormat, text_lines_of

from . import block_events
from .block_events import EventPairing, Events
from .text_lines import Lines, blocks_of_lines, grouped_integer

# Actions by the event's name. block_io_start of Linux 6.5 runs in the thread that created the request.
_ACTIONS = {"block_bio_queue": block_events.QUEUE, "block_getrq": block_events.GET_REQUEST,
            "block_io_start": block_events.GET_REQUEST, "block_rq_insert": block_events.INSERT,
            "block_rq_issue": block_events.ISSUE, "block_rq_complete": block_events.COMPLETE,
            "block_rq_requeue": block_events.REQUEUE, "block_rq_merge": block_events.BACK_MERGE,
            "block_bio_backmerge": block_events.BACK_MERGE, "block_bio_frontmerge": block_events.FRONT_MERGE,
            "block_split": block_events.SPLIT, "block_bio_complete": block_events.BIO_COMPLETE}
# Fields between the operation and the sector: the bytes and the command, the command only, or none.
_BEFORE_SECTOR = {"block_io_start": 2, "block_rq_insert": 2, "block_rq_issue": 2, "block_rq_merge": 2,
                  "block_rq_complete": 1, "block_rq_requeue": 1}
_OTHER_BLOCK_EVENT, _OTHER_EVENT, _NO_EVENT = -1, -2, -3
_NAMES = list(_ACTIONS)
_WITH_ERROR = [_NAMES.index(name) for name in ("block_rq_complete", "block_rq_requeue", "block_bio_complete")]
_CODE_OF = np.array([_ACTIONS[name] for name in _NAMES])
_OFFSET_OF = np.array([_BEFORE_SECTOR.get(name, 0) for name in _NAMES])
_FEWEST_FLAGS, _MOST_FLAGS = 4, 12
_MOST_NAME_FIELDS = 6  # of the thread's name and number, before the CPU
_SECTOR_BYTES = 512
# A line of any event. The CPU stands in brackets, or before the flags as `trace-cmd report -l` prints it. Flags have 4
# to 9 characters by the kernel, most with PREEMPT_RT. Times are in seconds, or in ns without a point.
_LINE = re.compile(rb"\s*\S.*[\s-]\d+(/\d+)?\s+(\([ \d-]+\)\s+)?(\[\d+\]\s+(\S{4,12}\s+)?|\d+[^\s\d]\S{3,11}\s+)"
                   rb"(\d+\.\d{6,9}|\d+):\s+[\w:]+:.*")
_EVENT_NAME = re.compile(rb"\bblock_(rq|bio|io)_[a-z]+: ")
_SAMPLE_LINES = 20
# Times of `perf script --deltatime` begin near 0, and as many are shorter as are longer than the one before.
_EARLY_NS, _MOST_BACK_STEPS = 1_000_000_000, 0.2
# A page of Android systrace has the text of ftrace in it, up to the end of a script.
_PAGE = re.compile(rb"\s*<(!doctype\s+html|html)", re.IGNORECASE)
_SYSTRACE_WORDS = (b"systrace", b"trace-viewer", b"catapult", b"# tracer: ")
_TRACE_BEGIN, _TRACE_END = b"# tracer: ", b"</script"
# In the first pages of systrace it is a string of JavaScript: its lines end with \\n\\, and it ends with ";.
_STRING_MARK = re.compile(rb'\\n\\$|^";$', re.MULTILINE)
# Of ftrace, with DROPPED of trace-cmd, and of perf script --show-lost-events.
_LOST = re.compile(rb"CPU:\d+ \[(?:LOST )?(?:(\d.*) )?EVENTS(?: DROPPED)?\]|.*: PERF_RECORD_LOST lost (\d+)")
# In the file `trace`: a full buffer loses its oldest events, those of each CPU up to a time of its own.
_WRITTEN = re.compile(rb"# entries-in-buffer/entries-written: (\d+)/(\d+)")
# No events: call chains, and records of threads and switches by options of perf script.
_CALL = re.compile(rb"\s+[0-9a-f]+ .*|\s*=> .*|\s*<stack trace.*|cpus=\d+|CPU \d+ is empty|.*: PERF_RECORD_[A-Z_]+\b.*")
_RECORD_BOTH = "record issue and completion: perf record -a -e block:block_rq_issue -e block:block_rq_complete"


class Ftrace(SourceFormat):
    name = "ftrace"
    title = "block events of ftrace, trace-cmd report or perf script"
    # The decoder gives rows in the order of their completion.
    stamped_at = "completion"
    counts_back_steps = True

    def likeness(self, head: bytes) -> float:
        if _is_page(head):
            return float(any(word in head for word in _SYSTRACE_WORDS))
        lines = [line for line in text_lines_of(head)
                 if line.strip() and not line.startswith(b"#") and not _CALL.fullmatch(line) and not _LOST.match(line)]
        # Other lines may stand before the first event, and block events may come late.
        first = next((at for at, line in enumerate(lines) if _LINE.fullmatch(line)), None)
        if first is None:
            return float(head.startswith(b"# tracer: "))
        sample = lines[first:first + _SAMPLE_LINES]
        return sum(_LINE.fullmatch(line) is not None for line in sample) / len(sample)

    def near_miss(self, head: bytes) -> str:
        lines = text_lines_of(head)
        return "with other fields than those of perf record -a and perf script" \
            if sum(_EVENT_NAME.search(line) is not None for line in lines) * 2 > len(lines) else ""

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        actions: set[int] = set()
        first_ns: int | None = None
        with EventPairing(account) as pairing:
            head = read_head(source.path)
            is_page = _is_page(head)
            event = next((match for line in text_lines_of(head) if (match := _LINE.fullmatch(line))), None)
            if event and b"." not in event[5]:
                if head.startswith(_TRACE_BEGIN):
                    raise TraceError(f"{source.path}: times are ticks of the trace_clock x86-tsc or counter, of "
                                     "unknown length",
                                     "record again after: echo mono > /sys/kernel/tracing/trace_clock")
                account.warn(f"{source.path}: times are whole numbers without a unit, read as ns")
            for lines in blocks_of_lines(_TraceOfPage(source) if is_page else source, account):
                events = _events(lines, account)
                actions |= set(np.unique(events.action).tolist())
                if first_ns is None and len(events.time_ns):
                    first_ns = int(events.time_ns[0])
                pairing.take(events)
                yield from pairing.batches()
            yield from pairing.finish()
        back = account.back_steps
        if first_ns is not None and first_ns < _EARLY_NS and back > account.records * _MOST_BACK_STEPS:
            raise TraceError(f"{source.path}: {back:,} of {account.records:,} times are earlier than the one before, "
                             "so they are differences", "export it again without --deltatime: perf script > game.txt")
        if is_page and not account.records:
            raise TraceError(f"{source.path} is an HTML page without text of ftrace in it",
                             "name a page of Android systrace, or the text: atrace -t 10 disk > trace.txt")
        if not actions & {block_events.ISSUE, block_events.BIO_COMPLETE} and account.records:
            raise TraceError(f"{source.path} has no block_rq_issue events", _RECORD_BOTH)
        if not actions & {block_events.COMPLETE, block_events.BIO_COMPLETE}:
            account.warn(f"{source.path} has no block_rq_complete events: no I/O has a latency")


class _TraceOfPage:
    """The text of ftrace in a page of Android systrace; of the rest of the page the line ends, which are counted."""

    def __init__(self, source: SourceFile):
        self.path = source.path
        self._source = source
        self._data = b""
        self._inside = self._ended = False

    def read(self, count: int) -> bytes:
        """About `count` bytes, b"" at the end."""
        parts: list[bytes] = []
        while not parts and not self._ended:
            added = self._source.read(count)
            self._ended = not added
            self._data += added
            while (at := self._data.find(_TRACE_END if self._inside else _TRACE_BEGIN)) >= 0:
                self._pass_on(at, parts)
                self._inside = not self._inside
            # A mark may be cut, and so may the end of a line.
            end = len(self._data) if self._ended else max(len(self._data) - len(_TRACE_BEGIN), 0)
            self._pass_on(self._data.rfind(b"\n", 0, end) + 1 if self._inside and not self._ended else end, parts)
        return b"".join(parts)

    def _pass_on(self, end: int, parts: list[bytes]) -> None:
        text, self._data = self._data[:end], self._data[end:]
        text = _STRING_MARK.sub(b"", text) if self._inside else b"\n" * text.count(b"\n")
        if text:
            parts.append(text)


def _is_page(head: bytes) -> bool:
    return _PAGE.match(head) is not None


def _events(lines: Lines, account: Account) -> Events:
    """The events that take part in pairing. Accounts for all other lines."""
    cpu_at = _cpu_field(lines)
    starts, ends = lines.field(np.where(cpu_at > 0, cpu_at + 1, -1 << 30))
    has_flags = (cpu_at > 0) & (lines.byte(ends - 1) != ord(":"))
    time_at = cpu_at + 1 + has_flags
    starts, ends = lines.field(np.where(cpu_at > 0, time_at + 1, -1 << 30))
    is_line = (cpu_at > 0) & (ends > starts)
    name = np.where(is_line, lines.mapped(starts, ends, _name_of), _NO_EVENT)
    losses = _account_for_others(lines, (name == _NO_EVENT) & (lines.count > 0), account)
    account.read(int((name != _NO_EVENT).sum()))
    lines.account_for(name == _OTHER_EVENT, account.ignore, "events of other subsystems")
    lines.account_for(name == _OTHER_BLOCK_EVENT, account.ignore, "block events without an issue or completion")
    at = np.flatnonzero(name >= 0)
    return replace(_fields(lines, at, name[at], cpu_at[at], time_at[at]), losses=losses)


def _fields(lines: Lines, at: np.ndarray, name: np.ndarray, cpu_at: np.ndarray, time_at: np.ndarray) -> Events:
    starts, ends = lines.field(cpu_at, at)
    bracketed = lines.byte(starts) == ord("[")
    digits = np.where(bracketed, 0, lines.digits(starts, ends, 5))
    cpu, valid = lines.integers(starts + bracketed, np.where(bracketed, ends - 1, starts + digits))
    starts, ends = lines.field(time_at, at)
    seconds_ns, seconds_valid = lines.scaled_decimals(starts, ends - 1, 9)
    whole_ns, is_whole = lines.integers(starts, ends - 1)
    time_ns = np.where(is_whole, whole_ns.astype(np.int64), seconds_ns)
    time_valid = np.where(is_whole, whole_ns < 1 << 62, seconds_valid)
    pid, pid_valid = _pid(lines, at, cpu_at)
    device_at = time_at + 2
    category = lines.mapped(*lines.field(device_at + 1, at), category_of)
    sector_at = device_at + 2 + _OFFSET_OF[name]
    sign_starts, sign_ends = lines.field(sector_at + 1, at)
    action = _CODE_OF[name]
    is_split = action == block_events.SPLIT
    has_extent = (sign_ends - sign_starts == 1) \
        & (lines.byte(sign_starts) == np.where(is_split, ord("/"), ord("+")))
    sector, sector_valid = lines.integers(*lines.field(sector_at, at))
    count, count_valid = lines.integers(*lines.field(sector_at + 2, at))
    stated_bytes, bytes_valid = lines.integers(*lines.field(device_at + 2, at))
    states_bytes = _OFFSET_OF[name] == 2
    valid &= time_valid & pid_valid & ~(has_extent & ~(sector_valid & count_valid)) & ~(states_bytes & ~bytes_valid)
    valid &= is_split | (count < 1 << 32)
    # Only passed-through commands have bytes of a command, so that the extent stands elsewhere.
    category = np.where(has_extent | (category < 0), category, PASSTHROUGH)
    count = np.where(has_extent & valid, count, np.uint64(0))
    # Kernels before 6.19 have no letter for write-zeroes; commands that are passed through have no sectors.
    category = np.where((category > 0) & (category & PASSTHROUGH != 0) & (count > 0),
                        category & ~PASSTHROUGH | WRITE | WRITE_ZEROES, category)
    # Before Linux 4.11 the bytes of requests of file systems are 0: only passed-through commands state them.
    states_bytes &= valid & has_extent & (stated_bytes > 0)
    length_bytes = np.where(states_bytes, stated_bytes, count * np.uint64(_SECTOR_BYTES))
    # Flushes have sector 2^64-1 on some kernels.
    has_sector = (count > 0) | (category > 0) & (category & ZONE_MANAGEMENT != 0)
    sector = np.where(has_sector & valid, sector, np.uint64(0))
    is_error = np.isin(name, _WITH_ERROR)
    status, status_valid = _status(lines, at, is_error)
    # The thread's name in brackets: behind the extent, or behind the priority that follows it.
    name_starts, name_ends = (np.where(is_error, 0, position) for position in lines.bracketed_text(
        at, (sector_at + 4, sector_at + 3)))
    return Events(lines, at, action, category, time_ns, sector,
                  np.where(is_split, 0, length_bytes.astype(np.int64)), pid, cpu.astype(np.int64), status,
                  lines.mapped(*lines.field(device_at, at), block_events.device_number), count,
                  name_starts, name_ends, valid & status_valid)


def _cpu_field(lines: Lines) -> np.ndarray:
    """The index of the CPU's field, such as [001]; 0 in lines without one."""
    cpu_field = np.zeros(len(lines), np.int64)
    left = np.flatnonzero(lines.count > 3)
    for index in range(1, _MOST_NAME_FIELDS + 1):
        if not len(left):
            break
        starts, ends = lines.field(index, left)
        bracketed = (lines.byte(starts) == ord("[")) & (lines.byte(ends - 1) == ord("]")) & (ends - starts > 2)
        _, is_number = lines.integers(np.where(bracketed, starts + 1, 0), np.where(bracketed, ends - 1, 0))
        is_cpu = bracketed & is_number | _is_cpu_with_flags(lines, starts, ends, index, left)
        cpu_field[left[is_cpu]] = index
        left = left[~is_cpu]
    return cpu_field


def _is_cpu_with_flags(lines: Lines, starts: np.ndarray, ends: np.ndarray, index: int, at: np.ndarray) -> np.ndarray:
    """Whether a field is a CPU and its flags, as 0d.h.., before a time, which a colon ends."""
    digits = lines.digits(starts, ends, 5)
    flags = ends - starts - digits
    is_cpu: np.ndarray = (digits > 0) & (flags >= _FEWEST_FLAGS) & (flags <= _MOST_FLAGS)
    if not is_cpu.any():
        return is_cpu
    time_starts, time_ends = lines.field(index + 1, at)
    time_digits = lines.digits(time_starts, time_ends, 5)
    is_cpu &= (time_digits > 0) & (lines.byte(time_ends - 1) == ord(":"))
    return is_cpu


def _pid(lines: Lines, at: np.ndarray, cpu_at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The thread's number: the last digits before the CPU, behind the name or alone. A group's number in parentheses
    may stand between.
    """
    starts, ends = lines.field(cpu_at - 1, at)
    in_parentheses = lines.byte(ends - 1) == ord(")")
    # "( 812)" is two fields.
    opens = lines.byte(starts) == ord("(")
    index = np.where(in_parentheses, np.where(opens, cpu_at - 2, cpu_at - 3), cpu_at - 1)
    starts, ends = lines.field(np.maximum(index, 0), at)
    pid, valid = lines.integers(ends - lines.digits(starts, ends, 10, at_end=True), ends)
    return pid.astype(np.int64), valid & (pid < 1 << 31)


def _status(lines: Lines, at: np.ndarray, is_error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The error at the end of the line, such as [-5], and where it is valid."""
    value, _, valid = lines.bracketed_number(at)
    valid &= value < 1 << 15
    return np.where(is_error & valid, -value.astype(np.int64), 0), ~is_error | valid


def _account_for_others(lines: Lines, non_events: np.ndarray, account: Account) -> list[int]:
    """Comments and call chains are no records; what else is no event is rejected. Returns the lines with losses."""
    losses = []
    for at in np.flatnonzero(non_events).tolist():
        line = lines.line(at)
        if lost := _LOST.match(line):
            account.lost_events += grouped_integer(lost[1] or lost[2] or b"1")
            losses.append(at)
        elif written := _WRITTEN.match(line):
            account.lost_events += max(int(written[2]) - int(written[1]), 0)
        elif not line.startswith(b"#") and not _CALL.fullmatch(line.rstrip()) and not line.startswith(b"version ="):
            account.read(1)
            account.reject("not an event of ftrace or perf", int(lines.numbers[at]), line)
    return losses


def _name_of(text: bytes) -> int:
    name = text.decode(errors="replace")
    if not name.endswith(":"):
        return _NO_EVENT
    name = name[:-1].removeprefix("block:")
    if name in _NAMES:
        return _NAMES.index(name)
    return _OTHER_BLOCK_EVENT if name.startswith("block_") else _OTHER_EVENT
