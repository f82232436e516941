"""The kernel's counters of a drive."""

import pytest

from blkreel.replay.drive.external_io import DiskCount, count_of_disk


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
