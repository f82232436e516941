"""The directory of a demo, and its cleanup.

Invariant: each image, mount, loop device and process of a demo can be found from the path of the directory. Files and
mounts are below it, loop devices name a file below it, processes have it in their environment. So clean_up() needs no
list, and also removes what a demo left behind after kill -9.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from blkreel.common.command_line import PRIVILEGED
from blkreel.common.errors import BlkreelError, SafetyError, os_errors
from blkreel.common.files.safe_files import lock_file
from blkreel.common.system import closing_descriptor, handled_signals, mounts_in
from blkreel.replay.emulated.directory import devices_over, sweep
from blkreel.replay.emulated.file_system import is_refused, last_message

WORKSPACE_NAME = "blkreel-demo"
MARK = ".blkreel-demo"
_ENVIRONMENT_KEY = "BLKREEL_DEMO"
_CLEAN_UP_S = 20.0
_LAZY_AFTER_S = 4.0  # unmount a file system lazily if it is still busy then


class Workspace:
    """path: without symbolic links, so that it can be compared with paths of the kernel."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def environment(self) -> dict[str, str]:
        """Environment of each process: a mark for the cleanup, and the directory of drive states."""
        return {**os.environ, _ENVIRONMENT_KEY: str(self.path), "BLKREEL_STATE_DIR": str(self.path / "state")}

    def run(self, *command: object) -> str:
        """Run a program; returns its stdout. Raises BlkreelError with its error message."""
        result = subprocess.run([str(word) for word in command], env=self.environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True)
        if result.returncode:
            message = last_message(result.stderr) or " ".join(result.stdout.split()) or "no message"
            raise BlkreelError(f"{' '.join(map(str, command))} failed: {message}",
                               PRIVILEGED if is_refused(message) else None)
        return result.stdout


@contextmanager
def workspace_below(directory: Path, name: str = WORKSPACE_NAME) -> Iterator[Workspace]:
    """A locked Workspace in `directory`, cleaned up and removed at the end of the block.

    Raises SafetyError if a directory of this name exists and is not that of a demo.
    """
    path = directory.resolve() / name
    with _locked(path), _signals_raised() as ignore_signals:
        workspace = Workspace(path)
        if any(path.iterdir()):
            print("cleaning up after an interrupted demo", file=sys.stderr)
            clean_up(workspace)
        (path / MARK).touch()
        try:
            yield workspace
        finally:
            ignore_signals()
            clean_up(workspace)
            path.rmdir()


def clean_up(workspace: Workspace) -> None:
    """Kill processes, unmount, detach and delete everything below the path. Raises BlkreelError with what is left."""
    end = time.monotonic() + _CLEAN_UP_S
    lazy_after = time.monotonic() + _LAZY_AFTER_S
    while left := _processes(workspace) + _mounts(workspace) + devices_over(workspace.path):
        if time.monotonic() > end:
            raise BlkreelError(f"cannot clean up {', '.join(map(str, left))}: still in use",
                               f"stop their users, then: umount, losetup -d, rm -r {workspace.path}")
        _clean_up_once(workspace, lazily=time.monotonic() > lazy_after)
        time.sleep(0.05)
    sweep()  # what an emulated drive left whose processes were killed
    # After the unmounts: otherwise this would delete the content of a mount. The mark last, so that an interrupted
    # cleanup can be repeated.
    for entry in sorted(workspace.path.iterdir(), key=lambda entry: entry.name == MARK):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _clean_up_once(workspace: Workspace, lazily: bool) -> None:
    for process in _processes(workspace):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    # In reverse order. The file system of the images stays busy until their loop devices are detached: next round.
    for mount in reversed(_mounts(workspace)):
        subprocess.run(["umount", *(["--lazy"] if lazily else []), mount], stderr=subprocess.DEVNULL)
    for device in devices_over(workspace.path):
        subprocess.run(["losetup", "--detach", device], stderr=subprocess.DEVNULL)


def _processes(workspace: Workspace) -> list[int]:
    """Without zombies, which have no environment."""
    mark = f"{_ENVIRONMENT_KEY}={workspace.path}".encode()
    processes = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) == os.getpid():
            continue
        with suppress(OSError):
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                processes.append(int(directory.name))
    return processes


def _mounts(workspace: Workspace) -> list[str]:
    """Mount points below the path, in the order of mounting."""
    return [mount.point for mount in mounts_in() if mount.point.startswith(f"{workspace.path}/")]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    while True:
        with (os_errors(BlkreelError, f"cannot make {path}", "name another directory: --work DIR"),
              suppress(FileExistsError)):
            path.mkdir(mode=0o700, parents=True)
        _refuse_foreign(path)
        with closing_descriptor(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as handle:
            if not lock_file(handle):
                raise BlkreelError(f"another demo is running in {path}", "wait for it, or add --work DIR")
            # The demo that held the lock may have removed the directory meanwhile.
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                yield
                return


def _refuse_foreign(path: Path) -> None:
    """Raise SafetyError unless the directory is that of a demo: the cleanup deletes its content, as root."""
    status = path.lstat()
    directory = not path.is_symlink() and path.is_dir()
    if not directory or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise SafetyError(f"{path}: not a directory that only this user can write to", "remove it, or add --work DIR")
    if any(path.iterdir()) and not (path / MARK).exists():
        raise SafetyError(f"{path}: has files that are not of a demo", "remove it, or add --work DIR")


@contextmanager
def _signals_raised() -> Iterator[Callable[[], None]]:
    """Raise an exception for SIGTERM, SIGHUP and Ctrl-C. Yields a function that ignores them from then on.

    The first signal also does: a second Ctrl-C must not interrupt the cleanup.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    def end(number: int, frame: FrameType | None) -> None:
        ignore()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    with handled_signals(dict.fromkeys(numbers, end)):
        yield ignore
