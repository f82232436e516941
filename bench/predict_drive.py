"""How far predictions of a fitted drive are off: sample traces are replayed, and each is predicted without its runs.

The drive is DRIVE, or a loop device over a new image. For each trace, `blkreel model-drive` is fitted to the runs of
the other traces, and predicts load time and read p99 of the runs of this trace. Needs root; DRIVE is overwritten.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from drive_pair import fast_drive
from lab import machine, need

BLKREEL = Path(sys.executable).with_name("blkreel")
TRACES = ("app-start", "game-load", "compile", "package-install")
PACES = ("dependent", "original")
IMAGE_BYTES = 4 << 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drive", nargs="?")
    parser.add_argument("--destroy", help="serial of DRIVE, as blkreel replay asks for it")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    need(("losetup", "util-linux"))
    print(machine())
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blkreel-bench-", dir="/var/tmp")))
        drive = options.drive or stack.enter_context(loop_drive(place))
        runs = [run(trace, pace, number, drive, options.destroy, place)
                for number in range(options.repeat) for trace in TRACES for pace in PACES]
        usable = [path for path in runs if path]
        print(f"{len(usable)} of {len(runs)} runs are not invalid")
        result = subprocess.run([BLKREEL, "model-drive", *usable, "-o", place / "drive.toml", "--json"],
                                capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(result.stderr)
        document = json.loads(result.stdout)
        print(f"held out: {document['held_out']}\n{'run':<34}{'load time':>12}{'read p99':>12}")
        for each in document["runs"]:
            load_time = each["load_time_error"]
            print(f"{Path(each['run']).name:<34}{'' if load_time is None else f'{load_time:+.1%}':>12}"
                  f"{each['read_p99_error']:>+12.1%}")


def loop_drive(place):
    image = place / "contents"
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    return fast_drive(image)


def run(trace, pace, number, drive, serial, place):
    """The run's directory, None for an invalid run."""
    path = place / f"{trace}-{pace}-{number}"
    words = ["replay", f"sample:{trace}", "--on", drive, "-o", path, "--pace", pace, "--idle",
             "original" if pace == "dependent" else "cap=100ms", "--json"]
    words += ["--destroy", serial] if serial else []
    result = subprocess.run([BLKREEL, *words], capture_output=True, text=True)
    if result.returncode not in (0, 3):
        raise SystemExit(result.stderr)
    return path if json.loads(result.stdout)["run"]["verdict"]["level"] != "invalid" else None


if __name__ == "__main__":
    main()
