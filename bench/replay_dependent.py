"""Compares the replay of a trace on another drive with the program itself on that drive, in both directions.

Each program (dependent_programs.py) is captured on a drive whose I/Os take 2 ms longer than the fast one's, and on
the fast one; the trace of each drive is replayed on the other at dependent and at original pace. Programs that are not
installed are skipped. Needs root, loop devices and FUSE.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
from dependent import least, median_error, off, show
from dependent_programs import PROGRAMS
from drive_pair import MEMORY, CannotMake
from lab import lacking, machine, need

COLUMNS = ("captured there", "program here", "dependent", "original")
ERRORS = ("error of dependent", "error of original")
# I/Os in a stretch whose minimum over the repetitions counts.
STRETCH_IOS = 20
# Of each direction, the fields of Shown: program there, program here, dependent, original.
DIRECTIONS = {
    "to fast": ("slow_s", "fast_s", "dependent_s", "original_s"),
    "to slow": ("fast_s", "slow_s", "dependent_on_slow_s", "original_on_slow_s"),
}


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
                shown = [show(program, image, Path(directory)) for _ in range(options.repeat)]
            except CannotMake as reason:
                raise SystemExit(str(reason)) from None
        for direction, names in DIRECTIONS.items():
            label = f"{program.name:<{width}}, {direction}"
            print(label, *(f"{cell:>24}" for cell in cells(shown, names)), flush=True)


def cells(shown, names):
    total_s = [np.array([getattr(each, name).sum() for each in shown]) for name in names]
    _, here_s, *replayed_s = total_s
    times = [f"{np.median(each_s):.3f} s [{each_s.min():.3f} .. {each_s.max():.3f}]" for each_s in total_s]
    errors = [median_error(each_s, here_s) for each_s in replayed_s]
    return [*times, *(f"{error:+.1%} [{low:+.1%} .. {high:+.1%}]" for error, low, high in errors),
            by_stretches(shown, names)]


def by_stretches(shown, names):
    _, here, dependent, _ = names
    if any(len({len(getattr(each, name)) for each in shown}) > 1 for name in names):
        return ""
    best = least(shown, STRETCH_IOS)
    return f"{off(getattr(best, dependent), getattr(best, here)):+.1%}"


if __name__ == "__main__":
    main()
