"""Detach loop devices."""

import subprocess
from pathlib import Path

from waiting import wait_until


def detach_loop(path):
    """Detach the loop device at `path`. Raises AssertionError if an image stays attached.

    On a busy machine losetup at times fails with ENXIO although the kernel then releases the device, so the state of
    the device counts and not the exit code.
    """
    result = subprocess.run(["losetup", "--detach", path], capture_output=True, text=True)
    if result.returncode:
        attached = Path("/sys/block") / Path(path).name / "loop/backing_file"
        try:
            wait_until(lambda: not attached.exists(), seconds=10)
        except AssertionError:
            raise AssertionError(result.stderr) from None
