"""I/O that is issued for what it does to the drive, not for its times: preparation, and writes before a replay."""

import errno
import time
from collections import deque
from collections.abc import Iterable

import numpy as np

from blkreel.traces.errors import BlkreelError
from blkreel.traces.schema import OPS
from blkreel.traces.units import format_bytes

from .engine import EngineOptions, run_engine
from .onlooker import watchers
from .payload import Payload
from .records import error_text
from .safety import wait_released
from .target import Target, engine_options

_INTERRUPTED = "interrupted"  # how the engine's totals say that a signal ended it
_WINDOW_S = 60.0
_UNSUPPORTED = (-errno.EOPNOTSUPP, -errno.EINVAL)


class Interrupted(BlkreelError):
    """The user asked to stop before there was a result."""

    exit_code = 130


class Effect:
    """done_bytes: carried out, with what was before it began. refused_discards: the drive has no such command."""

    def __init__(self, target: Target, what: str, task, total_bytes: int, done_bytes: int = 0, more=None):
        self.done_bytes = done_bytes
        self.written_bytes = self.discarded_bytes = self.refused_discards = 0
        self._target, self._what, self._task, self._total_bytes = target, what, task, total_bytes
        self._more = more
        self._passed = deque([(time.monotonic(), done_bytes)])

    def take(self, rows: dict[str, np.ndarray]) -> None:
        """Rows as they complete. Raises BlkreelError at the first that failed."""
        status, length = rows["status"], rows["length_bytes"]
        is_discard = rows["op"] == OPS["discard"]
        refused = is_discard & np.isin(status, _UNSUPPORTED)
        failed = np.flatnonzero((status != 0) & ~refused)
        if len(failed):
            raise BlkreelError(f"{self._what} {self._target.path} failed: {error_text(rows, int(failed[0]))}",
                               self._remedy(int(status[failed[0]])))
        self.refused_discards += int(refused.sum())
        self.done_bytes += int(length.sum())
        self.discarded_bytes += int(length[is_discard & ~refused].sum())
        self.written_bytes += int(length[(rows["op"] == OPS["write"]) | (rows["op"] == OPS["write_zeroes"])].sum())
        rate = self._recent_bytes_per_s()
        more = self._more(self.done_bytes, rate) if self._more else ""
        self._task.update(self.done_bytes, f"{format_bytes(self.done_bytes)} of {format_bytes(self._total_bytes)}, "
                                           f"{format_bytes(rate)}/s{more}")

    def _recent_bytes_per_s(self):
        """Of the last minute: what filled a fast cache says little of what comes behind it."""
        now = time.monotonic()
        if now - self._passed[-1][0] > _WINDOW_S / 60:
            self._passed.append((now, self.done_bytes))
        while len(self._passed) > 1 and now - self._passed[1][0] > _WINDOW_S:
            self._passed.popleft()
        then, bytes_then = self._passed[0]
        return (self.done_bytes - bytes_then) / max(now - then, 1e-9)

    def _remedy(self, status) -> str:
        if status == -errno.ENOSPC and self._target.drive.backing_file:
            return f"free some space where its image lies: df -h {self._target.drive.backing_file}"
        return "look at: dmesg | tail"


def carry_out(target: Target, plan: Iterable[dict], *, what: str, total_bytes: int, depth: int, seed: int,
              payload: Payload, progress, engine=run_engine, done_bytes: int = 0, on_done=None, more=None,
              after_interruption: str = "nothing was measured yet: start it again") -> Effect:
    """Issue a generated stream and wait for its end. `what` is a verb for messages: `filling`.

    done_bytes: of the total, what was done before. on_done gets the rows that were carried out, as they complete;
    more(done_bytes, bytes_per_s) is the end of the line of progress. after_interruption: what the user is told then.

    Raises BlkreelError at the first failed I/O, Interrupted when the user stops it.
    """
    with progress(what, total_bytes) as task:
        if done_bytes:
            task.update(done_bytes)
        effect = Effect(target, what, task, total_bytes, done_bytes, more)

        watch_rows, watch_note, _ = watchers(task)

        def take(rows):
            effect.take(rows)
            if on_done:
                on_done(rows)
            watch_rows(rows)

        options = EngineOptions(**engine_options([target]), depth=depth, may_write=True, seed=seed, payload=payload)
        end = engine(options, plan, take, watch_note)
        wait_released(target)
    stopped = end.get("stopped")
    # Where all was issued already: whoever pressed Ctrl-C wants the steps that follow no more than this one.
    if stopped == _INTERRUPTED or end.get("asked_to_stop"):
        raise Interrupted(f"{what} {target.path} was interrupted after {format_bytes(effect.done_bytes)}",
                          after_interruption)
    if stopped:
        raise BlkreelError(f"{what} {target.path} ended early: {stopped}", "look at: dmesg | tail")
    return effect
