"""Text of blkparse in its default format, as `blkparse -i sda` prints it: one event per line.

    8,16   5        6     0.000031865 18615  D   R 1444645666 + 256 [java]

Times are seconds with nine digits since the first event; extents are in sectors of 512 bytes. blkparse(1) and
process_default() in its source describe the lines.
"""

import re
from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.operation_letters import FLUSH, PASSTHROUGH, category_of
from blkreel.traces.importers.source_file import SourceFile
from blkreel.traces.importers.source_format import ALIKE, Batch, ImportOptions, SourceFormat, head_lines

from . import block_events
from .block_events import EventPairing, Events
from .text_lines import Lines, blocks_of_lines, grouped_integer

_ACTIONS = {b"Q": block_events.QUEUE, b"M": block_events.BACK_MERGE, b"F": block_events.FRONT_MERGE,
            b"G": block_events.GET_REQUEST, b"R": block_events.REQUEUE, b"D": block_events.ISSUE,
            b"C": block_events.COMPLETE, b"I": block_events.INSERT, b"X": block_events.SPLIT}
# Events that say nothing about an I/O's issue or completion, by their letters.
_OTHER = {b"A": "remap events", b"P": "plug events", b"U": "unplug events", b"UT": "unplug events",
          b"T": "unplug events", b"m": "messages", b"S": "sleep events", b"B": "bounce events",
          b"d": "driver data events", b"a": "abort events", b"W": "bounce events"}
_OTHER_CODES = {letters: -2 - at for at, letters in enumerate(_OTHER)}
_CODES = _OTHER_CODES | _ACTIONS
_UNKNOWN_ACTION = -1
_LINE = re.compile(rb"\s*\d+,\d+ +\d+ +\d+ +\d+\.\d{9} +\d+ +[A-Za-z]{1,2} +[A-Z]+ .*")
# A line of another format that begins with a device, as many formats of `blkparse -f` do.
_CUSTOM_LINE = re.compile(rb"\s*\d+,\d+\s.*")
_SUMMARY = re.compile(rb"\s*(CPU\d+ \(|Total \(|Throughput \(|Events \(|Skips: |Input file |(PC )?(Reads?|Writes?|IO) "
                      rb"|(PC )?(Read|Write) (Dispatches|Merges|depth)|(Allocation|Dispatch|Completion) wait: "
                      rb"|\S.* \(\d+(, \.\.\.)?\)\s*$)")  # of a process, by option -s
_SKIPS = re.compile(rb"\s*Skips: .* forward \((\d.*?)\s+-\s")
_SECTOR_BYTES = 512


class Blkparse(SourceFormat):
    name = "blkparse"
    title = "blkparse text, default format"
    # The decoder gives rows in the order of their completion.
    stamped_at = "completion"
    counts_back_steps = True

    def likeness(self, head: bytes) -> float:
        lines = [line for line in head_lines(head) if not _SUMMARY.match(line)]
        if not lines:
            return 0.0
        return sum(_LINE.fullmatch(line) is not None for line in lines) / len(lines)

    def near_miss(self, head: bytes) -> str:
        lines = [line for line in head_lines(head) if not _SUMMARY.match(line)]
        custom = sum(_CUSTOM_LINE.fullmatch(line) is not None for line in lines)
        return "in a format of its option -f, which is not imported" if lines and custom >= ALIKE * len(lines) else ""

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        with EventPairing(account) as pairing:
            for lines in blocks_of_lines(source, account):
                pairing.take(_events(lines, account))
                if account.records and account.rejected_records == account.records:
                    raise TraceError(f"{source.path} is not in the default format of blkparse: "
                                     + "; ".join(account.lines(account.rejected, "rejected")),
                                     "print the recording again without -f: blkparse -i DEVICE > FILE")
                yield from pairing.batches()
            yield from pairing.finish()


def _events(lines: Lines, account: Account) -> Events:
    """The events that take part in pairing. Accounts for all other lines."""
    device_starts, device_ends = lines.field(0)
    is_event = (lines.count >= 7) & (device_ends - device_starts >= 3) & lines.is_digit(device_starts) \
        & lines.is_digit(device_ends - 1)
    _account_for_others(lines, ~is_event & (lines.count > 0), account)
    account.read(int(is_event.sum()))
    codes = lines.mapped(*lines.field(5), lambda letters: _CODES.get(letters, _UNKNOWN_ACTION))
    action = np.where(is_event, codes, _UNKNOWN_ACTION)
    lines.account_for(is_event & (action == _UNKNOWN_ACTION), account.reject, "the action is unknown")
    for letters, code in _OTHER_CODES.items():
        lines.account_for(is_event & (action == code), account.ignore, _OTHER[letters])
    at = np.flatnonzero(is_event & (action > 0))
    return _fields(lines, at, action[at])


def _fields(lines: Lines, at: np.ndarray, action: np.ndarray) -> Events:
    def field(index: int) -> tuple[np.ndarray, np.ndarray]:
        return lines.field(index, at)

    cpu, valid = lines.integers(*field(1))
    time_ns, time_valid = lines.scaled_decimals(*field(3), 9)
    pid, pid_valid = lines.integers(*field(4))
    category = lines.mapped(*field(6), category_of)
    valid &= time_valid & pid_valid & (pid < 1 << 31)
    sign_starts, sign_ends = field(8)
    sign = lines.byte(sign_starts)
    is_split = action == block_events.SPLIT
    has_extent = (sign_ends - sign_starts == 1) & (sign == np.where(is_split, ord("/"), ord("+")))
    sector, sector_valid = lines.integers(*field(7))
    count, count_valid = lines.integers(*field(9))
    valid &= ~has_extent | sector_valid & count_valid & (is_split | (count < 1 << 32))
    # Without an extent a line is a flush, the end of a flush sequence, or a passed-through command.
    is_flush = (category & FLUSH) != 0
    category = np.where(has_extent | is_flush | (category < 0), category, PASSTHROUGH)
    status, status_valid = _status(lines, at, action)
    valid &= status_valid
    # The thread's name: from the first field in brackets after the operation to the end of the line.
    name_starts, name_ends = lines.bracketed_text(at, (12, 11, 10, 8, 7))
    count = np.where(has_extent & valid, count, np.uint64(0))
    return Events(lines, at, action, category, time_ns, np.where(has_extent & valid, sector, np.uint64(0)),
                  np.where(is_split, 0, count.astype(np.int64) * _SECTOR_BYTES), pid.astype(np.int64),
                  cpu.astype(np.int64), status, lines.mapped(*field(0), block_events.device_number), count,
                  name_starts, np.where(_ends_with_status(action), name_starts, name_ends), valid)


def _ends_with_status(action: np.ndarray) -> np.ndarray:
    return np.isin(action, [block_events.COMPLETE, block_events.REQUEUE])


def _status(lines: Lines, at: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The error of completions and requeues, in brackets at the end of the line, and where it is valid."""
    has = _ends_with_status(action)
    value, negative, valid = lines.bracketed_number(at)
    # blkparse prints the error, a negative number of 16 bits, as an unsigned one.
    status = np.where(negative, -value.astype(np.int64), value.astype(np.int64)).astype(np.int16)
    return np.where(has, status, 0), ~has | valid & (value < 1 << 16)


def _account_for_others(lines: Lines, non_events: np.ndarray, account: Account) -> None:
    """Summary lines are no records; what else is no event is rejected."""
    for at in np.flatnonzero(non_events).tolist():
        line = lines.line(at)
        if skips := _SKIPS.match(line):
            account.lost_events += grouped_integer(skips[1])
        elif not _SUMMARY.match(line):
            account.read(1)
            account.reject("not an event of blkparse", int(lines.numbers[at]), line)
