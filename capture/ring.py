"""The flight recorder: a capture that goes on for ever and holds only what came last."""

import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from blkreel.traces.errors import UsageError
from blkreel.traces.spool import Spool

_LOOK_EVERY_NS = 500_000_000
_LEAST_SHARE = 16  # what is dropped at once: each time, the names of what is dropped are saved
_LEAST_BYTES = 64 << 10
_HANDED_OVER_S = 0.25  # the helper hands over what it has ten times a second


@dataclass(frozen=True)
class _Mark:
    """What the spool held at a moment: nothing before written_bytes was recorded later."""

    written_bytes: int
    at_ns: int


class Ring:
    """Drops the head of a spool. max_bytes, keep_ns: what to hold at most, None where that does not matter.

    Dropped are whole blocks, so that a little more than asked for is held.
    """

    def __init__(self, spool: Spool, max_bytes: int | None, keep_ns: int | None):
        self.spool, self.max_bytes, self.keep_ns = spool, max_bytes, keep_ns
        self.dropped_rows = 0
        self.dropped_until_ns: int | None = None
        self._marks: deque[_Mark] = deque()
        self._looked_ns = 0
        spool.refuse_without_holes()

    def look(self) -> None:
        """To be called a few times a second. Raises BlkreelError where the disk is full."""
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns < _LOOK_EVERY_NS:
            return
        self._looked_ns = now_ns
        written_bytes = self.spool.written_bytes()
        self._marks.append(_Mark(written_bytes, now_ns))
        until_bytes = 0
        if self.max_bytes is not None:
            until_bytes = written_bytes - self.max_bytes
        if self.keep_ns is not None:
            old = [mark.written_bytes for mark in self._marks if mark.at_ns <= now_ns - self.keep_ns]
            until_bytes = max([until_bytes, *old[-1:]])
        begin_bytes = self.spool.begin_bytes
        if until_bytes - begin_bytes > max(_LEAST_BYTES, (written_bytes - begin_bytes) // _LEAST_SHARE):
            self._drop(until_bytes)

    def metadata(self) -> dict:
        """Where the trace begins in the capture, and why."""
        return {"max_bytes": self.max_bytes, "keep_ns": self.keep_ns, "dropped_rows": self.dropped_rows}

    def lost_since_begin(self, lost: dict) -> dict:
        """Of all that was lost, what belongs to the part of the capture that is held."""
        if self.dropped_until_ns is None or not lost["total"]:
            return lost
        intervals = [one for one in lost["intervals"] if one["last_ns"] >= self.dropped_until_ns]
        per_cpu: dict[str, int] = {}
        for one in intervals:
            per_cpu[str(one["cpu"])] = per_cpu.get(str(one["cpu"]), 0) + one["count"]
        return {"total": sum(per_cpu.values()), "per_cpu": per_cpu, "intervals": intervals}

    def _drop(self, until_bytes):
        self.dropped_rows += self.spool.drop_head(until_bytes, lambda rows: {
            "ring": {**self.metadata(), "dropped_rows": self.dropped_rows + rows}})
        epoch_ns = self.spool.metadata("epoch_ns")
        while self._marks and self._marks[0].written_bytes <= self.spool.begin_bytes:
            self.dropped_until_ns = self._marks.popleft().at_ns - epoch_ns


def save_now(spool: Spool, metadata: dict) -> Path:
    """Make a trace of what is held, beside the output; the capture goes on. Returns its path.

    Raises BlkreelError where the disk is full.
    """
    time.sleep(_HANDED_OVER_S)
    output = spool.output
    stamp = datetime.now().strftime("%Y%m%dT%H%M%S")
    path = output.with_name(f"{output.stem}-{stamp}{output.suffix}")
    number = 1
    while path.exists():
        number += 1
        path = output.with_name(f"{output.stem}-{stamp}-{number}{output.suffix}")
    now_ns = time.monotonic_ns()
    begun = spool.metadata("clock_pairs")
    return spool.save_copy(path, {
        **metadata, "duration_ns": now_ns - spool.metadata("epoch_ns"),
        "clock_pairs": [*begun, {"monotonic_ns": now_ns, "realtime_ns": time.time_ns()}]})


def refuse_too_small(max_bytes: int | None) -> None:
    if max_bytes is not None and max_bytes < _LEAST_BYTES:
        raise UsageError(f"a ring of {max_bytes} bytes holds next to nothing", "give at least --max-size 64K")
