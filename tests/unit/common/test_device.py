"""Drives, resolved from a sysfs tree made for the purpose."""

import os
import subprocess

import pytest
from emulated_accounts import account

from blkreel.common import emulated
from blkreel.common.device import (
    describe,
    drive_of,
    drive_units,
    drives_under,
    list_drives,
    multipath_paths,
    underlying_disks,
)
from blkreel.common.errors import UsageError
from blkreel.common.system import Mount, overlay_layers


@pytest.fixture
def sysfs(tmp_path):
    """A factory of disks: sysfs.disk("nvme0n1", number="259:0", size=..., **files), sysfs.partition(disk, ...)."""
    root = tmp_path / "sys"

    class Tree:
        def __init__(self):
            self.root = root
            for name in ("class/block", "dev/block", "devices", "fs/btrfs"):
                (root / name).mkdir(parents=True)

        def disk(self, name, number, sectors=2048, parent=None, **files):
            directory = (parent or root / "devices") / name
            (directory / "queue").mkdir(parents=True)
            files = {"dev": number, "size": str(sectors), "queue/logical_block_size": "512", **files}
            for path, text in files.items():
                path = directory / path.replace("__", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text + "\n")
            (root / "class/block" / name).symlink_to(directory)
            (root / "dev/block" / number).symlink_to(directory)
            return directory

    return Tree()


def test_nvme_and_scsi_serials_are_found(sysfs):
    sysfs.disk("nvme0n1", "259:0", device__serial="S4EV  ", device__model="Fast 9000", device__firmware_rev="2B7Q",
               queue__scheduler="[none] mq-deadline", queue__nr_requests="1023", device__transport="pcie",
               queue__read_ahead_kb="128", queue__max_sectors_kb="1280")
    sysfs.disk("sda", "8:0", device__vpd_pg80=b"\x00\x80\x00\x08WD-12345", queue__rotational="1")
    sysfs.disk("sdb", "8:16", device__wwid="naa.5000c500a1b2c3d4")
    sysfs.disk("loop0", "7:0", sectors=0)
    drives = {drive.name: drive for drive in list_drives(sysfs.root)}
    assert set(drives) == {"nvme0n1", "sda", "sdb"}, "an empty loop device is not a drive"
    nvme = drives["nvme0n1"]
    assert (nvme.serial, nvme.model, nvme.firmware, nvme.scheduler, nvme.queue_depth, nvme.transport) == (
        "S4EV", "Fast 9000", "2B7Q", "none", 1023, "pcie")
    assert (nvme.read_ahead_bytes, nvme.max_request_bytes) == (128 << 10, 1280 << 10)
    assert drives["sda"].serial == "WD-12345" and drives["sda"].rotational
    assert drives["sdb"].serial == "naa.5000c500a1b2c3d4"


def test_volumes_have_their_name_and_a_lasting_uuid(sysfs):
    """Of cryptsetup without a header it may be another drive: `cryptsetup open --type plain` with the same name."""
    luks = f"CRYPT-LUKS2-{'0a' * 16}-home"
    for number, (name, uuid) in enumerate((("vg-root", "LVM-1"), ("home", luks), ("plain", "CRYPT-PLAIN-plain"))):
        sysfs.disk(f"dm-{number}", f"253:{number}", dm__name=name, dm__uuid=uuid)
    sysfs.disk("md0", "9:0", md__uuid="b2d9")
    assert [(drive.name, drive.model, drive.serial) for drive in list_drives(sysfs.root)] == [
        ("dm-0", "vg-root", "LVM-1"), ("dm-1", "home", luks), ("dm-2", "plain", ""), ("md0", "", "b2d9")]


def test_a_description_does_not_give_the_serial_away(sysfs):
    sysfs.disk("nvme0n1", "259:0", device__serial="S4EV-SECRET", device__model="Fast 9000")
    [drive] = list_drives(sysfs.root)
    entry = describe(drive)
    assert "S4EV" not in str(entry) and len(entry["serial_hash"]) == 16
    assert entry["size_bytes"] == 2048 * 512


def test_the_paths_of_a_multipath_head_are_not_listed(sysfs):
    """The head has their transports, and the depth of the shortest queue."""
    head = sysfs.disk("nvme4n1", "259:1", queue__nr_requests="128")
    for name, requests, transport in (("nvme4c3n1", "1023", "rdma"), ("nvme4c5n1", "31", "tcp")):
        path = sysfs.disk(name, f"259:{name[6]}", hidden="1", queue__nr_requests=requests, device__transport=transport)
        (path / "dev").unlink()  # a hidden disk has no number in sysfs
    drive, = list_drives(sysfs.root)
    assert (drive.name, drive.transport, drive.queue_depth) == ("nvme4n1", "rdma, tcp", 31)
    assert multipath_paths(head, sysfs.root / "class/block") == [
        sysfs.root / "class/block" / name for name in ("nvme4c3n1", "nvme4c5n1")]


def test_the_hash_of_a_serial_differs_between_installations(sysfs, tmp_path, monkeypatch):
    """With a constant key, a list of all serials of a maker would reveal it."""
    sysfs.disk("nvme0n1", "259:0", device__serial="S4EV-SECRET", device__model="Fast 9000")
    [drive] = list_drives(sysfs.root)
    hashes = []
    for installation in ("one", "other", "one"):
        monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / installation))
        hashes.append(drive.serial_hash)
    assert hashes[0] == hashes[2] != hashes[1] != ""
    assert (tmp_path / "one/secret").stat().st_mode & 0o777 == 0o600


def test_partitions_are_not_listed_and_lead_to_their_drive(sysfs):
    disk = sysfs.disk("nvme0n1", "259:0")
    part = sysfs.disk("nvme0n1p2", "259:2", parent=disk, partition="2")
    assert [drive.name for drive in list_drives(sysfs.root)] == ["nvme0n1"]
    assert [found.name for found in underlying_disks(part)] == ["nvme0n1"]


def test_volumes_are_followed_down_to_their_drives(sysfs):
    first = sysfs.disk("nvme0n1", "259:0")
    part = sysfs.disk("nvme0n1p2", "259:2", parent=first, partition="2")
    second = sysfs.disk("sda", "8:0")
    crypt = sysfs.disk("dm-0", "253:0")
    volume = sysfs.disk("dm-1", "253:1")
    pool = sysfs.disk("dm-2", "253:2")  # a thin pool has its metadata and its data on one drive
    for upper, lower in ((crypt, part), (volume, crypt), (volume, second), (pool, crypt), (pool, part)):
        (upper / "slaves").mkdir(exist_ok=True)
        (upper / "slaves" / lower.name).symlink_to(lower)
    assert [found.name for found in underlying_disks(volume)] == ["nvme0n1", "sda"]
    assert [found.name for found in underlying_disks(pool)] == ["nvme0n1"]


def test_a_directory_leads_to_its_drive_through_its_partition(sysfs, tmp_path):
    disk = sysfs.disk("nvme0n1", "259:0")
    number = tmp_path.stat().st_dev
    sysfs.disk("nvme0n1p2", f"{os.major(number)}:{os.minor(number)}", parent=disk, partition="2")
    assert [drive.path for drive in drives_under(tmp_path, sysfs.root)] == ["/dev/nvme0n1"]


def test_a_directory_on_no_drive_is_refused_with_the_remedy(sysfs, tmp_path):
    mountinfo = tmp_path / "mountinfo"
    for kind, source in (("tmpfs", "tmpfs"), ("zfs", "pool/home"), ("nfs4", "server:/home")):
        mountinfo.write_text(f"{mount_id(tmp_path)} 1 0:99 / /x rw - {kind} {source} rw\n")
        with pytest.raises(UsageError, match=f"not on a drive .*{kind} of {source}.*blkreel drives"):
            drives_under(tmp_path, sysfs.root, mountinfo)
    mountinfo.write_text(f"{mount_id(tmp_path)} 1 0:99 / /x rw - overlay overlay rw,lowerdir=/none/l,upperdir=/none\n")
    with pytest.raises(UsageError, match="on overlayfs, whose directories are not visible here .*blkreel drives"):
        drives_under(tmp_path, sysfs.root, mountinfo)
    mountinfo.write_text("")
    with pytest.raises(UsageError, match="only another mount namespace has.*blkreel drives"):
        drives_under(tmp_path, sysfs.root, mountinfo)


def test_a_mount_whose_device_has_no_node_here_is_on_its_drive(sysfs, tmp_path):
    """A container sees the mount of a volume of its host, whose device its /dev lacks."""
    sysfs.disk("blkreel7n1", "259:7")
    sysfs.disk("blkreel7n2", "259:8")
    members = sysfs.root / "fs/btrfs/0f7a/devices"
    members.mkdir(parents=True)
    for name in ("blkreel7n1", "blkreel7n2"):
        (members / name).symlink_to(sysfs.root / "devices" / name)
    mountinfo = tmp_path / "mountinfo"
    for line in ("0:39 /@home /home rw - btrfs /dev/blkreel7n1 rw,subvol=/@home",
                 "0:40 / /home rw - bcachefs /dev/blkreel7n1:/dev/blkreel7n2 rw"):
        mountinfo.write_text(f"{mount_id(tmp_path)} 1 {line}\n")
        assert [drive.name for drive in drives_under(tmp_path, sysfs.root, mountinfo)] == ["blkreel7n1", "blkreel7n2"]


def mount_id(path):
    descriptor = os.open(path, os.O_PATH)
    try:
        with open(f"/proc/self/fdinfo/{descriptor}") as file:
            return next(line.split()[1] for line in file if line.startswith("mnt_id:"))
    finally:
        os.close(descriptor)


def test_the_directories_of_an_overlay_with_any_names():
    mount = Mount("22", "0:40", "/", "overlay", "overlay", (
        ("rw", ""), ("lowerdir", r"/l\,1:/l\:2:l/RELATIVE::/data"), ("upperdir", "/with space"), ("workdir", "/w"),
        ("lowerdir+", "/more")))
    assert [str(path) for path in overlay_layers(mount)] == ["/with space", "/l,1", "/l:2", "/data", "/more"]


def test_what_does_not_exist_or_is_no_drive_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such device: /dev/none.*blkreel drives"):
        drive_of("/dev/none")
    with pytest.raises(UsageError, match="not a block device"):
        drive_of(tmp_path)
    with pytest.raises(UsageError, match="not a block device"):
        drive_of("/dev/null")


def test_a_regular_file_stands_in_for_a_drive(tmp_path):
    image = tmp_path / "drive.img"
    image.write_bytes(bytes(1 << 20))
    drive = drive_of(image)
    assert (drive.kind, drive.size_bytes, drive.path) == ("file", 1 << 20, str(image))


@pytest.mark.kernel
def test_a_real_loop_device(loop_drive, tmp_path):
    path = loop_drive(64 << 20)
    link = tmp_path / "by-id"
    link.symlink_to(path)
    drive = drive_of(link)
    assert (drive.path, drive.kind, drive.size_bytes) == (path, "loop", 64 << 20)
    assert drive.backing_file == str(loop_drive.image_of(path))
    number = link.stat().st_rdev
    assert (drive.major, drive.minor) == (os.major(number), os.minor(number))
    size = subprocess.run(["blockdev", "--getsize64", path], capture_output=True, text=True, check=True)
    assert int(size.stdout) == drive.size_bytes


@pytest.mark.kernel
def test_the_link_of_an_emulated_drive_that_was_killed_is_no_other_drive(loop_drive, tmp_path, monkeypatch):
    """The kernel gives its loop device to the next image, on which a replay would write."""
    monkeypatch.setattr(emulated, "LINKS", tmp_path)
    path = loop_drive(64 << 20)
    (tmp_path / "usb").symlink_to(path)
    with pytest.raises(UsageError, match=f"usb: this emulated drive has ended, and {path} is another drive"):
        drive_of(tmp_path / "usb")


@pytest.mark.kernel
def test_a_partition_of_a_real_loop_device(loop_drive):
    path = loop_drive(64 << 20, partscan=True)
    subprocess.run(["sfdisk", "--quiet", path], input="2048,\n", text=True, check=True)
    subprocess.run(["partx", "--update", path], check=False, capture_output=True)
    assert drive_of(path + "p1").path == path


def test_what_tells_drives_of_one_model_apart():
    image = {"backing_file": "/a/drive.img", "path": "/dev/loop3"}
    assert drive_units([{**image, "serial_hash": "5e"}]) == ["5e"]
    assert drive_units([image, {"path": "/dev/vdb"}]) == ["/a/drive.img", "/dev/vdb"]
    assert drive_units([{"path": "nil:usb,seed=2,jitter=0.1"}]) == ["nil:usb,jitter=0.1"]
    assert drive_units([image], [account(drive="nil:usb,read_latency=9ms,seed=1")]) == [
        "/a/drive.img", "nil:usb,read_latency=9ms"]
