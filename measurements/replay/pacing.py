"""Accuracy of issue times: blkreel, fio's read_iolog and btreplay on one trace and one drive.

    sudo .venv/bin/python -m measurements.replay.pacing [--shape poisson|bursts ...] [--rate 10000 ...] [--seconds 4]
                                                 [--repeat 5] [--drift 60]

Traces: 4 KiB random reads with Poisson arrivals, or bursts of 64 with Poisson starts and reads 2 us
apart; on a loop drive with direct I/O and its image in memory. Issue times are those of the kernel's
block_rq_issue events, in nanoseconds, matched to the plan in order of issue for each offset.
The error of an I/O is |t - due - a|, where a, one number per run, is the earliest t - due of the first hundred
I/Os, because the start time of a run does not matter. The error is also given with a = the median of t - due
over the run, which removes a constant delay. Wall time is from the first issue to the last, compared with the same
part of the plan.

Drift: a Poisson trace of --drift seconds at the first rate; the median of t - due over the last 1000 I/Os less that
over the first 1000, by kernel events.
"""

import argparse
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import EngineOptions, Lane, run_engine
from measurements.lab import loop_drive, machine, need, print_table, run
from measurements.replay.observer import Observer

BLOCK_BYTES = 4096
MIB = 1 << 20


BURST = 64
BURST_GAP_NS = 2000
SIZE_BYTES = 256 * MIB


def make_trace(shape, seconds, rate, seed):
    random = np.random.default_rng(seed)
    count = int(seconds * rate)
    if shape == "bursts":
        start_ns = np.cumsum(random.exponential(1e9 / rate * BURST, count // BURST))
        due_ns = np.sort((start_ns[:, None] + np.arange(BURST) * BURST_GAP_NS).ravel())
    else:
        due_ns = np.cumsum(random.exponential(1e9 / rate, count))
    places = random.integers(0, SIZE_BYTES // BLOCK_BYTES, len(due_ns)) * BLOCK_BYTES
    return due_ns.astype("i8"), places


class Blkreel:
    def __init__(self, **options):
        self.options = options

    def prepare(self, directory, drive, due_ns, offset_bytes):
        zeros = np.zeros(len(due_ns), "i8")
        self.drive = drive
        self.plan = {"due_ns": due_ns, "offset_bytes": offset_bytes, "length_bytes": zeros + BLOCK_BYTES, "op": zeros,
                     "flags": zeros, "stream": zeros, "burst": zeros, "source_row": np.arange(len(due_ns))}

    def replay(self):
        with held(find_target(self.drive)) as claim:
            run_engine(EngineOptions(claims=[claim], **self.options), [Lane([self.plan])], lambda rows: None,
                       lambda note: None)


class Fio:
    def __init__(self, engine):
        self.engine = engine

    def prepare(self, directory, drive, due_ns, offset_bytes):
        self.drive = drive
        self.log = directory / "trace.iolog"
        # The timestamps of version 3 are microseconds since the start.
        lines = [f"{t // 1000} {drive} read {offset} {BLOCK_BYTES}\n"
                 for t, offset in zip(due_ns.tolist(), offset_bytes.tolist(), strict=True)]
        self.log.write_text(f"fio version 3 iolog\n0 {drive} add\n0 {drive} open\n{''.join(lines)}"
                            f"{due_ns[-1] // 1000} {drive} close\n")

    def replay(self):
        run("fio", "--name=replay", f"--read_iolog={self.log}", f"--ioengine={self.engine}", "--direct=1",
            "--iodepth=1024", "--thread", "--output-format=json")


class Btreplay:
    """Some runs of btreplay never end; they are stopped after three times the duration of the trace, and counted."""

    def __init__(self, *record_options):
        self.record_options = record_options

    def prepare(self, directory, drive, due_ns, offset_bytes):
        self.timeout_s = 3 * due_ns[-1] / 1e9 + 5
        # A blktrace file of version 7, of queue events on one processor, in the format of btrecord.
        self.directory = directory
        self.name = Path(drive).name
        entry = struct.Struct("=IIQQIIIIIHH")
        queue_read = 1 | (1 << 0 | 1 << 4) << 16  # __BLK_TA_QUEUE; BLK_TC_READ and BLK_TC_QUEUE in the upper half
        device = Path("/sys/class/block", self.name, "dev").read_text().split(":")
        number = int(device[0]) << 20 | int(device[1])
        with open(directory / f"{self.name}.blktrace.0", "wb") as file:
            for i, (t, offset) in enumerate(zip(due_ns.tolist(), offset_bytes.tolist(), strict=True)):
                file.write(entry.pack(0x65617407, i + 1, t, offset // 512, BLOCK_BYTES, queue_read, 1, number, 0, 0, 0))
        run("btrecord", *self.record_options, "-d", directory, "-D", directory, self.name)

    def replay(self):
        run("btreplay", "-d", self.directory, self.name, cwd=self.directory, timeout=self.timeout_s)


def errors(name, time_ns, place_bytes, due_ns, offset_bytes):
    """t - due of every I/O of the plan, in nanoseconds from an unknown start; None if other I/Os were issued."""
    # The k-th issue to an offset matches the k-th of the plan: tools may swap adjacent I/Os.
    issued = np.lexsort((time_ns, place_bytes))
    planned = np.lexsort((due_ns, offset_bytes))
    if not np.array_equal(place_bytes[issued], offset_bytes[planned]):
        print(f"{name}: issued {len(time_ns)} blocks, planned {len(due_ns)}")
        return None
    delta = np.empty(len(due_ns), "i8")
    delta[planned] = time_ns[issued] - due_ns[planned]
    return delta


def measure(name, replayer, drive, due_ns, offset_bytes):
    with Observer(drive, buffer_kib=max(8192, len(due_ns) // 8)) as observer:
        try:
            replayer.replay()
        except subprocess.TimeoutExpired:
            return "no end"
    # The kernel may merge adjacent I/Os submitted together: each block counts with the time of its request.
    blocks = observer.sectors * 512 // BLOCK_BYTES
    within = np.arange(blocks.sum()) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    time_ns = np.repeat(observer.time_ns, blocks)
    delta = errors(name, time_ns, np.repeat(observer.sector, blocks) * 512 + within * BLOCK_BYTES, due_ns, offset_bytes)
    if delta is None:
        return "other I/Os"
    from_start = np.abs(delta - delta[:100].min())
    from_median = np.abs(delta - np.median(delta))
    wall = (observer.time_ns.max() - observer.time_ns.min()) / (due_ns[-1] - due_ns[0])
    return (np.median(from_start) / 1e3, np.percentile(from_start, 99) / 1e3, np.median(from_median) / 1e3,
            np.percentile(from_median, 99) / 1e3, 100 * (wall - 1))


def compare(shape, rate, wanted, scratch):
    """Run every tool on one trace, in turn, and print the table."""
    replayers = {"blkreel": Blkreel(realtime=True), "blkreel, not real-time": Blkreel(),
                 "fio read_iolog": Fio("io_uring"), "btreplay, bunches of 1": Btreplay("-M", "1"),
                 "btreplay, default settings": Btreplay()}
    results, failed = {name: [] for name in replayers}, {}
    trace = make_trace(shape, wanted.seconds, rate, wanted.seed)
    with loop_drive(SIZE_BYTES) as drive:
        for i, replayer in enumerate(replayers.values()):
            directory = scratch / f"{shape}-{rate:.0f}-{i}"
            directory.mkdir()
            replayer.prepare(directory, drive, *trace)
        for _ in range(wanted.repeat):
            for name, replayer in replayers.items():
                result = measure(name, replayer, drive, *trace)
                if isinstance(result, str):
                    failed[name, result] = failed.get((name, result), 0) + 1
                else:
                    results[name].append(result)
    title = f"Poisson, {rate:.0f} a second" if shape == "poisson" else f"bursts of {BURST}, {rate:.0f} a second in all"
    print_table(f"{title}, for {wanted.seconds:g} s, {wanted.repeat} runs each, in turn; median [smallest .. largest]; "
                f"{machine()}",
                [("median error, us", microseconds), ("99 % within, us", microseconds),
                 ("median, less constant", microseconds), ("99 %, less constant", microseconds),
                 ("wall time off by, %", lambda value: f"{value:+.3f}")],
                {name: values for name, values in results.items() if values})
    for (name, how), count in failed.items():
        print(f"{name}: {count} of {wanted.repeat} runs without a result: {how}")


def drift(rate, wanted):
    """Measure the drift of blkreel at the end of a long run, and print the table."""
    due_ns, offset_bytes = make_trace("poisson", wanted.drift, rate, wanted.seed)
    replayer, moved = Blkreel(realtime=True), []
    with loop_drive(SIZE_BYTES) as drive:
        replayer.prepare(None, drive, due_ns, offset_bytes)
        for _ in range(wanted.repeat):
            with Observer(drive, buffer_kib=max(8192, len(due_ns) // 8)) as observer:
                replayer.replay()
            delta = errors("blkreel", observer.time_ns, observer.sector * 512, due_ns, offset_bytes)
            moved.append(((np.median(delta[-1000:]) - np.median(delta[:1000])) / 1e3,))
    print_table(f"drift over {wanted.drift:g} s at {rate:.0f} a second, {wanted.repeat} runs; {machine()}",
                [("drift, us", lambda value: f"{value:+.2f}")], {"blkreel": moved})


def microseconds(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("poisson", "bursts"), action="append", help="(default: both)")
    parser.add_argument("--rate", type=float, action="append", help="(default: 10000, 50000, 100000)")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--drift", type=float, default=60, help="seconds; 0: skip (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    need(("fio", "fio"), ("btreplay", "blktrace"), ("btrecord", "blktrace"))

    rates = wanted.rate or [10_000, 50_000, 100_000]
    scratch = Path(tempfile.mkdtemp(prefix="blkreel-bench-"))
    try:
        for shape in wanted.shape or ["poisson", "bursts"]:
            for rate in rates:
                compare(shape, rate, wanted, scratch)
    finally:
        shutil.rmtree(scratch)
    if wanted.drift:
        drift(rates[0], wanted)


if __name__ == "__main__":
    main()
