"""Writes 1 MiB at a time with direct I/O at a steady rate: FILE BYTES_PER_S [FIRST_BYTE]. Prints the number of each.

It begins at FIRST_BYTE again when the file is full.
"""

import mmap
import os
import sys
import time

BLOCK_BYTES = 1 << 20


def main(path, rate_bytes_s, first_byte=0):
    file, memory = os.open(path, os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 2 * BLOCK_BYTES, mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_HUGEPAGE)  # the kernel would split a write from many small pages
    memory.write(os.urandom(BLOCK_BYTES))
    block = memoryview(memory)[:BLOCK_BYTES]
    size, at, count, began = os.lseek(file, 0, os.SEEK_END), first_byte, 0, time.monotonic()
    while True:
        time.sleep(max(0, began + count * BLOCK_BYTES / rate_bytes_s - time.monotonic()))
        os.pwritev(file, [block], at)
        at, count = at + BLOCK_BYTES, count + 1
        if at + BLOCK_BYTES > size:
            at = first_byte
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:]))
