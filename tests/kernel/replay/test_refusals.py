"""What bars a replay: each with its words, and with not one byte of the drive changed."""

import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers import helpers_of
from loop_device import attach_loop, detach_loop
from small_trace import new_trace
from waiting import wait_until

from blkreel.common.errors import UsageError
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.file_identity import identity_of, loop_backing
from blkreel.replay.drive.safety import check_distinct
from blkreel.replay.drive.target import find_target
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20


@pytest.fixture
def trace(tmp_path):
    count = 100
    return new_trace(tmp_path / "t.parquet", drive_bytes=MIB, op=np.arange(count) % 2 * OPS["write"])


@pytest.fixture
def refused(blkreel, trace, tmp_path, loop_drive):
    """Replays and prepares in vain: refused(drive, image, words) checks the exit, the words, and the image."""
    def check(drive, image, *words, exit_code=5, arguments=()):
        before = hashlib.sha256(image.read_bytes()).hexdigest()
        for command in (["replay", trace, "--on", drive, "-o", tmp_path / "run", *arguments],
                        ["precondition", drive, "--state", "full"]):
            result = blkreel(*command, code=exit_code)
            assert len(result.stderr.strip().splitlines()) == 1
            for word in words:
                assert word in result.stderr
            assert not (tmp_path / "run").exists()
        assert hashlib.sha256(image.read_bytes()).hexdigest() == before

    return check


def partition(drive):
    """One partition, from 1 MiB to the end."""
    table = "label: dos\nstart=2048, type=83\n"
    subprocess.run(["sfdisk", "--quiet", "--no-reread", drive], input=table, text=True, check=True)
    subprocess.run(["partx", "--update", drive], check=False, capture_output=True)
    if not Path(f"{drive}p1").exists():
        subprocess.run(["partx", "--add", drive], check=True, capture_output=True)
    return f"{drive}p1"


@pytest.fixture
def mounted(require_root, tmp_path):
    points = []

    def mount(node):
        point = tmp_path / "mnt point"
        point.mkdir()
        subprocess.run(["mount", node, point], check=True)
        points.append(point)
        subprocess.run(["sync", "-f", point], check=True)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", point], check=True)


def test_a_mounted_drive(loop_drive, refused, mounted):
    drive = loop_drive(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", drive], check=True)
    point = mounted(drive)
    refused(drive, loop_drive.image_of(drive), f"{drive} is mounted at {point}", f"umount '{point}'")


def test_a_drive_with_a_mounted_partition_and_that_partition(loop_drive, refused, mounted):
    drive = loop_drive(16 * MIB, partscan=True)
    node = partition(drive)
    subprocess.run(["mkfs.ext4", "-q", node], check=True)
    mounted(node)
    refused(drive, loop_drive.image_of(drive), f"{node} is mounted at")
    refused(node, loop_drive.image_of(drive), f"{node} is mounted at")


def test_a_partition_is_a_target_while_its_drive_is_free(blkreel, loop_drive, trace, tmp_path):
    drive = loop_drive(16 * MIB, partscan=True)
    node = partition(drive)
    image = loop_drive.image_of(drive)
    head = image.read_bytes()[:MIB]
    blkreel("replay", trace, "--on", node, "-o", tmp_path / "run", code=(0, 3))
    data = image.read_bytes()
    assert data[:MIB] == head, "the partition table is still there"
    assert any(data[MIB:MIB + 4096]), "and the partition was written"


def test_swap(loop_drive, refused, program):
    drive = loop_drive(16 * MIB)
    subprocess.run([program("mkswap", "util-linux"), drive], check=True, capture_output=True)
    on = subprocess.run([program("swapon", "util-linux"), drive], capture_output=True, text=True)
    if on.returncode:
        pytest.skip(f"needs swapon: {on.stderr.strip()}")
    try:
        refused(drive, loop_drive.image_of(drive), f"{drive} is used as swap", f"swapoff {drive}")
    finally:
        subprocess.run([program("swapoff", "util-linux"), drive], check=True)


def test_a_drive_that_another_program_has_open(loop_drive, refused):
    drive = loop_drive(16 * MIB, partscan=True)
    node, image = partition(drive), loop_drive.image_of(drive)
    for opened, flags in ((drive, os.O_RDONLY), (drive, os.O_RDONLY | os.O_EXCL), (node, os.O_RDWR), (image, 0)):
        descriptor = os.open(opened, flags)
        try:
            refused(drive, image, f"{opened} is open in ", f"(process {os.getpid()})", f"lsof {opened}")
        finally:
            os.close(descriptor)


def test_an_image_that_another_program_has_open_or_mapped(tmp_path, refused):
    image, link = tmp_path / "image", tmp_path / "link"
    image.write_bytes(bytes(16 * MIB))
    link.hardlink_to(image)
    # Python's mmap keeps a descriptor open.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    with open(link, "rb") as file:
        refused(image, image, f"{image} is open in ", f"(process {os.getpid()})")
        address = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(),
                            ctypes.c_long(0))
        assert address != ctypes.c_void_p(-1).value
    try:
        refused(image, image, f"{image} is mapped in ", f"(process {os.getpid()})")
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(4096))


def test_a_drive_mounted_in_another_mount_namespace(loop_drive, refused):
    drive = loop_drive(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", drive], check=True)
    mount = f"mount -o ro {drive} /mnt && echo mounted && read wait"
    other = subprocess.Popen(["unshare", "--mount", "sh", "-c", mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"mounted\n"
        refused(drive, loop_drive.image_of(drive), "in another mount namespace", f"lsof {drive}")
    finally:
        other.communicate()


def test_a_read_only_drive(blkreel, loop_drive, refused, trace, tmp_path):
    drive = loop_drive(16 * MIB, read_only=True)
    refused(drive, loop_drive.image_of(drive), f"{drive} is read-only", "--setrw")


def test_the_image_of_a_loop_device(loop_drive, refused):
    drive = loop_drive(16 * MIB)
    image = loop_drive.image_of(drive)
    refused(image, image, f"is the image of {drive}", f"losetup -d {drive}")


def _own_bytes():
    """Makes a size that no image of another test has: images that cannot be opened are known by their sizes."""
    return (os.getpid() % 1000 + 1) * 4096


@pytest.fixture
def linked(loop_drive, tmp_path):
    """A loop device, and another name of its image, which has lost the name that it was attached by."""
    drive = loop_drive(16 * MIB + _own_bytes(), replaceable=True)
    image, link = loop_drive.image_of(drive), Path(f"{loop_drive.image_of(drive)}.link")
    link.hardlink_to(image)
    image.unlink()
    yield drive, link
    link.rename(image)


def test_an_image_by_another_name(linked, refused, mounted):
    drive, link = linked
    subprocess.run(["mkfs.ext4", "-q", drive], check=True)
    mounted(drive)
    refused(link, link, f"{link} is the image of {drive}", f"losetup -d {drive}")


def test_an_image_that_was_attached_in_another_mount_namespace(refused, require_root, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(bytes(16 * MIB))
    attach = f"mount --bind {tmp_path} /mnt && losetup --find --show /mnt/image"
    drive = subprocess.run(["unshare", "--mount", "sh", "-c", attach], check=True, capture_output=True,
                           text=True).stdout.strip()
    try:
        refused(image, image, f"{image} is the image of {drive}")
    finally:
        detach_loop(drive)


def test_a_loop_device_without_a_node(loop_drive, tmp_path):
    """As in a container, whose /dev has been filled before the device was there."""
    drive = Path(loop_drive(MIB))
    empty = Path(tempfile.mkdtemp(prefix="blkreel-test-", dir="/dev"))
    try:
        assert loop_backing(Path("/sys/block", drive.name), empty) == identity_of(loop_drive.image_of(str(drive)))
        assert not list(empty.iterdir())
    finally:
        empty.rmdir()


def test_an_image_of_a_loop_device_that_may_not_be_opened(blkreel, linked, as_nobody, trace):
    """Neither its path nor its node shows which file it is; the size leaves it possible."""
    drive, link = linked
    directory = Path(tempfile.mkdtemp(prefix="blkreel-test-", dir="/dev/shm"))
    try:
        shutil.copy(trace, directory / "t.parquet")
        link.rename(directory / "image")
        (directory / "other").write_bytes(bytes(8 * MIB + _own_bytes()))
        for path in (directory, *directory.iterdir()):
            os.chown(path, 65534, 65534)

        def replay(image):
            return subprocess.run([*as_nobody, blkreel.command, "replay", directory / "t.parquet", "--on",
                                   directory / image, "-o", directory / "run"], capture_output=True, text=True,
                                  env={**blkreel.environment, "BLKREEL_STATE_DIR": str(directory / "state")})

        before = hashlib.sha256((directory / "image").read_bytes()).hexdigest()
        result = replay("image")
        assert result.returncode == 5
        assert f"perhaps the image of {drive}" in result.stderr and "run as root" in result.stderr
        assert hashlib.sha256((directory / "image").read_bytes()).hexdigest() == before
        result = replay("other")
        assert result.returncode in (0, 3), result.stderr
        assert f"they are of other users; run as root: sudo {blkreel.command} replay" in result.stderr
    finally:
        (directory / "image").rename(link)
        shutil.rmtree(directory)


def test_two_replays_on_one_image_by_two_names(blkreel, loop_drive, refused, tmp_path, linked):
    """The first goes on for as long as it takes; the second is refused."""
    drive, link = linked
    detach_loop(drive)
    new_trace(tmp_path / "long.parquet", {"devices": []}, submit_ns=[0, 600 * 10**9], latency_ns=[1, 1],
              offset_bytes=[0, 0], length_bytes=[4096, 4096], op=[0, 0])
    first = blkreel.start("replay", tmp_path / "long.parquet", "--on", link, "--no-prefill", "-o", tmp_path / "first")
    try:
        # Its helper starts behind its checks: it has the link open before them, and would find the loop device.
        wait_until(lambda: helpers_of(first.pid), first)
        subprocess.run(["losetup", drive, link], check=True)
        refused(drive, link, f"{link} is open in ", "blkreel")
    finally:
        subprocess.run(["losetup", drive, link], check=False, capture_output=True)
        first.send_signal(signal.SIGINT)
        first.communicate()
    assert first.returncode == 3


def test_a_loop_device_is_locked_with_its_image(loop_drive):
    drive = loop_drive(MIB)
    with held(find_target(drive)), open(loop_drive.image_of(drive), "rb") as image, pytest.raises(BlockingIOError):
        fcntl.flock(image, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_loop_device_and_its_image_are_one_drive(loop_drive):
    """Two devices of a trace would write over each other there."""
    drive = loop_drive()
    with pytest.raises(UsageError, match="are one drive"):
        check_distinct({0: find_target(drive), 1: find_target(loop_drive.image_of(drive))})


def test_a_drive_that_is_the_image_of_a_loop_device(loop_drive, refused):
    drive = loop_drive(16 * MIB)
    upper = attach_loop(drive)
    try:
        refused(drive, loop_drive.image_of(drive), f"{drive} is the image of {upper}")
    finally:
        detach_loop(upper)


def test_a_loop_device_over_a_mounted_drive(loop_drive, refused, mounted):
    drive = loop_drive(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", drive], check=True)
    upper = attach_loop(drive)
    try:
        mounted(drive)
        refused(upper, loop_drive.image_of(drive), f"{drive} is mounted at")
    finally:
        detach_loop(upper)


def test_a_real_drive_is_overwritten_by_its_words_only(blkreel, zram_drive, trace, tmp_path):
    before = hashlib.sha256(zram_drive.read_bytes()).hexdigest()
    words = f"{zram_drive.name}:{16 * MIB}"
    replay = ["replay", trace, "--on", zram_drive, "-o", tmp_path / "run"]
    prepare = ["precondition", zram_drive, "--state", "full"]
    for command in (replay, prepare):
        for destroy in ([], ["--destroy", "yes"], ["--destroy", zram_drive.name]):
            result = blkreel(*command, *destroy, code=5)
            assert f"--destroy {words}" in result.stderr
            assert "all data on it would be lost" in result.stderr
    assert not (tmp_path / "run").exists()
    assert hashlib.sha256(zram_drive.read_bytes()).hexdigest() == before
    blkreel(*replay, "--destroy", words, code=(0, 3))
    assert blkreel(*prepare, "--destroy", words).returncode == 0
    assert any(zram_drive.read_bytes()[-4096:])


@pytest.mark.parametrize(("where", "words"), [
    ("/dev/null", "not a block device"), ("/tmp", "not a block device"), ("/dev/nosuchdrive", "no such device")])
def test_what_is_no_drive(blkreel, trace, tmp_path, where, words):
    result = blkreel("replay", trace, "--on", where, "-o", tmp_path / "run", code=2)
    assert words in result.stderr
    assert "blkreel drives" in result.stderr


def test_an_output_that_exists(blkreel, loop_drive, trace, tmp_path):
    drive = loop_drive(16 * MIB)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("years of work")
    before = hashlib.sha256(loop_drive.image_of(drive).read_bytes()).hexdigest()
    for arguments in ([], ["--force"]):
        result = blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", *arguments, code=1)
        assert str(tmp_path / "run") in result.stderr
    assert (tmp_path / "run/thesis.txt").read_text() == "years of work"
    assert hashlib.sha256(loop_drive.image_of(drive).read_bytes()).hexdigest() == before


def test_no_space_for_the_output(blkreel, loop_drive, tiny_filesystem, tmp_path):
    random = np.random.default_rng(4)
    count = 100_000
    new_trace(tmp_path / "many.parquet", {"devices": []}, latency_ns=random.integers(0, 10**6, count),
              offset_bytes=random.integers(0, 4096, count) * 4096)
    result = blkreel("replay", tmp_path / "many.parquet", "--on", loop_drive(16 * MIB), "--pace", "depth=32",
                     "-o", tiny_filesystem / "run", code=1)
    assert f"no space left for {tiny_filesystem}/run/" in result.stderr
    assert f"df -h {tiny_filesystem})" in result.stderr, "the directory of the run is removed"
    assert not (tiny_filesystem / "run").exists(), "not one block of records has room there"


@pytest.mark.parametrize(("arguments", "words"), [
    (["--idle", "cap=25 fortnights"], "unknown unit"), (["--idle", "cap=25"], "no unit"),
    (["--idle", "lots"], "cap=25ms"), (["--pace", "quick"], "depth=N"), (["--map", "origami"], "compact")])
def test_words_that_are_none_of_the_choices(blkreel, loop_drive, trace, tmp_path, arguments, words):
    result = blkreel("replay", trace, "--on", loop_drive(16 * MIB), "-o", tmp_path / "run", *arguments, code=2)
    assert words in result.stderr


def test_a_damaged_trace(blkreel, loop_drive, trace, tmp_path, refused):
    data = trace.read_bytes()
    trace.write_bytes(data[:len(data) // 2])
    drive = loop_drive(16 * MIB)
    assert "is truncated" in blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", code=1).stderr


def test_drives_tells_what_can_be_replayed_on(blkreel, loop_drive, mounted):
    free, used = loop_drive(16 * MIB), loop_drive(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", used], check=True)
    point = mounted(used)
    drives = {entry["path"]: entry for entry in json.loads(blkreel("drives", "--json").stdout)["drives"]}
    assert drives[free]["uses"] == []
    assert drives[free]["destroy"] is None
    assert drives[used]["uses"] == [f"{used} is mounted at {point}"]
    text = blkreel("drives").stdout
    assert free in text
    assert "mounted" in text
    descriptor = os.open(free, os.O_RDONLY | os.O_EXCL)  # as by a mount of another namespace, or ZFS
    try:
        drives = {entry["path"]: entry for entry in json.loads(blkreel("drives", "--json").stdout)["drives"]}
    finally:
        os.close(descriptor)
    held = f"{free} is held exclusively by another program or in another mount namespace"
    assert drives[free]["uses"] == [held], "a replay refuses it"


def test_no_privilege(blkreel, loop_drive, as_nobody, trace):
    """As an ordinary user, with a trace and an output of its own."""
    drive = loop_drive(16 * MIB + _own_bytes())
    before = loop_drive.image_of(drive).read_bytes()
    directory = Path(tempfile.mkdtemp(prefix="blkreel-test-"))
    try:
        shutil.copy(trace, directory / "t.parquet")
        directory.chmod(0o777)
        (directory / "t.parquet").chmod(0o666)
        result = subprocess.run([*as_nobody, blkreel.command, "replay", directory / "t.parquet", "--on", drive,
                                 "-o", directory / "run"], capture_output=True, text=True,
                                env={**blkreel.environment, "BLKREEL_STATE_DIR": str(directory / "state")})
        assert result.returncode == 1
        assert "Permission denied" in result.stderr and f"run as root: sudo {blkreel.command} replay" in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert not (directory / "run").exists()
    finally:
        shutil.rmtree(directory)
    assert loop_drive.image_of(drive).read_bytes() == before


def test_a_drive_that_cannot_be_polled(blkreel, trace, tmp_path, loop_drive):
    drive = loop_drive(2 * MIB)
    image = loop_drive.image_of(drive)
    before = image.read_bytes()
    result = blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", "--polled", code=1)
    assert f"{drive} cannot be polled" in result.stderr and "nvme.poll_queues=1" in result.stderr
    assert image.read_bytes() == before and not (tmp_path / "run").exists()
