"""Waiting for something to become true, instead of for a time in which it may."""

import time


def wait_until(holds, process=None, seconds=60):
    """Until holds(); where `process` ends before that, its stderr is the reason."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
