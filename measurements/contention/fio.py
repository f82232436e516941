"""fio and blkreel with the same two jobs on the same emulated drive: reads alone, and beside writes at a rate.

The reads are those of fio, captured on the drive and replayed on it at dependent pace. Each pair is one run alone and
one beside the writes, in turns of their order. The interval is over pairs (t on the logarithm).
Needs root, fio and /dev/fuse, and a machine without other work: the last column has the share of late answers.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from blkreel.analysis.stats.intervals import geometric_mean, interval
from blkreel.common.emulated import IO_KINDS, read_account
from blkreel.traces.format.metadata_types import Run
from measurements.lab import SERVER_FIRST, as_a_program, machine, need, run

BLKREEL = Path(sys.executable).with_name("blkreel")
DRIVES = ("sata-tlc", "sata-qlc,cache=0", "usb,cache=0")
SIZE_BYTES, READ_BYTES, LEAD_S = 3 << 29, 512 << 20, 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drives", nargs="+", default=DRIVES)
    parser.add_argument("--rate-mb-s", type=int, default=110, help="of the writes")
    parser.add_argument("--pairs", type=int, default=6)
    options = parser.parse_args()
    need(("fio", "fio"), ("chrt", "util-linux"))
    print(machine())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no drive is left
    print(f"\nreads of 1 MiB at depth 1, {READ_BYTES >> 20} MiB, beside writes of 1 MiB at {options.rate_mb_s} MB/s; "
          f"{options.pairs} pairs")
    print(f"{'drive':18} {'by':8} {'alone, s':>9} {'beside, s':>9} {'slowdown':>22} {'late':>7}")
    for drive in options.drives:
        with (emulated(drive) as (device, name), as_a_program(),
              tempfile.TemporaryDirectory(prefix="blkreel-fio-") as directory):
            run("dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"count={SIZE_BYTES >> 20}", "oflag=direct")
            trace = Path(directory) / "trace.parquet"
            run(BLKREEL, "capture", device, "-o", trace, "--", *reader(device))
            for by, pairs in (("fio", by_fio), ("blkreel", by_blkreel)):
                before = counts(name)
                show(drive, by, pairs(device, trace, options), before, counts(name))


def show(drive, by, pairs, before, after):
    """pairs: (alone, beside) in s each."""
    alone, beside = zip(*pairs, strict=True)
    ratios = [beside_s / alone_s for alone_s, beside_s in pairs]
    sure = interval(ratios)
    reach = f" [{sure.low:.2f} .. {sure.high:.2f}]" if sure else ""
    late = (after[0] - before[0]) / max(1, after[1] - before[1])
    print(f"{drive:18} {by:8} {geometric_mean(alone):9.2f} {geometric_mean(beside):9.2f} "
          f"{geometric_mean(ratios):6.2f}{reach:>16} {late:7.2%}", flush=True)


@contextmanager
def emulated(drive, size_bytes=SIZE_BYTES):
    """Yields the device of a running drive and its name."""
    name = f"fio-{os.getpid()}"
    process = subprocess.Popen([*SERVER_FIRST, BLKREEL, "emulate", f"nil:{drive}", "--size", str(size_bytes),
                                "--accept-inexact", "--name", name],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        device = process.stdout.readline().partition(":")[0]
        if not device:
            raise SystemExit(f"blkreel emulate nil:{drive} failed; run it by hand")
        yield device, name
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def reader(device):
    return ["fio", "--name=reads", f"--filename={device}", "--rw=read", "--bs=1M", f"--size={READ_BYTES}", "--direct=1",
            "--ioengine=psync", "--readonly", "--output-format=json"]


def by_fio(device, trace, options):
    def seconds():
        job, = json.loads(run(*reader(device)))["jobs"]
        return job["read"]["runtime"] / 1000

    def seconds_beside():
        writer = subprocess.Popen(
            ["fio", "--name=writes", f"--filename={device}", "--rw=write", "--bs=1M", f"--offset={READ_BYTES}",
             f"--size={SIZE_BYTES - READ_BYTES}", "--direct=1", "--ioengine=psync", f"--rate={options.rate_mb_s}000000",
             "--time_based", "--runtime=600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(LEAD_S)
            return seconds()
        finally:
            writer.terminate()
            writer.wait()

    pairs = []
    for number in range(options.pairs):
        if number % 2:
            beside, alone = seconds_beside(), seconds()
        else:
            alone, beside = seconds(), seconds_beside()
        pairs.append((alone, beside))
    return pairs


def by_blkreel(device, trace, options):
    runs = trace.with_name("runs")
    done = subprocess.run(
        [BLKREEL, "replay", trace, "--on", device, "-o", runs, "--force", "--pace", "dependent", "--no-prefill",
         "--background", f"writes={options.rate_mb_s}MB/s", "--background-lead", f"{LEAD_S}s", "--baseline", "--repeat",
         str(options.pairs), "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"the replay on {device} failed: {done.stderr.strip()[-2000:]}")
    accounts = [Run.of(repetition) for repetition in json.loads(done.stdout)["repetitions"]]
    return [(account.baseline.load_time_ns / 1e9, account.load_time_ns / 1e9) for account in accounts]


def counts(name):
    """(late I/Os, I/Os) of the drive so far."""
    time.sleep(0.6)  # until the account is renewed
    account = read_account(name)
    return account["counts"]["late_ios"], sum(account["counts"][f"{kind}_ios"] for kind in IO_KINDS)


if __name__ == "__main__":
    main()
