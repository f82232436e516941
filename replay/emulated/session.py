"""One emulated drive: the server process, from its start to its end."""

import hashlib
import json
import os
import queue
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

from blkreel.common.emulated import FILE, Calibration, Check, Counts, EmulatedAccount, account_file
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.json_file import write_json
from blkreel.common.units import format_bytes, format_ns
from blkreel.replay.simulated import state as simulated_state
from blkreel.replay.simulated.spec import SimulatedDrive

from . import directory as drive_directory
from .host import HostCounter, memory_bytes
from .image import open_image, state_file

BACKENDS = ("fuse", "ublk")
_SPARE_BYTES = 256 << 20
_START_TIMEOUT_S = 120.0
_CHECK_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class EmulateOptions:
    """image: None for memory. accept_inexact: go on with a drive that this machine cannot reach.

    backend: of BACKENDS; None: ublk if the kernel has it.
    """

    drive: SimulatedDrive
    name: str
    image: Path | None = None
    accept_inexact: bool = False
    timeout_s: int = 10
    backend: str | None = None


def with_size(drive: SimulatedDrive, size_bytes: int) -> SimulatedDrive:
    """The drive with another capacity."""
    parameters = tuple((name, float(size_bytes) if name == "capacity_bytes" else value)
                       for name, value in drive.parameters)
    words = drive.words
    if drive.typical:  # else the size is not one of the words
        words = tuple(sorted({**dict(words), "size": str(size_bytes)}.items()))
    return replace(drive, size_bytes=size_bytes, parameters=parameters, words=words)


def check_backends() -> None:
    """Raises BlkreelError if this machine has no back end."""
    if not any(map(Path.exists, map(Path, ("/dev/fuse", "/dev/ublk-control")))):
        raise BlkreelError("no /dev/fuse: this kernel has no FUSE, or its module is not loaded", "run: modprobe fuse")


class EmulatedDrive:
    """A running drive. device: its node. link: its stable name. account: renewed by a thread."""

    link: Path

    def __init__(self, server: "_Server", account: EmulatedAccount, run_directory: Path, image_state: Path | None,
                 drive: SimulatedDrive):
        self.account = account
        self.device = account["device"]
        self._server, self._file = server, account_file(run_directory.name, run_directory.parent)
        self._image_state, self._drive = image_state, drive
        self._host = HostCounter(server.pid)
        self._publish()
        server.follow(self._take)

    def wait(self, timeout_s: float) -> bool:
        """Returns False once the drive has ended."""
        return not self._server.ended.wait(timeout_s)

    def check_again(self) -> None:
        """Measure the check of the calibration again, into the account, unless the drive is in use."""
        self.account["check"] = self._server.check_again()

    def begin_end(self) -> None:
        """The device is detached when the last program has closed it. Then wait() returns False."""
        self._server.begin_end()

    def error(self) -> BlkreelError | None:
        """After the end: why the server failed; None if it did not."""
        return self._server.error()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "status" in message:
            self.account["counts"] = cast(Counts, message["status"])
            self._publish()
        if "state" in message and self._image_state:
            simulated_state.write_state(self._image_state, self._drive, message["state"])

    def _publish(self) -> None:
        self.account["host"] = self._host.counts()
        self.account["renewed_ns"] = time.monotonic_ns()
        with suppress(OSError):  # a full /run must not end the drive
            write_json(self._file, self.account, mode=0o644)


class _Server:
    """The process of the native server, and a thread that takes its messages."""

    def __init__(self, helper: subprocess.Popen[str], errors: IO[str]):
        self.pid = helper.pid
        self.ended = threading.Event()
        self._helper, self._errors = helper, errors
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._take: Callable[[Mapping[str, Any]], None] = lambda message: None
        self._thread = threading.Thread(target=self._read, name="emulated-drive", daemon=True)
        self._thread.start()

    def follow(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        self._take = take

    def ready(self) -> dict[str, Any]:
        """Waits for the calibration. Raises BlkreelError if the server could not start."""
        answer = self._answer("ready", _START_TIMEOUT_S)
        if answer is None:
            raise self.error() or BlkreelError("the emulated drive ended at its start without an error message")
        return cast(dict[str, Any], answer)

    def check_again(self) -> Check | None:
        with suppress(OSError, ValueError):  # it has ended
            assert self._helper.stdin is not None
            self._helper.stdin.write("check\n")
            self._helper.stdin.flush()
            return cast(Check | None, self._answer("check", _CHECK_TIMEOUT_S))
        return None

    def begin_end(self) -> None:
        with suppress(OSError):
            assert self._helper.stdin is not None
            self._helper.stdin.close()

    def take_down(self) -> None:
        """End the process, after a time by force: programs that still use the drive then get EIO."""
        self.begin_end()
        if not self.ended.wait(_END_TIMEOUT_S):
            self._helper.kill()
        # The watchdog has the pipe too: it detaches the device of a server that was killed, and then ends.
        self._thread.join()
        self._helper.wait()

    def error(self) -> BlkreelError | None:
        code = self._helper.wait()
        if not code:
            return None
        self._errors.seek(0)
        message, _, remedy = self._errors.read().strip().partition("; ")  # also of the watchdog that killed it
        if not message and code < 0:
            message, remedy = f"the emulated drive was killed by signal {-code}; its programs get I/O errors", ""
        return BlkreelError(message or "the emulated drive ended without an error message", remedy or None)

    def _answer(self, kind: str, timeout_s: float) -> Any:
        """None if the server ends instead."""
        try:
            return self._answers.get(timeout=timeout_s).get(kind)
        except queue.Empty:
            return None

    def _read(self) -> None:
        assert self._helper.stdout is not None
        with self._helper.stdout as lines:
            for line in lines:
                message: dict[str, Any] = json.loads(line)
                if "ready" in message or "check" in message:
                    self._answers.put(message)
                else:
                    self._take(message)
        self.ended.set()
        self._answers.put({})


@contextmanager
def emulated(options: EmulateOptions) -> Iterator[EmulatedDrive]:
    """Start a drive; at the end of the block it is taken down, even if programs still use it."""
    drive, image = options.drive, options.image
    if image is None:
        _check_memory(drive.size_bytes)
    with ExitStack() as stack:
        image_fd = open_image(image, drive.size_bytes, stack) if image else None
        run_directory, lock = stack.enter_context(drive_directory.claimed(options.name))
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        server = _Server(_start(options, run_directory, errors, image_fd, lock, stack), errors)
        stack.callback(server.take_down)
        ready = server.ready()
        account = _account(options, ready)
        if account["beyond"] and not options.accept_inexact:
            raise BlkreelError(f"this machine cannot emulate {options.name} exactly: {'; '.join(account['beyond'])}",
                               "to go on nevertheless: --accept-inexact")
        running = EmulatedDrive(server, account, run_directory, state_file(image) if image else None, drive)
        running.link = drive_directory.link(options.name, ready["device"])
        yield running


def _check_memory(size_bytes: int) -> None:
    available_bytes = memory_bytes("MemAvailable")
    if size_bytes + _SPARE_BYTES > available_bytes:
        raise UsageError(f"{format_bytes(available_bytes)} of memory available, "
                         f"{format_bytes(size_bytes + _SPARE_BYTES)} required",
                         "give a smaller drive: --size SIZE, or a file: --image FILE")


def _start(options: EmulateOptions, run_directory: Path, errors: IO[str], image_fd: int | None, lock: int,
           stack: ExitStack) -> subprocess.Popen[str]:
    drive, image = options.drive, options.image
    state = simulated_state.read_state(state_file(image), drive) if image else simulated_state.fresh(drive)
    description = stack.enter_context(simulated_state.parameter_file(drive, state))
    words = [str(drive_directory.HELPER), "--drive", str(description.fileno()), "--size", str(drive.size_bytes),
             "--inode", str(_inode_number(image)), "--timeout", str(options.timeout_s)]
    inherited = [description.fileno(), lock]
    if options.backend:
        words += ["--backend", options.backend]
    if image_fd is not None:
        words += ["--image", str(image_fd)]
        inherited.append(image_fd)
    # In a new session: Ctrl-C on the terminal must reach this process only, which ends the drive in order.
    return subprocess.Popen([*words, str(run_directory / FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=errors, text=True, pass_fds=inherited, start_new_session=True)


def _inode_number(image: Path | None) -> int:
    """Identifies the contents: always another one in memory, that of the image in a file."""
    if image is None:
        return secrets.randbits(62) | 1
    status = image.stat()
    return int.from_bytes(hashlib.sha256(f"{status.st_dev}:{status.st_ino}".encode()).digest()[:7], "little") | 1


def _account(options: EmulateOptions, ready: dict[str, Any]) -> EmulatedAccount:
    calibration = cast(Calibration, ready["calibration"])
    counts = cast(Counts, {name: kind(0) for name, kind in Counts.__annotations__.items()})
    return {"version": 1, "name": options.name, "drive": options.drive.spec, "fitted": options.drive.fitted,
            "size_bytes": options.drive.size_bytes,
            "device": ready["device"], "backend": ready["backend"],
            "times_of": ready["times_of"],
            "image": str(options.image) if options.image else None, "pid": os.getpid(),
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"), "renewed_ns": 0,
            "calibration": calibration, "check": None, "beyond": beyond(options.drive, calibration),
            "counts": counts, "host": {"waited_ns": None, "stolen_ns": None, "reported_kib": None}}


# A latency below this multiple of the overhead is not reached.
OVERHEADS = 1.5


def beyond(drive: SimulatedDrive, calibration: Calibration) -> list[str]:
    """A line for each part of the description that the machine cannot reach, with both figures."""
    return [*_latencies(drive, calibration), *_bandwidths(drive, calibration), *_iops(drive, calibration)]


def _latencies(drive: SimulatedDrive, calibration: Calibration) -> Iterator[str]:
    overheads_ns = {"read": calibration["read_overhead_ns"], "write": calibration["write_overhead_ns"],
                    "flush": calibration.get("flush_overhead_ns", 0)}
    for kind, overhead_ns in overheads_ns.items():
        latency_ns, limit_ns = drive[f"{kind}_latency_ns"], OVERHEADS * overhead_ns
        if latency_ns < limit_ns:
            yield f"{kind} latency {format_ns(latency_ns)} (from {format_ns(limit_ns)} on)"


def _bandwidths(drive: SimulatedDrive, calibration: Calibration) -> Iterator[str]:
    for kind, reached in (("read", calibration["read_bandwidth"]), ("write", calibration["write_bandwidth"])):
        asked = _bandwidth(drive, kind)
        if asked > reached:
            yield f"{kind} bandwidth {format_bytes(asked)}/s (up to {format_bytes(reached)}/s)"


def _bandwidth(drive: SimulatedDrive, kind: str) -> float:
    """The highest of the drive."""
    bandwidth = drive[f"{kind}_bandwidth"]
    if kind == "write" and drive["cache_bytes"]:
        bandwidth = max(bandwidth, drive["cache_bandwidth"])
    return min(bandwidth, drive["link_bandwidth"] or bandwidth)


def _iops(drive: SimulatedDrive, calibration: Calibration) -> Iterator[str]:
    """Of 4 KiB I/Os on all channels, within the commands that the drive accepts at once."""
    at_once = min(drive["channels"], drive["commands"] or drive["channels"])
    for kind, reached in (("read", calibration["read_iops"]), ("write", calibration["write_iops"])):
        asked = min(at_once * 1e9 / drive[f"{kind}_latency_ns"], _bandwidth(drive, kind) / 4096)
        if asked > reached:
            yield f"{asked:,.0f} {kind} IOPS (up to {reached:,.0f})"
