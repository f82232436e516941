"""The kernel's counters of a drive."""

from types import SimpleNamespace

import pytest

from blkreel.replay.drive import external_io
from blkreel.replay.drive.external_io import DiskCount, array_use, arrays_at_work, beside, count_of_disk


@pytest.fixture
def block(tmp_path):
    """block(name, reads, sectors) adds a disk to a directory like /sys/class/block."""
    def add(name, reads, sectors):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stat").write_text(f"{reads} 0 {sectors} 4 {reads} 0 {sectors} 0 0 8 4 0 0 0 0 0 0\n")
        return tmp_path / name

    return add


def test_a_multipath_head_counts_what_goes_through_its_paths(block, tmp_path):
    """As Linux 6.1 has them: the head itself counts nothing."""
    head = block("nvme4n1", 0, 0)
    block("nvme4c3n1", 3, 24)
    block("nvme4c4n1", 5, 40)
    block("nvme4c3n11", 7, 7)
    block("nvme14c3n1", 9, 9)
    assert count_of_disk(head, tmp_path) == DiskCount(8, 64 * 512, 8, 64 * 512)


def test_a_drive_without_paths_has_its_own_counters(block, tmp_path):
    assert count_of_disk(block("nvme4n11", 2, 16), tmp_path) == DiskCount(2, 16 * 512, 2, 16 * 512)
    assert count_of_disk(tmp_path / "sda", tmp_path) is None


def test_what_shares_a_drive_with_a_volume(tmp_path):
    """Their I/O is external: a replay on a logical volume beside another one counted none, and was valid."""
    disk = tmp_path / "sda"
    for name in ("sda1", "sda2", "sda3"):
        (disk / name / "holders").mkdir(parents=True)
        (disk / name / "partition").touch()

    def volume(name, *below):
        for block in below:
            for at, folder, entry in ((tmp_path / name, "slaves", block), (block, "holders", tmp_path / name)):
                (at / folder).mkdir(parents=True, exist_ok=True)
                (at / folder / entry.name).symlink_to(entry)
        return tmp_path / name

    pool = volume("dm-2", volume("dm-0", disk / "sda3"), volume("dm-1", disk / "sda3"))
    thin, other_thin, home = volume("dm-3", pool), volume("dm-4", pool), volume("dm-5", disk / "sda3")
    volume("dm-6", home)  # its I/O is in the counters of that below it
    assert beside(thin) == [other_thin, home, disk / "sda1", disk / "sda2"]
    assert beside(thin, [other_thin]) == [home, disk / "sda1", disk / "sda2"], "in one run"
    assert beside(disk) == []


@pytest.mark.parametrize(("state", "action", "missing"), [
    ("raid1 2 AA 131072/131072 idle 0 0 -", "", 0), ("raid1 2 aa 4096/131072 resync 0 0 -", "resync", 0),
    ("raid6_zr 4 AADA 131072/131072 recover 0 0 -", "recover", 1), ("", "", 0)])
def test_the_state_of_an_array_of_lvm(tmp_path, monkeypatch, state, action, missing):
    (tmp_path / "dm-4/dm").mkdir(parents=True)
    monkeypatch.setattr(external_io, "dm_targets", lambda number, state: [(0, 131072, "raid", text)])
    text = state
    assert array_use(tmp_path / "dm-4") == {"name": "dm-4", "action": action, "missing_drives": missing}


def test_an_array_that_copies_or_lacks_drives(tmp_path):
    """No counter of the array has the I/O of a resync: a replay during one was valid."""
    def array(name, action, degraded):
        (tmp_path / name / "md").mkdir(parents=True)
        (tmp_path / name / "md/sync_action").write_text(f"{action}\n")
        (tmp_path / name / "md/degraded").write_text(f"{degraded}\n")

    for name, action, degraded in (("md0", "idle", 0), ("md1", "check", 0), ("md2", "frozen", 1)):
        array(name, action, degraded)
        (tmp_path / "dm-0/slaves").mkdir(parents=True, exist_ok=True)
        (tmp_path / "dm-0/slaves" / name).symlink_to(tmp_path / name)
    assert arrays_at_work(SimpleNamespace(disk_block=tmp_path / "dm-0")) == [
        {"name": "md1", "action": "check", "missing_drives": 0}, {"name": "md2", "action": "", "missing_drives": 1}]
    assert arrays_at_work(SimpleNamespace(disk_block=None)) == []
