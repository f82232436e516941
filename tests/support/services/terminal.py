"""Runs a command on a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>][A-Z0-9]?|\x1b\][^\x07]*\x07")


class Terminal:
    """Runs `words` in a new session whose terminal is ours. text: all that was shown, without what moves the cursor."""

    def __init__(self, words, columns=120, lines=40, env=None):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.raw = b""
        environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env=environment, preexec_fn=_begin_session)

    @property
    def text(self) -> str:
        return _CONTROL.sub("", self.raw.decode(errors="replace"))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait_for(self, pattern: str, seconds=300) -> re.Match:
        """Until it shows that; a match of all that it has shown."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, f"{pattern!r} is not shown:\n{self.text}"
            ended = self.process.poll() is not None
            self._read(0.1)
            assert not ended or re.search(pattern, self.text), f"ended without {pattern!r}:\n{self.text}"
        return found

    def wait(self, seconds=300) -> int:
        """Until it has ended; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self._read(0.1)
        self._read(0)
        return self.process.returncode

    def is_sane(self) -> bool:
        """Whether the terminal is as it was: echo and lines, the cursor shown, the screen of before."""
        shown, hidden = self.raw.rfind(b"\x1b[?25h"), self.raw.rfind(b"\x1b[?25l")
        left, entered = self.raw.rfind(b"\x1b[?1049l"), self.raw.rfind(b"\x1b[?1049h")
        return termios.tcgetattr(self.slave) == self.before and shown >= hidden and left >= entered

    def hang_up(self) -> None:
        """Take the terminal away, as a lost connection does."""
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for end in (self.master, self.slave):
            if end >= 0:
                os.close(end)

    def _read(self, patience_s):
        while select.select([self.master], [], [], patience_s)[0]:
            self.raw += os.read(self.master, 65536)
            patience_s = 0


def _begin_session():
    """Take the terminal, with every signal at its default: tests in the background, or below nohup, ignore some."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
