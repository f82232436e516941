"""Whether a program's trace from a slow drive, replayed on a fast one, takes what the program itself takes there.

Each program (dependent_programs.py) is captured on a drive whose I/Os take 2 ms longer than the fast one's, and on
the fast one; the slow trace is replayed on the fast drive at dependent and at original pace. Needs root, loop
devices and FUSE.
"""

import argparse
import tempfile
from pathlib import Path

from dependent import show
from dependent_programs import PROGRAMS
from drive_pair import MEMORY, CannotMake
from lab import machine, need, print_table

COLUMNS = [(name, "{:.3f} s".format) for name in ("slow drive", "fast drive", "dependent", "original")] + \
    [(name, "{:+.1%}".format) for name in ("dependent is off", "original is off")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", help="programs whose names hold this")
    options = parser.parse_args()
    programs = [program for program in PROGRAMS if not options.only or options.only in program.name]
    need(("losetup", "util-linux"), ("chrt", "util-linux"), ("mkfs.ext4", "e2fsprogs"),
         *{one for program in programs for one in program.needs})
    print(machine())
    rows = {}
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="blkreel-bench-") as directory:
        for program in programs:
            image = Path(directory) / "contents"
            program.make_image(image)
            try:
                shown = [show(program, image, Path(directory)) for _ in range(options.repeat)]
            except CannotMake as reason:
                raise SystemExit(str(reason)) from None
            rows[program.name] = [(one.slow_s, one.fast_s, one.dependent_s, one.original_s, one.dependent_off,
                                   one.original_off) for one in shown]
    print_table(f"first I/O to last, {options.repeat} times", COLUMNS, rows)


if __name__ == "__main__":
    main()
