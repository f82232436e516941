"""The flight recorder: a capture without end that holds only its last part."""

import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from blkreel.common.errors import UsageError
from blkreel.traces.format.metadata_types import Lost
from blkreel.traces.spool.spool import Spool

_CHECK_EVERY_NS = 500_000_000
_MIN_DROP_SHARE = 16  # 1/16 at least, of bytes or time, since each drop saves the names of the dropped part
_MIN_BYTES = 64 << 10
_FLUSH_S = 0.25  # the helper writes its rows ten times a second


@dataclass(frozen=True)
class _Mark:
    """The length of the spool at a moment: its first written_bytes hold nothing later."""

    written_bytes: int
    at_ns: int


class RingMetadata(TypedDict):
    """The limits of the ring, and the rows that it dropped."""

    max_bytes: int | None
    keep_ns: int | None
    dropped_rows: int


class Ring:
    """Drops the head of a spool. max_bytes, keep_ns: the most to hold, None for no limit.

    It drops whole blocks, so that it holds a little more than that.
    """

    def __init__(self, spool: Spool, max_bytes: int | None, keep_ns: int | None):
        self.spool, self.max_bytes, self.keep_ns = spool, max_bytes, keep_ns
        self.dropped_rows = 0
        self.dropped_until_ns: int | None = None
        self._marks: deque[_Mark] = deque()
        self._checked_ns = self._tried_bytes = 0
        spool.refuse_without_holes()

    def drop_old(self) -> None:
        """Drop what is beyond the limits. Called a few times a second. Raises BlkreelError if the disk is full."""
        now_ns = time.monotonic_ns()
        if now_ns - self._checked_ns < _CHECK_EVERY_NS:
            return
        self._checked_ns = now_ns
        written_bytes = self.spool.written_bytes()
        if not self._marks or written_bytes > self._marks[-1].written_bytes:
            self._marks.append(_Mark(written_bytes, now_ns))
        begin_bytes = max(self._tried_bytes, self.spool.begin_bytes)
        until_bytes, too_old = 0, False
        if self.max_bytes is not None:
            until_bytes = written_bytes - self.max_bytes
        if self.keep_ns is not None:
            old = [mark.written_bytes for mark in self._marks if mark.at_ns <= now_ns - self.keep_ns]
            until_bytes = max([until_bytes, *old[-1:]])
            oldest_ns = next((mark.at_ns for mark in self._marks if mark.written_bytes > begin_bytes), now_ns)
            too_old = now_ns - oldest_ns > self.keep_ns + self.keep_ns // _MIN_DROP_SHARE
        if too_old or until_bytes - begin_bytes > max(_MIN_BYTES, (written_bytes - begin_bytes) // _MIN_DROP_SHARE):
            self._tried_bytes = until_bytes  # a block that ends later stays
            self._drop(until_bytes)

    def metadata(self) -> RingMetadata:
        """The part of the capture that the trace lacks, and the reason."""
        return {"max_bytes": self.max_bytes, "keep_ns": self.keep_ns, "dropped_rows": self.dropped_rows}

    def lost_since_begin(self, lost: Lost) -> Lost:
        """The losses in the part of the capture that is held. Those without a time may be in it, and stay."""
        if self.dropped_until_ns is None or not lost["total"]:
            return lost
        held, total, per_cpu = [], lost["total"], dict(lost["per_cpu"])
        for interval in lost["intervals"]:
            if interval["last_ns"] >= self.dropped_until_ns:
                held.append(interval)
                continue
            total -= interval["count"]
            per_cpu[str(interval["cpu"])] = per_cpu.get(str(interval["cpu"]), 0) - interval["count"]
        return {**lost, "total": total, "per_cpu": {cpu: count for cpu, count in per_cpu.items() if count > 0},
                "intervals": held}

    def _drop(self, until_bytes: int) -> None:
        epoch_ns = self.spool.metadata("epoch_ns")

        def note(rows: int) -> dict[str, Any]:
            while self._marks and self._marks[0].written_bytes <= self.spool.begin_bytes:
                self.dropped_until_ns = self._marks.popleft().at_ns - epoch_ns
            self.dropped_rows += rows
            return {"ring": self.metadata(), "spool_held_from_ns": self.dropped_until_ns or 0}

        self.spool.drop_head(until_bytes, note)


def save_now(spool: Spool, metadata: dict[str, Any]) -> Path:
    """Save the recorded part as a trace beside the output; the capture continues. Returns its path.

    Raises BlkreelError if the disk is full.
    """
    time.sleep(_FLUSH_S)
    output = spool.output
    stamp = datetime.now().strftime("%Y%m%dT%H%M%S")
    path = output.with_name(f"{output.stem}-{stamp}{output.suffix}")
    number = 1
    while path.exists():
        number += 1
        path = output.with_name(f"{output.stem}-{stamp}-{number}{output.suffix}")
    now_ns = time.monotonic_ns()
    return spool.save_copy(path, {
        **metadata, "duration_ns": now_ns - spool.metadata("epoch_ns"),
        "clock_pairs": [*spool.metadata("clock_pairs"), {"monotonic_ns": now_ns, "realtime_ns": time.time_ns()}]})


def refuse_too_small(max_bytes: int | None) -> None:
    if max_bytes is not None and max_bytes < _MIN_BYTES:
        raise UsageError(f"--max-size is too small: {max_bytes} bytes", "give at least --max-size 64K")
