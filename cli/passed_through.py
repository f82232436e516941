"""The output of a command above the live view, line by line, as it would stand on the terminal without one."""

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
from contextlib import suppress

from rich.console import Console
from rich.text import Text

_GATHER_S = 0.05  # what comes within it is drawn with one stroke: a command that prints much must not wait for us
_MOST_BYTES = 1 << 18
_DRAIN_S = 1.0
_WHOLE_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)h|\x1b\[[0-9;]*[HJf]|\x1bc")
_LONGEST_SEQUENCE = 16


class PassedThrough:
    """A terminal for the command's stdout and stderr, as far as they would go to ours; its stdin stays what it is.

    A terminal, and no pipe: into a pipe many programs write only when they have 4 KiB together, and without colours.
    streams: what the command is to be started with, of subprocess.Popen. user_id: whose the command is. Whatever draws
    the whole screen gets ours for itself: the view ends then.
    """

    def __init__(self, console: Console, user_id: int | None = None):
        self.console = console
        self._master, self._slave = pty.openpty()
        if user_id is not None:
            os.fchown(self._slave, user_id, -1)  # who opens /dev/stderr by its name needs the right to
        raw = termios.tcgetattr(self._slave)
        raw[1] &= ~termios.OPOST  # what the terminal makes of a line end, ours makes of it
        termios.tcsetattr(self._slave, termios.TCSANOW, raw)
        self._size = None
        self._follow_size()
        self.streams = {"stderr": self._slave, **({"stdout": self._slave} if _same_terminal(1, 2) else {})}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._tail = b""
        self._raw = False
        self._task = None
        self._ending, self._ends = os.pipe()
        self._thread = threading.Thread(target=self._read, name="command output", daemon=True)

    def begin(self, task) -> None:
        """Now that the command runs, and was forked from a process of one thread. task: the view, a LiveTask."""
        if not self._thread.ident:
            self._task = task
            self._thread.start()

    def end(self) -> None:
        """The command has ended: put out what it has left behind."""
        slave, self._slave = self._slave, None
        os.close(slave)
        os.write(self._ends, b"x")
        if self._thread.ident:
            self._thread.join()
        for descriptor in (self._master, self._ending, self._ends):
            os.close(descriptor)

    def pending(self) -> Text | None:
        """Of its last line what has come: a question, or a bar that is drawn over and over."""
        self._follow_size()
        text = Text.from_ansi(_as_it_stands(self._pending))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text if text.plain else None

    def _follow_size(self):
        size = self.console.size
        if size != self._size and self._slave is not None:
            self._size = size
            with suppress(OSError):
                fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))

    def _read(self):
        deadline = None
        while deadline is None or time.monotonic() < deadline:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            watched = [self._master] + ([self._ending] if deadline is None else [])
            ready = select.select(watched, [], [], left_s)[0]
            if self._ending in ready:
                # A child that it left behind may hold its terminal open for ever.
                deadline = time.monotonic() + _DRAIN_S
            if self._master in ready:
                data, ended = self._gathered()
                self._take(data)
                if ended:
                    break
        self._put_out(self._decoder.decode(b"", final=True), last=True)

    def _gathered(self):
        """What has come by now and a little later; and whether nobody can write any more."""
        parts, until = [], time.monotonic() + _GATHER_S
        while sum(map(len, parts)) < _MOST_BYTES:
            if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
                break
            try:
                parts.append(os.read(self._master, 65536))
            except OSError:  # EIO: all who had it open have closed it
                return b"".join(parts), True
            if self._raw:
                break
        return b"".join(parts), False

    def _take(self, data):
        if not self._raw and _WHOLE_SCREEN.search(self._tail + data):
            self._raw = True
            self._task.give_way("the command draws the whole screen itself")
            data, self._pending = self._pending.encode() + data, ""
        self._tail = data[-_LONGEST_SEQUENCE:]
        if self._raw:
            self._write(data)
        else:
            self._put_out(self._decoder.decode(data))

    def _write(self, data):
        view = memoryview(data)
        with suppress(OSError):
            while view:
                view = view[os.write(2, view):]

    def _put_out(self, text, last=False):
        whole, end, self._pending = (self._pending + text).replace("\r\n", "\n").rpartition("\n")
        if last and self._pending:
            whole, end, self._pending = f"{whole}{end}{self._pending}", "\n", ""
        if not end:
            self._task.refresh()
            return
        lines = [Text.from_ansi(_as_it_stands(line)) for line in whole.split("\n")]
        with suppress(OSError, ValueError):  # the terminal may be gone
            self.console.print(Text("\n").join(lines), soft_wrap=True)


def _as_it_stands(line) -> str:
    """A line that was drawn over and over, as it was drawn last."""
    return line.rstrip("\r").rpartition("\r")[2]


def _same_terminal(one, other) -> bool:
    try:
        return os.ttyname(one) == os.ttyname(other)
    except OSError:
        return False
