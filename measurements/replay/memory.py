"""Memory of a replay of a long trace, and time to its first I/O.

    .venv/bin/python -m measurements.replay.memory [--rows 100000000] [--shape random] [--directory /var/tmp] [--keep]

Makes a synthetic trace and replays it twice, as fast as possible, on a target that completes at once (nil:SIZE).
The first replay may have to scan the trace; the second uses the saved survey. Memory is sampled ten times
a second from /proc/PID/smaps_rollup, and the peak is that of the kernel (VmHWM). The first I/O is detected by the first
rows in the spool of the run, up to half a second after their issue. The start is then measured several more times;
these replays are interrupted at their first I/O. Processor time is printed too, because other load does not
change it.

Shapes: random (4 KiB within 1 TiB, half reads), sequential (64 KiB, 10 % reads),
hot (4 KiB within 64 GiB), sectors (512 bytes within 64 GiB).
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from blkreel.traces.format.writer import TraceWriter
from measurements.lab import machine

TIB = 1 << 40
GIB = 1 << 30
# Span (None: sequential), length of an I/O, share of reads.
SHAPES = {"random": (TIB, 4096, 0.5), "sequential": (None, 65536, 0.1), "hot": (64 * GIB, 4096, 0.7),
          "sectors": (64 * GIB, 512, 0.5)}
BATCH_ROWS = 1_000_000


def make_trace(path, rows, shape):
    """About 20 µs between I/Os, a latency of about 80 µs, four threads: typical of a busy NVMe drive."""
    span, length, reads = SHAPES[shape]
    random, now_ns = np.random.default_rng(1), 0
    with TraceWriter(path, force=True) as out:
        for low in range(0, rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows - low)
            submit_ns = now_ns + np.cumsum(random.integers(1, 40_000, count))
            now_ns = int(submit_ns[-1])
            place = np.arange(low, low + count) * length % (4 * TIB) if span is None else \
                random.integers(0, span // length, count) * length
            out.write({"submit_ns": submit_ns, "latency_ns": random.integers(60_000, 100_000, count),
                       "queue_ns": random.integers(500, 3000, count), "offset_bytes": place,
                       "length_bytes": np.full(count, length), "op": (random.random(count) >= reads).astype(np.int8),
                       "cpu": random.integers(0, 4, count), "tid": 1000 + random.integers(0, 4, count)})
        out.close({"devices": [{"name": "synthetic", "size_bytes": 4 * TIB}], "source_format": "synthetic"})


class Watched:
    """A running replay. peak_kb: VmHWM and the largest sampled PSS of each process by name."""

    def __init__(self, words, run, only_start=False):
        self.peaks = {}
        self.total_pss_kb = self.total_rss_kb = 0
        self.first_io_s = self.first_io_cpu_s = None
        started = time.monotonic()
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rows = run / ".records.parquet.spool/rows.blocks"
        while self._process.poll() is None:
            self._look()
            if self.first_io_s is None and rows.exists() and rows.stat().st_size > 1000:
                self.first_io_s = time.monotonic() - started
                self.first_io_cpu_s = sum(map(cpu_seconds, [self._process.pid, *children_of(self._process.pid)]))
                if only_start:
                    self._process.send_signal(signal.SIGINT)
            time.sleep(0.02 if self.first_io_s is None else 0.1)
        self.seconds = time.monotonic() - started
        self.output, self.errors = self._process.communicate()
        self.code = self._process.returncode

    def _look(self):
        pss = rss = 0
        for pid in [self._process.pid, *children_of(self._process.pid)]:
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                rollup = fields_of(Path(f"/proc/{pid}/smaps_rollup"))
                status = fields_of(Path(f"/proc/{pid}/status"))
            except (OSError, ValueError):
                continue  # it has just ended
            pss += rollup.get("Pss", 0)
            rss += rollup.get("Rss", 0)
            before = self.peaks.get(name, (0, 0))
            self.peaks[name] = (max(before[0], status.get("VmHWM", 0)), max(before[1], rollup.get("Pss", 0)))
        self.total_pss_kb, self.total_rss_kb = max(self.total_pss_kb, pss), max(self.total_rss_kb, rss)


def children_of(pid):
    """Child processes of all threads."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return [process for child in children for process in (child, *children_of(child))]


def cpu_seconds(pid):
    """Processor time of all its threads so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spread(values):
    return f"{statistics.median(values):.2f} [{min(values):.2f} .. {max(values):.2f}]"


def fields_of(path):
    """`Pss:   123 kB` as {"Pss": 123}."""
    return {name: int(value.split()[0]) for name, _, value in
            (line.partition(":") for line in path.read_text().splitlines()) if value.strip().endswith("kB")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="may be repeated (default: all)")
    parser.add_argument("--size", default="4TiB", help="size of the target (default: 4TiB)")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--only-starts", action="store_true", help="measure only starts, with a kept trace")
    parser.add_argument("--keep", action="store_true", help="keep the traces for later runs")
    parser.add_argument("replay", nargs="*", help="more options for blkreel replay, after --")
    wanted = parser.parse_args()
    command = Path(sys.executable).with_name("blkreel")
    print(f"{wanted.rows:,} I/Os; {machine()}")
    for shape in wanted.shape or SHAPES:
        work = wanted.directory / f"blkreel-bench-{shape}-{wanted.rows}"
        work.mkdir(exist_ok=True)
        trace, run = work / "trace.parquet", work / "run"
        try:
            if not trace.exists():
                make_trace(trace, wanted.rows, shape)
            print(f"\n{shape}: {trace.stat().st_size / 1e6:,.0f} MB")
            os.environ["BLKREEL_CACHE_DIR"], os.environ["BLKREEL_STATE_DIR"] = str(work / "cache"), str(work / "state")
            if not wanted.only_starts:
                shutil.rmtree(work / "cache", ignore_errors=True)
            words = [command, "replay", trace, "--on", f"nil:{wanted.size}", "--pace", "asap", "-o", run, "--json",
                     "--force", "--no-prefill", *wanted.replay]
            for turn in () if wanted.only_starts else ("first", "again"):
                report(turn, Watched(words, run), wanted.rows)
            starts = [Watched(words, run, only_start=True) for _ in range(wanted.starts)]
            if starts:
                print(f"  {len(starts)} starts: first I/O after {spread([start.first_io_s for start in starts])} s, "
                      f"{spread([start.first_io_cpu_s for start in starts])} s of processor time; {machine()}")
        finally:
            shutil.rmtree(work if not wanted.keep else run, ignore_errors=True)


def report(turn, watched, rows):
    if watched.code not in (0, 3):
        raise SystemExit(f"replay failed: {watched.errors.strip()}")
    account = json.loads(watched.output)["run"]
    if account["completed_ops"] != rows:
        raise SystemExit(f"replay incomplete: only {account['completed_ops']:,} I/Os completed")
    first = f"{watched.first_io_s:.2f} s" if watched.first_io_s else "unseen"
    peaks = ", ".join(f"{name} {hwm / 1024:,.0f} (PSS {pss / 1024:,.0f})" for name, (hwm, pss) in watched.peaks.items())
    print(f"  {turn}: first I/O after {first}; {rows / account['wall_ns'] * 1e3:,.2f} million I/Os per second; "
          f"{watched.seconds:,.0f} s in all\n"
          f"    peak MiB: {peaks}; together PSS {watched.total_pss_kb / 1024:,.0f}, "
          f"RSS {watched.total_rss_kb / 1024:,.0f}", flush=True)


if __name__ == "__main__":
    main()
