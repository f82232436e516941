"""Print the output of a captured command above the live view, line by line."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from rich.console import Console, ConsoleDimensions
from rich.text import Text

from .live_task import LiveTask

_GATHER_S = 0.05  # draw the output of this time at once, so that a command that prints much is not slowed down
_MAX_BATCH_BYTES = 1 << 18
_DRAIN_S = 1.0
_FULL_SCREEN_SEQUENCE = re.compile(rb"\x1b\[\?(?:1049|1047|47)h|\x1b\[[0-9;]*[HJf]|\x1bc")
_MAX_SEQUENCE_BYTES = 16


class PtyPassthrough:
    """A pseudo-terminal for stdout and stderr of a command, where they would go to our terminal. stdin is unchanged.

    With a pipe instead, many programs would buffer 4 KiB and print no colors. A command that draws the whole screen
    gets the real terminal, and the view ends. streams: arguments for subprocess.Popen. user_id: the command's user.
    """

    def __init__(self, console: Console, user_id: int | None = None) -> None:
        self.console = console
        self._master, slave = pty.openpty()
        self._slave: int | None = slave
        if user_id is not None:
            os.fchown(slave, user_id, -1)  # for a command that opens /dev/stderr
        raw = termios.tcgetattr(slave)
        raw[1] &= ~termios.OPOST  # the real terminal translates line ends
        termios.tcsetattr(slave, termios.TCSANOW, raw)
        self._size: ConsoleDimensions | None = None
        self._follow_size()
        self.streams: Mapping[str, int] = {"stderr": slave, **({"stdout": slave} if _has_one_terminal() else {})}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._pending_before = ""  # until the lines before self._pending are printed
        self._printing: int | None = None  # the thread that prints these
        self._tail = b""
        self._raw = False
        self._task: LiveTask | None = None
        self._end_read, self._end_write = os.pipe()
        self._thread = threading.Thread(target=self._read, name="command output", daemon=True)

    def begin(self, task: LiveTask) -> None:
        """Start printing. Call it after the command was forked: before, this process must have one thread only."""
        if not self._thread.ident:
            self._task = task
            self._thread.start()

    def end(self) -> None:
        """Print the rest of the output after the command has ended."""
        if self._slave is not None:
            os.close(self._slave)
            self._slave = None
        os.write(self._end_write, b"x")
        if self._thread.ident:
            self._thread.join()
        for descriptor in (self._master, self._end_read, self._end_write):
            os.close(descriptor)

    def pending(self) -> Text | None:
        """The unfinished last line: a question, or a progress bar that the command redraws."""
        self._follow_size()
        line = self._pending  # read first: it changes only while self._printing is set
        if self._printing not in (None, threading.get_ident()):
            line = self._pending_before  # a view that is drawn now stands above the lines that are being printed
        text = Text.from_ansi(_final_form(line))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text if text.plain else None

    def _follow_size(self) -> None:
        size = self.console.size
        if size != self._size and self._slave is not None:
            self._size = size
            with suppress(OSError):
                fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))

    def _read(self) -> None:
        deadline = None
        while deadline is None or time.monotonic() < deadline:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            watched = [self._master] + ([self._end_read] if deadline is None else [])
            ready = select.select(watched, [], [], left_s)[0]
            if self._end_read in ready:
                # A surviving child of the command may hold the terminal open forever.
                deadline = time.monotonic() + _DRAIN_S
            if self._master in ready:
                data, ended = self._gathered()
                self._take(data)
                if ended:
                    break
        self._print(self._decoder.decode(b"", final=True), last=True)

    def _gathered(self) -> tuple[bytes, bool]:
        """The output of the next moments, and whether every writer has closed the terminal."""
        parts: list[bytes] = []
        until = time.monotonic() + _GATHER_S
        while sum(map(len, parts)) < _MAX_BATCH_BYTES:
            if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
                break
            try:
                parts.append(os.read(self._master, 65536))
            except OSError:  # EIO: every writer has closed it
                return b"".join(parts), True
            if self._raw:
                break
        return b"".join(parts), False

    def _take(self, data: bytes) -> None:
        if not self._raw and _FULL_SCREEN_SEQUENCE.search(self._tail + data):
            self._raw = True
            assert self._task is not None
            self._task.end_view()
            data, self._pending = self._pending.encode() + data, ""
        self._tail = data[-_MAX_SEQUENCE_BYTES:]
        if self._raw:
            self._write(data)
        else:
            self._print(self._decoder.decode(data))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with suppress(OSError):
            while view:
                view = view[os.write(2, view):]

    def _print(self, text: str, last: bool = False) -> None:
        whole, end, pending = (self._pending + text).replace("\r\n", "\n").rpartition("\n")
        if last and pending:
            whole, end, pending = f"{whole}{end}{pending}", "\n", ""
        if not end:
            self._pending = pending
            assert self._task is not None
            self._task.refresh()
            return
        lines = [Text.from_ansi(_final_form(line)) for line in whole.split("\n")]
        self._pending_before, self._printing = self._pending, threading.get_ident()
        self._pending = pending
        try:
            with suppress(OSError, ValueError):  # the terminal may be gone
                self.console.print(Text("\n").join(lines), soft_wrap=True)
        finally:
            self._printing = None


def _final_form(line: str) -> str:
    """A line after its last carriage return, as a terminal shows it."""
    return line.rstrip("\r").rpartition("\r")[2]


def _has_one_terminal() -> bool:
    """Whether stdout and stderr are the same terminal."""
    try:
        return os.ttyname(1) == os.ttyname(2)
    except OSError:
        return False
