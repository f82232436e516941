"""The torrent of the samples: it arrives whole, and its processes end with it."""

import hashlib

import pytest
from tree import TREE

from blkreel.cli.demo import workspace as demo_workspace

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("require_root")]

MIB = 1 << 20


@pytest.fixture
def swarms(monkeypatch):
    monkeypatch.syspath_prepend(TREE / "samples")
    import swarm
    return swarm


@pytest.fixture
def workspace(tmp_path, program):
    for name, package in (("aria2c", "aria2"), ("mktorrent", None), ("opentracker", None)):
        program(name, package)
    with demo_workspace.workspace_below(tmp_path) as workspace:
        yield workspace


@pytest.fixture
def seeded(workspace, swarms):
    directory = workspace.path / "torrent"
    directory.mkdir()
    swarms.make_payload(directory / "download.bin", 24 * MIB)
    with swarms.swarm(directory / "download.bin", directory, workspace.environment) as seeded:
        yield seeded


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_download_completes_and_is_equal(workspace, seeded, swarms):
    target = workspace.path / "downloads"
    target.mkdir()
    client = swarms.start_download(seeded.torrent, target, 1 << 30, workspace.path / "client.log")
    assert client.wait(timeout=60) == 0, swarms.last_words(workspace.path / "client.log")
    assert seeded.payload.stat().st_size == 24 * MIB
    assert sha256(target / "download.bin") == sha256(seeded.payload)


def test_the_swarm_ends_with_its_context(workspace, swarms):
    directory = workspace.path / "torrent"
    directory.mkdir()
    swarms.make_payload(directory / "download.bin", MIB)
    with swarms.swarm(directory / "download.bin", directory, workspace.environment):
        assert len(demo_workspace._processes(workspace)) == 2, "a tracker and a seeder"
    assert not demo_workspace._processes(workspace)
