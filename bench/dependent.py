"""One showing of dependent replay: a program on a slow and on a fast drive, and its slow trace replayed on the fast.

All four are measured alike, from the program's first I/O to its last; what it computes before and behind is nobody's
replay.
"""

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from drive_pair import fast_drive, mounted, slow_drive

from blkreel.traces.reader import open_trace
from blkreel.traces.schema import FLAGS

BLKREEL = Path(sys.executable).with_name("blkreel")
LATENCY_NS = 2_000_000
# As the thread that replays has, so that neither is kept waiting by other programs.
AT_REAL_TIME = ["chrt", "--rr", "1"]


@dataclass(frozen=True)
class Shown:
    """Seconds from first I/O to last, or arrays of their parts: from each I/O to the next, and to the end."""

    slow_s: float | np.ndarray
    fast_s: float | np.ndarray
    dependent_s: float | np.ndarray
    original_s: float | np.ndarray


def least(shown, rows=None):
    """The least of several: what else goes on in a machine only ever adds.

    Of the whole, or with `rows` of each stretch of so many I/Os, one after the other: a busy machine disturbs every
    repetition somewhere, but hardly all of them at the same I/O. A stretch must begin with the same I/O each time.
    """
    return Shown(*(_least([getattr(one, field.name) for one in shown], rows) for field in fields(Shown)))


def _least(repetitions, rows):
    if rows is None:
        return min(float(np.sum(parts_s)) for parts_s in repetitions)
    begins = np.arange(0, len(repetitions[0]), rows)
    return float(np.min([np.add.reduceat(parts_s, begins) for parts_s in repetitions], axis=0).sum())


def off(replayed_s, shown):
    """By which part of the program's own time on the fast drive a replay was off."""
    return replayed_s / shown.fast_s - 1


def show(program, image, directory):
    """Each in its parts.

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
    return Shown(slow_s, fast_s, *replayed_s)


def capture(program, drive, trace):
    """Records the program on the drive; how long its I/O took from end to end, in parts."""
    with mounted(drive) if program.fill else nullcontext(drive) as place:
        blkreel("capture", drive, "-o", trace, "--force", "--cold", "--", *AT_REAL_TIME, *program.command(place))
    return parts_s(open_trace(trace), own_rows(trace))


def replay(trace, drive, pace, run):
    # 3: something in the run is not to be trusted, as late I/Os are not on a busy machine. The figures will show it.
    blkreel("replay", trace, "--on", drive, "-o", run, "--force", "--pace", pace, allowed=(0, 3))
    records = open_trace(run)
    own = own_rows(trace)
    source_row = records.table(["source_row"])["source_row"].to_numpy()
    return parts_s(records, (source_row >= 0) & own[source_row])


def own_rows(trace):
    """Which rows are I/O of the program itself, not of the kernel's journal or of others."""
    return (open_trace(trace).table(["flags"])["flags"].to_numpy() & FLAGS["own"]) != 0


def parts_s(trace, wanted):
    """From each wanted I/O to the next, the last from the last to the latest completion: the sum is the whole."""
    table = trace.table(["submit_ns", "latency_ns"])
    submit_ns, latency_ns = (table[name].to_numpy()[wanted] for name in ("submit_ns", "latency_ns"))
    end_ns = np.max(submit_ns + np.maximum(latency_ns, 0))
    return np.diff(np.sort(submit_ns), append=end_ns) / 1e9


def blkreel(*words, allowed=(0,)):
    result = subprocess.run([BLKREEL, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=300)
    if result.returncode not in allowed:
        raise RuntimeError(f"blkreel {words[0]} exited with {result.returncode}: {result.stderr.strip()}")
