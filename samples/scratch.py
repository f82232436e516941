"""What the scripts beside this one share: a scratch drive with a Debian system on it, and recording what happens there.

Nothing is installed on the machine itself, and nothing on it can get into a trace: the application, its libraries, its
data and its home all lie on the scratch drive, a loop device over an image in memory, read and written with direct I/O.
In memory, because the drive below an image on disk serves others too, and their stalls would be in the trace. An
image on disk is for gigabytes, which memory does not hold beside the page cache.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blkreel.cli.demo.drives import check_room, make_drive, make_file_system, mount_memory, remount
from blkreel.cli.demo.workspace import Workspace, workspace_below
from blkreel.common.errors import BlkreelError
from blkreel.traces.samples import SAMPLES, TITLES

DIRECTORY = Path(__file__).resolve().parents[1] / "traces/samples"
WORK = Path(os.environ.get("SAMPLES_WORK", "/var/tmp"))
MIRROR = os.environ.get("SAMPLES_MIRROR", "http://deb.debian.org/debian")
SUITE = "bookworm"
HOME = "/root"  # what a capture gives its command where the user is root
_BLKREEL = Path(sys.executable).with_name("blkreel")
# Some kernels hide a completion from BPF now and then; a trace that lacks one is recorded again.
_ATTEMPTS = 4


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
    """A scratch drive with a file system. mount: where that is; memory: a directory in memory, for other things."""

    def __init__(self, workspace: Workspace, size_bytes: int, spare_bytes: int, on_disk: bool):
        self.workspace = workspace
        self.memory = mount_memory(workspace, spare_bytes if on_disk else size_bytes + spare_bytes)
        directory = workspace.path if on_disk else self.memory
        self._drive = make_drive(workspace, directory / "drive.img", size_bytes, allocate=on_disk)
        self.mount = make_file_system(workspace, self._drive)
        self._bound: list[Path] = []

    @property
    def environment(self) -> dict[str, str]:
        """Of what runs on the drive: nothing of this machine's but what leftovers are known by."""
        mark = {name: value for name, value in self.workspace.environment.items() if name.startswith("BLKREEL_")}
        return {**mark, "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin:/usr/games",
                "HOME": HOME, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}

    def install(self, root: Root) -> None:
        self.workspace.run("tar", "-xf", root.tar(), "-C", self.mount, "--numeric-owner", "--xattrs")
        (self.mount / HOME.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self._bind()

    def write(self, path: str, text: str) -> None:
        target = self.mount / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def run(self, *command: str | Path, environment: Mapping[str, str] | None = None,
            ends_with: Sequence[int] = (0,)) -> None:
        """Run a command of the drive's system, before the recording."""
        result = subprocess.run(["chroot", self.mount, *command], env={**self.environment, **(environment or {})},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # As a shell gives it, and blkreel: 128 + N where signal N ended it.
        if (result.returncode if result.returncode >= 0 else 128 - result.returncode) not in ends_with:
            raise BlkreelError(f"{command[0]} ended with {result.returncode}:\n{result.stdout[-2000:]}")

    def settle(self) -> None:
        """Write all out and forget it, so that a recording begins with what comes after."""
        self._unbind()
        remount(self.workspace, self._drive, self.mount)
        self._bind()

    def record(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None,
               ends_with: Sequence[int] = (0,), files: bool = True) -> None:
        """Capture a command from a cold cache into the sample of that name. files: with the names of its files."""
        output = DIRECTORY / f"{name}.parquet"
        capture = [_BLKREEL, "capture", "--path", self.mount, "--cold", "--user", "root", "-o", output, "--force",
                   "--title", TITLES[name], "--description", SAMPLES[name], *(["--files"] if files else []), "--"]
        result = subprocess.run([*map(str, capture), *map(str, command)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**self.environment, **(environment or {})})
        if result.returncode not in (*ends_with, 3):
            raise BlkreelError(f"the capture ended with {result.returncode}:\n{result.stdout[-2000:]}")

    def _bind(self) -> None:
        if not (self.mount / "proc").exists():
            return  # a drive without a system of its own
        for name, arguments in (("proc", ("-t", "proc", "proc")), ("dev", ("--bind", "/dev"))):
            self.workspace.run("mount", *arguments, self.mount / name)
            self._bound.append(self.mount / name)

    def _unbind(self) -> None:
        while self._bound:
            self.workspace.run("umount", self._bound.pop())


@contextmanager
def scratch_drive(size_bytes: int, spare_bytes: int = 64 << 20, on_disk: bool = False) -> Iterator[Scratch]:
    """A scratch drive for the block; spare_bytes: memory beside it for other files."""
    with workspace_below(WORK, "blkreel-samples") as workspace:
        check_room(workspace, disk_bytes=size_bytes if on_disk else 0,
                   memory_bytes=spare_bytes if on_disk else size_bytes + spare_bytes)
        yield Scratch(workspace, size_bytes, spare_bytes, on_disk)


def make_sample(name: str, make: Callable[[str], None]) -> None:
    """Call make(name) until the trace it leaves is whole. The script's end: says what went wrong, if something did."""
    try:
        if os.geteuid() != 0:
            raise BlkreelError("recording a sample makes loop devices and mounts, which needs root",
                               "sudo make samples")
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        for _ in range(_ATTEMPTS):
            started = time.monotonic()
            make(name)
            if _is_whole(name):
                print(f"recorded in {time.monotonic() - started:.0f} s", file=sys.stderr)
                return
        raise BlkreelError(f"{name}: no whole trace in {_ATTEMPTS} attempts", "run it again on a quieter machine")
    except BlkreelError as error:
        sys.exit(f"{name}: {error}")


def _is_whole(name: str) -> bool:
    path = DIRECTORY / f"{name}.parquet"
    subprocess.run([_BLKREEL, "info", path])
    checked = subprocess.run([_BLKREEL, "check", path], capture_output=True, text=True)
    if checked.returncode:
        print(f"{name}: not whole: {checked.stdout.strip()}", file=sys.stderr)
    return checked.returncode == 0
