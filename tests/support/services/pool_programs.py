"""Work functions of pool tests, in a separate module because the pool processes import it."""

import os
import signal
import sys
import time

from blkreel.analysis.scale.pool import Pool
from blkreel.analysis.scale.work import Part


def part(name, rows=1):
    return Part(name, "", None, rows, 1, True)


def die(part):
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(part):
    os.write(1, b"%d\n" % os.getpid())  # in one piece, also if Python is unbuffered
    time.sleep(600)


def main():
    """Two processes that sleep, until somebody ends us."""
    import pool_programs  # this, as processes can import it: they know nothing of what is run as a script

    with Pool(2) as pool:
        list(pool.run(pool_programs.sleep, [part("a"), part("b")], lambda index, done: None))


if __name__ == "__main__":
    sys.exit(main())
