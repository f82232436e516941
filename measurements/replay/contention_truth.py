"""Real programs on emulated drives, alone and beside writes, next to the replay of their traces on simulated drives.

Each program reads its data cold on an emulated drive, alone and beside direct writes of 1 MiB at a steady rate. Its
trace from the fast drive is replayed on the simulated drive of the same description, alone and beside the same writes.
Needs root and /dev/fuse, and a machine without other work: each line has the share of late answers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from blkreel.common.emulated import IO_KINDS, read_account
from measurements.lab import machine, need

BLKREEL = Path(sys.executable).with_name("blkreel")
# A cache that is filled and folded depends on all that was written before, so that program and replay differ in it.
DRIVES = ("nvme-mid", "sata-tlc", "sata-qlc,cache=0", "usb,cache=0")
SIZE = "4GiB"
DATA_MIB, SMALL_FILES, LEAD_S = 768, 4000, 4
START_S = 0.25  # of a program, before its clock

# Reads and computes; prints the time from its first read to its last use of data.
PROGRAM = """
import mmap, os, sys, time, zlib
kind, directory = sys.argv[1:]
path = directory + "/data"
time.sleep(0.2)
began = time.monotonic()
if kind == "read":
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            zlib.crc32(block)
elif kind == "mmap":
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        for start in range(0, len(data), 1 << 20):
            zlib.crc32(data[start:start + (1 << 20)])
elif kind == "direct":
    file, block = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
    start = 0
    while count := os.preadv(file, [block], start):
        zlib.crc32(block)
        start += count
elif kind == "small":
    for number in range(int(open(directory + "/count").read())):
        with open(f"{directory}/small/{number % 50}/{number}", "rb") as file:
            while block := file.read(4096):
                for _ in range(4):
                    zlib.crc32(block)
print(time.monotonic() - began, flush=True)
"""

WRITER = """
import mmap, os, sys, time
path, rate = sys.argv[1], float(sys.argv[2])
file, block = os.open(path, os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
block.write(os.urandom(1 << 20))
size, at, count, began = os.fstat(file).st_size, 0, 0, time.monotonic()
while True:
    time.sleep(max(0, began + count * (1 << 20) / rate - time.monotonic()))
    os.pwritev(file, [block], at)
    at, count = (at + (1 << 20)) % size, count + 1
    sys.stdout.write(f"{count}\\n")
    sys.stdout.flush()
"""


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="read,mmap,direct,small")
    parser.add_argument("--drives", nargs="+", default=DRIVES)
    parser.add_argument("--trace-of", default="nvme-mid", help="drive that the replayed traces are captured on")
    parser.add_argument("--rate", default="110MB/s", help="of the writes")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.inside:
        inside(*options.inside)
        return
    need(("mkfs.ext4", "e2fsprogs"), ("nice", "coreutils"))
    print(machine())
    programs = options.programs.split(",")
    with tempfile.TemporaryDirectory(prefix="blkreel-truth-") as name:
        directory = Path(name)
        on_drive(options.trace_of, "capture", programs, options.rate, directory)
        print(f"\nwrites of {options.rate}; traces of {options.trace_of}; s, median of {options.repeat}")
        print(f"{'program':8} {'drive':16} {'alone':>7} {'replay':>7} {'error':>7}  {'beside':>7} {'replay':>7} "
              f"{'slowdown':>8} {'replay':>7} {'error':>7} {'reached':>8} {'replay':>7} {'late':>6}")
        for drive in options.drives:
            results = [on_drive(drive, "measure", programs, options.rate, directory) for _ in range(options.repeat)]
            for program in programs:
                show(program, drive, [result[program] for result in results], predicted(program, drive, options.rate,
                                                                                         directory))


def show(program, drive, measured, replayed):
    alone, beside, reached, late = (statistics.median(result[key] for result in measured)
                                    for key in ("alone_s", "beside_s", "reached", "late_share"))
    slowdown, replayed_slowdown = beside / alone, replayed["beside_s"] / replayed["alone_s"]
    print(f"{program:8} {drive:16} {alone:7.2f} {replayed['alone_s']:7.2f} {replayed['alone_s'] / alone - 1:+7.1%}  "
          f"{beside:7.2f} {replayed['beside_s']:7.2f} {slowdown:8.2f} {replayed_slowdown:7.2f} "
          f"{replayed_slowdown / slowdown - 1:+7.1%} {reached:8.1%} {replayed['reached']:7.1%} {late:6.2%}", flush=True)


def on_drive(drive, task, programs, rate, directory):
    """Run inside() on the emulated drive, at high priority, since other work delays its answers."""
    mount, result = directory / "mount", directory / "result.json"
    mount.mkdir(exist_ok=True)
    drive_name = f"truth-{os.getpid()}"
    done = subprocess.run(
        ["nice", "-n", "-15", BLKREEL, "emulate", f"nil:{drive}", "--size", SIZE, "--name", drive_name,
         "--mount", mount, "--accept-inexact", "--", sys.executable, "-m", "measurements.replay.contention_truth",
         "--rate", rate, "--inside", task, ",".join(programs), directory, result],
        capture_output=True, text=True, env=os.environ | {"BLKREEL_DRIVE_NAME": drive_name})
    if done.returncode or not result.exists():
        raise SystemExit(f"the run on nil:{drive} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(result.read_text())


def inside(task, programs, directory, result):
    """Fill the mounted drive, run the programs cold, and write what they took, or their traces."""
    options = parse()
    mount, device = Path(os.environ["BLKREEL_MOUNT"]), os.environ["BLKREEL_DEVICE"]
    fill(mount)
    found = {}
    for program in programs.split(","):
        remount(mount, device)
        command = [sys.executable, "-c", PROGRAM, program, mount]
        if task == "capture":
            trace = Path(directory) / f"{program}.parquet"
            subprocess.run([BLKREEL, "capture", device, "-o", trace, "--force", "--files", "--", *command], check=True,
                           capture_output=True)
            continue
        before = counts()
        alone_s = seconds_of(command)
        remount(mount, device)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, mount / "written", str(rate_bytes_s(options.rate))],
                                  stdout=subprocess.PIPE, bufsize=0)
        time.sleep(LEAD_S)
        os.set_blocking(writer.stdout.fileno(), False)
        writer.stdout.read()
        beside_s = seconds_of(command)
        written = (writer.stdout.read() or b"").count(b"\n") << 20
        writer.kill()
        writer.wait()
        after = counts()
        # The program starts and ends within the time that its writes are counted in.
        found[program] = {"alone_s": alone_s, "beside_s": beside_s,
                          "reached": written / (beside_s + START_S) / rate_bytes_s(options.rate),
                          "late_share": (after[0] - before[0]) / max(1, after[1] - before[1])}
    Path(result).write_text(json.dumps(found))


def rate_bytes_s(text):
    return float(text.removesuffix("MB/s")) * 1e6


def seconds_of(command):
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def fill(mount):
    for name, mib in (("data", DATA_MIB), ("written", 1024)):
        with open(mount / name, "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))
    for number in range(SMALL_FILES):
        path = mount / f"small/{number % 50}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(30_000))
    (mount / "count").write_text(str(SMALL_FILES))
    os.sync()


def remount(mount, device):
    subprocess.run(["umount", mount], check=True)
    subprocess.run(["mount", device, mount], check=True)


def counts():
    """(late I/Os, I/Os) of this drive so far."""
    time.sleep(0.6)  # until the account is renewed
    account = read_account(os.environ["BLKREEL_DRIVE_NAME"])
    return account["counts"]["late_ios"], sum(account["counts"][f"{kind}_ios"] for kind in IO_KINDS)


def predicted(program, drive, rate, directory):
    run = directory / "run"
    done = subprocess.run(
        [BLKREEL, "replay", directory / f"{program}.parquet", "--on", f"nil:{drive}", "-o", run, "--force", "--pace",
         "dependent", "--background", f"writes={rate}", "--background-lead", f"{LEAD_S}s", "--baseline", "--json"],
        capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"the replay of {program} on nil:{drive} failed: {done.stderr.strip()[-2000:]}")
    account = json.loads(done.stdout)["run"]
    phases = [account["own_wall_ns"], *(phase["load_time_ns"] for phase in account["other_phases"] or ())]
    return {"alone_s": account["baseline"]["load_time_ns"] / 1e9, "beside_s": statistics.geometric_mean(phases) / 1e9,
            "reached": account["background"][0]["reached_share"]}


if __name__ == "__main__":
    main()
