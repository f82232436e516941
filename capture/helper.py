"""The capture helper as a child process: its stream becomes rows in the spool."""

import json
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np

from blkreel.traces.blocks import BlockReader, BlockStreamError, End, Note, Rows
from blkreel.traces.errors import BlkreelError
from blkreel.traces.schema import OPS

HELPER = Path(__file__).with_name("blkreel-capture")
COLUMNS = [("submit_ns", "i8"), ("latency_ns", "i8"), ("queue_ns", "i8"), ("offset_bytes", "i8"),
           ("length_bytes", "i8"), ("flags", "i4"), ("tid", "i4"), ("device", "i2"), ("cpu", "i2"),
           ("status", "i2"), ("op", "i1"), ("waited_on", "i8"), ("think_ns", "i8")]
_DEATH_TIMEOUT_S = 5


class Helper:
    """A running helper. Its rows go to `append` in a thread of its own; `flush` is called there twice a second.

    attached, end: what it said when it began and ended, None before. error: why the stream ended early;
    died: by the end of the helper itself, and not because `append` failed.
    on_change is called, in that thread, after each of these changes; it must not block.
    """

    def __init__(self, arguments: list[str], append, flush, on_change):
        self.attached = self.end = self.error = None
        self.died = False
        self.events = self.lost = 0
        self.threads: dict[int, dict] = {}
        self.ios = np.zeros(len(OPS), np.int64)
        self.bytes = np.zeros(len(OPS), np.int64)
        self._append, self._flush, self._on_change = append, flush, on_change
        self._stderr = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C is for the command and for us, and must not end the helper in mid-stream.
        self.process = subprocess.Popen([HELPER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self._stderr, start_new_session=True, cwd="/")
        self._thread = threading.Thread(target=self._read, name="capture-reader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the capture and wait for the last row. `end` or `error` says how it went."""
        self.process.stdin.close()
        self._thread.join()
        self.process.wait()
        self.process.stdout.close()
        self._stderr.close()

    def _read(self):
        try:
            for item in BlockReader(self.process.stdout, "capture", COLUMNS):
                if isinstance(item, Rows):
                    self._take_rows(item)
                elif isinstance(item, Note):
                    self._take_note(item.fields)
                elif isinstance(item, End):
                    self.end = item.fields
                    self.events, self.lost = item.fields["events"], item.fields["lost"]["total"]
        except BlockStreamError as error:
            self.died = True
            self.error = self._own_words() or error
        except Exception as error:  # noqa: BLE001 - whatever stops this thread must reach the user
            self.error = error
            # Nobody reads on: an end of its pipe stops the helper where a full one would hold it.
            self.process.stdout.close()
        self._on_change()

    def _take_rows(self, rows):
        self._append(rows.columns)
        op = rows.columns["op"]
        self.ios += np.bincount(op, minlength=len(OPS))
        self.bytes += np.bincount(op, rows.columns["length_bytes"], len(OPS)).astype(np.int64)
        self.events += rows.count

    def _take_note(self, fields):
        if fields["note"] == "threads":
            for tid, pid, comm, process, _cgroup in fields["threads"]:
                self._take_thread(tid, pid, _text(comm), _text(process))
        elif fields["note"] == "progress":
            self.lost = fields["lost"]
            # On an idle drive no further row would push the last ones out.
            self._flush()
        elif fields["note"] == "attached":
            self.attached = fields
            self._on_change()

    def _take_thread(self, tid, pid, comm, process):
        entry = self.threads.setdefault(tid, {"pid": pid, "comm": comm, "process": process, "names": []})
        entry.update(pid=pid, comm=comm, process=process)
        if comm not in entry["names"]:
            entry["names"].append(comm)

    def _own_words(self):
        """Why the helper died, None where it did not: then it was the stream that broke."""
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout=_DEATH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None
        self._stderr.seek(0)
        return _error_of(self._stderr.read().decode(errors="replace"), code) if code else None


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
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return BlkreelError(f"the capture helper ended {how}")
    message, _, remedy = lines[-1].partition("; ")
    return BlkreelError(message, remedy or None)


def _text(latin: str) -> str:
    """A thread's name: the helper sends bytes as code points, because a name may be cut inside a character."""
    return latin.encode("latin-1").decode(errors="replace")
