"""Align the clock of a frame log with that of a trace, and say how sure the alignment is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.units import duration

from .frame_log import FrameLog

_SECOND_NS = 10**9
# A file system stamps a file with the time of the last clock tick, which is up to 10 ms old (CONFIG_HZ=100).
_STAMP_NS = 10_000_000
_ASKED_NS = 1_000_000  # of a time that the user gives
_NAME_SLACK_NS = 200_000_000  # between the start of a log and its name, beside the rounding to seconds
# A log that is written at its end: by threads that start then, row by row. A key ends it within a frame after the last.
_WRITING_NS, _WRITING_ROW_NS = 50_000_000, 10_000
_ZONE_NS = 900 * _SECOND_NS  # time zones differ by whole quarters of an hour
_MOST_SHIFTS = 41
_ASK = "add --frames-start TIME: the time in the trace at which the clock of the log is 0"


@dataclass(frozen=True)
class Alignment:
    """Time in the trace = time of the log + offset_ns, within ± uncertainty_ns. words: how it was found."""

    offset_ns: int
    uncertainty_ns: int
    method: str
    words: str

    def document(self) -> dict[str, Any]:
        return {"offset_ns": self.offset_ns, "uncertainty_ns": self.uncertainty_ns, "method": self.method,
                "words": self.words}


def align(log: FrameLog, metadata: Mapping[str, Any], end_ns: int, start_ns: int | None = None) -> Alignment:
    """metadata: of the trace. end_ns: its last time. start_ns: the time in the trace at which the log's clock is 0, as
    the user gave it. Raises UsageError if the clocks cannot be aligned, and if no frame is within the trace."""
    alignment = _by_wall_clock(log, metadata, end_ns) if start_ns is None else Alignment(
        start_ns, _ASKED_NS, "given",
        f"by --frames-start, not checked: time 0 of the frame log is at {_seconds(start_ns)} of the trace")
    first_ns, last_ns = int(log.start_ns[0]) + alignment.offset_ns, int(log.end_ns[-1]) + alignment.offset_ns
    if last_ns + alignment.uncertainty_ns < 0 or first_ns - alignment.uncertainty_ns > end_ns:
        raise UsageError(f"{log.path}: no frame within the trace: the frames are from {_seconds(first_ns)} to "
                         f"{_seconds(last_ns)}, the trace is from 0 to {_seconds(end_ns)} ({alignment.words})",
                         f"name the log of the captured run, or {_ASK}")
    return alignment


def _by_wall_clock(log: FrameLog, metadata: Mapping[str, Any], end_ns: int) -> Alignment:
    wall = _wall_of(metadata)
    if wall is None:
        raise UsageError(f"{log.path}: the trace records no wall clock to align the frames with", _ASK)
    trace_zero_ns, drift_ns = wall
    last_ns = int(log.end_ns[-1])
    if log.wall_zero_ns is not None:
        return _result(log.wall_zero_ns - int(log.start_ns[0]), trace_zero_ns, drift_ns + _ASKED_NS, "recorded",
                       "by the date and time of the frames")
    if log.format != "MangoHud":
        raise UsageError(f"{log.path}: no start time recorded", _ASK)
    writing_ns = _writing_ns(log)
    by_change = log.changed_ns - last_ns - writing_ns // 2
    changed_within_ns = drift_ns + _STAMP_NS + writing_ns // 2
    if log.named_s is not None:
        zero_ns = log.named_s * _SECOND_NS - (last_ns if log.named_end else 0)
        if writing_ns < _SECOND_NS and _within_name(log.changed_ns - last_ns - zero_ns):
            return _result(by_change, trace_zero_ns, changed_within_ns, "changed",
                           "by the time of the last change of the log, which its name confirms")
        zero_ns += _zone_shift(zero_ns - trace_zero_ns, last_ns, end_ns)
        return _result(zero_ns + _SECOND_NS // 2, trace_zero_ns, drift_ns + _SECOND_NS // 2 + _NAME_SLACK_NS, "named",
                       "by the name of the log alone, which has whole seconds: the file was copied or changed")
    if 0 <= log.changed_ns - trace_zero_ns <= end_ns + _SECOND_NS:
        return _result(by_change, trace_zero_ns, changed_within_ns, "changed",
                       "by the time of the last change of the log, which is within the capture; its name has no time "
                       "to confirm it")
    raise UsageError(f"{log.path}: no start time: the file was renamed and changed after the capture", _ASK)


def _writing_ns(log: FrameLog) -> int:
    """From the last frame to the last change of the file, at most. 0 for a version that writes as it logs a frame."""
    if not log.named_end:
        return 0
    return _WRITING_NS + int(np.median(log.time_ns)) + _WRITING_ROW_NS * len(log.time_ns)


def _result(zero_ns: int, trace_zero_ns: int, uncertainty_ns: int, method: str, words: str) -> Alignment:
    return Alignment(zero_ns - trace_zero_ns, uncertainty_ns, method, f"{words}, within {duration(uncertainty_ns)}")


def _wall_of(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """(realtime at time 0 of the trace, how far the wall clock moved against it during the capture), in ns."""
    epoch_ns = metadata.get("epoch_ns")
    if not isinstance(epoch_ns, int):
        return None
    if metadata.get("clock") == "realtime":
        return epoch_ns, 0
    try:
        apart_ns = [pair["realtime_ns"] - pair["monotonic_ns"] for pair in metadata.get("clock_pairs") or ()]
    except (KeyError, TypeError):
        return None
    if metadata.get("clock") != "monotonic" or not apart_ns:
        return None
    return epoch_ns + apart_ns[0], max(apart_ns) - min(apart_ns)


def _within_name(after_ns: int) -> bool:
    """Whether a start is in the second of the name, in any time zone."""
    after_ns = (after_ns + _NAME_SLACK_NS) % _ZONE_NS - _NAME_SLACK_NS
    return -_NAME_SLACK_NS <= after_ns < _SECOND_NS + _NAME_SLACK_NS


def _zone_shift(start_ns: int, log_ns: int, end_ns: int) -> int:
    """The whole quarters of an hour that move a log from start_ns into the trace; 0 if it is within, or none does."""
    if start_ns + log_ns > 0 and start_ns < end_ns:
        return 0
    shift = round((end_ns - log_ns - 2 * start_ns) / 2 / _ZONE_NS) * _ZONE_NS
    moved = start_ns + shift
    return shift if moved + log_ns > 0 and moved < end_ns else 0


def fitted(alignment: Alignment, first_ns: int, last_ns: int, step_ns: int, reason: str) -> Alignment:
    """The alignment refined to shifts from the first to the last, if that is twice as exact. reason: of these."""
    shift_ns, uncertainty_ns = (first_ns + last_ns) // 2, (last_ns - first_ns) // 2 + step_ns
    if uncertainty_ns > alignment.uncertainty_ns // 2:
        return alignment
    words = (f"{alignment.words}; then shifted by {duration(abs(shift_ns))} so that {reason}, within "
             f"{duration(uncertainty_ns)}")
    return replace(alignment, offset_ns=alignment.offset_ns + shift_ns, uncertainty_ns=uncertainty_ns, method="fitted",
                   words=words)


def shifts_ns(alignment: Alignment) -> list[int]:
    """Offsets over the range of uncertainty, the most likely first."""
    count = min(_MOST_SHIFTS, 2 * max(1, -(-alignment.uncertainty_ns // 5_000_000)) + 1)
    shifts = np.rint(np.linspace(-alignment.uncertainty_ns, alignment.uncertainty_ns, count)).astype(np.int64).tolist()
    return [0, *(shift for shift in shifts if shift)]


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.3f} s"
