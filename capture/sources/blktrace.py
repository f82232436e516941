"""The blktrace command: it writes its files beside the rows, and they are decoded when it has ended.

Not while it runs: the kernel hands a CPU's events on in buffers, so that those of an idle CPU may come minutes
after a busy one's, and what waits for them must wait somewhere. Files are where it costs no memory.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from blkreel.traces.errors import BlkreelError

from .decoded import DecodedSource, require
from .tracefs import enable_of

_BUFFER_KIB = 512
_START_TIMEOUT_S = 10
_END_TIMEOUT_S = 60
_PR_SET_PDEATHSIG = 1
_DROPPED = re.compile(r"\(dropped (\d+)\)")


def probe(drives) -> None:
    """Raises BlkreelError where this source cannot run."""
    require("blktrace", "blktrace")
    if os.geteuid():
        raise BlkreelError("blktrace needs root", "run it as root, as in: sudo blkreel capture ...")
    debugfs = debugfs_at()
    if locked_down(debugfs):
        raise BlkreelError("the kernel is locked down: it refuses the files of blktrace", "take --source ftrace")
    for drive in drives:
        if enable_of(drive).exists() and enable_of(drive).read_text().strip() != "0":
            raise BlkreelError(f"{drive.path} is being traced already",
                               f"end its blktrace, or: blktrace -k {drive.path}")


def debugfs_at(mounts: Path = Path("/proc/self/mounts")) -> Path:
    for line in mounts.read_text().splitlines():
        if line.split()[2] == "debugfs":
            return Path(line.split()[1])
    raise BlkreelError("debugfs is not mounted", "mount -t debugfs nodev /sys/kernel/debug")


def locked_down(debugfs: Path) -> bool:
    """A locked-down kernel lets nobody open files of debugfs that it would let root write."""
    for path in debugfs.glob("block/*/state"):
        try:
            path.open("rb").close()
            return False
        except PermissionError:
            return True
        except OSError:
            continue
    return False


class Blktrace(DecodedSource):
    tells_late = True

    def __init__(self, drives, spool, ring_bytes: int, on_change, notice=lambda line: None):
        super().__init__("blktrace", drives, spool, on_change)
        probe(drives)
        self._notice = notice
        self._directory = spool.directory / "blktrace"
        self._directory.mkdir()
        self._output = tempfile.TemporaryFile()
        self._words = ""
        buffers = max(4, ring_bytes // (_BUFFER_KIB << 10) // (os.cpu_count() or 1))
        devices = [word for drive in drives for word in ("-d", drive.path)]
        self._epoch_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            [require("blktrace", "blktrace"), *devices, "-D", self._directory, "-b", str(_BUFFER_KIB),
             "-n", str(buffers), "-r", debugfs_at()],
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "LC_ALL": "C"}, preexec_fn=_end_with_parent)
        try:
            self._wait_for_start()
        except BaseException:
            self._end_blktrace()
            raise
        self._attach(self._epoch_ns)
        self._thread = threading.Thread(target=self._watch, name="blktrace", daemon=True)
        self._thread.start()

    @property
    def events(self) -> int:
        """I/Os come when it ends. What its files hold tells that it records."""
        return self.end["events"] if self.end else 0

    def stop(self) -> None:
        self._stopped = True
        stopped_ns = time.monotonic_ns()
        self._count_at_stop()
        self._end_blktrace()
        self._thread.join()
        files = sorted(path for path in self._directory.iterdir() if path.stat().st_size)
        if self.error or not files:
            self.died = True
            self.error = self.error or BlkreelError("blktrace has recorded nothing", self._words or None)
            return
        self._start_decoder(["--epoch", str(self._epoch_ns), "--stopped", str(stopped_ns), *map(str, files)])
        self.decoder.stop()
        self._take_end(dropped_of(self._words), self._cpu_ns)
        if not self.died:
            shutil.rmtree(self._directory)
            self._say_when_it_began()

    def _wait_for_start(self):
        """Nothing says that it traces but the kernel, which has a tracer for the drive, and its threads."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        threads = Path(f"/proc/{self._process.pid}/task")
        while True:
            if self._process.poll() is not None or "failed" in self._said().lower():
                raise self._refusal()
            if all(enable_of(drive).read_text().strip() == "1" for drive in self.drives) and \
                    len(list(threads.iterdir())) > len(os.sched_getaffinity(0)):
                break
            if time.monotonic() > deadline:
                raise BlkreelError("blktrace does not begin", "see: dmesg | tail, or take --source ftrace")
            time.sleep(0.01)
        time.sleep(0.1)  # from its threads to the kernel's start there is one call, of which nothing can be seen
        if "failed" in self._said().lower():
            raise self._refusal()

    def _refusal(self):
        said = self._said().strip().splitlines()
        text = next((line for line in said if "failed" in line.lower()), said[-1] if said else "it ended")
        if "not permitted" in text:
            return BlkreelError(f"blktrace is refused ({text})", "take --source ftrace")
        return BlkreelError(f"blktrace does not begin: {text}", "take another source: --source bpf")

    def _said(self):
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _watch(self):
        """Unasked, its end is an error: a full disk, or somebody's kill."""
        self._process.wait()
        if not self._stopped:
            self.error = BlkreelError(f"blktrace has ended: {self._said().strip() or self._process.returncode}")
            self.died = True
            self._on_change()

    def _end_blktrace(self):
        before = os.times()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._cpu_ns = int((os.times().children_user + os.times().children_system
                            - before.children_user - before.children_system) * 1e9)
        self._words = self._said()
        self._output.close()

    def _say_when_it_began(self):
        """The kernel's own note of when it did, against when the command could have begun."""
        pair = self.end["stream"]["clock_pair"]
        late_ns = pair["monotonic_ns"] - self.attached_ns if pair else 0
        if late_ns > 0:
            self._notice(f"blktrace began {late_ns / 1e6:.0f} ms late: I/Os before that are missing")

    def _attach(self, epoch_ns):
        self.attached_ns = time.monotonic_ns()
        super()._attach(epoch_ns)


def dropped_of(words: str) -> int:
    """Events that blktrace says the kernel had no room for, of all devices."""
    return sum(int(count) for count in _DROPPED.findall(words))


def _end_with_parent():
    """A capture that is killed must not leave the kernel tracing for ever."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
