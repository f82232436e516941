#!/usr/bin/env python3
"""What a capture costs fio: pairs of runs with and without it, on one loop device in memory.

    sudo .venv/bin/python bench/capture_cost.py --pairs 10 --seconds 5

A pair's two runs follow each other, and which comes first changes from pair to pair: what else the machine does
falls on both. Random 4K reads from memory with all processors busy are the worst case: a drive that makes fio wait
leaves room for the capture.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

IMAGE_BYTES = 1 << 30


@contextmanager
def loop_device():
    """A loop device over an image in memory, written once so that no read meets a hole."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="blkreel-bench-") as image:
        for _ in range(IMAGE_BYTES >> 20):
            image.write(os.urandom(1 << 20))
        image.flush()
        drive = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", image.name],
                               check=True, capture_output=True, text=True).stdout.strip()
        try:
            yield drive
        finally:
            subprocess.run(["losetup", "--detach", drive], check=True)


def fio_command(drive, seconds, depth, report):
    return ["fio", "--name=bench", f"--filename={drive}", "--direct=1", "--rw=randread", "--bs=4k",
            f"--iodepth={depth}", "--ioengine=io_uring", "--time_based", f"--runtime={seconds}", "--norandommap",
            "--output-format=json", f"--output={report}"]


def fio_result(report):
    read = json.loads(Path(report).read_text())["jobs"][0]["read"]
    return read["iops"], read["total_ios"], read["clat_ns"]["percentile"]["50.000000"]


def run_plain(drive, options, directory):
    report = directory / "plain.json"
    subprocess.run(fio_command(drive, options.seconds, options.depth, report), check=True)
    return fio_result(report)


def run_captured(drive, options, directory):
    """fio's result, and the capture's own summary."""
    report, trace = directory / "captured.json", directory / "trace.parquet"
    blkreel = Path(sys.executable).with_name("blkreel")
    result = subprocess.run([blkreel, "capture", drive, "-o", trace, "--force", "--json", "--programs",
                             options.programs, "--", *fio_command(drive, options.seconds, options.depth, report)],
                            capture_output=True, text=True)
    if result.returncode not in (0, 3):
        sys.exit(result.stderr)
    return fio_result(report), json.loads(result.stdout)


def measure(options):
    pairs = []
    with loop_device() as drive, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run_plain(drive, options, directory)
        for number in range(options.pairs):
            if number % 2:
                captured, summary = run_captured(drive, options, directory)
                plain = run_plain(drive, options, directory)
            else:
                plain = run_plain(drive, options, directory)
                captured, summary = run_captured(drive, options, directory)
            pair = {
                "iops_without": plain[0], "iops_with": captured[0], "ratio": captured[0] / plain[0],
                "clat_p50_without_ns": plain[2], "clat_p50_with_ns": captured[2],
                "fio_ios": captured[1], "rows": summary["rows"], "lost": summary["lost"],
                "without_latency": summary["ledger"]["reused"], "difference": summary["diskstats"]["difference"],
                "bytes_per_io": summary["bytes_per_io"], "helper_ns_per_io": summary["helper_cpu_ns"] / summary["rows"],
                "source_format": summary["source_format"],
            }
            pairs.append(pair)
            print(f"pair {number + 1}: {plain[0]:,.0f} without, {captured[0]:,.0f} with, ratio {pair['ratio']:.3f}; "
                  f"fio {captured[1]:,}, rows {summary['rows']:,}, lost {summary['lost']}", file=sys.stderr)
    return pairs


def spread(values):
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "min": ordered[0], "max": ordered[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--programs", default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    pairs = measure(options)
    ratios = [pair["ratio"] for pair in pairs]
    document = {
        "version": 1, "kernel": platform.release(), "cpus": os.cpu_count(), "options": vars(options), "pairs": pairs,
        "iops_ratio": {**spread(ratios), "geometric_mean": statistics.geometric_mean(ratios)},
        "bytes_per_io": spread([pair["bytes_per_io"] for pair in pairs]),
        "helper_ns_per_io": spread([pair["helper_ns_per_io"] for pair in pairs]),
        "all_counted": all(pair["rows"] == pair["fio_ios"] for pair in pairs),
        "lost": sum(pair["lost"] for pair in pairs),
    }
    if options.json:
        print(json.dumps(document))
        return
    ratio, size, cpu = document["iops_ratio"], document["bytes_per_io"], document["helper_ns_per_io"]
    print(f"{pairs[0]['source_format']}, {document['cpus']} CPUs, kernel {document['kernel']}, depth {options.depth}, "
          f"{len(pairs)} pairs of {options.seconds} s")
    print(f"fio's IOPS with over without: median {ratio['median']:.3f}, geometric mean {ratio['geometric_mean']:.3f}, "
          f"from {ratio['min']:.3f} to {ratio['max']:.3f}")
    print(f"rows equal to fio's own count in {sum(p['rows'] == p['fio_ios'] for p in pairs)} of {len(pairs)} runs, "
          f"{sum(p['rows'] for p in pairs):,} rows; lost {document['lost']}; "
          f"without a latency {sum(p['without_latency'] for p in pairs)}")
    print(f"bytes per I/O: median {size['median']:.2f}, from {size['min']:.2f} to {size['max']:.2f}")
    print(f"CPU of the helper: {cpu['median']:.0f} ns per I/O")


if __name__ == "__main__":
    main()
