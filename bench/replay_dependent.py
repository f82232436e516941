"""Whether a program's trace from a slow drive, replayed on a fast one, takes what the program itself takes there.

Each program (dependent_programs.py) is captured on a drive whose I/Os take 2 ms longer than the fast one's, and on
the fast one; the slow trace is replayed on the fast drive at dependent and at original pace. Needs root, loop
devices and FUSE.
"""

import argparse
import signal
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from dependent import Shown, least, off, show
from dependent_programs import PROGRAMS
from drive_pair import MEMORY, CannotMake
from lab import machine, need

COLUMNS = ("slow drive", "fast drive", "dependent", "original", "dependent is off", "original is off")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", help="programs whose names hold this")
    options = parser.parse_args()
    programs = [program for program in PROGRAMS if not options.only or options.only in program.name]
    need(("losetup", "util-linux"), ("chrt", "util-linux"), ("mkfs.ext4", "e2fsprogs"),
         *{one for program in programs for one in program.needs})
    # A kill leaves no drive behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(machine())
    print(f"\nfirst I/O to last, least of {options.repeat} [largest]")
    width = max(len(program.name) for program in programs)
    print(" " * width, *(f"{name:>20}" for name in COLUMNS))
    for program in programs:
        with tempfile.TemporaryDirectory(dir=MEMORY, prefix="blkreel-bench-") as directory:
            image = Path(directory) / "contents"
            program.make_image(image)
            try:
                shown = [show(program, image, Path(directory)) for _ in range(options.repeat)]
            except CannotMake as reason:
                raise SystemExit(str(reason)) from None
        print(f"{program.name:<{width}}", *(f"{cell:>20}" for cell in cells(shown)), flush=True)


def cells(shown):
    best = least(shown)
    times = [f"{getattr(best, field.name):.3f} s [{max(getattr(one, field.name).sum() for one in shown):.3f}]"
             for field in fields(Shown)]
    return times + [f"{off(replayed_s, best):+.1%}" for replayed_s in (best.dependent_s, best.original_s)]


if __name__ == "__main__":
    main()
