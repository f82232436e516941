"""How far the slowdown by writes is off that a fitted drive predicts, on three block devices.

Programs that read are captured on an emulated drive, and replayed beside writes on an image on disk, on zram and on an
emulated drive. They read 1 MiB at a time, 60 to 128 KiB, and small files. For each trace, `blkreel model-drive` is
fitted to the runs of the others, and predicts its slowdown.
Needs root and /dev/fuse, and a machine without other work. --only-fit: to the runs that are in DIRECTORY.
"""

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from measurements.contention.fio import emulated
from measurements.contention.truth import on_drive
from measurements.lab import as_a_program, machine, run, zram_drive

BLKREEL = Path(sys.executable).with_name("blkreel")
PROGRAMS = ("read", "mmap", "direct", "small")
SIZE_BYTES = 2 << 30
RATE = "110MB/s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="for traces and runs, on a disk")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--rate", default=RATE, help="of the writes")
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=list(DEVICES), metavar="NAME",
                        help=f"of {', '.join(DEVICES)}")
    parser.add_argument("--only-fit", action="store_true")
    options = parser.parse_args()
    print(machine())
    if not options.only_fit:
        options.directory.mkdir(mode=0o755)
        on_drive("sata-tlc", "capture", list(PROGRAMS), options.directory, options.rate)
    print(f"writes of {options.rate}\n{'device':12} {'trace':8} {'measured':>9} {'predicted':>10} {'error':>7}  "
          f"{'low':>7} {'high':>7}")
    for name in options.devices:
        if not options.only_fit:
            with DEVICES[name](options.directory) as path, as_a_program():
                for program in PROGRAMS:
                    replay(options, program, path, options.directory / f"{name}-{program}")
        show(name, options)


@contextmanager
def disk_image(directory):
    image = directory / "image"
    run("dd", "if=/dev/urandom", f"of={image}", "bs=1M", f"count={SIZE_BYTES >> 20}")
    device = run("losetup", "--find", "--show", "--direct-io=on", image).strip()
    try:
        yield device
    finally:
        run("losetup", "--detach", device)
        image.unlink()


@contextmanager
def qlc_drive(_):
    with emulated("sata-qlc,cache=0", SIZE_BYTES) as (device, _):
        yield device


DEVICES = {"image": disk_image, "zram": lambda _: zram_drive(SIZE_BYTES), "sata-qlc": qlc_drive}


def replay(options, program, device, runs):
    serial = f"{Path(device).name}:{SIZE_BYTES}"  # of a drive that replays ask to confirm
    trace = options.directory / f"capture-{program}.parquet"
    done = subprocess.run(
        [BLKREEL, "replay", trace, "--on", device, "-o", runs, "--pace", "dependent",
         "--background", f"writes={options.rate}", "--background-lead", "4s", "--baseline", "--repeat",
         str(options.repeat), *(["--destroy", serial] if "zram" in serial else [])], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"the replay of {program} on {device} failed: {done.stderr.strip()[-2000:]}")


def show(name, options):
    runs = sorted(options.directory.glob(f"{name}-*/[0-9]*"))
    fitted = options.directory / f"{name}.toml"
    document = json.loads(run(BLKREEL, "model-drive", *runs, "-o", fitted, "--force", "--json"))
    for program in PROGRAMS:
        pairs = [entry["slowdown_by_writes"] for entry in document["runs"]
                 if Path(entry["run"]).parent.name == f"{name}-{program}" and entry["slowdown_by_writes"]]
        if not pairs:
            continue  # not replayed
        measured, predicted, low, high = (statistics.geometric_mean(pair[key] for pair in pairs)
                                          for key in ("measured", "predicted", "low", "high"))
        is_open = "" if all(pair["is_decided"] for pair in pairs) else "  left open by the runs of the others"
        print(f"{name:12} {program:8} {measured:9.2f} {predicted:10.2f} {predicted / measured - 1:+7.1%}  {low:7.2f} "
              f"{high:7.2f}{is_open}", flush=True)


if __name__ == "__main__":
    main()
