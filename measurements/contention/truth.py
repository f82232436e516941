"""Real programs on emulated drives, alone and beside writes, next to the replay of their traces on simulated drives.

Each program reads its data cold on an emulated drive, alone and beside direct writes of 1 MiB at a steady rate. Its
trace from another drive is replayed on the simulated drive of the same description, alone and beside the same writes.
What the program took before its first I/O and behind its last, while it was captured, is added to the replay.
With --alone no writes are beside, and a capture on the drive gives latency and depth of the program's own reads.
Needs root and /dev/fuse, and a machine without other work: an emulated drive that waits for a processor answers late.
Each line has the time that late answers added, as a share of the program's, and their share of the I/Os.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from blkreel.common.emulated import IO_KINDS, read_account
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS
from measurements.contention.programs import PROGRAMS, fill, install_game, size_bytes, write_random
from measurements.lab import SERVER_FIRST, as_a_program, machine, need, read_figures, warm_memory

BLKREEL = Path(sys.executable).with_name("blkreel")
RUN_PROGRAM, WRITER = (Path(__file__).with_name(name) for name in ("programs.py", "writer.py"))
# A cache that is filled and folded depends on all that was written before, so that program and replay differ in it.
DRIVES = ("sata-tlc", "sata-qlc,cache=0", "emmc", "usb,cache=0")
SPARE_BYTES, WRITTEN_MIB, LEAD_S = 512 << 20, 1024, 4
WARNED = 3  # exit code of blkreel: done, and not exact or not complete
START_S = 0.25  # of a program, before its clock


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="read,mmap,direct,small", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--drives", nargs="+", default=DRIVES)
    parser.add_argument("--trace-of", default="nvme-mid", help="drive that the replayed traces are captured on")
    parser.add_argument("--rate", default="110MB/s", help="of the writes")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="compare latency and depth of the reads, without writes")
    parser.add_argument("--ordinary", action="store_true",
                        help="without real-time priority of the drive and of the kernel's workers")
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.inside:
        with nullcontext() if options.ordinary else as_a_program():
            inside(*options.inside)
        return
    need(("mkfs.ext4", "e2fsprogs"), ("chrt", "util-linux"))
    print(machine())
    programs, settings = options.programs.split(","), (options.rate, options.repeat, options.ordinary)
    with tempfile.TemporaryDirectory(prefix="blkreel-truth-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # a database runs as another user
        if "game" in programs:
            install_game(directory)
        outside_s = on_drive(options.trace_of, "capture", programs, directory, *settings)
        if options.alone:
            show_reads(options, programs, settings, directory, outside_s)
            return
        print(f"\nwrites of {options.rate}; traces of {options.trace_of}; s, median of {options.repeat}")
        print(f"{'program':8} {'drive':16} {'alone':>7} {'replay':>7} {'error':>7}  {'beside':>7} {'replay':>7} "
              f"{'slowdown':>8} {'replay':>7} {'error':>7} {'reached':>8} {'replay':>7} {'added':>6} {'late':>6}")
        for drive in options.drives:
            results = on_drive(drive, "measure", programs, directory, *settings)
            for program in programs:
                show(program, drive, results[program],
                     predicted(program, drive, options.rate, directory, outside_s[program]))


def show(program, drive, measured, replayed):
    alone, beside, reached, added, late = (
        measured[key] for key in ("alone_s", "beside_s", "reached", "added_share", "late_share"))
    slowdown, replayed_slowdown = beside / alone, replayed["beside_s"] / replayed["alone_s"]
    print(f"{program:8} {drive:16} {alone:7.2f} {replayed['alone_s']:7.2f} {replayed['alone_s'] / alone - 1:+7.1%}  "
          f"{beside:7.2f} {replayed['beside_s']:7.2f} {slowdown:8.2f} {replayed_slowdown:7.2f} "
          f"{replayed_slowdown / slowdown - 1:+7.1%} {reached:8.1%} {replayed['reached']:7.1%} "
          f"{added:6.1%} {late:6.2%}", flush=True)


def show_reads(options, programs, settings, directory, outside_s):
    print(f"\ntraces of {options.trace_of}; each pair: program, replay; load times: median of {options.repeat}; reads")
    print(f"{'program':8} {'drive':16} {'load time, s':22} {'p50, us':24} {'p99, us':24} {'mean depth':21} {'most':>9} "
          f"{'added':>6} {'late':>6}")
    for drive in options.drives:
        on_drive(drive, "own", programs, directory, *settings)
        result = on_drive(drive, "alone", programs, directory, *settings)
        for program in programs:
            own = reads_of(directory / f"own-{program}.parquet")
            run = replayed(program, drive, directory)[0]
            replay = reads_of(run)
            load_s = own_io_s(run) + outside_s[program]
            columns = [(result[program]["alone_s"], load_s, ".2f"),
                       *((own[key], replay[key], form) for key, form in (
                           ("p50_us", ",.0f"), ("p99_us", ",.0f"), ("mean_depth", ".2f")))]
            print(f"{program:8} {drive:16} " + " ".join(
                f"{program_has:{form}}, {replay_has:{form}} {replay_has / program_has - 1:+.1%}".ljust(24)
                for program_has, replay_has, form in columns)
                + f"{own['most']:3}, {replay['most']:3} {result[program]['added_share']:6.1%} "
                f"{result[program]['late_share']:6.2%}", flush=True)


def reads_of(path):
    rows = own_rows(path)
    return read_figures(*(rows[name].to_numpy() for name in ("op", "submit_ns", "latency_ns")))


def on_drive(drive, task, programs, directory, rate, repeat=1, ordinary=False):
    """Run inside() on the emulated drive, before other work, which delays its answers."""
    mount, result = directory / "mount", directory / "result.json"
    mount.mkdir(exist_ok=True)
    drive_name = f"truth-{os.getpid()}"
    size = str(size_bytes(programs) + (WRITTEN_MIB << 20) + SPARE_BYTES)
    done = subprocess.run(
        [*([] if ordinary else SERVER_FIRST), BLKREEL, "emulate", f"nil:{drive}", "--size", size, "--name", drive_name,
         "--mount", mount, "--accept-inexact", "--", sys.executable, "-m", "measurements.contention.truth",
         *(["--ordinary"] if ordinary else []), "--rate", rate, "--repeat", str(repeat),
         "--inside", task, ",".join(programs), directory, result],
        capture_output=True, text=True, env=os.environ | {"BLKREEL_DRIVE_NAME": drive_name})
    if done.returncode not in (0, WARNED) or not result.exists():
        raise SystemExit(f"the run on nil:{drive} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(result.read_text())


def inside(task, programs, directory, result):
    """Fill the mounted drive, run the programs cold, and write what they took, or their traces."""
    options = parse()
    mount, device = Path(os.environ["BLKREEL_MOUNT"]), os.environ["BLKREEL_DEVICE"]
    fill(mount, programs.split(","))
    write_random(mount / "written", WRITTEN_MIB)
    os.sync()
    results = {}
    for program in programs.split(","):
        command = [sys.executable, RUN_PROGRAM, program, mount]
        if task in ("capture", "own"):
            remount(mount, device)
            trace = Path(directory) / f"{task}-{program}.parquet"
            with warm_memory():
                took_s = seconds_of([BLKREEL, "capture", device, "-o", trace, "--force", "--files", "--", *command])
            results[program] = took_s - own_io_s(trace)
            continue
        runs = [measure(command, mount, device, options, beside=task == "measure")
                for _ in range(options.repeat)]
        results[program] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    Path(result).write_text(json.dumps(results))


def measure(command, mount, device, options, beside):
    """What the program took, alone and, if asked, beside writes."""
    remount(mount, device)
    before = counts()
    with warm_memory():
        alone_s = seconds_of(command)
    result = {"alone_s": alone_s, **lateness(before, counts(), alone_s)}
    if not beside:
        return result
    remount(mount, device)
    writer = subprocess.Popen([sys.executable, WRITER, mount / "written", str(rate_bytes_s(options.rate))],
                              stdout=subprocess.PIPE, bufsize=0)
    time.sleep(LEAD_S)
    os.set_blocking(writer.stdout.fileno(), False)
    with warm_memory():
        writer.stdout.read()  # what it wrote before the program
        beside_s = seconds_of(command)
    written = (writer.stdout.read() or b"").count(b"\n") << 20
    writer.kill()
    writer.wait()
    # The program starts and ends within the time that its writes are counted in.
    return result | {"beside_s": beside_s,
                     "reached": written / (beside_s + START_S) / rate_bytes_s(options.rate)}


def rate_bytes_s(text):
    return float(text.removesuffix("MB/s")) * 1e6


def seconds_of(command):
    """As the program prints it. A capture on a drive that answers late warns of it, and is none that failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, WARNED):
        raise SystemExit(f"{command[0]} failed with exit code {done.returncode}")
    return next(float(line) for line in done.stdout.splitlines() if re.fullmatch(r"\d+\.\d+", line))


def own_io_s(trace):
    """From the first I/O of the captured program to its last completion."""
    rows = own_rows(trace)
    return int((rows.submit_ns + rows.latency_ns).max() - rows.submit_ns.min()) / 1e9


def own_rows(trace):
    """With latencies only."""
    rows = open_trace(trace).table(["submit_ns", "latency_ns", "op", "flags"]).to_pandas()
    return rows[((rows["flags"] & FLAGS["own"]) != 0) & (rows.latency_ns >= 0)]


def remount(mount, device):
    subprocess.run(["umount", mount], check=True)
    subprocess.run(["mount", device, mount], check=True)


def counts():
    """Of this drive so far."""
    time.sleep(0.6)  # until the account is renewed
    return read_account(os.environ["BLKREEL_DRIVE_NAME"])["counts"]


def replayed(program, drive, directory, *options):
    """Run directory and account of the program's trace."""
    run = directory / "run"
    done = subprocess.run(
        [BLKREEL, "replay", directory / f"capture-{program}.parquet", "--on", f"nil:{drive}", "-o", run, "--force",
         "--pace", "dependent", *options, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, WARNED):
        raise SystemExit(f"the replay of {program} on nil:{drive} failed: {done.stderr.strip()[-2000:]}")
    return run, json.loads(done.stdout)["run"]


def lateness(before, after, took_s):
    """As if the program had waited for each late answer: what is read ahead hides some."""
    ios = sum(after[f"{kind}_ios"] - before[f"{kind}_ios"] for kind in IO_KINDS)
    return {"added_share": (after["late_ns"] - before["late_ns"]) / 1e9 / took_s,
            "late_share": (after["late_ios"] - before["late_ios"]) / max(1, ios)}


def predicted(program, drive, rate, directory, outside_s):
    """outside_s: of the program, before its first I/O and behind its last, which no replay has."""
    _, account = replayed(program, drive, directory, "--background", f"writes={rate}", "--background-lead",
                          f"{LEAD_S}s", "--baseline")
    load_time_ns = Run.of({"run": account}).load_time_ns
    phases = [load_time_ns, *(phase["load_time_ns"] for phase in account["other_phases"] or ())]
    return {"alone_s": account["baseline"]["load_time_ns"] / 1e9 + outside_s,
            "beside_s": statistics.geometric_mean(phases) / 1e9 + outside_s,
            "reached": account["background"][0]["reached_share"]}


if __name__ == "__main__":
    main()
