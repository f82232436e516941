"""A capture that cannot start prints the reason and the remedy, and leaves nothing behind."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from capture_sources import assert_recorded, skip_unless_it_runs
from spooled import rows_on_disk
from waiting import wait_until

from blkreel.capture.helper import HELPER
from blkreel.capture.sources import blktrace
from blkreel.common.errors import BlkreelError
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel


@pytest.fixture
def refused(blkreel, tmp_path):
    """Run a capture that must fail with `code`; its one line of error. Nothing may be left in the directory."""
    def run(*arguments, code, trace=tmp_path / "t.parquet", **options):
        before = sorted(tmp_path.iterdir())
        result = blkreel("capture", "-o", trace, *arguments, code=code, **options)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert sorted(tmp_path.iterdir()) == before
        return result.stderr.strip().splitlines()[-1]

    return run


def test_a_limit_of_threads_is_no_full_disk(blkreel, loop_drive, program, tmp_path):
    """The helper starts its threads as nobody, who may have as many as a container or a service allows."""
    result = subprocess.run([program("prlimit", "util-linux"), "--nproc=1", blkreel.command, "capture", loop_drive(),
                             "-o", tmp_path / "t.parquet", "--for", "1s"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "Resource temporarily unavailable; raise the limit of threads: ulimit -u" in result.stderr


def test_a_limit_of_descriptors_is_no_refusal_of_the_kernel():
    result = subprocess.run(["/bin/sh", "-c", f"ulimit -n 20; exec {HELPER} --probe --programs auto"],
                            capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (
        1, "cannot load the BPF programs: Too many open files; raise the limit: ulimit -n 4096\n")


def test_no_such_device(refused):
    assert "no such device: /dev/blkreel0" in refused("/dev/blkreel0", code=2)


def test_a_command_without_its_dashes(refused):
    assert "put -- before it" in refused("ls", code=2)


def test_a_file_is_not_a_device(refused, tmp_path):
    (tmp_path / "image").touch()
    assert "is a file" in refused(tmp_path / "image", code=2)


def test_a_directory_in_memory(refused):
    assert "not on a drive" in refused("--path", "/dev/shm", code=2)


def test_nothing_named(refused):
    assert "name a device, --path DIR or a command" in refused(code=2)


def test_an_unknown_unit(refused):
    error = refused("--for", "60", "--path", "/", code=2)
    assert "no unit" in error


def test_no_such_command(refused, loop_drive):
    assert "no such command: blkreel-nothing" in refused(loop_drive(), "--", "blkreel-nothing", code=2)


def test_a_command_that_cannot_be_executed(refused, loop_drive, tmp_path):
    (tmp_path / "broken").write_bytes(b"\0\0\0\0")
    assert "not executable: " in refused(loop_drive(), "--", tmp_path / "broken", code=2)
    (tmp_path / "broken").chmod(0o755)
    assert "cannot run" in refused(loop_drive(), "--", tmp_path / "broken", code=2)


def test_no_such_user(refused, loop_drive):
    assert "no such user: nobody-at-all" in refused(loop_drive(), "--user", "nobody-at-all", "--", "true", code=2)


def test_an_output_that_exists_is_kept(blkreel, loop_drive, tmp_path):
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    trace.write_text("precious")
    result = blkreel("capture", drive, "-o", trace, "--", "touch", tmp_path / "started", check=False)
    assert result.returncode == 1 and "exists" in result.stderr and "--force" in result.stderr
    assert trace.read_text() == "precious"
    assert not (tmp_path / "started").exists(), "the command must not have run for nothing"
    blkreel("capture", drive, "-o", trace, "--force", "--", "true")
    assert open_trace(trace).rows == 0


def no_privilege(words, blkreel, drive, *options, remedy):
    directory = Path(tempfile.mkdtemp(prefix="blkreel-test-"))
    try:
        directory.chmod(0o777)
        result = subprocess.run([*words, blkreel.command, "capture", drive, *options, "-o", directory / "t.parquet",
                                 "--", "true"], capture_output=True, text=True,
                                env={**os.environ, "PATH": blkreel.environment["PATH"]})
        assert result.returncode == 1
        assert "no permission" in result.stderr and remedy in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert list(directory.iterdir()) == []
    finally:
        shutil.rmtree(directory)


def test_an_ordinary_user(loop_drive, blkreel, as_nobody):
    no_privilege(as_nobody, blkreel, loop_drive(), remedy=f"run as root: sudo {blkreel.command} capture")


def test_root_without_capabilities(loop_drive, blkreel):
    """As in a container. Root may still write to tracefs, so ftrace would do."""
    no_privilege(["setpriv", "--bounding-set=-all", "--inh-caps=-all"], blkreel, loop_drive(), "--source", "bpf",
                 remedy=f"or record without BPF: {blkreel.command} capture --source ftrace")


def test_a_full_disk_ends_the_capture_with_what_it_has(blkreel, loop_drive, tiny_filesystem):
    drive, trace, end = loop_drive(), tiny_filesystem / "t.parquet", tiny_filesystem.parent / "end"
    # Room for two of the largest blocks, with what is kept free beside them, however the rows fall into blocks.
    subprocess.run(["mount", "-o", "remount,size=4m", tiny_filesystem], check=True)
    # The command is still there when the helper has ended, however fast the reads are.
    script = (f"dd if={drive} of=/dev/null bs=512 count=60000 iflag=direct status=none; "
              f"while pgrep -P $PPID -x blkreel-capture >/dev/null; do sleep 0.05; done; touch {end}")
    result = blkreel("capture", drive, "-o", trace, "--json", "--", "sh", "-c", script, code=3)
    assert "No space left" in result.stderr and "the command goes on" in result.stderr
    assert end.exists()
    summary = json.loads(result.stdout)
    assert 5_000 < summary["rows"] < 60_000
    kept = open_trace(trace)
    offsets = kept.table(["offset_bytes"])["offset_bytes"].to_pylist()
    assert offsets == [512 * number for number in range(summary["rows"])], "the beginning, without a gap"
    assert "No space left" in kept.metadata["import_warnings"][0]
    assert list(tiny_filesystem.iterdir()) == [trace]
    checked = blkreel("check", trace, check=False)
    assert checked.returncode == 3 and "ended early" in checked.stdout + checked.stderr


@pytest.mark.parametrize("source", ["ftrace", "bpftrace"])
def test_a_full_disk_ends_a_capture_of_other_sources(blkreel, loop_drive, tracer, tiny_filesystem, source):
    """Whatever of the events comes after the end of their decoder."""
    drive, trace = loop_drive(), tiny_filesystem / "t.parquet"
    skip_unless_it_runs(source, drive)
    subprocess.run(["mount", "-o", "remount,size=3m", tiny_filesystem], check=True)
    result = blkreel("capture", drive, "--source", source, "-o", trace, "--", "dd", f"if={drive}", "of=/dev/null",
                     "bs=512", "count=100000", "iflag=direct", "status=none", code=3)
    assert "No space left" in result.stderr and "page cache" not in result.stderr
    assert "No space left" in open_trace(trace).metadata["import_warnings"][0]
    assert list(tiny_filesystem.iterdir()) == [trace]


def test_no_space_for_the_trace_itself(blkreel, started, loop_drive, tiny_filesystem, tmp_path):
    """Somebody else has taken even what was kept free for it."""
    drive, trace = loop_drive(), tiny_filesystem / "t.parquet"
    script = (f"dd if={drive} of=/dev/null bs=512 count=2000 iflag=direct status=none; cd {tiny_filesystem};"
              f" until [ -e {tmp_path}/recorded ]; do sleep 0.05; done;"
              " : > .t.parquet.spool/reserve; cat /dev/zero > fill 2>&-; true")
    process = started(drive, "--", "sh", "-c", script, output=trace)
    wait_until(lambda: len(rows_on_disk(trace)) == 2000, process)
    (tmp_path / "recorded").touch()
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "no space left" in stderr and "df -h" in stderr and f"blkreel recover {trace}" in stderr
    assert "Traceback" not in stderr and not trace.exists()
    (tiny_filesystem / "fill").unlink()
    blkreel("recover", trace)
    assert open_trace(trace).rows == 2000
    assert list(tiny_filesystem.iterdir()) == [trace]


def test_the_trace_on_the_drive_that_it_records_is_noticed(blkreel, loop_drive, tmp_path):
    drive, mount = loop_drive(64 << 20), tmp_path / "fs"
    subprocess.run(["mkfs.ext4", "-q", drive], check=True)
    mount.mkdir()
    subprocess.run(["mount", drive, mount], check=True)
    try:
        result = blkreel("capture", "-o", mount / "t.parquet", "--", "true", cwd=mount)
        assert "writing it becomes part of the trace" in result.stderr
        assert open_trace(mount / "t.parquet").metadata["devices"][0]["path"] == drive
    finally:
        subprocess.run(["umount", mount], check=True)


def test_under_sudo_the_command_and_the_trace_are_the_callers(blkreel, loop_drive):
    drive = loop_drive()
    directory = Path(tempfile.mkdtemp(prefix="blkreel-test-"))
    directory.chmod(0o777)
    sudo = {"SUDO_UID": "65534", "SUDO_GID": "65534"}
    try:
        script = f"id -u > {directory}/uid; echo $HOME >> {directory}/uid"
        blkreel("capture", drive, "-o", directory / "t.parquet", "--", "sh", "-c", script, env=sudo)
        assert (directory / "uid").read_text().split()[0] == "65534"
        assert (directory / "uid").read_text().split()[1] != os.environ.get("HOME")
        assert (directory / "t.parquet").stat().st_uid == 65534
        (directory / "uid").unlink()
        blkreel("capture", drive, "-o", directory / "t.parquet", "--force", "--user", "root",
                "--", "sh", "-c", script, env=sudo)
        assert (directory / "uid").read_text().split()[0] == "0"
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("source", ["bpf", "blktrace"])
def test_links_planted_by_others_lead_a_capture_nowhere(blkreel, loop_drive, tmp_path, source):
    if source == "blktrace":
        try:
            blktrace.probe([])
        except BlkreelError as error:
            pytest.skip(str(error))
    drive, planter, caller = loop_drive(), 65533, 65534
    private, shared = tmp_path / "private", tmp_path / "shared"
    for directory in (private, shared):
        directory.mkdir()
    shared.chmod(0o777)
    sentinel = private / "sentinel"
    sentinel.write_text("precious")
    sentinel.chmod(0o600)

    def plant(name, target):
        (shared / name).symlink_to(target)
        os.chown(shared / name, planter, planter, follow_symlinks=False)

    def capture(output):
        return blkreel("capture", drive, "--source", source, "-o", shared / output, "--force", "--",
                       "dd", f"if={drive}", "of=/dev/null", "bs=4096", "count=4", "iflag=direct", check=False,
                       env={"SUDO_UID": str(caller), "SUDO_GID": str(caller)}, cwd="/")

    os.chown(drive, caller, -1)  # so that the command may read it
    try:
        plant("link", private)
        refused = capture("link/t.parquet")
        assert refused.returncode == 5 and "symbolic link 'link'" in refused.stderr
        plant(".t.parquet.spool", private)
        refused = capture("t.parquet")
        assert refused.returncode == 1 and ".t.parquet.spool is a link" in refused.stderr
        (shared / ".t.parquet.spool").unlink()
        plant("t.parquet", sentinel)
        done = capture("t.parquet")
        assert_recorded(done.returncode, done.stderr)
    finally:
        os.chown(drive, 0, -1)
    assert open_trace(shared / "t.parquet").rows == 4
    assert (shared / "t.parquet").lstat().st_uid == caller
    assert {path.name for path in shared.iterdir()} == {"link", "t.parquet"}
    status = sentinel.stat()
    assert (status.st_uid, status.st_mode & 0o777, sentinel.read_text()) == (0, 0o600, "precious")
    assert [path.name for path in private.iterdir()] == ["sentinel"]


def test_a_pipe_is_not_replaced(blkreel, loop_drive, tmp_path):
    """Nor does the message suggest to; of the other commands, tests/unit/traces/hostile/test_safe_files.py."""
    os.mkfifo(tmp_path / "pipe")
    for force in ([], ["--force"]):
        refused = blkreel("capture", loop_drive(), "-o", tmp_path / "pipe", *force, "--", "true", check=False)
        assert refused.returncode == 2 and "is a pipe" in refused.stderr and "--force" not in refused.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_a_directory_is_refused_before_the_command_runs(refused, loop_drive, tmp_path):
    """At the end no file could take its place, and a recovery would look for a run in it."""
    (tmp_path / "traces").mkdir()
    for force in ([], ["--force"]):
        assert "is a directory" in refused(loop_drive(), *force, "--", "touch", tmp_path / "ran", code=2,
                                           trace=tmp_path / "traces")
