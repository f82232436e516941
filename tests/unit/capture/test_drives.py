"""The layer that a capture records of a drive."""

import dataclasses

import pytest

from blkreel.capture.drives import layer_of, paths_of, refuse_multipath
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError

DRIVE = Drive(name="nvme4n1", path="/dev/nvme4n1", kind="disk", major=259, minor=1, size_bytes=1 << 26,
              logical_block_bytes=512, physical_block_bytes=4096)


@pytest.fixture
def disks(monkeypatch, tmp_path):
    """disks(name, ...) makes directories like those of /sys/class/block."""
    def add(*names):
        for name in names:
            (tmp_path / name).mkdir(parents=True)

    monkeypatch.setattr("blkreel.capture.drives.block_directory", lambda drive: tmp_path / drive.name)
    monkeypatch.setattr("blkreel.capture.drives.SYS_BLOCK", tmp_path)
    return add


def test_a_multipath_head_is_recorded_by_the_requests_of_its_paths(disks):
    disks("nvme4n1", "nvme4c3n1", "nvme4c4n1", "nvme4c3n11", "nvme14c3n1")
    assert paths_of(DRIVE) == ["nvme4c3n1", "nvme4c4n1"]
    assert layer_of(DRIVE) == "request"
    with pytest.raises(BlkreelError, match="ftrace cannot record /dev/nvme4n1") as refused:
        refuse_multipath([DRIVE], "ftrace")
    assert "--source bpf" in refused.value.remedy


def test_drives_without_paths_are_recorded_by_what_they_have(disks):
    disks("nvme4n1/mq", "zram0", "nvme4n12")
    zram = dataclasses.replace(DRIVE, name="zram0", path="/dev/zram0")
    assert (layer_of(DRIVE), layer_of(zram)) == ("request", "bio")
    refuse_multipath([DRIVE, zram], "ftrace")
