"""A control group of its own for the command of an emulated drive.

The loop driver executes a flush in the thread that submits the I/Os of all programs in the root group; flushes of any
program go there. A program in another group has a thread of its own, so that its reads do not wait for flushes.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blkreel.common.system import text_in

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def own_group(name: str) -> Iterator[Path | None]:
    """The cgroup.procs of a new group with the io controller, removed at the end.

    None where it cannot be made: the account of the drive then has what flushes held back.
    """
    group = _parent()
    if group is None:
        yield None
        return
    group /= f"blkreel-{name}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group / "cgroup.procs"
    finally:
        with suppress(OSError):  # programs that the command left are still in it
            group.rmdir()


def _parent() -> Path | None:
    """Version 1: the tree of the blkio controller. Version 2: the root, if its children have the io controller."""
    if (_ROOT / "blkio/cgroup.procs").exists():
        return _ROOT / "blkio"
    return _ROOT if "io" in text_in(_ROOT / "cgroup.subtree_control").split() else None
