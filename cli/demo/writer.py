"""The writer beside the program: `python3 -I -S -B writer.py FILE SIZE RATE DEPTH`, until it is killed.

Writes blocks of 1 MiB at RATE bytes a second into a file of SIZE bytes, again from its start at its end, with at most
DEPTH writes in flight: what `--background writes=RATE,depth=DEPTH` of a replay does. Direct I/O, because the page cache
would decide when the drive gets the data. It needs less than 2 % of a processor, so that the program keeps both.
Prints a line once all is set up. It imports nothing of blkreel.
"""

import mmap
import os
import sys
import threading
import time

BLOCK_BYTES = 1 << 20


class Schedule:
    """Gives each block to one thread when it is due, in their order."""

    def __init__(self, bytes_per_s: float):
        self._every_s = BLOCK_BYTES / bytes_per_s
        self._started = time.monotonic()
        self._blocks = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            block = self._blocks
            self._blocks += 1
            time.sleep(max(0.0, self._started + block * self._every_s - time.monotonic()))
            return block


def main() -> None:
    path, size_bytes, bytes_per_s, depth = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    os.posix_fallocate(file, 0, size_bytes)
    data = mmap.mmap(-1, BLOCK_BYTES)  # at a page boundary, as direct I/O requires
    data.write(os.urandom(BLOCK_BYTES))
    schedule = Schedule(bytes_per_s)

    def write() -> None:
        while True:
            os.pwrite(file, data, schedule.next() * BLOCK_BYTES % size_bytes)

    for _ in range(depth):
        threading.Thread(target=write).start()
    print("writing", flush=True)


if __name__ == "__main__":
    main()
