"""Effect of telemetry sampling on a replay: compares I/Os near a sample with all others.

    sudo .venv/bin/python -m measurements.replay.telemetry_cost [--iops 5000] [--seconds 30] [--repeats 3]

Replays writes at random times on a loop drive in memory, with alternating sampling at 1 Hz and 10 Hz. Within each run,
I/Os due from 5 ms before to 20 ms after a sample are compared with all others of the run, so that other load
affects both equally. Between runs, ten times the samples show the cost of sampling.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.telemetry.reader import read_telemetry
from measurements.lab import loop_drive, machine

MIB, S = 1 << 20, 10**9
RATES_HZ = (1, 10)
NEAR_NS = (-5_000_000, 20_000_000)
BLKREEL = Path(sys.executable).with_name("blkreel")


def main():
    options = arguments()
    print(machine())
    with tempfile.TemporaryDirectory() as at, loop_drive(64 * MIB) as drive:
        directory = Path(at)
        make_trace(directory / "t.parquet", options.iops, options.seconds)
        parts = {rate_hz: [] for rate_hz in RATES_HZ}
        for number in range(options.repeats):
            for rate_hz in RATES_HZ[:: 1 if number % 2 else -1]:
                run = directory / f"{number}-{rate_hz}"
                replay(directory / "t.parquet", drive, run, rate_hz)
                parts[rate_hz].append(times_of(run))
    print(f"{'':28}{'I/Os':>9}{'lateness p50':>14}{'p90':>10}{'p99':>10}{'> 100 us':>10}"
          f"{'latency, median':>17}{'99 %':>10}")
    for rate_hz in RATES_HZ:
        for index, where in enumerate(("near a sample", "elsewhere")):
            late, latency = (np.concatenate([run[index][column] for run in parts[rate_hz]]) for column in (0, 1))
            show(f"{rate_hz:2} Hz, {where}", late, latency)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iops", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=30, help="duration of each replay (default: 30)")
    parser.add_argument("--repeats", type=int, default=3, help="replays at each rate (default: 3)")
    return parser.parse_args()


def make_trace(path, iops, seconds):
    random, count = np.random.default_rng(1), iops * seconds
    with TraceWriter(path) as out:
        out.write({"submit_ns": np.cumsum(random.exponential(S / iops, count)).astype(np.int64),
                   "latency_ns": np.full(count, 1000), "op": np.ones(count),
                   "offset_bytes": random.integers(0, 64 * MIB // 4096, count) * 4096,
                   "length_bytes": np.full(count, 4096)})
        out.close({"devices": [{"name": "none"}]})


def replay(trace, drive, run, rate_hz):
    result = subprocess.run([BLKREEL, "replay", trace, "--on", drive, "-o", run, "--sample", f"{rate_hz}Hz"],
                            capture_output=True, text=True)
    if result.returncode not in (0, 3):
        raise SystemExit(result.stderr)


def times_of(run):
    """(lateness, latency) in ns of the I/Os near a sample, and of all others."""
    rows = open_trace(run).table(["due_ns", "submit_ns", "latency_ns"]).to_pandas()
    sampled_ns, _ = read_telemetry(run).series("foreign_ios")
    due_ns = rows["due_ns"].to_numpy()
    before = np.searchsorted(sampled_ns, due_ns - NEAR_NS[0], "right") - 1
    since_ns = due_ns - sampled_ns[np.maximum(before, 0)]
    near = (before >= 0) & (since_ns >= NEAR_NS[0]) & (since_ns < NEAR_NS[1])
    columns = ((rows["submit_ns"] - rows["due_ns"]).to_numpy(), rows["latency_ns"].to_numpy())
    return [column[near] for column in columns], [column[~near] for column in columns]


def show(name, late, latency):
    p50, p90, p99 = np.percentile(late, [50, 90, 99]) / 1000
    service_p50, service_p99 = np.percentile(latency, [50, 99]) / 1000
    print(f"{name:28}{len(late):9,}{p50:11.2f} us{p90:7.1f} us{p99:7.0f} us{(late > 100_000).mean():10.2%}"
          f"{service_p50:14.1f} us{service_p99:7.0f} us")


if __name__ == "__main__":
    main()
