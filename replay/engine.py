"""Runs the helper that issues I/O: feeds it a plan, hands on what became of each row."""

import fcntl
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.traces.blocks import BlockReader, BlockStreamError, BlockWriter, End, Note, Rows
from blkreel.traces.errors import BlkreelError, SafetyError, UsageError

from .payload import Payload

HELPER = Path(__file__).with_name("blkreel-replay")

PLAN_COLUMNS = [("due_ns", "i8"), ("offset_bytes", "i8"), ("length_bytes", "i8"), ("op", "i1"),
                ("flags", "i4"), ("stream", "i2"), ("burst", "i4"), ("source_row", "i8")]
RECORD_COLUMNS = [("due_ns", "i8"), ("submit_ns", "i8"), ("complete_ns", "i8"), ("offset_bytes", "i8"),
                  ("length_bytes", "i8"), ("op", "i1"), ("flags", "i4"), ("cpu", "i2"), ("status", "i2"),
                  ("stream", "i2"), ("burst", "i4"), ("source_row", "i8")]

BLOCK_ROWS = 32768  # the helper reads eight such blocks ahead
MAX_DEPTH = 16384

_PIPE_BYTES = 1 << 20
_END_TIMEOUT_S = 45  # the helper gives outstanding I/O 30 s before it ends
_ERRORS = {2: UsageError, 5: SafetyError}


@dataclass(frozen=True)
class EngineOptions:
    """How a plan is issued.

    target: a block device or a regular file. depth: rows outstanding at most. may_write: without it the
    target is opened read-only and a plan with anything but reads is refused. exclusive: claim a block
    device with O_EXCL. spin_ns: how long before a deadline the engine stops sleeping. max_errors: failed
    rows in a row that end the run, 0 for never. null_bytes: no target at all, but one of that size that
    completes at once: what is measured then is the engine. plain: none of the kernel's newer help.
    """

    target: Path | None = None
    depth: int = 1024
    may_write: bool = False
    direct: bool = True
    seed: int = 0
    payload: Payload = Payload()
    exclusive: bool = True
    cpu: int | None = None
    realtime: bool = False
    spin_ns: int = 100_000
    max_errors: int = 1000
    null_bytes: int | None = None
    null_fail: tuple[int, int] | None = None  # from this source row on the null target fails with this errno
    plain: bool = False

    def command(self) -> list[str]:
        words = [str(HELPER), f"--depth={self.depth}", f"--seed={self.seed}",
                 f"--compressible={self.payload.compressible_percent}",
                 f"--duplicates={self.payload.duplicates_percent}",
                 f"--spin-ns={self.spin_ns}", f"--max-errors={self.max_errors}"]
        words += [word for word, wanted in [("--may-write", self.may_write), ("--buffered", not self.direct),
                                            ("--shared", not self.exclusive), ("--realtime", self.realtime),
                                            ("--plain", self.plain)] if wanted]
        if self.cpu is not None:
            words.append(f"--cpu={self.cpu}")
        if self.null_fail is not None:
            words.append("--nil-fail={},{}".format(*self.null_fail))
        if self.null_bytes is not None:
            return [*words, f"--nil={self.null_bytes}"]
        if self.target is None:
            raise ValueError("neither a target nor null_bytes")
        return [*words, "--", str(self.target)]


def run_engine(options: EngineOptions, plan: Iterable[dict[str, np.ndarray]],
               on_rows: Callable[[dict[str, np.ndarray]], None], on_note: Callable[[dict], None]) -> dict:
    """Issue `plan`, which is read in a thread of its own as the helper takes it, and return the totals.

    on_rows gets the rows as they complete (RECORD_COLUMNS), not in the order of the plan; on_note the progress
    about twice a second. Both run in the caller's thread. Ctrl-C ends the run in order: what was outstanding is
    waited for and handed on, and totals["stopped"] says why. A second Ctrl-C raises KeyboardInterrupt.

    Raises SafetyError where the target is in use or the plan does not fit it, BlkreelError where the helper
    failed, and whatever `plan` or on_rows raised. The helper has ended whenever this returns or raises.
    """
    with tempfile.TemporaryFile() as complaint:
        helper = _start(options, complaint)
        feeder = _Feeder(helper, plan)
        try:
            with _interrupt_ends(helper):
                feeder.start()
                totals = _collect(helper, on_rows, on_note)
                code = helper.wait(_END_TIMEOUT_S)
        except BlockStreamError:
            code, totals = _code_after_death(helper), None
        finally:
            _end(helper, feeder)
        complaint.seek(0)
        said = complaint.read().decode(errors="replace").strip()
    if feeder.error is not None:
        raise feeder.error
    if code or totals is None:
        raise _error(code, said)
    return totals


class _Feeder(threading.Thread):
    """Writes the plan to the helper. An error of the plan's own is kept; the pipe then ends without its end block."""

    def __init__(self, helper, plan):
        super().__init__(name="plan", daemon=True)
        self._helper = helper
        self._plan = plan
        self.error = None

    def run(self):
        pipe = self._helper.stdin
        try:
            writer = BlockWriter(pipe, "plan", PLAN_COLUMNS)
            for columns in self._plan:
                for part in _parts(columns):
                    writer.rows(part)
            writer.end()
        except BrokenPipeError:
            pass  # the helper has ended, and says itself why
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        finally:
            try:
                pipe.close()
            except OSError:
                pass


def _parts(columns):
    count = len(columns["due_ns"])
    for first in range(0, count, BLOCK_ROWS):
        yield {name: columns[name][first:first + BLOCK_ROWS] for name, _ in PLAN_COLUMNS}


def _start(options, complaint) -> subprocess.Popen:
    # A session of its own: Ctrl-C on the terminal must reach it through us only, or records would be lost.
    helper = subprocess.Popen(options.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaint,
                              start_new_session=True)
    for pipe in (helper.stdin, helper.stdout):
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # the user's share of pipe memory is used up; smaller pipes work too
    return helper


def _collect(helper, on_rows, on_note) -> dict:
    for block in BlockReader(helper.stdout, "records", RECORD_COLUMNS):
        if isinstance(block, Rows):
            on_rows(block.columns)
        elif isinstance(block, Note):
            on_note(block.fields)
        elif isinstance(block, End):
            return block.fields
    raise AssertionError("BlockReader ends with End or raises")


@contextmanager
def _interrupt_ends(helper):
    """The first Ctrl-C asks the helper to end; reading its records goes on undisturbed until they are all here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number, frame):
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)
        helper.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


def _code_after_death(helper):
    try:
        return helper.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


def _end(helper, feeder):
    """Whatever happened: no helper is left, and no thread that feeds it."""
    if helper.poll() is None:
        helper.terminate()
    helper.stdout.close()  # a helper that still writes sees that nobody reads
    try:
        helper.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        helper.kill()
    # The feeder may be inside the plan's own reading; it ends at its next write.
    feeder.join(timeout=5)


def _error(code, said) -> BlkreelError:
    message, _, remedy = said.rpartition("\n")[2].partition("; ")
    if code is not None and code < 0:
        message, remedy = f"the replay helper was killed by signal {-code}", ""
        if -code in (signal.SIGABRT, signal.SIGSEGV):
            message, remedy = f"the replay helper broke: {said or signal.Signals(-code).name}", ""
    return _ERRORS.get(code, BlkreelError)(message or "the replay helper ended without a word", remedy or None)

