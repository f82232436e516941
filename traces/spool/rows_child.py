"""A child process that writes rows into a spool, and its status lines on stdout."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict

from blkreel.common.errors import BlkreelError
from blkreel.traces.format.metadata_types import ClockPair, Lost


class Attached(TypedDict):
    """The start of a recording. Times of rows are relative to epoch_ns of CLOCK_MONOTONIC.

    page_uses: whether the first use of the pages that a read brought is recorded.
    """

    source_format: str
    epoch_ns: int
    realtime_ns: int
    clock_resolution_ns: int
    capture_layer: str
    queue_time_source: str
    page_uses: NotRequired[bool]


class DriveTotals(TypedDict):
    """I/Os by kind: the drive's own counters (diskstats), and those recorded (seen). queued etc.: decoded events.

    paths_added, paths_removed: of a multipath head during the capture; a path that was removed takes its counters with
    it, so diskstats is None. stuck: in flight during the whole capture. bio_based: its bios are recorded.
    """

    device: str
    diskstats: dict[str, int] | None
    seen: dict[str, int]
    gone: NotRequired[bool]
    uncertain: NotRequired[int]
    bio_based: NotRequired[bool]
    stuck: NotRequired[int]
    paths_added: NotRequired[int]
    paths_removed: NotRequired[int]
    queued: NotRequired[int]
    issued: NotRequired[int]
    completed: NotRequired[int]


class Stream(TypedDict):
    """Properties of decoded events. unnamed: threads that had ended before their names were read."""

    clock_pair: ClockPair | None
    unnamed: list[int]
    unnumbered: int
    cut_bytes: int
    backward_steps: int
    from_issuer: int
    remaps: int
    messages: int


class Totals(TypedDict):
    """The end of a recording. ios and bytes are by operation code. Counts that a source does not have are None."""

    events: int
    stopped_ns: int
    monotonic_ns: int
    realtime_ns: int
    cpu_ns: int
    lost: Lost
    ledger: dict[str, int | None]
    recursion_misses: int | None
    in_flight_at_end: int
    queued_at_end: int | None
    drives: list[DriveTotals]
    ios: list[int]
    bytes: list[int]
    unwritten_rows: NotRequired[int]
    write_error: NotRequired[int]
    ended_by_signal: NotRequired[bool]
    epoch_ns: NotRequired[int]
    stream: NotRequired[Stream]


class RowsOutput(Protocol):
    """The open files of a spool."""

    @property
    def rows_file(self) -> FileIO: ...

    @property
    def reserve_file(self) -> FileIO: ...


class ChildKilled(BlkreelError):
    """A child ended by a signal and without a message, which says nothing about the machine's abilities."""


class RowsChild:
    """A running child. name: its name in messages.

    attached, end: its first and last status, None before. error: the reason why it ended without an end; died is then
    set. events, lost: the counts so far. on_change is called in another thread after each change of attached, end and
    error; it must not block.
    """

    def __init__(self, name: str, program: Path, arguments: list[str], spool: RowsOutput,
                 on_change: Callable[[], None] = lambda: None, *, pass_fds: Sequence[int] = (),
                 cwd: str | None = None):
        self.attached: Attached | None = None
        self.end: Totals | None = None
        self.error: Exception | None = None
        self.died = False
        self.events = self.lost = 0
        self._name, self._on_change = name, on_change
        self._stderr = tempfile.TemporaryFile()
        rows, reserve = spool.rows_file.fileno(), spool.reserve_file.fileno()
        # A session of its own: Ctrl-C must not end it in mid-stream.
        self.process = subprocess.Popen(
            [program, "--rows-fd", str(rows), "--reserve-fd", str(reserve), *arguments],
            pass_fds=(rows, reserve, *pass_fds), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            start_new_session=True, cwd=cwd)
        assert self.process.stdin and self.process.stdout
        self._stdin, self.stdout = self.process.stdin, self.process.stdout
        self._thread = threading.Thread(target=self._read_status, name=name, daemon=True)
        self._thread.start()

    def tell(self, line: str) -> None:
        """Write a line to its stdin. The death of the child is reported by `error`."""
        with suppress(OSError):
            self._stdin.write(f"{line}\n".encode())
            self._stdin.flush()

    def stop(self) -> None:
        """End it and wait for its last row. Sets `end` or `error`."""
        with suppress(OSError):
            self._stdin.close()
        self._thread.join()
        self.process.wait()
        self.stdout.close()
        self._stderr.close()

    def _read_status(self) -> None:
        try:
            for line in self.stdout:
                if line.endswith(b"\n"):
                    self._take(json.loads(line))
            if self.end is None:
                code = self.process.wait()
                self._stderr.seek(0)
                self.error = error_of(self._name, self._stderr.read().decode(errors="replace"), code)
                self.died = True
        except Exception as error:  # noqa: BLE001 - whatever stops this thread must reach the user
            self.error = error
        if self.error:
            self._on_change()

    def _take(self, fields: Any) -> None:
        note = fields.pop("note")
        if note == "attached":
            self.attached = fields
            self._on_change()
        elif note == "progress":
            self.events, self.lost = fields["events"], fields["lost"]
        elif note == "end":
            self.end = fields
            self.events, self.lost = fields["events"], fields["lost"]["total"]
            self._on_change()


def error_of(name: str, stderr: str, code: int) -> BlkreelError:
    """The error of a child that ended: the last line of its stderr is `message; remedy`."""
    lines = stderr.strip().splitlines()
    if not lines:
        if code < 0:
            return ChildKilled(f"{name} ended by signal {-code}")
        return BlkreelError(f"{name} ended with exit code {code}")
    message, _, remedy = lines[-1].partition("; ")
    return BlkreelError(message, remedy or None)
