"""I/O logs of fio, versions 2 and 3, as write_iolog makes them.

    fio version 3 iolog
    10752 /dev/sda write 0 4096

Version 3 has microseconds before each action. Version 2 has only `wait` records; fio's documentation calls their time
relative, but fio itself waits until that many milliseconds after its start, and so does the import. In version 3 fio
waits for the difference to the time of the record before; where that is negative, it does not wait.
"""

import re
from collections.abc import Iterator

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.common.units import counted
from blkreel.traces.format.schema import OPS, TIME_LIMIT_NS
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.source_file import SourceFile, read_head
from blkreel.traces.importers.source_format import Batch, ImportOptions, SourceFormat, head_lines

from .text_lines import blocks_of_lines

_OPS = {b"read": OPS["read"], b"write": OPS["write"], b"trim": OPS["discard"], b"sync": OPS["flush"],
        b"datasync": OPS["flush"]}
_WAIT, _FILE_ACTION, _UNKNOWN = -2, -3, -4
_ACTIONS = {**_OPS, b"wait": _WAIT, b"add": _FILE_ACTION, b"open": _FILE_ACTION, b"close": _FILE_ACTION}
_HEADER = re.compile(rb"fio version (\d+) iolog\s*")
# Nanoseconds of the unit of time, by version.
_UNIT_NS = {2: 1_000_000, 3: 1_000}


class _Clock:
    """Times of replay by fio from those of the log. reached_ns: that of the last record."""

    def __init__(self, version: int, account: Account):
        self.reached_ns = 0
        self._version = version
        self._account = account
        self._last_ns = self._latest_ns = 0

    def submit_ns(self, time_ns: np.ndarray, has_time: np.ndarray) -> np.ndarray:
        """When fio issues records. time_ns: in the log. has_time: which of them have a time; the others are 0."""
        if not len(time_ns):
            return time_ns
        stamped_ns = time_ns[has_time]
        before_ns = np.concatenate([[self._last_ns], stamped_ns])
        steps_ns = np.diff(before_ns)
        back_ns = (np.maximum.accumulate(np.maximum(before_ns, self._latest_ns))[:-1] - stamped_ns)[steps_ns < 0]
        if len(back_ns):
            self._account.note_back_steps(len(back_ns), int(back_ns.max()))
        if self._version == 2:
            replayed_ns = np.maximum.accumulate(np.maximum(time_ns, self.reached_ns))
        elif self.reached_ns + float(steps_ns.clip(0).sum(dtype=float)) > TIME_LIMIT_NS:
            raise TraceError(f"{self._account.file}: the sum of the delays is more than 73 years",
                             "the times are not microseconds since the start: record the log again")
        else:
            replayed_ns = self.reached_ns + np.cumsum(steps_ns.clip(0))
        self._last_ns, self._latest_ns = int(before_ns[-1]), max(self._latest_ns, int(before_ns.max()))
        self.reached_ns = int(replayed_ns[-1])
        return replayed_ns

    def warn_of_back_steps(self) -> None:
        if count := self._account.back_steps:
            rule = "each without a delay after the record before, as fio replays them" if self._version == 3 \
                else "at the latest time before, as fio replays them"
            self._account.warn(f"{counted(count, 'record')} with an earlier time than the record before: {rule}")


class _Iolog(SourceFormat):
    version: int
    counts_back_steps = True

    def likeness(self, head: bytes) -> float:
        lines = head_lines(head)
        header = _HEADER.fullmatch(lines[0]) if lines else None
        return float(header is not None and int(header[1]) == self.version)

    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        self._refuse_other_versions(source)
        clock = _Clock(self.version, account)
        header_lines = 1
        for lines in blocks_of_lines(source, account):
            at = np.flatnonzero(lines.count > 0)
            at, header_lines = at[header_lines:], header_lines if not len(at) else 0
            account.read(len(at))
            before = self.version - 2
            action = lines.mapped(*lines.field(before + 1, at), lambda text: _ACTIONS.get(text, _UNKNOWN))
            value, value_valid = lines.integers(*lines.field(before + 2, at))
            length, length_valid = lines.integers(*lines.field(before + 3, at))
            is_io = action >= 0
            if self.version == 2:
                time, time_valid = np.where(action == _WAIT, value, np.uint64(0)), (action != _WAIT) | value_valid
            else:
                time, time_valid = lines.integers(*lines.field(0, at))
            valid = (action != _UNKNOWN) & time_valid & (time < TIME_LIMIT_NS // _UNIT_NS[self.version])
            # Syncs have no extent in some versions.
            valid &= ~is_io | (action == OPS["flush"]) | value_valid & length_valid \
                & (value < 1 << 63) & (length < 1 << 63)
            lines.account_for(~valid, account.reject, "not an action with a time and an extent", at)
            time_ns = np.zeros(len(at), np.int64)
            has_time = valid & (action == _WAIT) if self.version == 2 else valid
            time_ns[valid] = clock.submit_ns(time[valid].astype(np.int64) * _UNIT_NS[self.version], has_time[valid])
            for code, reason in ((_WAIT, "waits"), (_FILE_ACTION, "actions on files: add, open, close")):
                lines.account_for(valid & (action == code), account.ignore, reason, at)
            chosen = valid & is_io
            is_flush = action == OPS["flush"]
            starts, ends = lines.field(before, at[chosen])
            yield Batch(time_ns[chosen], np.where(is_flush, np.uint64(0), value)[chosen].astype(np.int64),
                        np.where(is_flush, np.uint64(0), length)[chosen].astype(np.int64),
                        action[chosen].astype(np.int8), lines.numbers[at[chosen]], device=lines.texts(starts, ends))
        clock.warn_of_back_steps()
        if not clock.reached_ns:
            account.warn(f"{source.path} has no times: all I/Os are at time 0, so a replay in original timing issues "
                         "them at once")

    def _refuse_other_versions(self, source: SourceFile) -> None:
        lines = head_lines(read_head(source.path))
        header = _HEADER.fullmatch(lines[0]) if lines else None
        if header is None or int(header[1]) != self.version:
            states = f"is of version {int(header[1])}" if header else "does not begin with `fio version N iolog`"
            raise TraceError(f"{source.path} {states}, not an I/O log of version {self.version}",
                             "versions 2 and 3 are supported: --format iolog2 or --format iolog3")


class Iolog2(_Iolog):
    name = "iolog2"
    title = "fio I/O log, version 2"
    version = 2
    resolution_ns = _UNIT_NS[2]


class Iolog3(_Iolog):
    name = "iolog3"
    title = "fio I/O log, version 3"
    version = 3
    resolution_ns = _UNIT_NS[3]
