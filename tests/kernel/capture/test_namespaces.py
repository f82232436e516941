"""A capture in namespaces: refused before the command starts where its trace would be wrong."""

import subprocess

import pytest

from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

PID = ["unshare", "--pid", "--fork", "--mount-proc"]
TIME = ["unshare", "--time", "--monotonic", "86400"]


@pytest.fixture
def inside(blkreel, require_root):
    """inside(unshare, "capture", ...) runs the command in new namespaces, or skips."""
    def run(unshare, *words):
        if subprocess.run([*unshare, "true"], capture_output=True).returncode:
            pytest.skip("needs the namespace in the kernel, and util-linux 2.36")
        return subprocess.run([*unshare, blkreel.command, *map(str, words)], env=blkreel.environment,
                              capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize(("unshare", "message", "remedy"), [
    (PID, "PID namespace", "--pid=host"), (TIME, "86400 s from that of the kernel", "nsenter --time")])
def test_a_command_is_not_started(inside, loop_drive, tmp_path, unshare, message, remedy):
    result = inside(unshare, "capture", loop_drive(), "--workload-only", "-o", tmp_path / "t.parquet", "--",
                    "touch", tmp_path / "ran")
    assert result.returncode == 1 and message in result.stderr and remedy in result.stderr, result.stderr
    assert list(tmp_path.glob("*t.parquet*")) == [] and not (tmp_path / "ran").exists()


def test_the_live_view_needs_the_clock_of_the_kernel(inside, loop_drive):
    result = inside(TIME, "top", loop_drive(), "--once")
    assert result.returncode == 1 and "86400 s" in result.stderr


def test_a_whole_drive_is_recorded_in_a_pid_namespace(inside, loop_drive, tmp_path):
    drive = loop_drive()
    reader = subprocess.Popen(["sh", "-c", f"while true; do dd if={drive} of=/dev/null bs=64k count=4 iflag=direct "
                               "status=none; sleep 0.1; done"])
    try:
        result = inside(PID, "capture", drive, "--for", "2s", "-o", tmp_path / "t.parquet")
    finally:
        reader.kill()
        reader.wait()
    assert result.returncode == 0, result.stderr
    trace = open_trace(tmp_path / "t.parquet")
    assert trace.rows > 0
    assert {entry["comm"] for entry in trace.metadata["threads"].values()} == {"dd"}
