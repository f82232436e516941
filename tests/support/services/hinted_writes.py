"""Writes to a drive with each write hint, atomically, and plain ones: `hinted_writes.py DRIVE [ATOMIC_LENGTH...]`.

The n-th hint, from 1, is that of n + 1 blocks of 4 KiB, and of a read; without a hint one block is written. An atomic
write lies at 1 MiB times its number.
"""

import fcntl
import mmap
import os
import struct
import sys

F_SET_RW_HINT, RWF_ATOMIC = 1036, 0x40
BLOCK = 4096

drive = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
data = memoryview(mmap.mmap(-1, 1 << 20))
try:
    for hint in range(1, 6):
        fcntl.fcntl(drive, F_SET_RW_HINT, struct.pack("Q", hint))
        os.pwritev(drive, [data[:BLOCK * (hint + 1)]], hint << 16)
        os.preadv(drive, [data[:BLOCK]], 0)
finally:
    fcntl.fcntl(drive, F_SET_RW_HINT, struct.pack("Q", 0))  # the node keeps it
os.pwritev(drive, [data[:BLOCK]], 0)
for number, length in enumerate(map(int, sys.argv[2:]), 1):
    os.pwritev(drive, [data[:length]], number << 20, RWF_ATOMIC)
