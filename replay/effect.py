"""I/O that is issued for what it does to the drive, not for its times: preparation, and writes before a replay."""

import errno
import time
from collections.abc import Iterable

import numpy as np

from blkreel.traces.errors import BlkreelError
from blkreel.traces.schema import OPS
from blkreel.traces.units import format_bytes

from .engine import EngineOptions, run_engine
from .payload import Payload
from .records import error_text
from .safety import wait_released
from .target import Target, engine_options

_INTERRUPTED = "interrupted"  # how the engine's totals say that a signal ended it
_UNSUPPORTED = (-errno.EOPNOTSUPP, -errno.EINVAL)


class Interrupted(BlkreelError):
    """The user asked to stop before there was a result."""

    exit_code = 130


class Effect:
    """done_bytes: carried out. refused_discards: the drive has no such command, so nothing came of them."""

    def __init__(self, target: Target, what: str, task, total_bytes: int):
        self.done_bytes = self.written_bytes = self.discarded_bytes = self.refused_discards = 0
        self._first_ns = self._last_ns = None
        self._target, self._what, self._task, self._total_bytes = target, what, task, total_bytes
        self._started = time.monotonic()

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
        first_ns, last_ns = int(rows["submit_ns"].min()), int(rows["complete_ns"].max())
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = last_ns if self._last_ns is None else max(self._last_ns, last_ns)
        elapsed_s = max(time.monotonic() - self._started, 1e-9)
        self._task.update(self.done_bytes, f"{format_bytes(self.done_bytes)} of {format_bytes(self._total_bytes)}, "
                                           f"{format_bytes(self.done_bytes / elapsed_s)}/s")

    @property
    def bytes_per_s(self) -> float:
        """From the first submit to the last completion."""
        return self.done_bytes * 1e9 / max(self._last_ns - self._first_ns, 1) if self._first_ns is not None else 0.0

    def _remedy(self, status) -> str:
        if status == -errno.ENOSPC and self._target.drive.backing_file:
            return f"free some space where its image lies: df -h {self._target.drive.backing_file}"
        return "look at: dmesg | tail"


def carry_out(target: Target, plan: Iterable[dict], *, what: str, total_bytes: int, depth: int, seed: int,
              payload: Payload, progress, engine=run_engine) -> Effect:
    """Issue a generated stream and wait for its end. `what` is a verb for messages: `filling`.

    Raises BlkreelError at the first failed I/O, Interrupted when the user stops it.
    """
    with progress(what, total_bytes) as task:
        effect = Effect(target, what, task, total_bytes)
        options = EngineOptions(**engine_options([target]), depth=depth, may_write=True, seed=seed, payload=payload)
        end = engine(options, plan, effect.take, lambda note: None)
        wait_released(target)
    stopped = end.get("stopped")
    if stopped == _INTERRUPTED:
        raise Interrupted(f"{what} {target.path} was interrupted after {format_bytes(effect.done_bytes)}",
                          "what it holds is now unknown: start it again from the beginning")
    if stopped:
        raise BlkreelError(f"{what} {target.path} ended early: {stopped}", "look at: dmesg | tail")
    return effect
