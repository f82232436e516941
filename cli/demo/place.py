"""The one directory below which a demo makes everything, and giving all of it back.

Invariant: every image, mount, loop device and process of a demo can be found from the directory's path alone:
files and mounts lie below it, loop devices name a file below it, processes carry it in their environment. So
`give_back` needs no list that a kill -9 could leave out of date, and removes the leftovers of a killed demo
with the same code that ends a good one.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from blkreel.traces.errors import BlkreelError, SafetyError

PLACE_NAME = "blkreel-demo"
MARK = ".blkreel-demo"
_ENVIRONMENT_KEY = "BLKREEL_DEMO"
_GIVE_BACK_S = 20.0
_PATIENCE_S = 4.0  # a file system that is still busy after this is detached from the tree instead


class Place:
    """A directory of the demo's own. `path` has no links in it, so that it compares with what the kernel says."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def environment(self) -> dict[str, str]:
        """For every process the demo starts: what its leftovers are known by, and where drive states are kept."""
        return {**os.environ, _ENVIRONMENT_KEY: str(self.path), "BLKREEL_STATE_DIR": str(self.path / "state")}

    def run(self, *command) -> str:
        """Run a program to its end; its stdout. Raises BlkreelError with what it said."""
        result = subprocess.run([str(word) for word in command], env=self.environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True)
        if result.returncode:
            said = " ".join((result.stderr or result.stdout).split()) or "no message"
            raise BlkreelError(f"{' '.join(map(str, command))} failed: {said}")
        return result.stdout


@contextmanager
def place_below(directory: Path, name: str = PLACE_NAME):
    """A Place in `directory`, locked against a second one; everything made in it is gone afterwards.

    Raises SafetyError where the name is taken by something that is not a demo's.
    """
    path = directory.resolve() / name
    with _locked(path), _signals_raised() as ignore_signals:
        place = Place(path)
        if any(path.iterdir()):
            print("removing what an interrupted demo left behind", file=sys.stderr)
            give_back(place)
        (path / MARK).touch()
        try:
            yield place
        finally:
            ignore_signals()
            give_back(place)
            path.rmdir()


def give_back(place: Place) -> None:
    """End the place's processes, unmount, detach and delete all below it. Raises BlkreelError with what stays."""
    end = time.monotonic() + _GIVE_BACK_S
    patient_until = time.monotonic() + _PATIENCE_S
    while left := _processes(place) + _mounts(place) + _loop_devices(place):
        if time.monotonic() > end:
            raise BlkreelError(f"could not give back {', '.join(map(str, left))}",
                               f"end what uses them, then: umount them, losetup -d them, rm -r {place.path}")
        _give_back_once(place, lazily=time.monotonic() > patient_until)
        time.sleep(0.05)
    # Only now: with a mount left, this would delete what is mounted. The mark goes last, so that an interrupted
    # removal can be taken up again.
    for entry in sorted(place.path.iterdir(), key=lambda entry: entry.name == MARK):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _give_back_once(place, lazily):
    for process in _processes(place):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    # Last mounted first. The file system that holds images is busy until its loop devices are detached: next round.
    for mount in reversed(_mounts(place)):
        subprocess.run(["umount", *(["--lazy"] if lazily else []), mount], stderr=subprocess.DEVNULL)
    for device in _loop_devices(place):
        subprocess.run(["losetup", "--detach", device], stderr=subprocess.DEVNULL)


def _processes(place) -> list[int]:
    """Ended children that nobody has waited for have no environment any more, so they are not among them."""
    mark = f"{_ENVIRONMENT_KEY}={place.path}".encode()
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) == os.getpid():
            continue
        with suppress(OSError):
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
    return found


def _mounts(place) -> list[str]:
    """In the order they were mounted."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # The kernel writes blanks and backslashes as octal escapes.
    decoded = [re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), point) for point in points]
    return [point for point in decoded if point.startswith(f"{place.path}/")]


def _loop_devices(place) -> list[str]:
    found = []
    for attribute in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if attribute.read_text().startswith(f"{place.path}/"):
                found.append(f"/dev/{attribute.parent.parent.name}")
    return found


@contextmanager
def _locked(path):
    while True:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
        _refuse_foreign(path)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The demo that held it may have removed the directory in between.
            if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
                continue
            yield
            return
        except BlockingIOError:
            raise BlkreelError(f"another demo is running in {path}", "wait for it, or add --work DIR") from None
        finally:
            os.close(handle)


def _refuse_foreign(path):
    """Everything below the directory is going to be deleted, by root."""
    status = path.lstat()
    directory = not path.is_symlink() and path.is_dir()
    if not directory or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise SafetyError(f"{path} is not a directory that only this user writes to", "remove it, or add --work DIR")
    if any(path.iterdir()) and not (path / MARK).exists():
        raise SafetyError(f"{path} holds files that no demo made", "remove it, or add --work DIR")


@contextmanager
def _signals_raised():
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: through every `finally`. Yields a function that ends this.

    Only the first counts: a second Ctrl-C must not break off the giving back that the first has started.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def ignore():
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    def end(number, _frame):
        ignore()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    former = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield ignore
    finally:
        for number, handler in former:
            signal.signal(number, handler)
