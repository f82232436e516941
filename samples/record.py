"""Record sample traces again: record.py [SAMPLE...]. Needs root."""

import argparse
import os
import sys
import time

from recipes import RECIPES

from blkreel.common.errors import BlkreelError
from blkreel.traces.samples import SAMPLES


def main() -> None:
    width = max(map(len, RECIPES))
    parser = argparse.ArgumentParser(
        description="Record sample traces again, each on an emulated drive. Without a name: all of them.",
        epilog="\n".join(["samples:", *(f"  {name:<{width}}  {SAMPLES[name]}" for name in RECIPES)]),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SAMPLE", help="name of a sample")
    names = parser.parse_args().names or list(RECIPES)
    if unknown := [name for name in names if name not in RECIPES]:
        parser.error(f"unknown sample: {', '.join(unknown)}")
    if os.geteuid() != 0:
        sys.exit("recording a sample makes loop devices and mounts, which needs root; run: sudo make samples")
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    for name in names:
        started = time.monotonic()
        try:
            RECIPES[name](name)
        except BlkreelError as error:
            sys.exit(f"{name}: {error}")
        print(f"{name} recorded in {time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
