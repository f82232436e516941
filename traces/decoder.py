"""The decoder of blktrace events as a child process: its rows go into the spool, and what it says is heard here."""

import json
import subprocess
import tempfile
import threading
from pathlib import Path

from .errors import BlkreelError
from .spool import Spool

DECODER = Path(__file__).with_name("blkreel-blktrace")


class Decoder:
    """A running decoder, whose rows never pass through Python.

    attached, end: what it said when it began and ended, None before; error: why it ended without an end; progress:
    its last note of it. on_change is called, in a thread of its own, after each change of the first three; it must
    not block.
    """

    def __init__(self, arguments: list[str], spool: Spool, on_change=lambda: None, pass_fds=()):
        self.attached = self.end = self.error = self.progress = None
        self.events = self.lost = 0
        self._on_change = on_change
        self._stderr = tempfile.TemporaryFile()
        rows, reserve = spool.rows_file.fileno(), spool.reserve_file.fileno()
        # A session of its own: Ctrl-C must not end it in mid-stream.
        self.process = subprocess.Popen(
            [DECODER, "--rows-fd", str(rows), "--reserve-fd", str(reserve), *arguments],
            pass_fds=(rows, reserve, *pass_fds), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            start_new_session=True)
        self._thread = threading.Thread(target=self._listen, name="decoder", daemon=True)
        self._thread.start()

    def tell(self, line: str) -> None:
        """A line on its stdin. One that has died is heard of by `error`."""
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass

    def finish(self) -> None:
        """Let it read what there is and wait for its last row."""
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
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        if not lines:
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            return BlkreelError(f"the decoder ended {how}")
        message, _, remedy = lines[-1].partition("; ")
        return BlkreelError(message, remedy or None)
