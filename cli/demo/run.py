"""The demo as a user would do it by hand: a captured application, two candidate drives, a comparison."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.errors import BlkreelError
from blkreel.traces.reader import open_trace
from blkreel.traces.shipped import PREFIX
from blkreel.traces.units import format_bytes

from .drives import LoopDrive, check_room, make_drive, make_file_system, mount_memory, remount
from .place import MARK, PLACE_NAME, Place, place_below
from .source import copy_application, make_dataset
from .steps import NOT_TRUSTWORTHY, Steps
from .torrent import make_payload, swarm
from .workload import DATASET, LIBRARIES

_MIB = 1 << 20
# What a demo writes into its output, and so all that the next one may remove.
_TRACE, _RUNS, _REPORT = "source.parquet", "runs", "compare.html"
# Program and the Debian package that has it.
_PROGRAMS = {"aria2c": "aria2", "mktorrent": "mktorrent", "opentracker": "opentracker", "mkfs.ext4": "e2fsprogs",
             "losetup": "mount", "findmnt": "util-linux"}
# Of the traces that ship, beside the demo's own: what a drive is asked for when a game loads, alone and with company.
_SAMPLES = (("game-load", "a game that loads"), ("game-download", "the game during a download"))
_PACES = (("original", "original timing", ()), ("cap25ms", "idle capped at 25 ms", ("--idle", "cap=25ms")))


@dataclass(frozen=True)
class Size:
    """How much a demo does. Payload and rate together let the download outlive the launches."""

    drive_bytes: int
    dataset_bytes: int
    payload_bytes: int
    download_bytes_per_s: int
    launches: tuple[str, ...]
    pause_s: float


FULL = Size(2048 * _MIB, 160 * _MIB, 800 * _MIB, 20 * _MIB, ("dataframes", "scan", "chart"), 1.0)
QUICK = Size(1024 * _MIB, 48 * _MIB, 256 * _MIB, 20 * _MIB, ("dataframes", "scan"), 1.0)


def run_demo(output: Path, work: Path, size: Size) -> int:
    """The whole demo; its exit code. Leaves `output` behind, and nothing else."""
    _check_programs()
    _check_output(output, work)
    with place_below(work) as place:
        check_room(place, disk_bytes=2 * size.drive_bytes, memory_bytes=max(size.drive_bytes, size.payload_bytes))
        _make_output(output)
        steps = Steps(place, total=4 + 2 * (1 + len(_PACES) + len(_SAMPLES)))
        try:
            table = _run_steps(place, steps, output, size)
        finally:
            _give_to_caller(output)
    for warning in steps.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    # Last, so that what the whole was for, and the path of the report below it, is what stays on the screen.
    sys.stdout.write(table)
    return NOT_TRUSTWORTHY if steps.warnings else 0


def _run_steps(place: Place, steps: Steps, output: Path, size: Size) -> str:
    steps.begin("making three drives: a source, a candidate in memory, a candidate on disk")
    memory = mount_memory(place, max(size.drive_bytes, size.payload_bytes) + 64 * _MIB)
    source = make_drive(place, place.path / "source.img", size.drive_bytes, allocate=True)
    mount = make_file_system(place, source)
    candidates = {"memory": make_drive(place, memory / "candidate.img", size.drive_bytes),
                  "disk": make_drive(place, place.path / "candidate.img", size.drive_bytes)}
    for name, drive in {"source": source, **candidates}.items():
        steps.say(f"{name}: {drive.device} over {drive.image}" + ("" if drive.direct else ", through the page cache"))

    steps.begin("putting an application and its data on the source")
    copied_bytes = copy_application(mount / LIBRARIES)
    rows = make_dataset(mount / DATASET, size.dataset_bytes)
    remount(place, source, mount)
    steps.say(f"application: {format_bytes(copied_bytes)}; dataset: {rows:,} rows")

    trace = output / _TRACE
    _capture(place, steps, trace, mount, memory, size)
    runs = [run for name, drive in candidates.items() for run in _replay(steps, trace, name, drive, output / _RUNS)]

    steps.begin("comparing")
    # A file instead of a pipe: the table comes last, after everything has been given back.
    with (place.path / "table").open("w+") as table:
        steps.blkreel("compare", *runs, "-o", (output / _REPORT).resolve(), stdout=table)
        table.seek(0)
        return table.read()


def _capture(place, steps, trace, mount, memory, size):
    steps.begin("capturing launches from a cold cache while a torrent downloads")
    directory = memory / "torrent"
    directory.mkdir()
    # In memory, not on the source: what a seeder reads is no part of what a download does to its drive.
    make_payload(directory / "download.bin", size.payload_bytes)
    result = place.path / "workload.json"
    with swarm(directory / "download.bin", directory, place.environment) as seeded:
        workload = [sys.executable, "-P", "-m", "blkreel.cli.demo.workload", "--drive", mount,
                    "--torrent", seeded.torrent, "--bytes-per-s", size.download_bytes_per_s,
                    "--pause-s", size.pause_s, "--result", result]
        workload += [word for launch in size.launches for word in ("--launch", launch)]
        # As root even under sudo: the workload drops the page cache before each launch.
        steps.blkreel("capture", "--path", mount, "--cold", "--user", "root", "-o", trace, "--", *workload,
                      why_doubted=lambda: "; ".join(open_trace(trace).metadata["import_warnings"]))
    # The room is needed by the image in memory, which fills when its drive is prepared.
    shutil.rmtree(directory)
    if not result.exists():
        raise BlkreelError("the captured workload failed: see its message above")
    if not json.loads(result.read_text())["download_outlived_launches"]:
        steps.warn("the download ended before the last launch: some reads met no writes")


def _replay(steps, trace: Path, name: str, drive: LoopDrive, runs: Path):
    steps.begin(f"putting the {name} image into the client state")
    steps.blkreel("precondition", drive.device, "--state", "client")
    replays = [(trace, pace, words, arguments) for pace, words, arguments in _PACES]
    # Idle capped throughout: a game that is being played leaves its drive in peace for most of the time.
    replays += [(f"{PREFIX}{sample}", sample, f"{words}, idle capped at 25 ms", ("--idle", "cap=25ms"))
                for sample, words in _SAMPLES]
    for source, ending, words, arguments in replays:
        steps.begin(f"replaying on the {name} image, {words}")
        run = runs / f"{name}-{ending}"
        steps.blkreel("replay", source, "--on", drive.device, "--pace", "original", *arguments,
                      "--label", f"{name} image", "-o", run, why_doubted=lambda run=run: _verdict(run))
        yield run


def _verdict(run: Path) -> str:
    verdict = open_trace(run).metadata["run"]["verdict"]
    # Only what made it so: that power was not measured is said beside each run already.
    reasons = [reason["text"] for reason in verdict["reasons"] if reason["level"] == verdict["level"]]
    return f"{verdict['level']}: " + "; ".join(reasons)


def _check_programs():
    if os.geteuid() != 0:
        raise BlkreelError("the demo makes loop devices and mounts, which needs root", "run it as: sudo make demo")
    # A user's path may lack the directories of system programs, also under sudo.
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if missing:
        packages = " ".join(dict.fromkeys(_PROGRAMS[program] for program in missing))
        raise BlkreelError(f"missing: {', '.join(missing)}", f"install them with: apt-get install {packages}")


def _check_output(output, work):
    if output.resolve().is_relative_to(work.resolve() / PLACE_NAME):
        raise BlkreelError(f"{output} is where the demo's drives are made, and removed", "name another output with -o")
    if output.exists() and not (output / MARK).exists() and (not output.is_dir() or any(output.iterdir())):
        raise BlkreelError(f"{output} exists, and no demo made it", "name another output with -o")


def _make_output(output):
    """Replaces what an earlier demo left, file by file: the user may have put something beside it."""
    output.mkdir(parents=True, exist_ok=True)
    (output / MARK).touch()
    for name in (_TRACE, _REPORT):
        (output / name).unlink(missing_ok=True)
    if (output / _RUNS).exists():
        shutil.rmtree(output / _RUNS)
    (output / _RUNS).mkdir()


def _give_to_caller(output):
    """Under sudo, the output belongs to who called it: they will want to remove it."""
    if "SUDO_UID" not in os.environ:
        return
    owner = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    for path in (output, *output.rglob("*")):
        os.chown(path, *owner, follow_symlinks=False)
