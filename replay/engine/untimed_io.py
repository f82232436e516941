"""I/O without times, issued for its effect on the drive: preparation, and writes before a replay."""

import errno
import os
import shlex
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from types import FrameType

import numpy as np

from blkreel.common.errors import BlkreelError
from blkreel.common.progress import Progress, ProgressTask
from blkreel.common.system import handled_signals
from blkreel.common.units import format_bytes
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import Target, engine_options
from blkreel.traces.format.schema import OP_NAMES, OPS, WRITE_CODES

from .engine import Batch, Engine, EngineOptions, Lane, Payload, run_engine

INTERRUPTED = "interrupted"  # totals["stopped"] after a signal
_WINDOW_S = 60.0
_UNSUPPORTED = (-errno.EOPNOTSUPP, -errno.EINVAL)


class Interrupted(BlkreelError):
    """The user stopped a command before it had a result."""

    exit_code = 130


class UntimedIo:
    """Counts completed I/O and reports progress.

    done_bytes: including those before the start. refused_discards: discards that the drive does not support.
    """

    def __init__(self, target: Target, step: str, task: ProgressTask, total_bytes: int, done_bytes: int = 0,
                 detail: Callable[[int, float], str] | None = None):
        self.done_bytes = done_bytes
        self.written_bytes = self.discarded_bytes = self.refused_discards = 0
        self._target, self._step, self._task, self._total_bytes = target, step, task, total_bytes
        self._detail = detail
        self._samples = deque([(time.monotonic(), done_bytes)])

    def add(self, rows: Batch) -> None:
        """Completed rows. Raises BlkreelError for the first that failed."""
        status, length = rows["status"], rows["length_bytes"]
        is_discard = rows["op"] == OPS["discard"]
        is_refused = is_discard & np.isin(status, _UNSUPPORTED)
        failed = np.flatnonzero((status != 0) & ~is_refused)
        if len(failed):
            raise BlkreelError(f"{self._step} {self._target.path} failed: {error_text(rows, int(failed[0]))}",
                               self._remedy(int(status[failed[0]]), int(length[failed[0]])))
        self.refused_discards += int(is_refused.sum())
        self.done_bytes += int(length.sum())
        self.discarded_bytes += int(length[is_discard & ~is_refused].sum())
        self.written_bytes += int(length[np.isin(rows["op"], (*WRITE_CODES, OPS["write_zeroes"]))].sum())
        rate = self._recent_bytes_per_s()
        detail = self._detail(self.done_bytes, rate) if self._detail else ""
        self._task.update(self.done_bytes, f"{format_bytes(self.done_bytes)} of {format_bytes(self._total_bytes)}, "
                                           f"{format_bytes(rate)}/s{detail}")

    def _recent_bytes_per_s(self) -> float:
        """The rate of the last minute: a drive is slower once its cache is full."""
        now = time.monotonic()
        if now - self._samples[-1][0] > _WINDOW_S / 60:
            self._samples.append((now, self.done_bytes))
        while len(self._samples) > 1 and now - self._samples[1][0] > _WINDOW_S:
            self._samples.popleft()
        start_s, start_bytes = self._samples[0]
        return (self.done_bytes - start_bytes) / max(now - start_s, 1e-9)

    def _remedy(self, status: int, length_bytes: int) -> str:
        image = self._target.drive.backing_file
        is_full = status == -errno.ENOSPC
        if image and status == -errno.EIO:  # of a write that is cut short
            with suppress(OSError):
                is_full = shutil.disk_usage(image).free < length_bytes
        if image and is_full:
            return f"free space on the file system of its image: df -h {shlex.quote(image)}"
        if is_full and self._target.drive.kind == "dm":
            return "extend its thin pool, which is full, with lvextend; pools: dmsetup status --target thin-pool"
        return "read the kernel log: dmesg | tail"


def issue_untimed(target: Target, plan: Iterable[Batch], *, step: str, total_bytes: int, depth: int, seed: int,
                  payload: Payload, progress: Progress, engine: Engine = run_engine, done_bytes: int = 0,
                  on_done: Callable[[Batch], None] | None = None,
                  detail: Callable[[int, float], str] | None = None,
                  after_interruption: str = "nothing was measured yet: start it again") -> UntimedIo:
    """Issue a generated stream and wait for its end.

    step: a verb for messages, `filling`. done_bytes: part of total_bytes that was done before. on_done: gets completed
    rows. detail(done_bytes, bytes_per_s): end of the progress line. after_interruption: remedy of Interrupted.

    Raises BlkreelError for the first failed I/O, Interrupted if the user stops it.
    """
    with progress(step, total_bytes) as task:
        if done_bytes:
            task.update(done_bytes)
        untimed = UntimedIo(target, step, task, total_bytes, done_bytes, detail)

        def on_rows(rows: Batch) -> None:
            untimed.add(rows)
            if on_done:
                on_done(rows)
            task.take_rows(rows)

        with held(target) as claim:
            options = EngineOptions(**engine_options([target]), claims=(claim,) if claim else (), may_write=True,
                                    seed=seed, payload=payload)
            totals = engine(options, [Lane(plan, depth)], on_rows, task.take_note)
    stopped = totals.get("stopped")
    # Ctrl-C after the last I/O was issued still cancels the following steps.
    if stopped == INTERRUPTED or totals.get("asked_to_stop"):
        raise Interrupted(f"{target.path}: {step} was interrupted after {format_bytes(untimed.done_bytes)}",
                          after_interruption)
    if stopped:
        raise BlkreelError(f"{target.path}: {step} ended early: {stopped}", "read the kernel log: dmesg | tail")
    return untimed


def error_kind(op: int, status: int) -> str:
    """`write EIO`."""
    return f"{OP_NAMES[op]} {errno.errorcode.get(-status, -status)}"


def error_text(rows: Batch, index: int) -> str:
    """`write of 4,096 bytes at 1,048,576: Input/output error (EIO)`."""
    code = -int(rows["status"][index])
    return (f"{OP_NAMES[int(rows['op'][index])]} of {int(rows['length_bytes'][index]):,} bytes at "
            f"{int(rows['offset_bytes'][index]):,}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")


def sigterm_as_interrupt() -> AbstractContextManager[None]:
    """Pass SIGTERM, and SIGHUP unless it is ignored (nohup), to the handler of SIGINT while the block runs."""
    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # the kernel may send it more than once
        # A script starts its background jobs with SIGINT ignored.
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    return handled_signals({number: interrupt for number in (signal.SIGTERM, signal.SIGHUP)
                            if signal.getsignal(number) is not signal.SIG_IGN})
