"""The demo: a program is captured, and runs and is replayed on two drives, alone and beside writes."""

import os
import shutil
import stat
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from blkreel.analysis.report import present
from blkreel.analysis.report.export import View
from blkreel.cli.options.types import NOT_TRUSTWORTHY
from blkreel.common.console import Console
from blkreel.common.errors import BlkreelError, os_errors
from blkreel.common.files.safe_files import caller_of_sudo, clear_directory, create, directory_at
from blkreel.common.units import counted, format_bytes, format_ns
from blkreel.replay.emulated.file_system import unmount
from blkreel.replay.emulated.host import memory_bytes
from blkreel.replay.emulated.session import check_backends
from blkreel.replay.run.directory import LAYOUT as RUN_LAYOUT
from blkreel.replay.simulated.spec import typical_drives
from blkreel.traces.format.reader import open_trace
from blkreel.traces.samples import PREFIX

from . import pairs, typical
from .answer import Candidate, Results, lines, sentence
from .drives import (
    EMULATED,
    EMULATED_LABEL,
    SPARE_BYTES,
    check_room,
    emulated_drive,
    has_room,
    make_drive,
    make_file_system,
    mount_again,
)
from .page import edited
from .pairs import Pair, Pairs
from .program import DATASET, DEPTH, LEAD_S, WRITTEN_BYTES, command, make_dataset, run_once, run_pairs
from .steps import Steps
from .workspace import MARK, WORKSPACE_NAME, Workspace, workspace_below

# Files that a demo writes, and that the next one may remove.
_TRACE, _RUNS, _PAGE = "source.parquet", "runs", "compare.html"
_KEYS = ("disk", "emulated")
_DISK = "disk image"
_TITLE = "Data scan"
_SAMPLE, _SAMPLE_TITLE = f"{PREFIX}model-load", "Model load"
_FILE_SYSTEM_BYTES = 128 << 20
# Program: its Debian package.
_PROGRAMS = {"mkfs.ext4": "e2fsprogs", "losetup": "mount", "dd": "coreutils"}
_BESIDE = ("--pace", "dependent", "--background", f"writes=110MB/s,depth={DEPTH}", "--baseline")


@dataclass(frozen=True)
class Size:
    """dataset_bytes: what the program reads. pairs: of loads alone and beside the writes."""

    dataset_bytes: int
    pairs: int

    @property
    def image_bytes(self) -> int:
        return -(-(self.dataset_bytes + WRITTEN_BYTES + _FILE_SYSTEM_BYTES) // (1 << 20)) << 20


FULL = Size(800_000_000, 4)
QUICK = Size(300_000_000, 3)


def run_demo(output: Path, work: Path, size: Size) -> int:
    """Run the demo; returns its exit code. Leaves only `output` behind."""
    has_root = os.geteuid() == 0
    if has_root:
        _check_programs()
    _check_output(output, work)
    with workspace_below(work) as workspace:
        if has_root and not has_room(workspace.path, size.image_bytes):
            print(f"note: {work} has {format_bytes(shutil.disk_usage(work).free)} free: a smaller dataset, as with "
                  "--quick", file=sys.stderr)
            size = QUICK
        left_out = _left_out(size, has_root)
        with_emulated = has_root and not left_out
        if has_root:
            check_room(workspace, size.image_bytes)
        _make_output(output)
        steps = Steps(workspace, total=2 + (4 + 3 * with_emulated) * has_root)
        try:
            results = (_Demo(workspace, steps, output, size).run(with_emulated) if has_root
                       else Results(_SAMPLE_TITLE, (), _replay_typical(steps, _SAMPLE, output / _RUNS)))
            results = Results(results.title, results.candidates, results.typical, tuple(left_out))
            _compare(steps, output, results)
        finally:
            _give_to_caller(output)
    for warning in steps.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    console = Console()
    console.print_lines(lines(results, console.width))
    console.print_lines([escape(f"Page: {output / _PAGE}"), f"[bold]{escape(sentence(results))}[/]"])
    return 0 if steps.trustworthy and not steps.warnings else NOT_TRUSTWORTHY


def _left_out(size: Size, has_root: bool) -> list[str]:
    """What this machine cannot do, with the reason and the remedy."""
    if not has_root:
        return ["the program, its capture, the disk image and the emulated drive need root: sudo blkreel demo"]
    try:
        check_backends()
    except BlkreelError as error:
        return [f"the emulated drive: {error}"]
    free_bytes, needed_bytes = memory_bytes("MemAvailable"), size.image_bytes + SPARE_BYTES
    if free_bytes < needed_bytes:
        return [f"the emulated drive: {format_bytes(free_bytes)} of memory available, {format_bytes(needed_bytes)} "
                "required; stop other programs, or add --quick"]
    return []


class _Demo:
    """The steps on drives, which need root."""

    def __init__(self, workspace: Workspace, steps: Steps, output: Path, size: Size):
        self._workspace, self._steps, self._size = workspace, steps, size
        self._trace, self._runs = output / _TRACE, output / _RUNS
        self._mount = workspace.path / "source"

    def run(self, with_emulated: bool) -> Results:
        steps, workspace, size = self._steps, self._workspace, self._size
        steps.begin("create a drive, an image on disk, with a dataset")
        disk = make_drive(workspace, workspace.path / "source.img", size.image_bytes)
        make_file_system(workspace, disk)
        rows = make_dataset(self._mount / DATASET, size.dataset_bytes)
        steps.say(f"{disk.device}{'' if disk.direct else ', through the page cache'}: {rows:,} rows in "
                  f"{format_bytes(size.dataset_bytes)} of Parquet files")
        self._capture(disk.device)
        programs = {_KEYS[0]: self._program(disk.device, disk.image, f"on the {_DISK}")}
        unmount(self._mount)
        with ExitStack() as stack:
            devices = {_KEYS[0]: disk.device}
            if with_emulated:
                steps.begin(f"create an emulated drive ({EMULATED}) with a copy of the image")
                drive = stack.enter_context(emulated_drive(workspace, size.image_bytes))
                for limit in drive.beyond:
                    steps.warn(f"this machine cannot reach {limit}")
                workspace.run("dd", f"if={disk.device}", f"of={drive.device}", "bs=1M", "conv=sparse", "iflag=direct",
                              "oflag=direct")
                steps.say(f"{drive.device}: {format_bytes(size.image_bytes)} in memory, timing of a SATA QLC drive "
                          "beyond its write cache")
                devices[_KEYS[1]] = drive.device
                programs[_KEYS[1]] = self._program(drive.device, drive.backing_file, f"on the {EMULATED_LABEL}")
                unmount(self._mount)
            names = dict(zip(_KEYS, ((_DISK, "on the"), (EMULATED_LABEL, "on an")), strict=True))
            candidates = tuple(Candidate(*names[key], programs[key], self._replays(device, key, names[key][0]))
                               for key, device in devices.items())
        return Results(_TITLE, candidates, _replay_typical(steps, self._trace, self._runs))

    def _capture(self, device: Path) -> None:
        self._steps.begin("capture a program: a scan of the dataset from a cold cache")
        # Not its first run: the memory that it needs may have to come from the host of a virtual machine, which takes
        # longer than the scan, and the replay would repeat that time on each drive.
        run_once(self._workspace, self._mounted_again(device))
        self._mounted_again(device)
        self._steps.blkreel("capture", "-q", "--path", self._mount, "--user", "root", "-o", self._trace, "--title",
                            _TITLE, "--", *command(self._mount),
                            describe_warning=lambda: "; ".join(open_trace(self._trace).metadata["import_warnings"]))
        self._steps.say(f"captured {counted(open_trace(self._trace).rows, 'I/O')}")

    def _program(self, device: Path, backing_file: Path, where: str) -> Pairs:
        self._steps.begin(f"run the program {where}, alone and beside writes")
        return run_pairs(self._workspace, device, backing_file, self._size.pairs, lambda: self._mounted_again(device),
                         lambda pair: self._steps.say(_pair_words(pair)))

    def _replays(self, device: Path, key: str, name: str) -> Pairs:
        self._steps.begin(f"replay on the {name}, alone and beside writes")
        # Written once: the writes beside the replays go to another part of the drive.
        self._steps.blkreel("precondition", device, "--state", "trace", "--trace", self._trace, "-q")
        runs = [self._runs / f"{key}-{number + 1}" for number in range(self._size.pairs)]
        for run in runs:
            self._steps.blkreel("replay", self._trace, "--on", device, *_BESIDE, "--background-lead", f"{LEAD_S:g}s",
                                "--label", name, "-o", run, "-q", describe_warning=lambda: "")  # printed at the end
            self._steps.say("; ".join(_pair_words(pair) for pair in pairs.of_runs([run]).used))
        return pairs.of_runs(runs)

    def _mounted_again(self, device: Path) -> Path:
        """Without cached data: only that of this file system is dropped, not that of the whole machine."""
        mount_again(self._workspace, device, self._mount)
        return self._mount


def _pair_words(pair: Pair) -> str:
    reached = "" if pair.reached is None else f", writes {pair.reached * 100:.0f} % of their rate"
    return f"{format_ns(pair.alone_ns)} alone, {format_ns(pair.beside_ns)} beside writes{reached}"


def _replay_typical(steps: Steps, trace: str | Path, runs: Path) -> tuple[typical.TypicalDrive, ...]:
    steps.begin(f"replay on {len(typical_drives())} simulated drives, alone and beside writes")
    return tuple(typical.replay_all(steps, trace, runs, _BESIDE))


def _compare(steps: Steps, output: Path, results: Results) -> None:
    steps.begin("compare")
    runs = sorted(path for path in (output / _RUNS).iterdir() if path.is_dir())
    present.compare(runs, output / _PAGE, view=View(), edit=lambda page: edited(page, results))


def _check_programs() -> None:
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
    with os_errors(BlkreelError, f"cannot make {output}", "name another output with -o"), \
            directory_at(output, create=True):
        create(output / MARK).close()
    runs = dict.fromkeys([*(f"{key}-{number}" for key in _KEYS for number in range(1, FULL.pairs + 1)),
                          *typical_drives()], RUN_LAYOUT)
    clear_directory(output, {_TRACE: None, _PAGE: None, _RUNS: runs})
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
