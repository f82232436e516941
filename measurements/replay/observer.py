"""Records the I/Os that the kernel issues to a drive: block_rq_issue in a separate trace instance.

The ring buffer is read in binary form, because the text form truncates times to microseconds. A separate instance does
not disturb other users of tracing.
"""

import os
import re
import threading
from pathlib import Path

import numpy as np

TRACING = Path("/sys/kernel/tracing")
PAGE_HEADER_BYTES = 16
PAGE_LENGTH_MASK = 0xFFFFF  # of the commit word; higher bits flag missed events


class Observer:
    """with Observer("/dev/loop0") as seen: ...; then seen.time_ns, seen.sector, seen.sectors, in order of issue."""

    def __init__(self, drive, buffer_kib=8192):
        self.drive = drive
        self.buffer_kib = buffer_kib
        self.instance = TRACING / "instances" / f"blkreel-bench-{os.getpid()}"

    def __enter__(self):
        if not (TRACING / "instances").is_dir():
            raise SystemExit("no /sys/kernel/tracing; sudo mount -t tracefs nodev /sys/kernel/tracing")
        self.instance.mkdir()
        device = Path(self.drive).stat().st_rdev
        # The kernel's own dev_t: 20 bits of minor.
        self._write("events/block/block_rq_issue/filter", f"dev == {os.major(device) << 20 | os.minor(device)}")
        self._write("trace_clock", "mono")
        self._write("buffer_size_kb", str(self.buffer_kib))
        self._fields = _fields((self.instance / "events/block/block_rq_issue/format").read_text())
        self._pages = []
        self._stop = threading.Event()
        self._readers = [threading.Thread(target=self._drain, args=(cpu,))
                         for cpu in (self.instance / "per_cpu").iterdir()]
        self._write("events/block/block_rq_issue/enable", "1")
        return self

    def __exit__(self, *exc):
        self._write("events/block/block_rq_issue/enable", "0")
        for reader in self._readers:
            reader.start()
        self._stop.set()
        for reader in self._readers:
            reader.join()
        lost = sum(_lost((cpu / "stats").read_text()) for cpu in (self.instance / "per_cpu").iterdir())
        self.instance.rmdir()
        if lost:
            raise SystemExit(f"the observer lost {lost} events: increase its buffer_kib")
        rows = sorted(row for page in self._pages for row in _events(page, self._fields))
        self.time_ns = np.array([row[0] for row in rows], "i8")
        self.sector = np.array([row[1] for row in rows], "i8")
        self.sectors = np.array([row[2] for row in rows], "i8")

    def _write(self, name, text):
        (self.instance / name).write_text(text)

    def _drain(self, cpu):
        # Read after the run: reading during the run would take processor time from the measured program.
        pipe = os.open(cpu / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
        try:
            while True:
                page = os.read(pipe, 4096)
                if not page:
                    return
                self._pages.append(page)
        except BlockingIOError:
            pass
        finally:
            os.close(pipe)


def _fields(text):
    fields = {m[1]: (int(m[2]), int(m[3])) for m in
              re.finditer(r"field:[^;]*?(\w+)(?:\[\d+\])?;\s*offset:(\d+);\s*size:(\d+);", text)}
    return fields["sector"][0], fields["nr_sector"][0]


def _lost(stats):
    counts = dict(line.split(": ") for line in stats.splitlines() if ": " in line)
    return int(counts["overrun"]) + int(counts["dropped events"])


def _events(page, fields):
    """The events of one ring-buffer page as (time_ns, sector, sectors): see events/header_page and header_event."""
    sector_at, sectors_at = fields
    time_ns, commit = np.frombuffer(page, "<u8", 2).tolist()
    at, end = PAGE_HEADER_BYTES, PAGE_HEADER_BYTES + (commit & PAGE_LENGTH_MASK)
    while at < end:
        head = int.from_bytes(page[at:at + 4], "little")
        kind, delta = head & 31, head >> 5
        extra = int.from_bytes(page[at + 4:at + 8], "little")
        if kind == 30:  # time extend
            time_ns += (extra << 27) + delta
            at += 8
            continue
        if kind == 31:  # absolute time, its top five bits as they were
            time_ns = (time_ns & (31 << 59)) | (extra << 27) + delta
            at += 8
            continue
        if kind == 29:  # padding
            if not delta:
                return
            at += 4 + extra
            continue
        time_ns += delta
        data, length = (at + 4, 4 * kind) if kind else (at + 8, extra - 4)
        yield (time_ns, int.from_bytes(page[data + sector_at:data + sector_at + 8], "little"),
               int.from_bytes(page[data + sectors_at:data + sectors_at + 4], "little"))
        at = data + length
