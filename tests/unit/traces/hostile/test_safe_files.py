"""Root in directories of others: links that they have planted lead it nowhere."""

import errno
import os
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from blktrace_events import Recording
from small_trace import new_trace
from synthetic_runs import write_run, write_trace

from blkreel.analysis.report import export
from blkreel.analysis.scale import partial_cache
from blkreel.cli.command_table import all_commands, find_command
from blkreel.common.errors import BlkreelError, OutputExists, SafetyError, TraceError, UsageError
from blkreel.common.files import safe_files
from blkreel.common.files.json_file import write_json
from blkreel.common.files.output_lock import spool_of
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import find_target
from blkreel.replay.run import calibrate
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.simulated import state as simulated
from blkreel.replay.simulated.spec import parse
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.importers import import_recording
from blkreel.traces.spool.spool import Spool, recover
from blkreel.traces.telemetry.file import Telemetry, write_telemetry
from blkreel.traces.telemetry.reader import recover_telemetry
from blkreel.traces.telemetry.spool import TelemetrySpool

pytestmark = pytest.mark.usefixtures("require_root")

NOBODY = 65534
PID = os.getpid()


def columns(count=10):
    at = np.arange(count)
    return {"submit_ns": at, "offset_bytes": at * 4096, "length_bytes": np.full(count, 4096), "op": at * 0}


def give(path):
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


class Planted:
    """directory: of another user. sentinel: root's file, in root's directory `private`, that nobody else may reach."""

    def __init__(self, root):
        self.private, self.directory = root / "private", root / "shared"
        self.private.mkdir(mode=0o700)
        self.sentinel = self.private / "sentinel"
        self.sentinel.write_text("precious")
        self.sentinel.chmod(0o600)
        self.directory.mkdir()
        give(self.directory)

    def link(self, name, target=None):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target or self.sentinel)
        return give(path)

    def assert_untouched(self):
        status = self.sentinel.stat()
        assert self.sentinel.read_text() == "precious"
        assert (status.st_uid, status.st_gid, status.st_mode & 0o7777, status.st_nlink) == (0, 0, 0o600, 1)
        assert list(self.private.iterdir()) == [self.sentinel]
        assert self.private.stat().st_uid == 0


@pytest.fixture
def planted(tmp_path):
    planted = Planted(tmp_path)
    yield planted
    planted.assert_untouched()


def traced(path, force=True):
    with TraceWriter(path, force=force) as writer:
        writer.write(columns())
        return writer.close({})


WRITERS = {
    "a trace": traced,
    "a page": lambda path: export._text("<p>", path, True),
    "tables": lambda path: export._directory({path.name: "a,b"}, path.parent, True),
    "JSON": lambda path: write_json(path, {"a": 1}),
    "telemetry": lambda path: write_telemetry(path, Telemetry({}), force=True),
    "figures": lambda path: partial_cache._write(path, b"figures", path.parent),
    "a spool": lambda path: Spool(path, TRACE_SCHEMA, {}, force=True).finish({}),
}


@pytest.mark.parametrize("what", WRITERS)
def test_links_at_the_name_and_at_that_of_a_temporary_file_are_not_followed(planted, what):
    output = planted.link("out.parquet")
    planted.link(f".out.parquet.{PID}.tmp")
    planted.link(f".shared.{PID}.tmp", planted.private)
    WRITERS[what](output)
    assert not output.is_symlink() and output.stat().st_size


@pytest.mark.parametrize("what", WRITERS)
@pytest.mark.parametrize("below", ["", "deeper/"])
def test_a_link_of_others_in_place_of_a_directory_is_refused(planted, what, below):
    (planted.private / "deeper").mkdir()
    planted.link("runs", planted.private)
    with pytest.raises(SafetyError, match="symbolic link 'runs'.*; check its target"):
        WRITERS[what](planted.directory / "runs" / below / "out.parquet")
    (planted.private / "deeper").rmdir()


def test_links_of_root_and_of_the_caller_of_sudo_are_followed(planted, tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    traced(tmp_path / "link/t.parquet")
    planted.link("runs", tmp_path / "real")
    with pytest.raises(SafetyError):
        traced(planted.directory / "runs/u.parquet")
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    traced(planted.directory / "runs/u.parquet")
    # Who may rename it may put it anywhere.
    monkeypatch.delenv("SUDO_UID")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open/link").symlink_to(tmp_path / "real")
    with pytest.raises(SafetyError):
        traced(tmp_path / "open/link/v.parquet")
    (tmp_path / "open").chmod(0o1777)
    traced(tmp_path / "open/link/v.parquet")
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"t.parquet", "u.parquet", "v.parquet"}


def test_links_in_a_circle_are_an_error_and_no_endless_loop(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        safe_files.open_directory(tmp_path / "a/../b")


def test_a_dangling_link_at_the_name_counts_as_an_output_that_exists(planted):
    output = planted.link("t.parquet", planted.private / "new")
    with pytest.raises(OutputExists):
        traced(output, force=False)


def test_a_spool_is_neither_made_nor_cleared_nor_finished_through_a_link(planted):
    output = planted.directory / "t.parquet"
    planted.link(spool_of(output).name, planted.private)
    with pytest.raises(BlkreelError, match="unfinished"):
        Spool(output, TRACE_SCHEMA, {})
    with pytest.raises(BlkreelError, match="is a link or holds files that blkreel did not make"):
        Spool(output, TRACE_SCHEMA, {}, force=True)
    with pytest.raises(TraceError, match="nothing to recover"):
        recover(output)


def test_a_spool_with_files_of_others_loses_only_its_own(planted):
    output = planted.directory / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    spool.rows_file.close()
    (spool.directory / "letter").write_text("mine")
    with pytest.raises(BlkreelError, match="did not make"):
        Spool(output, TRACE_SCHEMA, {}, force=True)
    assert [path.name for path in spool.directory.iterdir()] == ["letter"]


@pytest.mark.parametrize("name", ["reserve", "trace.parquet", "metadata.tmp"])
def test_links_inside_a_spool_are_not_followed(planted, name):
    output = planted.directory / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    spool.append(columns())
    spool.flush()
    spool.rows_file.close()
    give(spool.directory)
    (spool.directory / name).unlink(missing_ok=True)
    planted.link(f"{spool.directory.name}/{name}")
    if name == "reserve":
        with pytest.raises(SafetyError, match="reserve is a link"):
            recover(output)
        (spool.directory / name).unlink()
    assert open_trace(recover(output)).rows == 10


def test_a_file_with_another_name_elsewhere_is_not_cut(planted, tmp_path):
    """Where the kernel does not protect hard links, anybody can make one to a file of root's."""
    output = planted.directory / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {})
    spool.append(columns())
    spool.flush()
    spool.rows_file.close()
    (tmp_path / "mine").write_text("mine")
    (spool.directory / "reserve").unlink()
    os.link(tmp_path / "mine", spool.directory / "reserve")
    with pytest.raises(SafetyError, match="reserve is a link"):
        recover(output)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_trace_gets_its_owner_before_its_name(planted, monkeypatch):
    """Afterwards, its name may be that of another file."""
    def named_and_replaced(*names, **directories):
        link(*names, **directories)
        output.rename(planted.directory / "moved.parquet")
        planted.link("t.parquet")

    link, output = os.link, planted.directory / "t.parquet"
    spool = Spool(output, TRACE_SCHEMA, {}, owner=(NOBODY, NOBODY))
    spool.append(columns())
    monkeypatch.setattr(os, "link", named_and_replaced)
    spool.finish({})
    assert (planted.directory / "moved.parquet").stat().st_uid == NOBODY


def test_an_import_goes_through_no_link(planted, tmp_path):
    recording = Recording().io(800, 1_000, 2_500, 9_000).write(tmp_path / "sda.blktrace.0")
    planted.link("runs", planted.private)
    with pytest.raises(SafetyError):
        import_recording([recording], planted.directory / "runs/t.parquet")
    output = planted.link("t.parquet")
    planted.link(f".t.parquet.{PID}.tmp")
    assert open_trace(import_recording([recording], output, force=True).path).rows == 1
    assert not output.is_symlink()


def test_the_directory_of_a_run_is_no_link_of_others(planted):
    planted.link("run", planted.private)
    (planted.private / "empty").mkdir()
    planted.link("empty", planted.private / "empty")
    for name in ("run/new", "empty"):
        with pytest.raises(SafetyError):
            RunDirectory(planted.directory / name, False).check()
    (planted.private / "empty").rmdir()


def test_a_replay_over_an_older_run_follows_no_link(blkreel, planted, tmp_path):
    trace = write_trace(tmp_path / "t.parquet", seconds=1)
    run = planted.directory / "run"
    replay = ["replay", trace, "--on", "nil:8GiB,clock=virtual", "--force", "-o", run]
    blkreel(*replay, code=(0, 3))
    give(run)
    for name in ("records.parquet", "telemetry.parquet"):
        (run / name).rename(run / f"{name}.old")
    shutil.copy(run / "records.parquet.old", run / "records.parquet")
    planted.link("run/telemetry.parquet")
    planted.link("run/.telemetry.parquet.spool")
    blkreel(*replay, code=(0, 3))
    assert not (run / "telemetry.parquet").is_symlink()
    planted.link("link", planted.private)
    for output in ("link/run", "link"):
        refused = blkreel(*replay[:-1], planted.directory / output, check=False)
        assert refused.returncode in ((5,) if output == "link/run" else (1, 5)), refused.stderr


def test_the_commands_that_write_pages_and_tests_refuse_a_link_of_others(blkreel, planted, tmp_path):
    run = write_run(tmp_path / "run", seconds=1)
    planted.link("link", planted.private)
    output = planted.directory / "link"
    for arguments in (["report", run, "-o", output / "run.html"],
                      ["report", run, "--format", "csv", "-o", output / "tables"],
                      ["recover", output / "t.parquet"],
                      ["test", "depth-sweep-read", "--quick", "--fit", "--on", "nil:64GiB,clock=virtual",
                       "-o", output / "test"]):
        refused = blkreel(*arguments, check=False)
        assert refused.returncode == (1 if arguments[0] == "recover" else 5), (arguments, refused.stderr)
        planted.assert_untouched()


def test_telemetry_goes_through_no_link(planted):
    planted.link(".telemetry.parquet.spool")
    spool = TelemetrySpool(planted.directory)
    spool.sensor("power_w", "W", "meter")
    spool.close()
    recover_telemetry(planted.directory)
    assert (planted.directory / "telemetry.parquet").exists()
    planted.link(".telemetry.parquet.spool")
    with pytest.raises(SafetyError, match="is a link"):
        recover_telemetry(planted.directory)


def test_the_memory_of_simulated_drives_and_of_the_calibration_goes_through_no_link(planted, monkeypatch):
    state = planted.directory / "state"
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(state))
    drive = parse("nil:64MiB,clock=virtual")
    file = simulated._file(drive)
    for path in (file, file.with_suffix(f".{PID}.tmp"), state / "calibration.json", state / "calibration.tmp"):
        planted.link(path.relative_to(planted.directory))
    planted.link(file.with_suffix(".lock").relative_to(planted.directory))
    simulated.save(drive, simulated.fresh(drive))
    calibrate.remember({"faithful_iops": 1})
    with pytest.raises(SafetyError, match="is a link"), simulated._claimed(drive):
        pass


def test_the_state_of_a_drive_goes_through_no_link(planted, tmp_path, monkeypatch):
    (tmp_path / "image").write_bytes(bytes(1 << 20))
    target = find_target(tmp_path / "image")
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(planted.directory / "state"))
    files = [drive_state.file_of(target), drive_state.progress_file(target)]
    for path in {*files, *(path.with_suffix(f".{PID}.tmp") for path in files)}:
        planted.link(path.relative_to(planted.directory))
    drive_state.save(target, drive_state.DriveState(name="full"))
    assert drive_state.load(target).name == "full"
    drive_state.about_to_write(target, 4096, 0)
    assert not files[1].is_symlink()
    planted.link("link", planted.private)
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(planted.directory / "link/state"))
    with pytest.raises(SafetyError):
        drive_state.save(target, drive_state.DriveState(name="full"))


def test_what_stays_is_what_the_layout_does_not_name(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("mine")
    for name in ("a", "b", "inner/a", "inner/mine", "whole/a"):
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).write_text("")
    (tmp_path / "top/inner-2").symlink_to(outside)
    (tmp_path / "top/c").mkdir()
    safe_files.clear_directory(tmp_path / "top", {"a": None, "c": None, "inner*": {"a": None}, "whole": {"*": None}})
    left = sorted(str(path.relative_to(tmp_path / "top")) for path in (tmp_path / "top").rglob("*"))
    assert left == ["b", "c", "inner", "inner-2", "inner/mine"]
    assert (outside / "a").read_text() == "mine"
    assert safe_files.remove_directory(tmp_path / "none", {})
    assert not safe_files.remove_directory(tmp_path / "top/inner-2", {"a": None})
    assert (outside / "a").exists()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["pipe", "link to a pipe", "/dev/null"])
def test_what_is_no_file_is_not_replaced_by_one(tmp_path, name, force):
    """As root, a trace would take the place of /dev/null for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to a pipe").symlink_to("pipe")
    with pytest.raises(UsageError, match="not a file that can be replaced; name another output"):
        safe_files.write_file(tmp_path / name, b"", force=force)
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode) and (tmp_path / "link to a pipe").is_symlink()
    assert stat.S_ISCHR(Path("/dev/null").lstat().st_mode)


ON_VIRTUAL = ("--on", "nil:1GiB,clock=virtual")
# Each command that writes an output: words of a call that needs no root.
WITH_OUTPUT = {
    "import": ("data.csv", "--columns", "time=t:ns,op=op:R=read/W=write,offset=at:bytes,length=n:bytes"),
    "export": ("sample:app-start", "--format", "csv"), "slice": ("sample:app-start", "--to", "1s"),
    "concat": ("sample:app-start", "sample:update-unpack"), "merge": ("sample:app-start", "sample:update-unpack"),
    "anonymize": ("sample:app-start",), "model": ("sample:app-start",), "replay": ("sample:app-start", *ON_VIRTUAL),
    "test": ("qd1", "--quick", "--fit", *ON_VIRTUAL), "report": ("sample:app-start",), "compare": ("run", "run"),
    "results history": ("app-start", "--catalog", "catalog"), "results site": ("--catalog", "catalog"),
    "model-drive": ("run",), "check": ("sample:app-start", "--repair"), "demo": ("--quick",)}


def test_no_command_replaces_a_pipe_or_suggests_to(tmp_path, blkreel):
    """`capture` needs root: tests/kernel/capture/test_refusals.py."""
    assert {*WITH_OUTPUT, "capture"} == {name for name in all_commands() if any(
        "--output" in option.opts for option in find_command(name).params)}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "data.csv").write_text("t,op,at,n\n0,R,0,4096\n")
    blkreel("replay", "sample:app-start", *ON_VIRTUAL, "-o", "run", cwd=tmp_path, check=False)
    blkreel("results", "add", "run", "--catalog", "catalog", cwd=tmp_path)
    for name, words in WITH_OUTPUT.items():
        result = blkreel(*name.split(), *words, "-o", "pipe", check=False, cwd=tmp_path)
        assert result.returncode in (1, 2) and re.search("pipe (is a|exists and is not|exists, and is not)",
                                                         result.stderr), (name, result.stderr)
        assert "--force" not in result.stderr, name
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a/b", "a\0", "a\udc80", None, 5])
def test_a_name_from_a_file_leads_nowhere_else(name):
    with pytest.raises(ValueError, match="is not a valid name of a file"):
        safe_files.file_name(name)


def test_a_link_planted_where_a_file_was_just_removed_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "sentinel").write_text("root's")
    (tmp_path / "name").touch()
    unlink = os.unlink

    def plant(name, **options):
        unlink(name, **options)
        (tmp_path / "name").symlink_to(tmp_path / "sentinel")

    monkeypatch.setattr(os, "unlink", plant)
    with pytest.raises(FileExistsError):
        safe_files.create(tmp_path / "name")
    assert (tmp_path / "sentinel").read_text() == "root's"


def test_a_plain_file_is_read_through_no_link(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    assert safe_files.read_plain(tmp_path / safe_files.file_name("file")) == b"content"
    for name in ("link", "fifo"):
        with pytest.raises(OSError):
            safe_files.read_plain(tmp_path / name)


def test_a_name_that_does_not_exist_on_a_read_only_file_system_needs_no_removal(tmp_path, monkeypatch):
    def read_only(name, *, dir_fd):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    monkeypatch.setattr(os, "unlink", read_only)
    safe_files.unlink(tmp_path / "missing")
    (tmp_path / "there").touch()
    with pytest.raises(OSError, match="Read-only"):
        safe_files.unlink(tmp_path / "there")


@pytest.mark.parametrize("command", [["slice", "--op", "read"], ["export", "--format", "csv"], ["report"], ["model"]])
def test_an_output_that_cannot_be_written_is_named(tmp_path, blkreel, command):
    """`model` named its temporary file, and no remedy."""
    trace = new_trace(tmp_path / "t.parquet", {}, submit_ns=[0, 9], latency_ns=5, offset_bytes=[0, 4096],
                      length_bytes=4096)
    result = blkreel(command[0], trace, *command[1:], "-o", "/proc/self/x", check=False)
    assert result.returncode == 1 and "cannot write /proc/self/x: No such file" in result.stderr
    assert "name another output" in result.stderr
