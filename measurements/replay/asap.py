"""Maximum rate at a fixed depth: blkreel with a record of every I/O, and fio with io_uring.

    sudo .venv/bin/python -m measurements.replay.asap [--drive loop|zram|nil ...] [--seconds 3]
        [--depth 32] [--repeat 7]

4 KiB random reads. The runs alternate, so that other load affects all equally; ratios are of
adjacent runs. Drives: loop, with direct I/O and its image in memory; zram, which completes an I/O within its
submission; nil, which does no I/O, so that only the replay tool is measured (fio's engine `null`).

fio runs with default settings, with its best settings (registered file and buffers), with batches of 16 in addition,
and with a log of every I/O, which blkreel always records. Processor time is that of the whole machine, including
kernel threads, divided by the I/Os: other load increases it for all.
"""

import argparse
import json
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import BLOCK_ROWS, EngineOptions, Lane, run_engine
from measurements.lab import busy_s, loop_drive, machine, need, print_table, run, zram_drive

BLOCK_BYTES = 4096
MIB = 1 << 20
SIZE_BYTES = 256 * MIB
BEST = ("--registerfiles", "--fixedbufs")
BATCHES = ("--iodepth_batch_submit=16", "--iodepth_batch_complete_max=16")
DRIVES = {"loop": loop_drive, "zram": zram_drive, "nil": lambda size_bytes: nullcontext(None)}


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

    with held(find_target(drive or f"nil:{SIZE_BYTES}")) as claim:
        where = {"claims": [claim]} if claim else {"nil_bytes": SIZE_BYTES}
        totals = run_engine(EngineOptions(**where), [Lane(plan(), depth)], keep, lambda note: None)
    if totals["error_ops"] or done["rows"] != totals["issued_ops"]:
        raise SystemExit(f"the run is incomplete: {totals}")
    return done["rows"], totals["issued_ops"] / totals["wall_ns"] * 1e9, done["latency_ns"] / done["rows"] / 1e3


def fio(*more, logs=False):
    def measure(drive, depth, seconds):
        where = ["--ioengine=io_uring", f"--filename={drive}", "--direct=1", "--readonly"] if drive else \
                ["--ioengine=null", f"--size={SIZE_BYTES}"]
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="blkreel-bench-") as directory:
            log = [f"--write_lat_log={directory}/log", "--log_avg_msec=0"] if logs else []
            report = json.loads(run("fio", "--name=asap", *where, "--rw=randread", "--bs=4k", f"--iodepth={depth}",
                                    "--norandommap", "--time_based", f"--runtime={seconds}", "--output-format=json",
                                    *more, *log))
        read = report["jobs"][0]["read"]
        return read["total_ios"], read["iops"], read["clat_ns"]["mean"] / 1e3

    return measure


def measure(way, drive, wanted):
    before_s = busy_s()
    ios, iops, latency_us = way(drive, wanted.depth, wanted.seconds)
    return iops / 1e3, latency_us, (busy_s() - before_s) / ios * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drive", choices=DRIVES, action="append", help="may be repeated (default: all)")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path, help="file for each repetition")
    wanted = parser.parse_args()
    need(("fio", "fio"))

    everything = {}
    for kind in wanted.drive or DRIVES:
        ways = {"blkreel": blkreel, "fio": fio(), "fio, log of every I/O": fio(logs=True)}
        if kind != "nil":
            ways |= {"fio, registered": fio(*BEST), "fio, registered, batches of 16": fio(*BEST, *BATCHES)}
        results = {name: [] for name in ways}
        with DRIVES[kind](SIZE_BYTES) as drive:
            for _ in range(wanted.repeat):
                reference = None
                for name, way in ways.items():
                    thousand, latency_us, cpu_ns = measure(way, drive, wanted)
                    reference = reference or thousand
                    results[name].append((thousand, latency_us, cpu_ns, reference / thousand))
        everything[kind] = results
        print_table(f"{kind}: 4 KiB random reads, depth {wanted.depth}, {wanted.repeat} runs of {wanted.seconds} s "
                    f"each, in turn; median [smallest .. largest]; {machine()}",
                    [("thousand IOPS", lambda v: f"{v:.0f}"), ("mean latency, us", lambda v: f"{v:.1f}"),
                     ("processor ns per I/O", lambda v: f"{v:.0f}"), ("blkreel IOPS / fio IOPS", lambda v: f"{v:.2f}")],
                    results)
    if wanted.json:
        wanted.json.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
