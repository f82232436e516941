"""As fast as possible at a fixed depth: ours, with a record of every I/O, beside fio with io_uring.

    sudo .venv/bin/python bench/replay_asap.py [--seconds 5] [--depth 32] [--repeat 7]

4 KiB random reads on a loop drive with direct I/O and its image in memory; runs in turn, so that what else the
machine does falls on both alike. fio has its best settings: io_uring, registered file and buffers, and in a
second row also batches of 16. The ratio is of neighbouring runs.
"""

import argparse
import json

import numpy as np
from lab import loop_drive, machine, need, print_table, run

from blkreel.replay.engine import BLOCK_ROWS, EngineOptions, run_engine

BLOCK_BYTES = 4096
MIB = 1 << 20
SIZE_BYTES = 256 * MIB


def blkreel(drive, depth, seconds):
    """IOPS and mean latency in us, from the records."""
    random = np.random.default_rng(1)
    zeros = np.zeros(BLOCK_ROWS, "i8")
    places = random.integers(0, SIZE_BYTES // BLOCK_BYTES, (8, BLOCK_ROWS)) * BLOCK_BYTES
    blocks = [{"due_ns": zeros - 1, "offset_bytes": offset_bytes, "length_bytes": zeros + BLOCK_BYTES, "op": zeros,
               "flags": zeros, "stream": zeros, "burst": zeros, "source_row": zeros} for offset_bytes in places]
    done = {"last_ns": 0, "rows": 0, "latency_ns": 0}

    def plan():
        while done["last_ns"] < seconds * 1e9:
            yield from blocks

    def keep(rows):
        done["last_ns"] = max(done["last_ns"], int(rows["complete_ns"].max()))
        done["rows"] += len(rows["op"])
        done["latency_ns"] += int((rows["complete_ns"] - rows["submit_ns"]).sum())

    totals = run_engine(EngineOptions(target=drive, depth=depth), plan(), keep, lambda note: None)
    if totals["error_ops"] or done["rows"] != totals["issued_ops"]:
        raise SystemExit(f"the run was not whole: {totals}")
    return totals["issued_ops"] / totals["wall_ns"] * 1e9, done["latency_ns"] / done["rows"] / 1e3


def fio(*more):
    def measure(drive, depth, seconds):
        report = json.loads(run("fio", "--name=asap", f"--filename={drive}", "--readonly", "--rw=randread", "--bs=4k",
                                "--direct=1", "--ioengine=io_uring", f"--iodepth={depth}", "--registerfiles",
                                "--fixedbufs", "--norandommap", "--time_based", f"--runtime={seconds}",
                                "--output-format=json", *more))
        read = report["jobs"][0]["read"]
        return read["iops"], read["clat_ns"]["mean"] / 1e3

    return measure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=7)
    wanted = parser.parse_args()
    need(("fio", "fio"))

    ways = {"blkreel": blkreel, "fio": fio(),
            "fio, batches of 16": fio("--iodepth_batch_submit=16", "--iodepth_batch_complete_max=16")}
    results = {name: [] for name in ways}
    with loop_drive(SIZE_BYTES) as drive:
        for _ in range(wanted.repeat):
            iops = {}
            for name, way in ways.items():
                iops[name], latency_us = way(drive, wanted.depth, wanted.seconds)
                results[name].append((iops[name] / 1e3, latency_us, iops["blkreel"] / iops[name]))
    print_table(f"4 KiB random reads, depth {wanted.depth}, {wanted.repeat} runs of {wanted.seconds} s each, in turn; "
                f"median [smallest .. largest]; {machine()}",
                [("thousand IOPS", lambda v: f"{v:.0f}"), ("mean latency, us", lambda v: f"{v:.0f}"),
                 ("blkreel is faster by", lambda v: f"{v:.2f}")], results)


if __name__ == "__main__":
    main()
