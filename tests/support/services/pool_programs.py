"""Work functions of pool tests, in a separate module because the pool processes import it."""

import os
import signal
import sys
import threading
import time

from blkreel.analysis.scale.pool import Pool
from blkreel.analysis.scale.runner import Part


def part(name, rows=1):
    return Part(name, "", None, rows, 1, True)


def die(part):
    os.kill(os.getpid(), signal.SIGKILL)


def die_within_the_result(part):
    """Killed as soon as the result is partly in the pipe, which holds less, and takes it by one system call."""
    writer = threading.main_thread().native_id

    def kill():
        while True:
            with open(f"/proc/self/task/{writer}/syscall") as syscall:
                number, *arguments = syscall.read().split()
            if number == "1" and int(arguments[2], 16) > 1 << 20:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    return bytes(50 << 20)


def fail(part):
    raise ZeroDivisionError(part.location)


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
