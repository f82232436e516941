"""Waits for conditions instead of fixed times."""

import time


def wait_until(holds, process=None, seconds=300):
    """Wait until holds() is true. Fails with the stderr of `process` if it ends before."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"condition not true after {seconds} s"
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
