"""The capture helper as a child process: its rows go into the spool, and what it says is heard here."""

import json
import subprocess
import tempfile
import threading
from pathlib import Path

from blkreel.traces.errors import BlkreelError
from blkreel.traces.spool import Spool


class HelperKilled(BlkreelError):
    """The helper ended by a signal: that says nothing of what this machine can do."""


HELPER = Path(__file__).with_name("blkreel-capture")


class Helper:
    """A running helper, whose rows never pass through Python.

    attached, end: what it said when it began and ended, None before. error: why it ended without an end;
    died is then set. progress: its last note of it, None before the first.
    on_change is called, in a thread of its own, after each change of attached, end and error; it must not block.
    """

    def __init__(self, arguments: list[str], spool: Spool, on_change):
        self.attached = self.end = self.error = self.progress = None
        self.died = False
        self.events = self.lost = 0
        self.threads: dict[int, dict] = {}  # in the spool, beside the rows
        self._on_change = on_change
        self._stderr = tempfile.TemporaryFile()
        rows, reserve = spool.rows_file.fileno(), spool.reserve_file.fileno()
        # A session of its own: Ctrl-C is for the command and for us, and must not end the helper in mid-stream.
        self.process = subprocess.Popen(
            [HELPER, "--rows-fd", str(rows), "--reserve-fd", str(reserve), *arguments], pass_fds=(rows, reserve),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True, cwd="/")
        self._thread = threading.Thread(target=self._listen, name="capture-helper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the capture and wait for the last row. `end` or `error` says how it went."""
        self.process.stdin.close()
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
        return _error_of(self._stderr.read().decode(errors="replace"), code)


def probe(kind: str = "auto") -> dict:
    """Load the BPF programs and let them go: {"programs": kind, "io_start": bool}.

    Raises BlkreelError with the reason where the kernel refuses them.
    """
    result = subprocess.run([HELPER, "--probe", "--programs", kind], capture_output=True, text=True)
    if result.returncode:
        raise _error_of(result.stderr, result.returncode)
    return json.loads(result.stdout)


def _error_of(stderr: str, code: int) -> BlkreelError:
    """What the helper said before it ended: `what is wrong; what mends it`."""
    lines = stderr.strip().splitlines()
    if not lines:
        if code < 0:
            return HelperKilled(f"the capture helper ended by signal {-code}")
        return BlkreelError(f"the capture helper ended with exit code {code}")
    message, _, remedy = lines[-1].partition("; ")
    return BlkreelError(message, remedy or None)
