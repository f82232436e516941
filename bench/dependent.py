"""One measurement of dependent replay: a program on a slow and a fast drive, each trace replayed on the other drive.

All runs are measured from the first I/O of the program to its last, without its computation before and after.
"""

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from drive_pair import fast_drive, mounted, slow_drive

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

BLKREEL = Path(sys.executable).with_name("blkreel")
LATENCY_NS = 2_000_000
# The priority of the replay thread, so that other programs preempt neither.
AT_REAL_TIME = ["chrt", "--rr", "1"]


@dataclass(frozen=True)
class Shown:
    """Seconds from first I/O to last, or arrays of parts: from each I/O to the next, and to the end."""

    slow_s: float | np.ndarray
    fast_s: float | np.ndarray
    dependent_s: float | np.ndarray  # the slow drive's trace on the fast drive
    original_s: float | np.ndarray
    dependent_on_slow_s: float | np.ndarray  # the fast drive's trace on the slow drive
    original_on_slow_s: float | np.ndarray


def least(shown, rows):
    """The sum of the minima over repetitions of consecutive stretches of that many I/Os.

    Other load only adds time, and disturbs every repetition somewhere, but rarely all at the same I/O. Repetitions must
    have the same I/Os.
    """
    return Shown(*(_least([getattr(one, field.name) for one in shown], rows) for field in fields(Shown)))


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
    return Shown(slow_s, fast_s, *replayed_s)


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
