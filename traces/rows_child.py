"""A child process that writes rows into a spool by itself; what it says of them on its stdout is heard here."""

import json
import subprocess
import tempfile
import threading
from pathlib import Path

from .errors import BlkreelError
from .spool import Spool


class ChildKilled(BlkreelError):
    """It ended by a signal, without a word: that says nothing of what this machine can do."""


class RowsChild:
    """A running child, whose rows never pass through Python. name: what messages call it.

    attached, end: what it said when it began and ended, None before. error: why it ended without an end;
    died is then set. progress: its last note of it, None before the first.
    on_change is called, in a thread of its own, after each change of attached, end and error; it must not block.
    """

    def __init__(self, name: str, program: Path, arguments: list[str], spool: Spool, on_change=lambda: None, *,
                 pass_fds=(), cwd=None):
        self.attached = self.end = self.error = self.progress = None
        self.died = False
        self.events = self.lost = 0
        self._name, self._on_change = name, on_change
        self._stderr = tempfile.TemporaryFile()
        rows, reserve = spool.rows_file.fileno(), spool.reserve_file.fileno()
        # A session of its own: Ctrl-C is for the command and for us, and must not end it in mid-stream.
        self.process = subprocess.Popen(
            [program, "--rows-fd", str(rows), "--reserve-fd", str(reserve), *arguments],
            pass_fds=(rows, reserve, *pass_fds), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            start_new_session=True, cwd=cwd)
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def tell(self, line: str) -> None:
        """A line on its stdin. One that has died is heard of by `error`."""
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass

    def stop(self) -> None:
        """Let it end, and wait for its last row. `end` or `error` says how it went."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self._thread.join()
        self.process.wait()
        self.process.stdout.close()
        self._stderr.close()

    def _listen(self):
        try:
            for line in self.process.stdout:
                if line.endswith(b"\n"):
                    self._take(json.loads(line))
            if self.end is None:
                self.error = self._last_words()
                self.died = True
        except Exception as error:  # noqa: BLE001 - whatever stops this thread must reach the user
            self.error = error
        if self.error:
            self._on_change()

    def _take(self, fields):
        note = fields.pop("note")
        if note == "attached":
            self.attached = fields
            self._on_change()
        elif note == "progress":
            self.progress = fields
            self.events, self.lost = fields["events"], fields["lost"]
        elif note == "end":
            self.end = fields
            self.events, self.lost = fields["events"], fields["lost"]["total"]
            self._on_change()

    def _last_words(self):
        code = self.process.wait()
        self._stderr.seek(0)
        return error_of(self._name, self._stderr.read().decode(errors="replace"), code)


def error_of(name: str, stderr: str, code: int) -> BlkreelError:
    """What a child said before it ended: `what is wrong; what mends it`."""
    lines = stderr.strip().splitlines()
    if not lines:
        if code < 0:
            return ChildKilled(f"{name} ended by signal {-code}")
        return BlkreelError(f"{name} ended with exit code {code}")
    message, _, remedy = lines[-1].partition("; ")
    return BlkreelError(message, remedy or None)
