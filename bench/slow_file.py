"""A file whose reads, writes and flushes take a fixed time. A loop device over it is a slow drive.

As a program: slow_file.py MOUNTPOINT IMAGE LATENCY_NS mounts IMAGE's contents over the file MOUNTPOINT, prints "ready",
and serves it until the end of standard input. It implements the FUSE protocol directly, because it needs only one
file and control over the time of each reply: any number of requests can be in flight, and each is answered
LATENCY_NS after its arrival.
"""

import ctypes
import mmap
import os
import queue
import struct
import sys
import threading
import time

MAX_WRITE_BYTES = 1 << 20
PAGE_BYTES = 4096

# linux/fuse.h
LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 14, 15, 16, 17, 18, 20, 25, 26
INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE = 36, 38, 42, 43
ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
NO_ANSWER = {FORGET, INTERRUPT, BATCH_FORGET}

IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
INIT_IN = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")
ATTRIBUTES_OUT = struct.Struct("<QII6Q3I7I")
OPEN_OUT = struct.Struct("<QII")
READ_IN = struct.Struct("<QQII")
WRITE_IN = struct.Struct("<QQIIQII")
WRITE_OUT = struct.Struct("<II")
STATFS_OUT = struct.Struct("<QQQQQIIII24x")

ENOSYS, EIO = 38, 5
PR_SET_TIMERSLACK = 29


class SlowFile:
    """Serves one connection. image: a writable memory map of the file."""

    def __init__(self, connection, image, latency_ns):
        self._connection = connection
        self._image = memoryview(image)
        self._latency_ns = latency_ns
        self._due = queue.SimpleQueue()

    def serve(self):
        """Receives requests until the unmount."""
        threading.Thread(target=self._answer_when_due, daemon=True).start()
        buffer = bytearray(MAX_WRITE_BYTES + PAGE_BYTES)
        view = memoryview(buffer)
        while True:
            try:
                count = os.readv(self._connection, [buffer])
            except (FileNotFoundError, InterruptedError):
                continue  # request canceled before it was read
            except OSError:
                return  # unmounted
            come_ns = time.monotonic_ns()
            _, op, unique, *_ = IN_HEADER.unpack_from(buffer)
            if op not in NO_ANSWER:
                self._take(op, unique, view[IN_HEADER.size:count], come_ns)

    def _take(self, op, unique, body, come_ns):
        if op == READ:
            _, offset, size, _ = READ_IN.unpack_from(body)
            # Data is read at the time of the reply.
            self._due.put((come_ns + self._latency_ns, unique, slice(offset, offset + size)))
        elif op == WRITE:
            _, offset, size, *_ = WRITE_IN.unpack_from(body)
            self._image[offset:offset + size] = body[WRITE_IN.size:WRITE_IN.size + size]
            self._due.put((come_ns + self._latency_ns, unique, WRITE_OUT.pack(size, 0)))
        elif op == FSYNC:
            self._due.put((come_ns + self._latency_ns, unique, b""))
        else:
            answer = self._at_once(op, body)
            self._send(unique, b"" if answer is None else answer, -ENOSYS if answer is None else 0)

    def _at_once(self, op, body):
        """Reply to an operation that is not drive I/O; None if unsupported."""
        if op == INIT:
            _, minor, read_ahead, flags = INIT_IN.unpack_from(body)
            wanted = flags & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES)
            return INIT_OUT.pack(7, min(minor, 31), read_ahead, wanted, 1024, 1024, MAX_WRITE_BYTES, 1,
                                 MAX_WRITE_BYTES // PAGE_BYTES, 0, 0, 0)
        if op in (GETATTR, SETATTR):
            size = len(self._image)
            return ATTRIBUTES_OUT.pack(3600, 0, 0, 1, size, size // 512, 0, 0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0,
                                       PAGE_BYTES, 0)
        if op == OPEN:
            return OPEN_OUT.pack(1, 0, 0)
        if op == STATFS:
            return STATFS_OUT.pack(0, 0, 0, 1, 0, PAGE_BYTES, 255, PAGE_BYTES, 0)
        return b"" if op in (RELEASE, FLUSH, DESTROY) else None

    def _answer_when_due(self):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        while True:
            due_ns, unique, answer = self._due.get()
            # The latency is constant, so replies are due in order of arrival.
            left_ns = due_ns - time.monotonic_ns()
            if left_ns > 0:
                time.sleep(left_ns / 1e9)
            self._send(unique, self._image[answer] if isinstance(answer, slice) else answer)

    def _send(self, unique, answer, error=0):
        header = OUT_HEADER.pack(OUT_HEADER.size + len(answer), error, unique)
        try:
            os.writev(self._connection, [header, answer])
        except OSError:
            pass  # the request was interrupted


def mount_fuse(mountpoint, connection):
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={connection},rootmode=100000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"blkreel-slow", os.fsencode(mountpoint), b"fuse", 6, options.encode()):
        code = ctypes.get_errno()
        raise SystemExit(f"cannot mount a FUSE file: {os.strerror(code)}; it needs root and /dev/fuse")


def main(mountpoint, image_path, latency_ns):
    try:
        connection = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise SystemExit(f"cannot open /dev/fuse: {error.strerror}; modprobe fuse") from None
    with open(image_path, "r+b") as file:
        image = mmap.mmap(file.fileno(), 0)
    mount_fuse(mountpoint, connection)
    threading.Thread(target=SlowFile(connection, image, latency_ns).serve, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.buffer.read()
    # Lazy unmount: processes with open files get errors instead of blocking.
    ctypes.CDLL(None).umount2(os.fsencode(mountpoint), 2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
