"""Compares the replay of a trace on another drive with the program itself on that drive, in both directions.

Each program (dependent_programs.py) is captured on a drive whose I/Os take 2 ms longer than the fast one's, and on
the fast one; the trace of each drive is replayed on the other at dependent and at original pace. Programs that are not
installed are skipped. Needs root, loop devices and FUSE.

All runs are measured from the first I/O of the program to its last, without its computation before and after.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS
from measurements.lab import lacking, machine, need
from measurements.replay.dependent_programs import PROGRAMS
from measurements.replay.drive_pair import MEMORY, CannotMake, fast_drive, mounted, slow_drive

BLKREEL = Path(sys.executable).with_name("blkreel")
LATENCY_NS = 2_000_000
# The priority of the replay thread, so that other programs preempt neither.
AT_REAL_TIME = ["chrt", "--rr", "1"]
COLUMNS = ("captured there", "program here", "dependent", "original")
ERRORS = ("error of dependent", "error of original")
# I/Os in a stretch whose minimum over the repetitions counts.
STRETCH_IOS = 20
# Of each direction, the fields of LoadTimes: program there, program here, dependent, original.
DIRECTIONS = {
    "to fast": ("slow_s", "fast_s", "dependent_s", "original_s"),
    "to slow": ("fast_s", "slow_s", "dependent_on_slow_s", "original_on_slow_s"),
}


@dataclass(frozen=True)
class LoadTimes:
    """Seconds from first I/O to last, or arrays of parts: from each I/O to the next, and to the end."""

    slow_s: float | np.ndarray
    fast_s: float | np.ndarray
    dependent_s: float | np.ndarray  # the slow drive's trace on the fast drive
    original_s: float | np.ndarray
    dependent_on_slow_s: float | np.ndarray  # the fast drive's trace on the slow drive
    original_on_slow_s: float | np.ndarray


def least(repetitions, rows):
    """The sum of the minima over repetitions of consecutive stretches of that many I/Os.

    Other load only adds time, and disturbs every repetition somewhere, but rarely all at the same I/O. Repetitions must
    have the same I/Os.
    """
    return LoadTimes(*(_least([getattr(repetition, field.name) for repetition in repetitions], rows)
                       for field in fields(LoadTimes)))


def _least(repetitions, rows):
    begins = np.arange(0, len(repetitions[0]), rows)
    return float(np.min([np.add.reduceat(parts_s, begins) for parts_s in repetitions], axis=0).sum())


def off(replayed_s, program_s):
    """Error of a replay, relative to the time of the program on the same drive."""
    return replayed_s / program_s - 1


def median_error(replayed_s, program_s):
    """(error, low, high): off() of the medians of the repetitions, and its 95 % interval by resampling both."""
    chosen = np.random.default_rng(1).integers
    ratios = [np.median(replayed_s[chosen(0, len(replayed_s), len(replayed_s))])
              / np.median(program_s[chosen(0, len(program_s), len(program_s))]) for _ in range(2000)]
    low, high = np.quantile(ratios, [0.025, 0.975]) - 1
    return off(np.median(replayed_s), np.median(program_s)), low, high


def show(program, image, directory):
    """The parts of each run.

    image: the contents of both drives, made by program.make_image. directory: for the traces and runs.
    """
    slow, fast = directory / "slow.parquet", directory / "fast.parquet"
    with slow_drive(image, LATENCY_NS) as drive:
        slow_s = capture(program, drive, slow)
    with fast_drive(image) as drive:
        fast_s = capture(program, drive, fast)
    replayed_s = []
    for pace in ("dependent", "original"):
        with fast_drive(image) as drive:
            replayed_s.append(replay(slow, drive, pace, directory / pace))
    for pace in ("dependent", "original"):
        with slow_drive(image, LATENCY_NS) as drive:
            replayed_s.append(replay(fast, drive, pace, directory / pace))
    return LoadTimes(slow_s, fast_s, *replayed_s)


def capture(program, drive, trace):
    """Capture the program on the drive. Returns the duration of its I/O in parts."""
    with mounted(drive) if program.fill else nullcontext(drive) as place:
        priority = AT_REAL_TIME if program.real_time else []
        blkreel("capture", drive, "-o", trace, "--force", "--cold", "--", *priority, *program.command(place))
    return parts_s(open_trace(trace), own_rows(trace))


def replay(trace, drive, pace, run):
    # 3: the run is not trustworthy, for example because of late I/Os on a busy machine. The figures show this.
    blkreel("replay", trace, "--on", drive, "-o", run, "--force", "--pace", pace, allowed=(0, 3))
    records = open_trace(run)
    own = own_rows(trace)
    source_row = records.table(["source_row"])["source_row"].to_numpy()
    return parts_s(records, (source_row >= 0) & own[source_row])


def own_rows(trace):
    """Mask of rows that are I/O of the program, not of the journal or other processes."""
    return (open_trace(trace).table(["flags"])["flags"].to_numpy() & FLAGS["own"]) != 0


def parts_s(trace, wanted):
    """From each selected I/O to the next; the last part ends at the latest completion. The sum is the total."""
    table = trace.table(["submit_ns", "latency_ns"])
    submit_ns, latency_ns = (table[name].to_numpy()[wanted] for name in ("submit_ns", "latency_ns"))
    end_ns = np.max(submit_ns + np.maximum(latency_ns, 0))
    return np.diff(np.sort(submit_ns), append=end_ns) / 1e9


def blkreel(*words, allowed=(0,)):
    result = subprocess.run([BLKREEL, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=300)
    if result.returncode not in allowed:
        raise RuntimeError(f"blkreel {words[0]} exited with {result.returncode}: {result.stderr.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", help="only programs with this text in their name")
    options = parser.parse_args()
    programs = [program for program in PROGRAMS if not options.only or options.only in program.name]
    need(("losetup", "util-linux"), ("chrt", "util-linux"), ("mkfs.ext4", "e2fsprogs"))
    # The drives are also removed after SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(machine())
    print(f"\nfirst I/O to last, median of {options.repeat} [smallest .. largest]; error of the median [interval of "
          f"95 %]; error of dependent by the minima of stretches of {STRETCH_IOS} I/Os, where all repetitions have as "
          "many I/Os")
    width = max((len(program.name) for program in programs), default=0)
    print(" " * (width + len(", to fast")), *(f"{name:>24}" for name in (*COLUMNS, *ERRORS)), " by stretches")
    for program in programs:
        missing = lacking(*program.needs)
        if missing:
            print(f"{program.name}: skipped: {'; '.join(missing)}", flush=True)
            continue
        with tempfile.TemporaryDirectory(dir=MEMORY, prefix="blkreel-bench-") as directory:
            image = Path(directory) / "contents"
            program.make_image(image)
            try:
                repetitions = [show(program, image, Path(directory)) for _ in range(options.repeat)]
            except CannotMake as reason:
                raise SystemExit(str(reason)) from None
        for direction, names in DIRECTIONS.items():
            label = f"{program.name:<{width}}, {direction}"
            print(label, *(f"{cell:>24}" for cell in cells(repetitions, names)), flush=True)


def cells(repetitions, names):
    total_s = [np.array([getattr(repetition, name).sum() for repetition in repetitions]) for name in names]
    _, here_s, *replayed_s = total_s
    times = [f"{np.median(each_s):.3f} s [{each_s.min():.3f} .. {each_s.max():.3f}]" for each_s in total_s]
    errors = [median_error(each_s, here_s) for each_s in replayed_s]
    return [*times, *(f"{error:+.1%} [{low:+.1%} .. {high:+.1%}]" for error, low, high in errors),
            by_stretches(repetitions, names)]


def by_stretches(repetitions, names):
    _, here, dependent, _ = names
    if any(len({len(getattr(repetition, name)) for repetition in repetitions}) > 1 for name in names):
        return ""
    best = least(repetitions, STRETCH_IOS)
    return f"{off(getattr(best, dependent), getattr(best, here)):+.1%}"


if __name__ == "__main__":
    main()
