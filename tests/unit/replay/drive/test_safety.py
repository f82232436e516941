"""What bars a drive, told by made-up kernels: real drives are not at hand, and must not be."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.replay.drive import safety, usage
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.file_identity import identity_of
from blkreel.replay.drive.openers import openers_of
from blkreel.replay.drive.target import Target, find_target, namespace_of
from blkreel.replay.drive.usage import Kernel, Use, uses_of

ARGV = ["blkreel", "replay", "t.parquet", "--on", "/dev/sdx", "-o", "run dir"]


class FakeDrive:
    """A drive sdx with a partition sdx1 in a made-up sysfs. `node` stands where /dev/sdx would."""

    def __init__(self, root: Path):
        self.root = root
        self.block = root / "sys/block/sdx"
        (self.block / "sdx1").mkdir(parents=True)
        (self.block / "dev").write_text("8:368\n")
        (self.block / "sdx1/dev").write_text("8:369\n")
        (self.block / "sdx1/partition").write_text("1\n")
        (self.block / "sdx1/holders").mkdir()
        (self.block / "holders").mkdir()
        (root / "sys/class/block").mkdir(parents=True)
        (root / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        (root / "swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1 0 -2\n")
        self.node = root / "node"
        self.node.touch()
        self.kernel = Kernel(root / "sys", root / "mountinfo", root / "swaps", root / "dev")

    def target(self, partition="", **fields) -> Target:
        drive = Drive(**{"name": "sdx", "path": str(self.node), "kind": "disk", "major": 8, "minor": 368,
                         "size_bytes": 1 << 40, "logical_block_bytes": 512, "physical_block_bytes": 4096,
                         "model": "Fastest 9000", "serial": "S3R 1AL"} | fields)
        block = self.block / partition if partition else self.block
        return Target(Path("/dev/sdx" + partition[3:]), drive, 1 << 40, 512, partition, block)

    def add(self, name, line):
        """A line to a file below the root, in directories that are made."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        with open(self.root / name, "a") as file:
            file.write(line + "\n")

    def mount(self, line):
        self.add("mountinfo", line)

    def attach(self, loop, backing_file):
        self.add(f"sys/class/block/{loop}/loop/backing_file", backing_file)


@pytest.fixture(autouse=True)
def typed(monkeypatch):
    monkeypatch.setattr(sys, "argv", [*ARGV])


@pytest.fixture
def fake(tmp_path):
    return FakeDrive(tmp_path)


def refused(fake, match, **fields):
    with pytest.raises(SafetyError, match=match) as error:
        safety.check(fake.target(**fields), writes=True, destroy="S3R 1AL", kernel=fake.kernel)
    assert error.value.exit_code == 5
    assert error.value.remedy
    assert "\n" not in str(error.value)
    return error.value


def test_a_free_drive_passes_with_its_serial_and_for_reads_without(fake):
    safety.check(fake.target(), writes=True, destroy="S3R 1AL", kernel=fake.kernel)
    safety.check(fake.target(), writes=False, destroy=None, kernel=fake.kernel)


def test_writes_need_the_serial_and_the_refusal_tells_the_command(fake):
    with pytest.raises(SafetyError, match="Fastest 9000, 1.10 TB.*all data on it would be lost") as error:
        safety.check(fake.target(), writes=True, destroy=None, kernel=fake.kernel)
    assert error.value.remedy.endswith("blkreel replay t.parquet --on /dev/sdx -o 'run dir' --destroy 'S3R 1AL'")


def test_of_several_drives_each_is_named_before_any_is_written(fake):
    """What was typed for the others stays in the command of the remedy."""
    one, other = fake.target(), fake.target(serial="SECOND", path=str(fake.root / "swaps"))
    reads = fake.target(serial="THIRD", path=str(fake.root / "mountinfo"))
    every = [(one, True), (other, True), (reads, False)]
    safety.check_all(every, destroy=["SECOND", "S3R 1AL"], kernel=fake.kernel)
    sys.argv += ["--destroy", "S3R 1AL"]
    with pytest.raises(SafetyError, match="this overwrites .*swaps") as error:
        safety.check_all(every, destroy=["S3R 1AL"], kernel=fake.kernel)
    assert error.value.remedy.endswith("-o 'run dir' --destroy 'S3R 1AL' --destroy SECOND")
    with pytest.raises(SafetyError, match="this overwrites .*node"):
        safety.check_all(every, destroy=["SECOND"], kernel=fake.kernel)
    with pytest.raises(SafetyError, match="--destroy 'S3R' does not name"):
        safety.check_all(every[:1], destroy=["S3R"], kernel=fake.kernel)


@pytest.mark.parametrize("wrong", ["", "yes", "s3r 1al", "S3R 1AL ", "sdx"])
def test_a_wrong_serial_is_none(fake, wrong):
    sys.argv += ["--destroy", wrong]
    with pytest.raises(SafetyError) as error:
        safety.check(fake.target(), writes=True, destroy=wrong, kernel=fake.kernel)
    assert error.value.remedy.count("--destroy") == 1


def test_a_drive_without_serial_is_named_by_name_and_size(fake):
    words = f"sdx:{1 << 40}"
    with pytest.raises(SafetyError) as error:
        safety.check(fake.target(serial=""), writes=True, destroy="", kernel=fake.kernel)
    assert error.value.remedy.endswith(f"--destroy {words}")
    safety.check(fake.target(serial=""), writes=True, destroy=words, kernel=fake.kernel)


def test_a_volume_is_named_as_its_owner_does_not_by_number_or_uuid(fake):
    """Its number changes at boot, and its UUID has 68 letters."""
    volume = fake.target(kind="dm", model="vg-home", serial="LVM-cu0d6n")
    with pytest.raises(SafetyError, match="vg-home, 1.10 TB") as error:
        safety.check(volume, writes=True, destroy=None, kernel=fake.kernel)
    assert error.value.remedy.endswith(f"--destroy {(words := f'vg-home:{1 << 40}')}")
    safety.check(volume, writes=True, destroy=words, kernel=fake.kernel)


@pytest.mark.parametrize("kind", ["dm", "md", "zram", "ram"])
def test_only_loop_devices_and_files_are_free_of_it(fake, kind):
    with pytest.raises(SafetyError, match="would be lost"):
        safety.check(fake.target(kind=kind), writes=True, destroy=None, kernel=fake.kernel)


@pytest.mark.parametrize(("use", "message", "remedy"), [
    (lambda fake: fake.mount("30 22 8:368 / /mnt/my\\040data rw - ext4 /dev/sdx rw"), "sdx is mounted at /mnt/my data",
     "umount '/mnt/my data'"),
    # btrfs: the number of the mount is not the device's.
    (lambda fake: fake.mount("30 22 0:55 / /mnt rw - btrfs /dev/sdx1 rw"), "/dev/sdx1 is mounted", ""),
    (lambda fake: fake.add("swaps", "/dev/sdx1 partition 1 0 -2"), "/dev/sdx1 is used as swap", "swapoff /dev/sdx1"),
    (lambda fake: fake.attach("loop7", "/dev/sdx1"), "/dev/sdx1 is the image of /dev/loop7", "losetup -d /dev/loop7"),
    (lambda fake: (fake.root / "sys/fs/btrfs/uuid/devices/sdx1").mkdir(parents=True),
     "/dev/sdx1 is part of a mounted btrfs", "")],
    ids=["mounted", "mounted, by its source", "swap", "image of a loop device", "member of a mounted btrfs"])
def test_a_use_bars_the_drive(fake, use, message, remedy):
    use(fake)
    assert remedy in str(refused(fake, message))


def test_the_drive_of_the_running_system_is_not_to_be_unmounted(fake):
    fake.mount("30 22 8:369 / /mnt rw - ext4 /dev/sdx1 rw")
    fake.mount("31 22 8:369 / / rw - ext4 /dev/sdx1 rw")
    text = str(refused(fake, "/dev/sdx1 is mounted at / "))
    assert "umount" not in text and "name another drive" in text and "blkreel drives" in text


def test_a_mounted_partition_bars_the_drive_and_its_other_partitions(fake):
    fake.mount("30 22 8:369 / /mnt rw - ext4 /dev/sdx1 rw")
    refused(fake, "/dev/sdx1 is mounted at /mnt")
    (fake.block / "sdx2").mkdir()
    (fake.block / "sdx2/dev").write_text("8:370")
    (fake.block / "sdx2/partition").write_text("2")
    refused(fake, "/dev/sdx1 is mounted at /mnt", partition="sdx2")


def test_a_mounted_partition_bars_reads_too(fake):
    fake.mount("30 22 8:369 / /mnt rw - ext4 /dev/sdx1 rw")
    with pytest.raises(SafetyError):
        safety.check(fake.target(), writes=False, destroy=None, kernel=fake.kernel)


@pytest.mark.parametrize(("holder", "remedy"), [("dm-3", "dmsetup remove"), ("md127", "mdadm --stop /dev/md127"),
                                                ("bcache0", "echo 1 >/sys/block/bcache0/bcache/stop")])
@pytest.mark.parametrize("block", [".", "sdx1"])
def test_held_by_a_volume(fake, holder, remedy, block):
    (fake.block / block / "holders" / holder / "dm").mkdir(parents=True)
    (fake.block / block / "holders" / holder / "dm/name").write_text("home\n")
    assert remedy in str(refused(fake, f"part of the volume {holder} \\(home\\)"))


def test_a_swap_file_as_target(image, fake):
    fake.add("swaps", f"{image} file 1 0 -2")
    assert [use.how for use in uses_of(find_target(image), fake.kernel)] == ["used as swap"]


@pytest.mark.parametrize("loops", [("loop7",), ("loop6", "loop7")], ids=["the image", "another loop device over it"])
def test_the_image_of_a_loop_device(image, fake, loops):
    for name in loops:
        fake.attach(name, str(image))
    target = (find_target(image) if len(loops) == 1 else
              fake.target(name="loop6", kind="loop", backing_file=str(image)))
    with pytest.raises(SafetyError, match="is the image of /dev/loop7"):
        safety.check(target, writes=True, destroy=None, kernel=fake.kernel)


def test_read_only(fake):
    assert "blockdev --setrw" in str(refused(fake, "is read-only", read_only=True))
    assert "without losetup -r" in str(refused(fake, "is read-only", read_only=True, kind="loop"))
    assert "chmod" in (message := str(refused(fake, "is read-only", read_only=True, kind="file")))
    assert "blockdev" not in message
    safety.check(fake.target(read_only=True), writes=False, destroy=None, kernel=fake.kernel)


@pytest.mark.parametrize("where", ["/dev/null", "/proc/self", "/no/such/device"])
def test_what_is_no_drive(where):
    with pytest.raises(UsageError) as error:
        find_target(where)
    assert error.value.exit_code == 2
    assert error.value.remedy


def test_an_empty_file_is_no_drive(tmp_path):
    (tmp_path / "image").touch()
    with pytest.raises(UsageError, match="empty file"):
        find_target(tmp_path / "image")


def test_a_link_is_what_it_points_to(tmp_path):
    (tmp_path / "image").write_bytes(bytes(8192))
    (tmp_path / "by-id").symlink_to("image")
    assert find_target(tmp_path / "by-id").path == Path(os.path.realpath(tmp_path / "image"))


def test_no_permission_is_told_with_the_command(fake):
    if os.geteuid() == 0:
        target = fake.target(path=str(fake.root / "gone"))
        with pytest.raises(BlkreelError, match="cannot be opened"):
            safety.check(target, writes=False, destroy=None, kernel=fake.kernel)
        return
    fake.node.chmod(0)
    with pytest.raises(BlkreelError, match="sudo blkreel replay"):
        safety.check(fake.target(), writes=False, destroy=None, kernel=fake.kernel)


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "drive.img"
    path.write_bytes(bytes(8192))
    return path


@pytest.fixture
def fake_proc(tmp_path, image):
    """A directory of processes, one of which ends while it is looked at; and open_in(pid, ...) adds one with a file."""
    proc = tmp_path / "proc"
    for name in ("1", "77", "sys"):
        (proc / name).mkdir(parents=True)
    (proc / "self").symlink_to(str(os.getpid()))

    def open_in(pid, what=image, flags="0100002"):
        process = proc / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "fdinfo").mkdir()
        (process / "fd/3").symlink_to(what)
        (process / "fdinfo/3").write_text(f"pos:\t0\nflags:\t{flags}\n")
        (process / "maps").write_text("")
        (process / "comm").write_text("qemu-system-x86\n")

    return proc, open_in


def test_who_has_an_image_open(fake_proc, image, tmp_path):
    proc, open_in = fake_proc
    link = tmp_path / "link"
    link.hardlink_to(image)
    paths = {identity_of(link): str(link)}
    open_in(78, tmp_path / "mountinfo")
    open_in(79, flags="012000000")  # O_PATH: no I/O can be done by it
    open_in(80, tmp_path / "deleted")
    open_in(os.getpid())
    assert openers_of(paths, proc) == ([], 0)
    open_in(81)
    (opener,), _ = openers_of(paths, proc)
    assert (opener.pid, opener.name, opener.how, opener.device) == (81, "qemu-system-x86", "open", str(link))


def test_a_use_that_the_kernel_does_not_show_is_no_free_drive(fake, fake_proc, image):
    """In a chroot without /sys the image of a mounted loop device looked unused, and without /proc an open one."""
    (fake.root / "sys/class/block").rename(fake.root / "hidden")
    with pytest.raises(BlkreelError, match="sys is not mounted; mount -t sysfs"):
        safety.check(find_target(image), writes=True, destroy=None, kernel=fake.kernel)
    proc, _ = fake_proc
    (proc / "1").rmdir()
    assert openers_of({identity_of(image): str(image)}, proc) == ([], 1), "hidepid=2"
    (proc / "self").unlink()
    with pytest.raises(BlkreelError, match="proc is not mounted; mount -t proc"):
        openers_of({identity_of(image): str(image)}, proc)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every process")
def test_processes_of_others_are_counted(image):
    assert openers_of({identity_of(image): str(image)})[1]


@pytest.fixture
def has_open():
    """Another process that has a file open until it is stopped."""
    running = []

    def start(path):
        process = subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1]); f = open(sys.argv[1]); "
                                    "print(flush=True); sys.stdin.read()", path], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        running.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in running:
        process.communicate()


def test_a_program_that_has_an_image_open_bars_it_and_is_named(image, has_open, monkeypatch):
    monkeypatch.setattr(usage, "_CLOSE_WAIT_S", 0)
    target = find_target(image)
    safety.check(target, writes=True, destroy=None)
    process = has_open(image)
    with pytest.raises(SafetyError, match=rf"{image} is open in python\S* \(process {process.pid}\)") as error:
        safety.check(target, writes=True, destroy=None)
    assert f"lsof {image}" in error.value.remedy


def test_a_program_that_opens_it_between_the_check_and_the_run(image, has_open, monkeypatch):
    monkeypatch.setattr(usage, "_CLOSE_WAIT_S", 0)
    target = find_target(image)
    with held(target):
        pass
    has_open(image)
    with pytest.raises(SafetyError, match="is open in"), held(target):
        pass


def test_who_has_it_open_for_a_moment_only_is_waited_for(image, monkeypatch):
    """udev probes a drive that was just written."""
    seen = [[Use(str(image), "open in udev-worker (process 7)", "")], []]
    monkeypatch.setattr(usage, "openings_of", lambda target, kernel: (seen.pop(0), 0))
    safety.check(find_target(image), writes=True, destroy=None)
    assert not seen


def test_what_could_not_be_looked_into_is_named_once_per_boot(image, monkeypatch, tmp_path):
    monkeypatch.setattr(usage, "openings_of", lambda target, kernel: ([], 12))
    (warning,) = safety.check_all([(find_target(image), True)], destroy=())
    assert f"open files of 12 processes were not checked for {image}" in warning
    assert not safety.check_all([(find_target(image), True)], destroy=())
    (tmp_path / "state/processes-not-checked").write_text("another boot")
    assert safety.check_all([(find_target(image), True)], destroy=())


def test_the_character_device_of_a_namespace_leads_to_it(tmp_path):
    """By its neighbor in sysfs; any other path stays, so that it is refused as what it is."""
    controller = tmp_path / "devices/nvme3"
    (tmp_path / "dev/char").mkdir(parents=True)
    for name in ("ng3n2", "nvme3n2"):
        (controller / name).mkdir(parents=True)
    status = Path("/dev/null").stat()
    (tmp_path / f"dev/char/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}").symlink_to(controller / "ng3n2")
    assert namespace_of("/dev/null", tmp_path) == "/dev/null", "a neighbor without a size is no drive"
    (controller / "nvme3n2/size").write_text("2048\n")
    assert namespace_of("/dev/null", tmp_path) == "/dev/nvme3n2"
    assert namespace_of("/dev/zero", tmp_path) == "/dev/zero"
    assert namespace_of(tmp_path, tmp_path) == str(tmp_path) and namespace_of("/none") == "/none"


def test_commands_need_a_whole_namespace(tmp_path):
    for name in ("ng3n2", "nvme3n2/nvme3n2p1", "sda"):
        (tmp_path / name).mkdir(parents=True)
    drive = Drive(name="nvme3n2", path="/dev/nvme3n2", kind="disk", major=259, minor=1, size_bytes=1 << 26,
                  logical_block_bytes=512, physical_block_bytes=4096)
    namespace = Target(Path("/dev/nvme3n2"), drive, 1 << 26, 512, block=tmp_path / "nvme3n2")
    namespace.require_commands()
    with pytest.raises(UsageError, match="commands address the whole namespace"):
        replace(namespace, partition="nvme3n2p1", block=tmp_path / "nvme3n2/nvme3n2p1").require_commands()
    for block in (tmp_path / "sda", None):
        with pytest.raises(UsageError, match="takes no NVMe commands"):
            replace(namespace, block=block).require_commands()
    with pytest.raises(UsageError, match="has zones"):
        replace(namespace, drive=replace(drive, zoned="host-managed")).require_commands()
