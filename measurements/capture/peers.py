"""The compared tools, with one interface: start() returns when events are being recorded.

pause() and resume() switch the recording off and on within a run, and return whether the tool supports it.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measurements.capture import peer_output
from measurements.capture.accounting import bpf_objects, family

TRACING = Path("/sys/kernel/tracing")
NO_TRACING = "no tracing directory: sudo mount -t tracefs nodev /sys/kernel/tracing"
# The default of blkreel, for all processors together.
BUFFER_BYTES = 16 << 20
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 120
SETTLE_S = 0.3
PAUSE_TIMEOUT_S = 1


@dataclass
class Recording:
    """Result of a tool after stop(). ios: with an issue and a completion, if it records both. reported_lost: its report
    of lost events, None without one."""

    ios: int
    bytes: int
    reported_lost: str | None
    cpu_ns: int  # from start to end
    user_share: float


running = set()  # tools that have not ended


def end_all():
    """Stop all tools after an error: a tool left running would disturb later measurements."""
    for tool in sorted(running, key=lambda tool: isinstance(tool, Process)):
        tool.end(signal.SIGTERM)


class Process:
    """One process of a tool: its error output in a file, and its processor time after its end."""

    def __init__(self, words, directory, stdout=None):
        self._stderr_path = Path(directory, f"{Path(words[0]).name}.stderr")
        self._errors = self._stderr_path.open("w+")
        self._process = subprocess.Popen([str(word) for word in words], stderr=self._errors,
                                         stdout=stdout or self._errors, stdin=subprocess.DEVNULL)
        self.pid = self._process.pid
        self.cpu_ns, self.user_share = 0, 0.0
        running.add(self)

    def wait_until(self, ready):
        if not wait_for(lambda: ready() or self._process.poll() is not None, START_TIMEOUT_S) or not ready():
            self.end(signal.SIGKILL)
            raise SystemExit(f"{self._stderr_path.stem} failed to start: {self.words().strip()[-400:]}")
        time.sleep(SETTLE_S)

    def end(self, number):
        """Send a signal and wait. Returns whether the process ended without SIGKILL."""
        running.discard(self)
        if self._process.returncode is not None:
            return True
        self._process.send_signal(number)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            except ChildProcessError:  # already reaped: its resource usage is lost
                return True
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                total = usage.ru_utime + usage.ru_stime
                self.cpu_ns, self.user_share = int(total * 1e9), usage.ru_utime / total if total else 0.0
                return True
            time.sleep(0.01)
        self._process.kill()
        self._process.wait()
        return False

    @property
    def exit_code(self):
        return self._process.returncode

    def words(self):
        self._errors.flush()
        return self._stderr_path.read_text(errors="replace")


class Blkreel:
    null_kind = "tp_btf"

    def __init__(self, name, *options):
        self.name, self._options = name, options
        if "raw_tp" in options:
            self.null_kind = "raw_tp"
        # Detaching and attaching programs within a run of fio.
        self._command = [sys.executable, Path(__file__).with_name("measured.py")]

    def lacks(self):
        words = subprocess.run([*self._command, "capture", "--help"], capture_output=True, text=True).stdout
        unknown = [option for option in self._options if option.startswith("--") and option not in words]
        return f"this version of blkreel has no option {unknown[0]}" if unknown else None

    def start(self, drive, directory):
        self._output, self._summary = Path(directory, "trace.parquet"), Path(directory, "summary.json")
        with self._summary.open("w") as summary:
            self._process = Process([*self._command, "capture", drive, "-o", self._output, "--force", "--json",
                                     *self._options], directory, summary)
        self._process.wait_until(self._attached)

    def _attached(self):
        return bpf_objects(self.pids())[2] >= 3

    def pause(self):
        """Detach the programs without ending the capture, by a command to the stdin of the helper."""
        return self._send("detach", lambda: not bpf_objects(self.pids())[2])

    def resume(self):
        return self._send("attach", self._attached)

    def _send(self, word, done):
        helpers = [pid for pid in self.pids() if Path(f"/proc/{pid}/comm").read_text().startswith("blkreel-cap")]
        with open(f"/proc/{helpers[-1]}/fd/0", "w") as stdin:
            stdin.write(f"{word}\n")
        return wait_for(done, PAUSE_TIMEOUT_S)

    def pids(self):
        return family(self._process.pid)

    def kernel_bytes(self):
        return sum(bpf_objects(self.pids())[1].values())

    def stop(self):
        self._process.end(signal.SIGINT)
        summary = peer_output.blkreel_summary(self._summary.read_text())
        if summary is None:
            raise SystemExit(f"blkreel failed: {self._process.words().strip()[-400:]}")
        rows, lost, hidden = summary
        losses = f"{lost} lost" + (f", {hidden} completions unseen" if hidden else "")
        return Recording(rows, self._output.stat().st_size, losses, self._process.cpu_ns, self._process.user_share)


class Ftrace:
    """The ftrace tracer `blk` (blktrace without relay files), with one reader per processor."""

    null_kind = None

    def __init__(self, name, actions=None):
        self.name, self._actions = name, actions

    def lacks(self):
        if not (TRACING / "current_tracer").exists():
            return NO_TRACING
        if "blk" not in (TRACING / "available_tracers").read_text().split():
            return "this kernel has no tracer blk"
        if (TRACING / "current_tracer").read_text().strip() != "nop":
            return "the tracer is in use: /sys/kernel/tracing/current_tracer is not nop"
        return None

    def start(self, drive, directory):
        self._switch = Path("/sys/block", Path(drive).name, "trace")
        self._buffer_kib = re.match(r"\d+", (TRACING / "buffer_size_kb").read_text())[0]
        self._files = []
        running.add(self)
        try:
            self._write("buffer_size_kb", BUFFER_BYTES // os.cpu_count() >> 10)
            self._write("trace", "")
            for option in ("bin", "nocontext-info"):
                self._write("trace_options", option)
            self._write("current_tracer", "blk")
            self._readers = []
            for pipe in sorted((TRACING / "per_cpu").glob("cpu*/trace_pipe")):
                file = Path(directory, f"trace.blktrace.{pipe.parent.name[3:]}")
                with file.open("wb") as sink:
                    self._readers.append(Process(["cat", pipe], directory, sink))
                self._files.append(file)
            self.resume()
        except OSError as error:
            self.end()
            raise SystemExit(f"cannot start the tracer blk of ftrace: {error}") from None
        time.sleep(SETTLE_S)

    def pause(self):
        (self._switch / "enable").write_text("0")
        return True

    def resume(self):
        # Disabling resets the mask, and setting a mask enables the trace.
        if self._actions:
            (self._switch / "act_mask").write_text(self._actions)
        (self._switch / "enable").write_text("1")
        return True

    def pids(self):
        return [reader.pid for reader in self._readers]

    def kernel_bytes(self):
        return BUFFER_BYTES

    def stop(self):
        self.pause()
        sizes = None
        while sizes != (sizes := [file.stat().st_size for file in self._files]):
            time.sleep(0.2)
        for reader in self._readers:
            reader.end(signal.SIGTERM)
        self.end()
        issues = completions = lost = size = 0
        for file in self._files:
            counts = peer_output.count_blktrace(file.read_bytes())
            issues, completions, lost = issues + counts[0], completions + counts[1], lost + counts[2]
            size += file.stat().st_size
        cpu = sum(reader.cpu_ns for reader in self._readers)
        user = sum(reader.cpu_ns * reader.user_share for reader in self._readers)
        return Recording(min(issues, completions), size, f"{lost} events lost", cpu, user / cpu if cpu else 0.0)

    def end(self, _signal=None):
        """Restore the tracer of the machine."""
        running.discard(self)
        if (self._switch / "enable").read_text().strip() != "0":
            (self._switch / "enable").write_text("0")
        self._write("current_tracer", "nop")
        for option in ("nobin", "context-info"):
            self._write("trace_options", option)
        self._write("buffer_size_kb", self._buffer_kib)

    @staticmethod
    def _write(name, value):
        (TRACING / name).write_text(str(value))


class Perf:
    null_kind = None

    def __init__(self, name, events, for_drive=False):
        self.name, self._events, self._for_drive = name, events, for_drive

    def lacks(self):
        if not (TRACING / "events/block").is_dir():
            return NO_TRACING
        return None if is_installed("perf") else "no perf: apt-get install linux-perf"

    def start(self, drive, directory):
        self._output = Path(directory, "perf.data")
        self._device = kernel_number(drive)
        self._event_ids = [int((TRACING / f"events/block/{event}/id").read_text())
                           for event in ("block_rq_issue", "block_rq_complete")]
        fifos = Path(directory, "perf.control"), Path(directory, "perf.ack")
        for fifo in fifos:
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo)
        # Opened for reading too, so that open() does not wait for perf.
        self._control, self._ack = (os.open(fifo, os.O_RDWR) for fifo in fifos)
        # perf starts disabled, because only its reply to `enable` shows that it records.
        words = ["perf", "record", "-a", "-D", "-1", "-o", self._output, f"--control=fifo:{fifos[0]},{fifos[1]}"]
        for event in self._events:
            words += ["-e", event]
            if self._for_drive:
                words += ["--filter", f"dev == {self._device}"]
        self._process = Process(words, directory)
        self._process.wait_until(lambda: self._output.exists() and self._output.stat().st_size > 0)
        if not self.resume():
            self._process.end(signal.SIGKILL)
            raise SystemExit("perf failed to start recording")

    def pause(self):
        return self._send("disable")

    def resume(self):
        return self._send("enable")

    def _send(self, word):
        os.write(self._control, f"{word}\n".encode())
        answered = bool(select.select([self._ack], [], [], START_TIMEOUT_S)[0])
        if answered:
            os.read(self._ack, 64)
        return answered

    def pids(self):
        return family(self._process.pid)

    def kernel_bytes(self):
        return 0  # its rings are mapped into the process

    def stop(self):
        self._process.end(signal.SIGINT)
        os.close(self._control)
        os.close(self._ack)
        stats = subprocess.run(["perf", "report", "--stats", "-i", self._output], capture_output=True, text=True)
        lost = peer_output.perf_says_lost(self._process.words() + stats.stderr + stats.stdout)
        data = np.memmap(self._output, "<u4", mode="r", shape=(self._output.stat().st_size // 4,))
        ios = min(peer_output.count_perf(data, event, self._device) for event in self._event_ids)
        return Recording(ios, self._output.stat().st_size, "some lost" if lost else None, self._process.cpu_ns,
                    self._process.user_share)


class Bpftrace:
    """biosnoop. The script of bpftrace 0.17 needs kprobes on functions that a kernel may not have."""

    null_kind = "tp"
    script = Path(__file__).with_name("biosnoop.bt")

    def __init__(self, name):
        self.name = name

    def lacks(self):
        return None if is_installed("bpftrace") else "no bpftrace: apt-get install bpftrace"

    def start(self, drive, directory):
        self._output = Path(directory, "biosnoop.txt")
        self._output.unlink(missing_ok=True)
        self._process = Process(["bpftrace", "-o", self._output, self.script, kernel_number(drive)], directory)
        # Its first output may stay in its buffer.
        self._process.wait_until(lambda: len(bpf_objects(self.pids())[0]) >= 2)

    def pause(self):
        return False

    def pids(self):
        return family(self._process.pid)

    def kernel_bytes(self):
        return sum(bpf_objects(self.pids())[1].values())

    def stop(self):
        ended = self._process.end(signal.SIGINT)
        with self._output.open() as lines:
            rows, lost = peer_output.count_bpftrace(lines, self._process.words())
        losses = f"{lost} events lost" if lost else None
        return Recording(rows, self._output.stat().st_size, losses if ended else "does not end", self._process.cpu_ns,
                    self._process.user_share)


def wait_for(done, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_installed(program):
    return any(Path(place, program).exists() for place in os.get_exec_path())


def kernel_number(drive):
    """major << 20 | minor, as in tracepoints."""
    device = Path(drive).stat().st_rdev
    return os.major(device) << 20 | os.minor(device)


def all_peers():
    return {peer.name: peer for peer in (
        Blkreel("blkreel"),
        Blkreel("blkreel --files", "--files"),
        Blkreel("blkreel, raw_tp", "--programs", "raw_tp"),
        Ftrace("ftrace blk, issue and complete", "issue,complete"),
        Ftrace("ftrace blk, all actions"),
        Perf("perf, issue and complete", ["block:block_rq_issue", "block:block_rq_complete"], for_drive=True),
        Perf("perf, block:*", ["block:*"]),
        Bpftrace("bpftrace biosnoop"),
    )}
