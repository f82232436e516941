"""The demo gives everything back: after an error, after signals, and after a demo that could not (kill -9)."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from blkreel.cli.demo import drives as demo_drives
from blkreel.cli.demo import workspace as demo_workspace
from blkreel.common.errors import BlkreelError

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("require_root")]

SIZE_BYTES = 64 << 20


@pytest.fixture
def work(tmp_path):
    yield tmp_path
    if left_below(tmp_path):  # a test that failed must not cost the machine a loop device
        demo_workspace.clean_up(demo_workspace.Workspace(tmp_path / demo_workspace.WORKSPACE_NAME))


def left_below(work):
    """What the kernel still knows below a directory, found otherwise than the demo finds it."""
    workspace = str(work / demo_workspace.WORKSPACE_NAME)
    return [line for command in (["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"],
                                 ["findmnt", "--list", "--noheadings", "--output", "TARGET"],
                                 ["pgrep", "--list-full", "--full", f"sh -c.*{workspace}"])
            for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
            if workspace in line]


def make_all(workspace):
    source = demo_drives.make_drive(workspace, workspace.path / "source.img", SIZE_BYTES)
    mount = demo_drives.make_file_system(workspace, source)
    demo_drives.make_drive(workspace, workspace.path / "candidate.img", SIZE_BYTES)
    # Something that keeps the file system busy, as a client that was not ended would.
    subprocess.Popen(["sh", "-c", f"exec 3>'{mount}/open'; while :; do echo >&3; sleep 0.1; done"],
                     env=workspace.environment, start_new_session=True)
    end = time.monotonic() + 20
    while not (mount / "open").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return source, mount


def test_drives_are_what_they_say(work):
    with demo_workspace.workspace_below(work) as workspace:
        source, mount = make_all(workspace)
        assert source.device.is_block_device()
        assert int((Path("/sys/block") / source.device.name / "size").read_text()) * 512 == SIZE_BYTES
        assert source.image.stat().st_blocks * 512 >= SIZE_BYTES, "the source is not allocated"
        assert os.path.ismount(mount)
        assert (Path("/sys/block") / source.device.name / "loop/dio").read_text().strip() == str(int(source.direct))
        assert len(left_below(work)) >= 4, "the test does not see what there is"
    assert not left_below(work)
    assert not any(work.iterdir())


def test_after_an_error(work):
    with pytest.raises(ZeroDivisionError), demo_workspace.workspace_below(work) as workspace:
        make_all(workspace)
        raise ZeroDivisionError
    assert not left_below(work)
    assert not any(work.iterdir())


def test_blanks_in_the_path(work):
    work = work / "my works"
    work.mkdir()
    with demo_workspace.workspace_below(work) as workspace:
        _, mount = make_all(workspace)
        assert os.path.ismount(mount)
    assert not any(work.iterdir())


def test_mounted_again_nothing_is_cached(work):
    """Also while another mount namespace, as of a container, holds the file system."""
    with demo_workspace.workspace_below(work) as workspace:
        drive = demo_drives.make_drive(workspace, workspace.path / "source.img", SIZE_BYTES)
        mount = demo_drives.make_file_system(workspace, drive)
        (mount / "directory").mkdir()
        (mount / "directory/file").write_bytes(os.urandom(8 << 20))
        holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", "echo; read line"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, env=workspace.environment)
        try:
            assert holder.stdout.readline()
            demo_drives.mount_again(workspace, drive.device, mount)
            counts = Path("/sys/block", drive.device.name, "stat")
            before = int(counts.read_text().split()[2])
            (mount / "directory/file").read_bytes()
            assert int(counts.read_text().split()[2]) - before >= (8 << 20) // 512
        finally:
            holder.communicate(b"\n")


CHILD = """
import sys, time
sys.path.insert(0, {tests!r})
from test_demo_drives import make_all
from blkreel.cli.demo import workspace as demo_workspace
from pathlib import Path
with demo_workspace.workspace_below(Path({work!r})) as workspace:
    make_all(workspace)
    print("made", flush=True)
    time.sleep(60)
"""


def start_child(work):
    code = CHILD.format(tests=str(Path(__file__).parent), work=str(work))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # not as under nohup
    assert child.stdout.readline() == "made\n"
    assert left_below(work)
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_a_signal(work, number):
    child = start_child(work)
    child.send_signal(number)
    # Impatient users press Ctrl-C again.
    with suppress(ProcessLookupError):
        child.send_signal(number)
    assert child.wait(timeout=300) != 0
    assert not left_below(work)
    assert not any(work.iterdir())


def test_the_next_demo_removes_what_a_killed_one_left(work, capfd):
    child = start_child(work)
    child.kill()
    child.wait()
    assert len(left_below(work)) >= 4, "kill -9 should leave something for this test to mean anything"
    with demo_workspace.workspace_below(work) as workspace:
        assert not left_below(work)
        assert [entry.name for entry in workspace.path.iterdir()] == [demo_workspace.MARK]
    assert "interrupted demo" in capfd.readouterr().err
    assert not any(work.iterdir())


def test_a_program_that_fails_is_an_error_with_its_words(work):
    with demo_workspace.workspace_below(work) as workspace, \
            pytest.raises(BlkreelError, match="mount .* failed: .*nothing"):
        workspace.run("mount", workspace.path / "nothing", workspace.path)
