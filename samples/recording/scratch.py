"""A scratch drive, a Debian system, and recording what happens on the drive.

The drive is an emulated one. A recording is repeated, and the one with the fewest late answers of the drive is kept.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from blkreel.cli.demo.drives import LoopDrive, make_file_system
from blkreel.cli.demo.workspace import Workspace, workspace_below
from blkreel.common.emulated import FILE, LATE_INVALID, RUN
from blkreel.common.errors import BlkreelError
from blkreel.common.system import text_in
from blkreel.replay.emulated.host import own_group
from blkreel.replay.emulated.session import EmulateOptions, emulated, with_size
from blkreel.replay.simulated import spec
from blkreel.traces.format.reader import open_trace
from blkreel.traces.samples import SAMPLES, TITLES

from .warm_memory import running, warm_memory

DIRECTORY = Path(__file__).resolve().parents[2] / "traces/samples"
WORK = Path(os.environ.get("SAMPLES_WORK", "/var/tmp"))
MIRROR = os.environ.get("SAMPLES_MIRROR", "http://deb.debian.org/debian")
SUITE = "bookworm"
HOME = "/root"  # what a capture gives its command where the user is root
_BLKREEL = Path(sys.executable).with_name("blkreel")
NVME = "nil:nvme-mid"
# For reads of gigabytes and for downloads: two virtual processors do not copy 3.2 GB/s into a cold page cache in time,
# nor answer a write within 20 us.
SATA = "nil:sata-tlc"
# For many small writes: they are answered in time.
EMMC = "nil:emmc"
# Of the emulated drive, above all programs of a desktop and above those of SAMPLES_FIRST, with 1.
_SERVER_PRIORITY, _WORKER_PRIORITY = 3, 2
_NEW_WORKERS_EVERY_S = 0.1
# Of the I/Os of a sample: completions that the kernel hid, which a capture accepts up to 1 %.
MOST_UNSEEN = 0.005
# Of a sample. 0: only its time without a recording.
RECORDINGS = int(os.environ.get("SAMPLES_RECORDINGS", "3"))
# On a busy machine: the recorded programs run before all others, too. Some start sessions of their own, which share the
# processors evenly with those of others whatever their niceness.
_PROGRAM_FIRST = ("chrt", "--rr", "1") if os.environ.get("SAMPLES_FIRST") else ()

Command = Sequence[str | Path]


def _mount_memory(workspace: Workspace, size_bytes: int) -> Path:
    """A tmpfs of this size; /dev/shm may be smaller, and other programs use it."""
    directory = workspace.path / "memory"
    directory.mkdir()
    workspace.run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "blkreel-samples", directory)
    return directory


@dataclass(frozen=True)
class Root:
    """A Debian system: what is installed beyond the bare minimum. hooks: shell commands, "$1" is its directory."""

    name: str
    packages: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    skip: str = ""

    def tar(self) -> Path:
        """Made once and kept: remaking a trace must not download it all again."""
        definition = hashlib.sha256(repr((self, MIRROR, SUITE)).encode()).hexdigest()[:8]
        tar = WORK / "blkreel-roots" / f"{self.name}-{definition}.tar"
        if tar.exists():
            return tar
        tar.parent.mkdir(exist_ok=True)
        unfinished = tar.with_suffix(".part")
        command: list[str | Path] = ["mmdebstrap", "--mode=root", "--variant=apt", "--format=tar",
                   *([f"--include={','.join(self.packages)}"] if self.packages else []),
                   *(f"--customize-hook={hook}" for hook in self.hooks),
                   *([f"--skip={self.skip}"] if self.skip else []),
                   SUITE, unfinished, f"deb {MIRROR} {SUITE} main", f"deb-src {MIRROR} {SUITE} main"]
        print(f"making a Debian system for {self.name} ...", file=sys.stderr)
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if result.returncode:
            unfinished.unlink(missing_ok=True)
            raise BlkreelError(f"mmdebstrap failed: {result.stderr[:2000]}", f"is {MIRROR} reachable? SAMPLES_MIRROR "
                               "names another")
        unfinished.rename(tar)
        return tar


class Scratch:
    """A scratch drive with a file system.

    mount: where that is. device: its node. memory: a directory in memory, for other things. system: the root directory
    of programs.
    """

    def __init__(self, workspace: Workspace, drive: LoopDrive, memory: Path):
        self.workspace, self.memory, self.device, self._drive = workspace, memory, drive.device, drive
        self.mount = self.system = make_file_system(workspace, drive)
        self._bound: list[Path] = []
        self._least_late: float | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Of what runs on the drive: nothing of this machine's but what leftovers are known by."""
        mark = {name: value for name, value in self.workspace.environment.items() if name.startswith("BLKREEL_")}
        return {**mark, "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin:/usr/games",
                "HOME": HOME, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}

    def install(self, root: Root) -> None:
        """A Debian system on the drive, in the place of all that is there."""
        self._unbind()
        self.workspace.run("umount", self.mount)
        self.mount.rmdir()
        make_file_system(self.workspace, self._drive)
        self._unpack(root)
        self._bind()

    def install_elsewhere(self, root: Root, data: str) -> None:
        """A Debian system on the disk of this machine. data: where it has the drive, with the files of that place."""
        self.system = self.workspace.path / "system"
        self.system.mkdir()
        self._unpack(root)
        self._data = data.lstrip("/")
        (self.system / self._data).mkdir(parents=True, exist_ok=True)
        for path in (self.system / self._data).iterdir():
            shutil.move(path, self.mount)
        self._bind()

    def write(self, path: str, text: str) -> None:
        target = self.system / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def run(self, *command: str | Path) -> None:
        """Run a command of the installed system, before the recording."""
        self._checked(["chroot", self.system, *command])

    def settle(self) -> None:
        """Write all out and forget it, so that a recording begins with what comes after."""
        self._unbind()
        self.workspace.run("umount", self.mount)
        self.workspace.run("mount", "-t", "ext4", self._drive.device, self.mount)
        self._bind()

    def record(self, name: str, command: Command, environment: Mapping[str, str] | None = None, *,
               before: Callable[[], object] = lambda: None,
               beside: Callable[[], AbstractContextManager[object]] | None = None, timed: bool = True,
               ends_with: Sequence[int] = (0,), files: bool = True) -> None:
        """Capture a command from a cold cache into the sample of that name, RECORDINGS times, and keep the best.

        before: makes the drive ready for each recording. beside: what goes on during each. timed: then run it without a
        recording, too. files: with the names of its files.
        """
        def run(once: Callable[[], None]) -> None:
            before()
            self.settle()
            with beside() if beside else nullcontext():
                once()

        for _ in range(RECORDINGS):
            run(lambda: self._record_once(name, command, environment, ends_with, files))
        if timed:
            run(lambda: self.time(command, environment))

    def _record_once(self, name: str, command: Command, environment: Mapping[str, str] | None,
                     ends_with: Sequence[int], files: bool) -> None:
        """It is kept only if it is valid and has fewer late answers than each one before."""
        recorded = self.workspace.path / f"{name}.parquet"
        with warm_memory(), kernel_workers_before_others():
            self._capture(name, recorded, command, environment, ends_with, files)
        subprocess.run([_BLKREEL, "info", recorded])
        valid = subprocess.run([_BLKREEL, "check", recorded]).returncode in (0, 3)
        trace = open_trace(recorded)
        use, = trace.metadata["emulated"]
        late = use["late_ios"] / use["ios"]
        unseen = float((trace.table(["latency_ns"])["latency_ns"].to_numpy() < 0).mean())
        print(f"{name}: {100 * late:.2f} % of {use['ios']:,} I/Os late by {use['late_ns'] / 1e6:.0f} ms in all, "
              f"{100 * unseen:.2f} % without a completion, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        if valid and unseen <= MOST_UNSEEN and late < (LATE_INVALID if self._least_late is None else self._least_late):
            self._least_late = late
            recorded.chmod(0o644)
            shutil.move(recorded, DIRECTORY / recorded.name)

    def check_recorded(self) -> None:
        """Raise BlkreelError if no recording was kept of those that were asked for."""
        if self._least_late is None and RECORDINGS:
            raise BlkreelError(f"no valid recording with less than {100 * LATE_INVALID:g} % late answers",
                               "run it again on a quieter machine")

    def time(self, command: Command, environment: Mapping[str, str] | None = None) -> None:
        """Run a command that is recorded too, without a recording, and print how long it takes."""
        with warm_memory(), kernel_workers_before_others():
            started = time.monotonic()
            output = self._checked([*_PROGRAM_FIRST, *command], environment)
            print(f"without a recording: {time.monotonic() - started:.2f} s\n{output}", file=sys.stderr)

    def _capture(self, name: str, output: Path, command: Command,
                 environment: Mapping[str, str] | None, ends_with: Sequence[int], files: bool) -> None:
        capture: list[str | Path] = [
            *_PROGRAM_FIRST, _BLKREEL, "capture", "--path", self.mount, "--cold", "--user", "root", "-o", output,
            "--force", "--title", TITLES[name], "--description", SAMPLES[name], *(["--files"] if files else []), "--",
        ]
        print(self._checked([*capture, *command], environment, (*ends_with, 3)), file=sys.stderr)

    def _checked(self, command: Command, environment: Mapping[str, str] | None = None,
                 ends_with: Sequence[int] = (0,)) -> str:
        """The output of a command. Raises BlkreelError if it ends with another code."""
        result = subprocess.run([str(word) for word in command], env={**self.environment, **(environment or {})},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # As a shell gives it, and blkreel: 128 + N where signal N ended it.
        if (result.returncode if result.returncode >= 0 else 128 - result.returncode) not in ends_with:
            raise BlkreelError(f"{command[0]} ended with {result.returncode}:\n{result.stdout[-2000:]}")
        return result.stdout

    def _unpack(self, root: Root) -> None:
        self.workspace.run("tar", "-xf", root.tar(), "-C", self.system, "--numeric-owner", "--xattrs")
        (self.system / HOME.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _bind(self) -> None:
        if not (self.system / "proc").exists():
            return  # a drive without a system of its own
        binds = [("proc", ("-t", "proc", "proc")), ("dev", ("--bind", "/dev"))]
        if self.system != self.mount:
            binds.append((self._data, ("--bind", str(self.mount))))
        for name, arguments in binds:
            self.workspace.run("mount", *arguments, self.system / name)
            self._bound.append(self.system / name)

    def _unbind(self) -> None:
        while self._bound:
            self.workspace.run("umount", self._bound.pop())


@contextmanager
def emulated_drive(size_bytes: int, typical: str, spare_bytes: int = 64 << 20) -> Iterator[Scratch]:
    """A typical drive in real time for the block; spare_bytes: memory beside it for other files.

    Raises BlkreelError at the end if nothing was recorded. accept_inexact: no machine of two processors reaches the
    IOPS of all channels; the trace says so.
    """
    drive = with_size(replace(spec.parse(typical), clock="real"), size_bytes)
    options = EmulateOptions(drive, typical.removeprefix(spec.PREFIX), accept_inexact=True)
    with ExitStack() as stack:
        with _before_others(_SERVER_PRIORITY):
            running = stack.enter_context(emulated(options))
        workspace = stack.enter_context(workspace_below(WORK, "blkreel-samples"))
        stack.enter_context(_in_own_group())
        loop = LoopDrive(Path(running.device), RUN / options.name / FILE, direct=True)
        scratch = Scratch(workspace, loop, _mount_memory(workspace, spare_bytes))
        yield scratch
        scratch.check_recorded()


@contextmanager
def _before_others(priority: int) -> Iterator[None]:
    """Processes that start in the block run before all others, so that answers are less often late."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def kernel_workers_before_others() -> Iterator[None]:
    """The loop driver submits and completes in them, so other work on this machine would make the drive slow.

    The kernel adds workers at any time.
    """
    raised: set[int] = set()
    _raise_workers(raised)
    try:
        with running(_keep_raising, raised):
            yield
    finally:
        for worker in raised:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(worker, os.SCHED_OTHER, os.sched_param(0))


def _keep_raising(raised: set[int], ended: threading.Event) -> None:
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR, os.sched_param(_WORKER_PRIORITY))
    while not ended.wait(_NEW_WORKERS_EVERY_S):
        _raise_workers(raised)


def _raise_workers(raised: set[int]) -> None:
    for path in Path("/proc").glob("[0-9]*/comm"):
        worker = int(path.parent.name)
        if worker not in raised and text_in(path).startswith("kworker/u"):
            with suppress(ProcessLookupError):
                if os.sched_getscheduler(worker) == os.SCHED_OTHER:
                    os.sched_setscheduler(worker, os.SCHED_RR, os.sched_param(_WORKER_PRIORITY))
                    raised.add(worker)


@contextmanager
def _in_own_group() -> Iterator[None]:
    """Reads of this process and its children do not wait for flushes (docs/emulate.md)."""
    with own_group("samples") as processes:
        if processes is None:
            yield
            return
        processes.write_text(str(os.getpid()))
        try:
            yield
        finally:
            (processes.parents[1] / processes.name).write_text(str(os.getpid()))
