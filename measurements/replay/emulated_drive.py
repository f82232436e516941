"""How exact emulated drives are: each row asks for a figure of a drive, and fio or a replay measures what it gives.

Needs root and /dev/fuse. Each row is measured on a new drive, REPEAT times; the table has the median, the range, and
the largest share of late I/Os and of time for which the server waited for a processor. To run on a quiet machine and
at ordinary priority: behind programs of a higher one the kernel's workers of the loop device wait for milliseconds.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from blkreel.common.emulated import IO_KINDS, LINKS, RUN, read_account
from blkreel.common.system import text_in
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from measurements.lab import machine, need

BLKREEL = Path(sys.executable).with_name("blkreel")
SIZE = "512MiB"
NEUTRAL = {"read_latency": "100us", "write_latency": "100us", "flush_latency": "100us", "channels": "32",
           "read_bandwidth": "100GB/s", "write_bandwidth": "100GB/s"}
LATENCIES_US = (60, 80, 100, 200, 500, 1000, 5000, 10_000)
BANDWIDTHS_MB = (40, 140, 550, 1000, 2000, 3500)
DEEP_IOPS = (12_500, 25_000, 50_000, 62_500, 100_000)
SATA = {"read_latency": "90us", "write_latency": "60us", "flush_latency": "500us", "channels": "8",
        "read_bandwidth": "550MB/s", "write_bandwidth": "500MB/s"}
SAMPLES = ("app-start", "game-small", "package-install")
KINDS = ("read", "write", "flush")
DEPENDENT = ("--pace", "dependent", "--idle", "cap=100ms")
KERNEL = ", by the kernel"
ratios = defaultdict(list)  # (sample, metric): of replays that are not shown yet
disturbances = []  # (share of late I/Os, share of the time without a processor), of each drive of a row


@contextmanager
def emulated(keys, size=SIZE):
    """A running drive. Yields its device."""
    description = ",".join([f"nil:{size}", *(f"{key}={value}" for key, value in keys.items())])
    process = subprocess.Popen([BLKREEL, "emulate", description, "--accept-inexact", "--name", f"bench-{os.getpid()}"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        device = process.stdout.readline().partition(":")[0]
        if not device:
            raise SystemExit("blkreel emulate failed; run it by hand")
        yield device, description
        time.sleep(0.6)  # until the account is renewed
        disturbances.append(disturbance(read_account(f"bench-{os.getpid()}")))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def disturbance(account):
    counts, began = account["counts"], datetime.fromisoformat(account["started_at"])
    ios = sum(counts[f"{kind}_ios"] for kind in IO_KINDS)
    age_s = (datetime.now(UTC) - began).total_seconds()
    return counts["late_ios"] / max(1, ios), account["host"]["waited_ns"] / 1e9 / age_s


def milliseconds(seconds):
    return f"{1000 * seconds:.0f}ms"


def fio(device, seconds, **options):
    """The jobs of a run: [(read, write), ...] as fio reports them."""
    words = [f"--{key}={value}" for key, value in {
        "name": "a", "filename": device, "direct": 1, "ioengine": "io_uring", "time_based": 1,
        "runtime": milliseconds(seconds),
        "ramp_time": "200ms", "norandommap": 1, "output-format": "json", **options}.items()]
    result = subprocess.run(["fio", *words], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)["jobs"]


def latencies_us(device, seconds, *jobs):
    """Median latency of 4 KiB I/Os one at a time, of each of the jobs: `read` or `write`.

    From fio's logs, because its percentiles are rounded.
    """
    with tempfile.TemporaryDirectory() as place:
        words = [word for op in jobs for word in (f"--name={op}", f"--rw=rand{op}", f"--write_lat_log={place}/{op}")]
        subprocess.run(["fio", f"--filename={device}", "--direct=1", "--ioengine=psync", "--bs=4k", "--time_based",
                        f"--runtime={milliseconds(seconds)}", "--output=/dev/null", *words], check=True)
        return [statistics.median(int(line.split(",")[1]) for path in Path(place).glob(f"{op}_clat.*.log")
                                  for line in path.read_text().splitlines()) / 1000 for op in jobs]


def latency_us(us, op, seconds):
    with emulated({**NEUTRAL, f"{op}_latency": f"{us}us"}) as (device, _):
        return latencies_us(device, seconds, op)[0]


def bandwidth_mb(mb, op, seconds):
    with emulated({**NEUTRAL, "read_latency": "20us", "write_latency": "20us", f"{op}_bandwidth": f"{mb}MB/s"}) as (
            device, _):
        return fio(device, seconds, rw=op, bs="128k", iodepth=8)[0][op]["bw_bytes"] / 1e6


def link_mb(mb, seconds):
    """Reads and writes together, on a drive whose link they share."""
    with emulated({**NEUTRAL, "read_latency": "20us", "write_latency": "20us", "link": f"{mb}MB/s"}) as (device, _):
        job = fio(device, seconds, rw="rw", bs="128k", iodepth=16)[0]
    return (job["read"]["bw_bytes"] + job["write"]["bw_bytes"]) / 1e6


def most_iops(iops, op, seconds):
    """With twice the I/Os that the drive serves at once: with as many as that, the time that fio takes from a
    completion to the next I/O, 75 us here, would leave channels idle."""
    with emulated({**NEUTRAL, f"{op}_latency": f"{32e9 / iops:.0f}ns"}) as (device, _):
        return fio(device, seconds, rw=f"rand{op}", bs="4k", iodepth=64)[0][op]["iops"]


def deep_latency_us(iops, op, seconds):
    """By the kernel's count of the device, from the issue of an I/O to its completion, as many as it serves at once:
    mean."""
    with emulated({**NEUTRAL, f"{op}_latency": f"{32e9 / iops:.0f}ns"}) as (device, _):
        return mean_us(device, op, lambda: fio(device, seconds, rw=f"rand{op}", bs="4k", iodepth=32))


def mean_us(device, op, use):
    before = count_and_ms(device, op)
    use()
    count, total_ms = (after - earlier for after, earlier in zip(count_and_ms(device, op), before, strict=True))
    return 1000 * total_ms / count


def count_and_ms(device, op):
    """Of Documentation/block/stat.rst: I/Os and their time."""
    numbers = [int(word) for word in Path(f"/sys/block/{Path(device).resolve().name}/stat").read_text().split()]
    return (numbers[0], numbers[3]) if op == "read" else (numbers[4], numbers[7])


def mixed_us(us, op, seconds):
    """Latency of one kind at depth 1 beside the other at depth 1."""
    with emulated(mixed(us)) as (device, _):
        return latencies_us(device, seconds, "read", "write")[op == "write"]


def mixed_by_kernel_us(us, op, seconds):
    with emulated(mixed(us)) as (device, _):
        return mean_us(device, op, lambda: latencies_us(device, seconds, "read", "write"))


def mixed(us):
    return {**NEUTRAL, "read_latency": f"{us}us", "write_latency": f"{2 * us}us"}


def beside_flushes_us(us, own_group, seconds):
    """Mean latency of reads at depth 1 beside a program that writes and flushes in a loop."""
    with emulated({**NEUTRAL, "read_latency": f"{us}us", "flush_latency": "5ms"}) as (device, _):
        reads = ["fio", "--name=r", f"--filename={device}", "--direct=1", "--ioengine=psync", "--rw=randread",
                 "--bs=4k", "--time_based", f"--runtime={milliseconds(seconds)}", "--output-format=json"]
        writer = subprocess.Popen(
            ["fio", "--name=w", f"--filename={device}", "--ioengine=psync", "--direct=1", "--rw=randwrite", "--bs=4k",
             "--fsync=1", "--time_based", f"--runtime={milliseconds(seconds + 2)}", "--output=/dev/null"])
        group = own_blkio_group() if own_group else None
        result = subprocess.run(reads, capture_output=True, text=True, check=True,
                                preexec_fn=(lambda: (group / "cgroup.procs").write_text("0")) if group else None)
        writer.wait()
        if group:
            group.rmdir()
    return json.loads(result.stdout)["jobs"][0]["read"]["clat_ns"]["mean"] / 1000


def own_blkio_group():
    group = Path(f"/sys/fs/cgroup/blkio/blkreel-bench-{os.getpid()}")
    group.mkdir()
    return group


def traced(sample, metric):
    """A metric of one replay on the emulated drive in percent of that on the simulated drive; dependent pace.

    Raises IndexError if the trace has no such I/Os.
    """
    if not ratios[sample, metric]:
        replay_both(sample)
    return ratios[sample, metric].pop()


def replay_both(sample):
    """Ratios of the load time, of each I/O and of the p99 of each kind, by the replay; and of the p50 and p99 of what
    the kernel issued meanwhile, by a capture, with what a program needs to return from a call.

    Of a replay each I/O, because a p50 that lies between reads of two lengths moves far where few of them do. What the
    kernel issued is held against the simulated drive at the same times of issue.
    """
    with emulated(SATA, "2GiB") as (device, description), tempfile.TemporaryDirectory() as place:
        capture = f"{place}/capture.parquet"
        replay(f"sample:{sample}", description, f"{place}/simulated", *DEPENDENT)
        replay(f"sample:{sample}", device, f"{place}/emulated", *DEPENDENT,
               under=["capture", device, "-o", capture, "--"])
        replay(capture, description, f"{place}/issued", "--pace", "original")
        reached, asked, issued = (rows_of(f"{place}/{name}") for name in ("emulated", "simulated", "issued"))
        kernel = rows_of(capture).rename_axis("source_row").reset_index()
        calibration = read_account(f"bench-{os.getpid()}")["calibration"]
        loads_ns = [open_trace(f"{place}/{name}").account.load_time_ns for name in ("emulated", "simulated")]
    ratios[sample, "load time"].append(100 * loads_ns[0] / loads_ns[1])
    for kind in KINDS:
        by_replay, by_kernel = of_kind(reached, asked, kind), of_kind(kernel, issued, kind)
        if not by_replay.empty:
            ratios[sample, f"each {kind}, median"].append(100 * (by_replay.reached / by_replay.asked).median())
            ratios[sample, f"{kind} p99"].append(percent_at(by_replay, 0.99))
            by_kernel.reached += calibration[f"{kind}_return_ns"]
            ratios[sample, f"{kind} p50{KERNEL}"].append(percent_at(by_kernel, 0.5))
            ratios[sample, f"{kind} p99{KERNEL}"].append(percent_at(by_kernel, 0.99))


def replay(trace, drive, run, *words, under=()):
    subprocess.run([BLKREEL, *under, *([BLKREEL] if under else []), "replay", trace, "--on", drive, "-o", run, *words],
                   capture_output=True)


def rows_of(path):
    trace = open_trace(path)
    names = ["op", "latency_ns", *(["source_row"] if "source_row" in trace.schema.names else [])]
    return trace.table(names).to_pandas().dropna(subset="latency_ns")


def of_kind(reached, asked, kind):
    """The latencies of the I/Os that both have."""
    pairs = reached[reached.op == OPS[kind]].merge(asked, on="source_row")
    return pd.DataFrame({"reached": pairs.latency_ns_x, "asked": pairs.latency_ns_y})


def percent_at(latencies, quantile):
    return 100 * estimated(latencies.reached, quantile) / estimated(latencies.asked, quantile)


def estimated(values, quantile):
    """By Harrell and Davis (1982): the mean of the quantiles around it, weighted by how likely each of them is the one.

    A quantile that lies between the latencies of two lengths would move from one to the other with a single I/O.
    """
    likely = np.random.default_rng(1).beta((len(values) + 1) * quantile, (len(values) + 1) * (1 - quantile), 20_000)
    return values.quantile(likely).mean()


def rows(options):
    """(group, what is asked, unit, the figure asked, its measurement)."""
    for op in ("read", "write"):
        for us in LATENCIES_US:
            yield "latency", f"4 KiB {op}s, one at a time", "us", us, lambda s, us=us, op=op: latency_us(us, op, s)
        for mb in BANDWIDTHS_MB:
            yield ("bandwidth", f"128 KiB {op}s, 8 in flight", "MB/s", mb,
                   lambda s, mb=mb, op=op: bandwidth_mb(mb, op, s))
        for iops in DEEP_IOPS:
            yield ("iops", f"4 KiB {op}s, 32 at once, 64 in flight", "IOPS", iops,
                   lambda s, iops=iops, op=op: most_iops(iops, op, s))
            yield ("iops", "32 in flight, their latency by the kernel, mean", "us", 32e6 / iops,
                   lambda s, iops=iops, op=op: deep_latency_us(iops, op, s))
    for op, factor in (("read", 1), ("write", 2)):
        for us in (100, 500):
            yield ("mixed", f"{op}s beside {'writes' if op == 'read' else 'reads'}, each one at a time", "us",
                   factor * us, lambda s, us=us, op=op: mixed_us(us, op, s))
            yield ("mixed", "their latency by the kernel, mean", "us", factor * us,
                   lambda s, us=us, op=op: mixed_by_kernel_us(us, op, s))
    yield "link", "128 KiB reads and writes over one link", "MB/s", 550, lambda s: link_mb(550, s)
    yield "flush", "reads beside flushes of 5 ms, mean", "us", 80, lambda s: beside_flushes_us(80, False, s)
    if Path("/sys/fs/cgroup/blkio").is_dir():
        yield ("flush", "the same, the reader in its own blkio group", "us", 80,
               lambda s: beside_flushes_us(80, True, s))
    for sample in SAMPLES:
        for metric in ("load time", *(f"each {kind}, median" for kind in KINDS), *(f"{kind} p99" for kind in KINDS),
                       *(f"{kind} {quantile}{KERNEL}" for kind in KINDS for quantile in ("p50", "p99"))):
            yield ("trace", f"{sample}, {metric}, of the simulated drive", "%", 100,
                   lambda s, sample=sample, metric=metric: traced(sample, metric))


def starts(count):
    """Starts and ends drives in a row, half of them with a file system."""
    before = left_behind()
    times_s = []
    for number in range(count):
        began = time.monotonic()
        words = ["--fs", "ext4"] if number % 2 else []
        subprocess.run([BLKREEL, "emulate", f"nil:{SIZE},read_latency=100us,channels=4", "--accept-inexact", "--name",
                        f"bench-{os.getpid()}", *words, "--", "true"], check=True, capture_output=True)
        times_s.append(time.monotonic() - began)
    left = left_behind() - before
    print(f"{count} starts and ends: median {statistics.median(times_s):.2f} s each, left behind: "
          f"{', '.join(sorted(left)) or 'nothing'}", flush=True)
    return 1 if left else 0


def left_behind():
    """Devices, mounts and files of emulated drives, and processes of those of this program."""
    devices = {line for line in subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"],
                                               capture_output=True, text=True, check=True).stdout.splitlines()
               if "blkreel" in line}
    mounts = {line for line in Path("/proc/self/mounts").read_text().splitlines() if "blkreel" in line}
    files = {str(path) for folder in (RUN, LINKS) for path in folder.glob("*")}
    own = f"/bench-{os.getpid()}/"
    processes = {text for path in Path("/proc").glob("[0-9]*/cmdline") if own in (text := text_in(path))}
    return devices | mounts | files | processes | {str(path) for path in Path("/dev").glob("ublk[bc]*")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of a measurement")
    parser.add_argument("--only", action="append", help="a group: latency, bandwidth, iops, mixed, link, flush, trace")
    parser.add_argument("--starts", type=int, metavar="N", help="instead, start and end N drives in a row")
    options = parser.parse_args()
    need(("fio", "fio"))
    print(machine())
    if options.starts:
        return starts(options.starts)
    for group, what, unit, asked, measure in rows(options):
        if options.only and group not in options.only:
            continue
        disturbances.clear()
        try:
            values = sorted(measure(options.seconds) for _ in range(options.repeat))
        except (LookupError, subprocess.CalledProcessError) as error:
            print(f"{what:<52}{asked:>10,} {unit:<5} not measured: {type(error).__name__}", flush=True)
            continue
        median = statistics.median(values)
        late, waited = map(max, zip(*(disturbances or [(0, 0)]), strict=True))
        print(f"{what:<52}{asked:>10,} {unit:<5}{median:>11,.1f}  {median / asked - 1:+7.1%}   "
              f"{values[0]:,.1f} to {values[-1]:,.1f}   late {late:.1%}, waited {waited:.1%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
