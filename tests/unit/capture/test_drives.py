"""The layer that a capture records of a drive, and the volumes on drives."""

import dataclasses

import pytest

from blkreel.capture.drives import drives_added, layer_of, paths_of, refuse_multipath, refuse_zoned
from blkreel.capture.volumes import places_of_target, volumes_from
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError
from tests.unit.common.test_device import sysfs  # noqa: F401

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


@pytest.mark.parametrize(("kind", "parameters", "places"), [
    ("linear", "253:1 2048", [("253:1", 2048)]),
    ("crypt", "aes-xts-plain64 :64:logon:cryptsetup:x 0 259:2 32768 1 allow_discards", [("259:2", 32768)]),
    ("striped", "2 128 259:0 0 259:1 0", [("259:0", None), ("259:1", None)]),
    ("thin", "253:2 1", [("253:2", None)]),
    ("raid", "raid1 2 0 region_size 1024 2 253:0 253:1 253:2 253:3", [(f"253:{at}", None) for at in range(4)]),
    ("linear", "", []), ("error", "", []), ("zero", "", []),
])
def test_the_devices_of_a_line_of_a_table(kind, parameters, places):
    assert places_of_target(kind, parameters) == places


def test_a_stack_of_volumes_is_described_from_above_to_below(sysfs):  # noqa: F811
    """LVM on an array, of which one member is a partition; without the permission to read a table of dm."""
    first, second = sysfs.disk("sda", "8:0"), sysfs.disk("sdb", "8:16")
    part = sysfs.disk("sda1", "8:1", parent=first, partition="1", start="2048")
    array = sysfs.disk("md0", "9:0", 4096, md__level="raid1",
                       **{"md__dev-sda1__offset": "16", "md__dev-sdb__offset": "32"})
    volume = sysfs.disk("dm-0", "253:0", 1024, dm__name="vg-home", dm__uuid="LVM-abc")
    for upper, lower in ((array, part), (array, second), (volume, array)):
        (upper / "slaves").mkdir(exist_ok=True)
        (upper / "slaves" / lower.name).symlink_to(lower)
    upper, lower = volumes_from([volume, first])
    assert upper == {"name": "dm-0", "path": "/dev/dm-0", "label": "vg-home", "kind": "dm (LVM)", "parts": [
        {"name": "md0", "volume_offset_bytes": 0, "length_bytes": 1024 * 512, "offset_bytes": None}]}
    assert lower["kind"] == "md raid1"
    assert [(entry["name"], entry["offset_bytes"]) for entry in lower["parts"]] == [("sda", 2064 * 512),
                                                                                    ("sdb", 32 * 512)]


def test_a_drive_that_joins_an_array_or_a_file_system_is_noticed(sysfs, monkeypatch):  # noqa: F811
    """A rebuild wrote 100 MB to a spare of which the trace had nothing, with exit code 0."""
    monkeypatch.setattr("blkreel.capture.drives.SYS_BTRFS", sysfs.root / "fs/btrfs")
    first, spare = sysfs.disk("sda", "8:0"), sysfs.disk("sdb", "8:16")
    array = sysfs.disk("md0", "9:0", md__level="raid1")
    (array / "slaves").mkdir()
    (array / "slaves/sda").symlink_to(first)
    volumes, recorded = volumes_from([array]), [dataclasses.replace(DRIVE, name="sda")]
    members = sysfs.root / "fs/btrfs/uuid/devices"
    members.mkdir(parents=True)
    (members / "md0").symlink_to(array)
    assert drives_added([array], [array], volumes, recorded) == set()
    (members / "sdb").symlink_to(spare)
    assert drives_added([], [array], volumes, recorded) == {"sdb"}
    assert drives_added([array], [], volumes, recorded) == set(), "named as a device, not as a directory"
    (array / "slaves/sdb").symlink_to(spare)
    assert drives_added([array], [], volumes, recorded) == {"sdb"}
    for member in (array / "slaves").iterdir():
        member.unlink()
    assert drives_added([array], [], volumes, recorded) == set(), "stopped"
    assert drives_added([first / "sda1"], [], [], recorded) == set(), "a partition that was removed"


def test_a_zoned_drive_is_recorded_by_bpf_only():
    refuse_zoned([DRIVE], "ftrace")
    with pytest.raises(BlkreelError, match="ftrace cannot record /dev/.*zones.*--source bpf"):
        refuse_zoned([dataclasses.replace(DRIVE, zoned="host-managed", zone_bytes=1 << 28)], "ftrace")
