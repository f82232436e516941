"""The demo: capture an application, replay it on two candidate drives, compare."""

import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from blkreel.analysis.report import present
from blkreel.analysis.report.terminal import comparison_lines
from blkreel.cli.options.types import NOT_TRUSTWORTHY
from blkreel.cli.ui.replay_summary import metric_words
from blkreel.common.command_line import AS_ROOT
from blkreel.common.console import Console, Detail
from blkreel.common.errors import BlkreelError
from blkreel.common.safe_files import caller_of_sudo, clear_directory, create, directory_at
from blkreel.common.text_table import wrapped
from blkreel.common.units import format_bytes
from blkreel.replay.run.directory import LAYOUT as RUN_LAYOUT
from blkreel.traces.format.reader import open_trace
from blkreel.traces.samples import PREFIX

from .answer import BACKGROUND_RATE, account_of, answer_lines
from .drives import LoopDrive, check_room, make_drive, make_file_system, mount_memory, remount
from .source import copy_application, make_dataset
from .steps import Steps
from .torrent import make_payload, swarm
from .workload import DATASET, LIBRARIES
from .workspace import MARK, WORKSPACE_NAME, Workspace, workspace_below

_MIB = 1 << 20
# Files that a demo writes, and that the next one may remove.
_TRACE, _RUNS, _REPORT = "source.parquet", "runs", "compare.html"
_CANDIDATES = ("memory", "disk")
_METRICS = 3  # of a run, on its line
# Program: its Debian package.
_PROGRAMS = {"aria2c": "aria2", "mktorrent": "mktorrent", "opentracker": "opentracker", "mkfs.ext4": "e2fsprogs",
             "losetup": "mount", "findmnt": "util-linux"}
_CAP = ("--idle", "cap=25ms")  # a game computes for most of the time that it loads


@dataclass(frozen=True)
class _Replay:
    """One replay on each candidate. trace: a sample, or None for the captured trace. name: of its run's directory."""

    name: str
    title: str
    trace: str | None
    options: tuple[str, ...]


_LOAD = _Replay("load", "a game that loads, dependent pace, pauses capped at 25 ms", f"{PREFIX}game-load",
                ("--pace", "dependent", *_CAP))
_APPLICATION = _Replay("application", "the captured application, original pace", None, ())
_BESIDE = _Replay("beside", f"the game beside writes of {BACKGROUND_RATE}, and alone", f"{PREFIX}game-load",
                  ("--pace", "dependent", *_CAP, "--background", f"writes={BACKGROUND_RATE}", "--background-lead", "3s",
                   "--baseline"))
_REPLAYS = (_LOAD, _APPLICATION, _BESIDE)


@dataclass(frozen=True)
class Size:
    """Sizes of a demo. The download must last longer than the launches, and fit the source beside the application.

    drive_bytes: of a candidate.
    """

    source_bytes: int
    drive_bytes: int
    dataset_bytes: int
    payload_bytes: int
    download_bytes_per_s: int
    launches: tuple[str, ...]
    pause_s: float


FULL = Size(2048 * _MIB, 1024 * _MIB, 64 * _MIB, 512 * _MIB, 20 * _MIB, ("dataframes", "scan", "chart"), 0.5)
QUICK = Size(1536 * _MIB, 1024 * _MIB, 48 * _MIB, 256 * _MIB, 20 * _MIB, ("dataframes", "scan"), 0.5)


def run_demo(output: Path, work: Path, size: Size) -> int:
    """Run the demo; returns its exit code. Leaves only `output` behind."""
    _check_programs()
    _check_output(output, work)
    with workspace_below(work) as workspace:
        check_room(workspace, disk_bytes=size.source_bytes + size.drive_bytes,
                   memory_bytes=max(size.drive_bytes, size.payload_bytes))
        _make_output(output)
        steps = Steps(workspace, total=4 + len(_CANDIDATES) * (1 + len(_REPLAYS)))
        try:
            lines = _run_steps(workspace, steps, output, size)
        finally:
            _give_to_caller(output)
    for warning in steps.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    # Last, so that the answer and the path of the page stay on the screen.
    Console().print_lines(lines)
    return 0 if steps.trustworthy and not steps.warnings else NOT_TRUSTWORTHY


def _run_steps(workspace: Workspace, steps: Steps, output: Path, size: Size) -> list[str]:
    """Lines of rich markup: the comparison, the answer, and the path of the page."""
    steps.begin("create three drives: a source, a candidate in memory, a candidate on disk")
    memory = mount_memory(workspace, max(size.drive_bytes, size.payload_bytes) + 64 * _MIB)
    source = make_drive(workspace, workspace.path / "source.img", size.source_bytes, allocate=True)
    mount = make_file_system(workspace, source)
    candidates = {"memory": make_drive(workspace, memory / "candidate.img", size.drive_bytes),
                  "disk": make_drive(workspace, workspace.path / "candidate.img", size.drive_bytes)}
    steps.say("; ".join(f"{name}: {drive.device}" + ("" if drive.direct else ", through the page cache")
                        for name, drive in {"source": source, **candidates}.items()))

    steps.begin("copy an application and its data to the source")
    copied_bytes = copy_application(mount / LIBRARIES)
    rows = make_dataset(mount / DATASET, size.dataset_bytes)
    remount(workspace, source, mount)
    steps.say(f"application: {format_bytes(copied_bytes)}; dataset: {rows:,} rows")

    trace = output / _TRACE
    _capture(workspace, steps, trace, mount, memory, size)
    runs = {replay: {name: output / _RUNS / f"{name}-{replay.name}" for name in candidates} for replay in _REPLAYS}
    for name, drive in candidates.items():
        _replay_all(steps, trace, name, drive, {replay: runs[replay][name] for replay in _REPLAYS})

    steps.begin("compare")
    page = (output / _REPORT).resolve()
    # Into a file: the comparison is printed last, after the cleanup.
    with (workspace.path / "comparison").open("w+") as comparison:
        steps.blkreel("compare", *(run for of in runs.values() for run in of.values()), "-o", page, "--json",
                      stdout=comparison)
        comparison.seek(0)
        document = json.load(comparison)
    width = Console().width
    answer = answer_lines(*({f"{name} image": account_of(run) for name, run in runs[replay].items()}
                            for replay in _REPLAYS))
    return [*comparison_lines(document, Detail(), width),
            *(escape(line) for text in answer for line in wrapped(text, width)), escape(f"Page: {output / _REPORT}")]


def _capture(workspace: Workspace, steps: Steps, trace: Path, mount: Path, memory: Path, size: Size) -> None:
    steps.begin("capture launches from a cold cache while a torrent downloads")
    directory = memory / "torrent"
    directory.mkdir()
    # In memory, not on the source: reads of the seeder are not part of a download.
    make_payload(directory / "download.bin", size.payload_bytes)
    result = workspace.path / "workload.json"
    with swarm(directory / "download.bin", directory, workspace.environment) as seeded:
        workload = [sys.executable, "-P", "-m", "blkreel.cli.demo.workload", "--drive", mount,
                    "--torrent", seeded.torrent, "--bytes-per-s", size.download_bytes_per_s,
                    "--pause-s", size.pause_s, "--result", result]
        workload += [word for launch in size.launches for word in ("--launch", launch)]
        # As root also under sudo, since the workload drops the page cache before each launch.
        steps.blkreel("capture", "-q", "--path", mount, "--cold", "--user", "root", "-o", trace,
                      "--title", "Application during a download", "--", *workload,
                      describe_warning=lambda: "; ".join(open_trace(trace).metadata["import_warnings"]))
    steps.say(f"captured {open_trace(trace).rows:,} I/Os")
    # The image in memory needs the space when its drive is preconditioned.
    shutil.rmtree(directory)
    if not result.exists():
        raise BlkreelError("the captured workload failed", "see its message above")
    if not json.loads(result.read_text())["download_outlived_launches"]:
        steps.warn("the download ended before the last launch: some reads met no writes")


def _replay_all(steps: Steps, trace: Path, name: str, drive: LoopDrive, runs: Mapping[_Replay, Path]) -> None:
    steps.begin(f"put the {name} image into the client state")
    steps.blkreel("precondition", drive.device, "--state", "client", "-q")
    for replay, run in runs.items():
        steps.begin(f"replay on the {name} image: {replay.title}")
        steps.blkreel("replay", replay.trace or trace, "--on", drive.device, *replay.options, "--label",
                      f"{name} image", "-o", run, "-q", describe_warning=lambda: "")  # its verdict is printed below
        entry = present.report(run)["entry"]
        steps.say(f"{', '.join(metric_words(entry)[:_METRICS])}; {entry['verdict']['level']}")


def _check_programs() -> None:
    if os.geteuid() != 0:
        raise BlkreelError("the demo needs root for loop devices and mounts", AS_ROOT)
    # The path may lack the directories of system programs, also under sudo.
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if missing:
        packages = " ".join(dict.fromkeys(_PROGRAMS[program] for program in missing))
        raise BlkreelError(f"missing programs: {', '.join(missing)}", f"apt-get install {packages}")


def _check_output(output: Path, work: Path) -> None:
    if output.resolve().is_relative_to(work.resolve() / WORKSPACE_NAME):
        raise BlkreelError(f"{output}: in the work directory, which the demo removes", "name another output with -o")
    if output.exists() and not (output / MARK).exists() and (not output.is_dir() or any(output.iterdir())):
        raise BlkreelError(f"{output} exists, and is not the output of a demo", "name another output with -o")


def _make_output(output: Path) -> None:
    """Remove the files of an earlier demo, and no other file."""
    with directory_at(output, create=True):
        create(output / MARK).close()
    runs = {f"{name}-{replay.name}": RUN_LAYOUT for name in _CANDIDATES for replay in _REPLAYS}
    clear_directory(output, {_TRACE: None, _REPORT: None, _RUNS: runs})
    with directory_at(output / _RUNS, create=True):
        pass


def _give_to_caller(output: Path) -> None:
    """Give the output to the user who called sudo."""
    owner = caller_of_sudo()
    if owner is None:
        return
    with directory_at(output) as top:
        # The directory after its files: its new owner could replace them.
        for _, directories, files, around in os.fwalk(".", topdown=False, dir_fd=top):
            for name in (*files, *directories):
                status = os.stat(name, dir_fd=around, follow_symlinks=False)
                # A file with several links may also be elsewhere.
                if status.st_uid == 0 and status.st_nlink == 1 and not stat.S_ISDIR(status.st_mode):
                    os.chown(name, *owner, dir_fd=around, follow_symlinks=False)
            os.chown(around, *owner)
