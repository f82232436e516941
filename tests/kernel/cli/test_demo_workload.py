"""The demo's workload: a torrent that arrives whole, and launches that read from the drive, not from memory."""

import hashlib
import json
import subprocess
import sys

import pytest

from blkreel.cli.demo import drives as demo_drives
from blkreel.cli.demo import source as demo_source
from blkreel.cli.demo import torrent as demo_torrent
from blkreel.cli.demo import workload as demo_workload
from blkreel.cli.demo import workspace as demo_workspace

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("require_root")]

MIB = 1 << 20


@pytest.fixture
def workspace(tmp_path, program):
    for name, package in (("aria2c", "aria2"), ("mktorrent", None), ("opentracker", None)):
        program(name, package)
    with demo_workspace.workspace_below(tmp_path) as workspace:
        yield workspace


@pytest.fixture
def seeded(workspace):
    directory = workspace.path / "torrent"
    directory.mkdir()
    demo_torrent.make_payload(directory / "download.bin", 24 * MIB)
    with demo_torrent.swarm(directory / "download.bin", directory, workspace.environment) as seeded:
        yield seeded


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_download_completes_and_is_equal(workspace, seeded):
    target = workspace.path / "downloads"
    target.mkdir()
    client = demo_torrent.start_download(seeded.torrent, target, 1 << 30, workspace.path / "client.log")
    assert client.wait(timeout=60) == 0, demo_torrent.last_words(workspace.path / "client.log")
    assert seeded.payload.stat().st_size == 24 * MIB
    assert sha256(target / "download.bin") == sha256(seeded.payload)


def test_the_swarm_ends_with_its_context(workspace):
    directory = workspace.path / "torrent"
    directory.mkdir()
    demo_torrent.make_payload(directory / "download.bin", MIB)
    with demo_torrent.swarm(directory / "download.bin", directory, workspace.environment):
        assert len(demo_workspace._processes(workspace)) == 2, "a tracker and a seeder"
    assert not demo_workspace._processes(workspace)


@pytest.fixture
def mount(workspace):
    drive = demo_drives.make_drive(workspace, workspace.path / "source.img", 768 * MIB, allocate=True)
    mount = demo_drives.make_file_system(workspace, drive)
    demo_source.copy_application(mount / demo_workload.LIBRARIES)
    demo_source.make_dataset(mount / demo_workload.DATASET, 16 * MIB)
    demo_drives.remount(workspace, drive, mount)
    return mount


def test_launches_read_from_the_drive_while_the_download_writes_to_it(workspace, mount, seeded):
    before = demo_workload.drive_bytes(mount)
    result = workspace.path / "workload.json"
    # 24 MiB at 2 MiB/s outlive two launches on any machine this test ends on.
    command = [sys.executable, "-m", "blkreel.cli.demo.workload", "--drive", mount, "--torrent", seeded.torrent,
               "--bytes-per-s", 2 * MIB, "--pause-s", "0.5", "--result", result,
               "--launch", "dataframes", "--launch", "dataframes", "--launch", "scan"]
    outcome = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200,
                             env=workspace.environment)
    assert outcome.returncode == 0, outcome.stderr
    after = demo_workload.drive_bytes(mount)
    launches = json.loads(result.read_text())["launches"]
    assert [launch["name"] for launch in launches] == ["dataframes", "dataframes", "scan"]
    # The second launch of the same application is as cold as the first.
    for launch in launches:
        assert launch["read_bytes"] > 16 * MIB, launch
    assert after["read"] - before["read"] >= sum(launch["read_bytes"] for launch in launches)
    # Written to the drive itself, within seconds: not waiting in the page cache.
    assert after["written"] - before["written"] >= 8 * MIB
    assert not [line for line in demo_workspace._processes(workspace) if is_download(line, mount)], "the client goes on"


def is_download(process, mount):
    try:
        return str(mount).encode() in open(f"/proc/{process}/cmdline", "rb").read()
    except OSError:
        return False


def test_a_launch_that_fails_ends_the_workload_with_its_words(workspace, mount, seeded):
    (mount / demo_workload.LIBRARIES / "pandas/__init__.py").write_text("raise ImportError('broken on purpose')")
    result = workspace.path / "workload.json"
    command = [sys.executable, "-m", "blkreel.cli.demo.workload", "--drive", mount, "--torrent", seeded.torrent,
               "--bytes-per-s", 16 * MIB, "--pause-s", "0", "--result", result, "--launch", "dataframes"]
    outcome = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200,
                             env=workspace.environment)
    assert outcome.returncode == 1
    assert "broken on purpose" in outcome.stderr
    assert not result.exists()
