"""The blktrace command: it writes files beside the rows, which are decoded after its end.

The kernel hands over the events of a CPU in whole buffers, so that those of an idle CPU may come minutes after those
of a busy one. In files they wait without taking memory.
"""

import ctypes
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from blkreel.common.command_line import AS_ROOT
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError
from blkreel.common.files.safe_files import directory_at, make_directory, remove_directory
from blkreel.common.system import MOUNTS, mount_points
from blkreel.traces.spool.spool import LAYOUT, Spool

from .decoded import DecodedSource, children_cpu_ns, require
from .tracefs import enable_of, refuse_where_taken, trace_to_any_end

_BUFFER_KIB = 512
_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 60
_PR_SET_PDEATHSIG = 1
_DROPPED = re.compile(r"\(dropped (\d+)\)")


def probe(drives: list[Drive]) -> None:
    """Raises BlkreelError if this source cannot run."""
    require("blktrace", "blktrace")
    if os.geteuid():
        raise BlkreelError("blktrace needs root", AS_ROOT)
    debugfs = debugfs_at()
    if locked_down(debugfs):
        raise BlkreelError("the kernel is locked down: it refuses the files of blktrace", "take --source ftrace")
    refuse_where_taken()
    for drive in drives:
        if enable_of(drive).exists() and enable_of(drive).read_text().strip() != "0":
            raise BlkreelError(f"{drive.path} is being traced already",
                               f"end its blktrace, or: blktrace -k {drive.path}")


def debugfs_at() -> Path:
    for place in mount_points("debugfs", MOUNTS):
        return place
    raise BlkreelError("debugfs is not mounted", "mount -t debugfs nodev /sys/kernel/debug")


def locked_down(debugfs: Path) -> bool:
    """A locked-down kernel refuses to open those files of debugfs that root may write."""
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
    reports_late = True

    def __init__(self, drives: list[Drive], spool: Spool, ring_bytes: int, on_change: Callable[[], None],
                 notice: Callable[[str], None] = lambda line: None):
        super().__init__("blktrace", drives, spool, on_change)
        probe(drives)
        self._notice = notice
        self._directory = spool.directory / "blktrace"
        make_directory(self._directory)
        self._output = tempfile.TemporaryFile()
        self._output_text = ""
        buffers = max(4, ring_bytes // (_BUFFER_KIB << 10) // (os.cpu_count() or 1))
        devices = [word for drive in drives for word in ("-d", drive.path)]
        self._epoch_ns = time.monotonic_ns()
        # By its descriptor: its path may lie in a directory of others, who can put a link in its place.
        with directory_at(self._directory) as directory:
            self._process = subprocess.Popen(
                [require("blktrace", "blktrace"), *devices, "-D", ".", "-b", str(_BUFFER_KIB),
                 "-n", str(buffers), "-r", debugfs_at()],
                stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
                cwd=f"/proc/self/fd/{directory}", env={**os.environ, "LC_ALL": "C"}, preexec_fn=_end_with_parent)
        try:
            self._wait_for_start()
            for drive in drives:
                trace_to_any_end(drive)
        except BaseException:
            self._end_blktrace()
            raise
        self._attach(self._epoch_ns)
        self._thread = threading.Thread(target=self._watch, name="blktrace", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        stopped_ns = self._count_at_stop()
        self._end_blktrace()
        self._thread.join()
        files = sorted(path for path in self._directory.iterdir() if path.stat().st_size)
        if self.error or not files:
            self.died = True
            self.error = self.error or BlkreelError("blktrace has recorded nothing", self._output_text or None)
            return
        self._start_decoder(["--epoch", str(self._epoch_ns), "--begun", str(self.attached_ns),
                             "--stopped", str(stopped_ns), *map(str, files)])
        self._stop_decoder()
        self._take_end(dropped_of(self._output_text), self._cpu_ns)
        if not self.died:
            remove_directory(self._directory, LAYOUT[self._directory.name] or {})
            self._notice_late_start()

    def _wait_for_start(self) -> None:
        """It traces when the kernel has enabled tracing of the drive and its threads run; it reports neither."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        threads = Path(f"/proc/{self._process.pid}/task")
        while True:
            if self._process.poll() is not None or "failed" in self._read_output().lower():
                raise self._refusal()
            if all(enable_of(drive).read_text().strip() == "1" for drive in self.drives) and \
                    len(list(threads.iterdir())) > len(os.sched_getaffinity(0)):
                break
            if time.monotonic() > deadline:
                raise BlkreelError(f"blktrace did not begin within {_START_TIMEOUT_S} s",
                                   "see: dmesg | tail, or take --source ftrace")
            time.sleep(0.01)
        time.sleep(0.1)  # its last call before tracing begins cannot be observed
        if "failed" in self._read_output().lower():
            raise self._refusal()

    def _refusal(self) -> BlkreelError:
        lines = self._read_output().strip().splitlines()
        text = next((line for line in lines if "failed" in line.lower()), lines[-1] if lines else "it ended")
        if "not permitted" in text:
            return BlkreelError(f"blktrace is refused ({text})", "take --source ftrace")
        return BlkreelError(f"blktrace does not begin: {text}", "take another source: --source bpf")

    def _read_output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _watch(self) -> None:
        """An end that was not requested is an error: a full disk, or a kill."""
        self._process.wait()
        if not self._stopped:
            self.error = BlkreelError(f"blktrace has ended: {self._read_output().strip() or self._process.returncode}")
            self.died = True
            self._on_change()

    def _end_blktrace(self) -> None:
        before_ns = children_cpu_ns()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._cpu_ns = children_cpu_ns() - before_ns
        self._output_text = self._read_output()
        self._output.close()

    def _notice_late_start(self) -> None:
        """Compares the kernel's own timestamp of its start with the time when the command could begin."""
        pair = self.end["stream"]["clock_pair"] if self.end and "stream" in self.end else None
        late_ns = pair["monotonic_ns"] - self.attached_ns if pair else 0
        if late_ns > 0:
            self._notice(f"blktrace began {late_ns / 1e6:.0f} ms late: I/Os before that are missing")

    def _attach(self, epoch_ns: int) -> None:
        self.attached_ns = self._begin_counting()
        super()._attach(epoch_ns)


def dropped_of(output: str) -> int:
    """Events of all devices that the kernel dropped, from the output of blktrace."""
    return sum(int(count) for count in _DROPPED.findall(output))


def _end_with_parent() -> None:
    """A capture that is killed must not leave the kernel tracing."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
