"""Emulated drives: data, ends of every kind, and what they leave behind. measurements/ measures their accuracy."""

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from documents import valid_document
from loop_device import attach_loop, detach_loop
from waiting import wait_until

from blkreel.common.emulated import LINKS, RUN, name_of, read_account
from blkreel.common.files.safe_files import lock_file
from blkreel.replay.emulated.directory import devices_over
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

MIB = 1 << 20
CAP_SYS_NICE = 23
DRIVE = "nil:64MiB,read_latency=200us,write_latency=200us,read_bandwidth=1GB/s,write_bandwidth=1GB/s,channels=4"
# The calibration depends on what else runs on the machine.
ANY_MACHINE = "--accept-inexact"
OF_OTHERS: frozenset = frozenset()


@pytest.fixture(autouse=True)
def require_fuse(require_root):
    if not Path("/dev/fuse").exists():
        pytest.skip("needs FUSE: modprobe fuse")


@pytest.fixture(autouse=True)
def drives_of_others(monkeypatch):
    """Nothing of this test: what work that was killed, or runs beside it, has on this machine."""
    monkeypatch.setattr(sys.modules[__name__], "OF_OTHERS", frozenset(nameless_devices()))


@pytest.fixture
def name(tmp_path):
    return f"test-{os.getpid()}-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:6]}"


@pytest.fixture
def emulate(blkreel, name, tmp_path):
    """Runs `blkreel emulate` with a command, and checks that it leaves nothing behind."""
    def run(*words, drive=DRIVE, code=0, **options):
        result = blkreel("emulate", drive, "--name", name, ANY_MACHINE, *words, code=code, cwd=tmp_path, **options)
        assert not left_behind(name)
        return result

    return run


@pytest.fixture
def running(blkreel, command_server, name, tmp_path):
    """A context with a running drive: its process and its device."""
    @contextmanager
    def run(*words, drive=DRIVE, code=0):
        process = command_server.start([blkreel.command, "emulate", drive, "--name", name, ANY_MACHINE, *words],
                                       env=blkreel.environment, cwd=tmp_path)
        try:
            wait_until(lambda: (LINKS / name).exists() or process.poll() is not None)
            assert process.poll() is None, process.communicate()[1]
            yield process, os.path.realpath(LINKS / name)
            wait_until(lambda: process.poll() is not None)
            assert process.returncode == code, process.stderr.read()
        finally:
            process.kill()
            process.communicate()
        wait_until(lambda: not left_behind(name))

    return run


def left_behind(name):
    """What of an ended drive is still there."""
    file = RUN / name / "drive"
    mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(file) in line]
    return [*devices_over(file), *mounted, *LINKS.glob(name), *RUN.glob(name), *nameless_devices() - OF_OTHERS]


def nameless_devices():
    """Devices that do not tell their drive. One whose file was unmounted before it was detached is over `/`."""
    return {*devices_over(Path("/")), *map(str, Path("/dev").glob("ublk[bc]*"))}


def server_of(process):
    """The native process that serves the drive of this command."""
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    return int(next(filter(None, (child.read_text().split() for child in children)))[0])


def stop(pid):
    """Stop a process, and wait for each of its threads: on a busy machine, some go on for tens of milliseconds."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: {(thread / "stat").read_text().rpartition(")")[2].split()[0]
                        for thread in Path(f"/proc/{pid}/task").iterdir()} == {"T"})


def read_fails(device):
    """Whether a read that bypasses the page cache gets EIO. A ublk device goes with its server."""
    result = subprocess.run(["dd", f"if={device}", "of=/dev/null", "iflag=direct", "bs=4096", "count=1"],
                            capture_output=True, text=True, timeout=300)
    reasons = ("Input/output error", *(map(os.strerror, (errno.ENXIO, errno.ENODEV, errno.ENOENT))
                                       if "ublk" in device else ()))
    return result.returncode != 0 and any(reason in result.stderr for reason in reasons)


@pytest.mark.parametrize("image", [(), ("--image", "drive.img")], ids=["memory", "file"])
def test_data_are_those_written(emulate, tmp_path, image):
    written = ("fio --filename=$BLKREEL_DEVICE --size=16m --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c "
               "--verify_state_save=0 --output=/dev/null")
    verified = (f"{written} --name=small --rw=randwrite --bs=4k --fsync=100 && "
                f"{written} --name=large --rw=write --bs=600k --offset=24m && "
                "blkdiscard --offset 4096 --length 1m $BLKREEL_DEVICE && "
                "cmp --bytes 1048576 --ignore-initial 4096:0 $BLKREEL_DEVICE /dev/zero && "
                "blkdiscard --zeroout --offset 8M --length 1m $BLKREEL_DEVICE && "
                "cmp --bytes 1048576 --ignore-initial 8388608:0 $BLKREEL_DEVICE /dev/zero")
    emulate(*image, "--", "sh", "-ec", verified)


def test_a_command_in_a_mounted_drive_runs_as_the_caller_of_sudo(emulate, tmp_path):
    (tmp_path / "mnt").mkdir()
    assert emulate("--mount", "mnt", "--", "id", "-u", env={"SUDO_UID": "65534"}).stdout.splitlines()[-1] == "65534"


def test_a_file_system_stays_intact(emulate, tmp_path):
    (tmp_path / "mnt").mkdir()
    filled = ('dd if=/dev/urandom of="$BLKREEL_MOUNT/data" bs=1M count=20 conv=fsync 2>/dev/null; '
              'sha256sum "$BLKREEL_MOUNT/data" >sum; exit 7')
    emulate("--image", "drive.img", "--mount", "mnt", "--", "sh", "-c", filled, code=7)
    assert not os.path.ismount(tmp_path / "mnt")
    emulate("--image", "drive.img", "--", "sh", "-c", "fsck.ext4 -fn $BLKREEL_DEVICE")
    emulate("--image", "drive.img", "--mount", "mnt", "--", "sha256sum", "--check", "sum")


def test_the_account_is_a_document(emulate):
    result = emulate("--json", "--", "dd", "if=/dev/zero", "of=/dev/null", "count=1")
    document = valid_document("emulate", result.stdout)
    assert document["calibration"]["read_iops"] > 0
    assert document["check"]["asked_ns"] == document["calibration"]["check"]["asked_ns"]


def test_programs_get_the_latency_of_the_model(emulate):
    """Other work on this machine may add to it, but must not shorten it by more than the calibration compensates."""
    timed = ("import mmap, os, time; f = os.open(os.environ['BLKREEL_DEVICE'], os.O_RDONLY | os.O_DIRECT); "
             "buffer = mmap.mmap(-1, 4096); begin = time.monotonic(); "
             "[os.preadv(f, [buffer], 8192 * i) for i in range(50)]; print(time.monotonic() - begin)")
    result = emulate("--", sys.executable, "-c", timed, drive="nil:64MiB,read_latency=20ms,channels=1")
    assert float(result.stdout) > 50 * 0.02 * 0.95


def test_a_discard_is_one_command(emulate, tmp_path):
    """Also on a loop device that splits discards since it had another image."""
    image = tmp_path / "other.img"
    image.write_bytes(bytes(MIB))
    other = attach_loop(image)
    try:
        Path("/sys/block", Path(other).name, "queue/discard_max_bytes").write_text(str(MIB))
    finally:
        detach_loop(other)
    document = json.loads(emulate("--json", "--", "sh", "-c", "blkdiscard -l 16M $BLKREEL_DEVICE").stdout)
    assert document["counts"]["discard_ios"] == 1


def test_reads_of_the_command_do_not_wait_for_flushes(emulate):
    """The loop driver executes flushes in the thread that submits the I/Os of the root control group."""
    if not Path("/sys/fs/cgroup/blkio/cgroup.procs").exists():
        pytest.skip("needs the blkio controller of cgroup v1")
    flushing = ("import os, sys; f = os.open(os.environ['BLKREEL_DEVICE'], os.O_RDWR); "
                "[(os.pwrite(f, b'x' * 4096, 0), os.fsync(f)) for _ in range(20)]")
    beside = (f'{sys.executable} -c "$0" & while kill -0 $! 2>/dev/null; do '
              'dd if=$BLKREEL_DEVICE of=/dev/null iflag=direct bs=4k count=50 skip=100 2>/dev/null; done')
    drive = "nil:64MiB,read_latency=200us,write_latency=200us,flush_latency=100ms"
    result = emulate("--json", "--", "sh", "-c", beside, flushing, drive=drive)
    counts = json.loads(result.stdout)["counts"]
    assert counts["flush_ios"] >= 20
    assert counts["beside_blocking"] > 0


def test_ctrl_c_ends_it_in_order_and_not_while_mounted(running, name, tmp_path):
    with running() as (process, device):
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        (tmp_path / "mnt").mkdir()
        subprocess.run(["mount", device, tmp_path / "mnt"], check=True)
        process.send_signal(signal.SIGINT)
        assert f"mounted at {tmp_path}/mnt" in next(line for line in process.stderr if "mounted" in line)
        (tmp_path / "mnt/file").write_text("still there")
        subprocess.run(["umount", tmp_path / "mnt"], check=True)
        process.send_signal(signal.SIGINT)


def test_force_unmounts(running, tmp_path):
    (tmp_path / "mnt").mkdir()
    with running("--mount", "mnt", "--force") as (process, _):
        wait_until(lambda: os.path.ismount(tmp_path / "mnt"))
        process.send_signal(signal.SIGINT)
    assert not os.path.ismount(tmp_path / "mnt")


def test_a_killed_server_gives_errors_at_once(running):
    with running(code=1) as (process, device):
        held = os.open(device, os.O_RDONLY)
        try:
            os.kill(server_of(process), signal.SIGKILL)
            assert read_fails(device)
        finally:
            os.close(held)
        process.wait(300)
        assert "killed by signal 9" in process.stderr.read()


def test_a_killed_command_takes_its_drive_down(running, blkreel, name):
    with running(code=-signal.SIGKILL) as (process, device):
        process.kill()
        with (RUN / name / "lock").open("rb") as lock:
            assert lock_file(lock, patience_s=300)  # its processes have ended
        assert not devices_over(RUN / name / "drive")
        blkreel("emulate", DRIVE, "--name", f"{name}-b", ANY_MACHINE, "--", "true")  # removes the rest


def test_a_server_that_hangs_is_aborted(running):
    # So long that the server is in time before it is stopped, on a busy machine too.
    with running("--timeout", "20s", code=1) as (process, device):
        server = server_of(process)
        stop(server)
        try:
            assert read_fails(device)
        finally:
            os.kill(server, signal.SIGCONT)
        process.wait(300)
        assert "no answer for 20 s" in process.stderr.read()


def test_it_mounts_nothing_but_its_file(blkreel, name):
    """In a mount namespace of its own, without the file system that the watchdog takes its control file from."""
    command = 'umount /sys/fs/fuse/connections 2>/dev/null; exec "$0" "$@"'
    words = [blkreel.command, "emulate", DRIVE, "--name", name, ANY_MACHINE, "--", "cat", "/proc/self/mounts"]
    result = subprocess.run(["unshare", "--mount", "sh", "-c", command, *words], capture_output=True, text=True,
                            timeout=300)
    assert result.returncode == 0, result.stderr
    assert str(RUN / name / "drive") in result.stdout
    assert "fusectl" not in result.stdout


# Adds rows 0, 1, ... to a table, each in a transaction of its own, and names each that is committed.
SQLITE = """
import itertools, os, sqlite3
database = sqlite3.connect(os.environ["BLKREEL_MOUNT"] + "/database", isolation_level=None)
database.execute("pragma journal_mode=wal"), database.execute("pragma synchronous=full")
database.execute("create table t (n int)")
for n in itertools.count():
    database.execute("insert into t values (?)", (n,))
    print(n, flush=True)
"""
SQLITE_AFTER = """
import os, sqlite3
database = sqlite3.connect(os.environ["BLKREEL_MOUNT"] + "/database")
assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
print(*(n for (n,) in database.execute("select n from t order by n")))
"""


def test_what_a_database_committed_is_there_after_a_kill(running, emulate, tmp_path):
    """As on a drive with a write cache that loses its power."""
    (tmp_path / "mnt").mkdir()
    with running("--image", "drive.img", "--mount", "mnt", "--force", code=1) as (process, _):
        wait_until(lambda: os.path.ismount(tmp_path / "mnt"))
        writer = subprocess.Popen([sys.executable, "-c", SQLITE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True, env={**os.environ, "BLKREEL_MOUNT": str(tmp_path / "mnt")})
        committed = [int(writer.stdout.readline()) for _ in range(40)]
        os.kill(server_of(process), signal.SIGKILL)
        committed += [int(line) for line in writer.stdout if line.endswith("\n")]
        assert writer.wait(300)
    emulate("--image", "drive.img", "--", "sh", "-c", "e2fsck -fp $BLKREEL_DEVICE; test $? -le 1")
    found = emulate("--image", "drive.img", "--mount", "mnt", "--", sys.executable, "-c", SQLITE_AFTER).stdout
    kept = [int(word) for word in found.splitlines()[-1].split()]
    assert committed == list(range(len(committed)))
    # The last one may have been committed without its answer.
    assert kept[:len(committed)] == committed and len(kept) <= len(committed) + 1


def seconds_while_the_server_stops(words, server, stop_s):
    stop(server)
    begin = time.monotonic()
    waiting = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    time.sleep(stop_s)
    os.kill(server, signal.SIGCONT)
    assert waiting.wait(300) == 0
    return time.monotonic() - begin


@pytest.mark.parametrize("op", ["read", "flush"])
def test_the_time_of_an_io_begins_when_it_is_issued(running, name, op):
    """Not when a server that was stopped takes it: 7 s. Other work on this machine only adds to it, now and then."""
    with running(drive=f"nil:64MiB,{op}_latency=4s,channels=1") as (process, device):
        words = {"read": ["dd", f"if={device}", "of=/dev/null", "iflag=direct", "bs=4096", "count=1"],
                 "flush": ["dd", "if=/dev/null", f"of={device}", "conv=fsync,notrunc"]}[op]
        assert read_account(name)["times_of"] == "issue"
        for _ in range(5):
            took_s = seconds_while_the_server_stops(words, server_of(process), 3)
            assert took_s > 3.9
            if took_s < 6.9:
                break
        else:
            pytest.fail("each read took its latency after the stop")
        process.send_signal(signal.SIGTERM)


def test_what_serves_ios_runs_before_other_work_and_with_no_other_right(running):
    """Readers and sender; they go back to ordinary priority for 2 ms at a time while they hardly sleep."""
    if subprocess.run(["chrt", "--fifo", "1", "true"], capture_output=True).returncode:
        pytest.skip("real-time priority is not allowed here")

    def real_time():
        return [task for task in Path(f"/proc/{server}/task").iterdir()
                if os.sched_getscheduler(int(task.name)) == os.SCHED_FIFO]

    with running() as (process, device):
        server = server_of(process)
        wait_until(lambda: not read_fails(device) and len(real_time()) == 3)
        allowed = {int(re.search(r"CapEff:\s+(\w+)", (task / "status").read_text())[1], 16) for task in real_time()}
        assert allowed == {1 << CAP_SYS_NICE}
        process.send_signal(signal.SIGTERM)


def test_what_others_see_of_it(running, name, blkreel):
    with running() as (process, device):
        drive = next(entry for entry in json.loads(blkreel("drives", "--json").stdout)["drives"]
                     if entry["path"] == device)
        assert drive["model"] == f"emulated drive {name}"
        assert name_of(drive["image"]) == name
        assert read_account(name)["size_bytes"] == 64 * MIB
        taken = blkreel("emulate", DRIVE, "--name", name, check=False)
        assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
        process.send_signal(signal.SIGTERM)


def test_a_capture_and_a_replay_have_its_account(running, name, blkreel, tmp_path):
    with running() as (process, device):
        blkreel("capture", device, "-o", tmp_path / "t.parquet", "--", "dd", f"if={device}", "of=/dev/null", "bs=64k",
                "iflag=direct", "count=100", check=False)
        recorded = open_trace(tmp_path / "t.parquet").metadata
        blkreel("replay", tmp_path / "t.parquet", "--on", device, "-o", tmp_path / "run", "--pace", "depth=1",
                check=False)
        process.send_signal(signal.SIGTERM)
    run = open_trace(tmp_path / "run/records.parquet").metadata["run"]
    assert recorded["devices"][0]["model"] == run["drive"]["model"] == f"emulated drive {name}"
    for uses in (recorded["emulated"], run["emulated"]):
        assert [use["name"] for use in uses] == [name]
        assert uses[0]["ios"] >= 100
    assert "asked" in blkreel("report", tmp_path / "run", "-o", tmp_path / "run.html").stdout + (
        tmp_path / "run.html").read_text()


@pytest.mark.parametrize("image", [(), ("--image", "drive.img")], ids=["memory", "file"])
def test_memory_pressure_does_not_stop_it(blkreel, name, tmp_path, image):
    """The server and a writer in one control group, whose limit is below what the writer leaves in the page cache."""
    tree = Path("/sys/fs/cgroup/memory")
    if not (tree / "memory.limit_in_bytes").exists():
        pytest.skip("needs the memory controller of cgroup v1")
    group = tree / f"blkreel-{name}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(320 * MIB))
        writes = "for i in 1 2 3; do dd if=/dev/zero of=$BLKREEL_DEVICE bs=1M count=128 conv=fsync; done"
        result = subprocess.run(
            ["sh", "-c", f'echo 0 >{group}/cgroup.procs && exec "$0" "$@"', blkreel.command, "emulate",
             DRIVE.replace("64MiB", "128MiB"), "--name", name, ANY_MACHINE, *image, "--", "sh", "-c", writes],
            capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert result.returncode == 0, result.stderr
        assert "aborted" not in result.stderr
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
    assert not left_behind(name)


def test_the_state_of_an_image_is_kept(emulate, tmp_path):
    drive = "nil:64MiB,read_latency=200us,cache=32MiB,cache_drain=1B/s"
    emulate("--image", "drive.img", "--", "sh", "-c", "dd if=/dev/zero of=$BLKREEL_DEVICE bs=1M count=8 oflag=direct",
            drive=drive)
    state = json.loads((tmp_path / "drive.img.state").read_text())["state"]
    assert state["cache_fill_bytes"] == pytest.approx(8 * MIB, rel=0.01)
    result = emulate("--image", "drive.img", "--json", "--", "true", drive=drive)
    assert json.loads(result.stdout)["counts"]["cache_fill_bytes"] > 7 * MIB


def test_a_typical_drive_has_the_size_of_its_image(emulate):
    emulate("--image", "drive.img", "--size", "64MiB", "--", "true", drive="nil:usb")
    document = json.loads(emulate("--image", "drive.img", "--json", "--", "true", drive="nil:usb").stdout)
    assert document["size_bytes"] == 64 * MIB


@pytest.mark.parametrize(("words", "why"), [
    (["nil:900TiB,channels=1"], "memory available"),
    ([DRIVE, "--image", "/dev/null"], "not a regular file"),
    ([DRIVE, "--image", "no/such/directory/drive.img"], "No such file"),
    ([DRIVE, "--image", "small.img"], "64"),
    ([DRIVE, "--backend", "ublk"], "ublk"),
    ([DRIVE, "--", "no-such-program"], "no-such-program")])
def test_refusals_leave_nothing(blkreel, tmp_path, name, words, why):
    (tmp_path / "small.img").write_bytes(bytes(4096))
    before = set(tmp_path.iterdir())
    at = words.index("--") if "--" in words else len(words)
    result = blkreel("emulate", *words[:at], "--name", name, ANY_MACHINE, *words[at:], code=(1, 2, 5), cwd=tmp_path)
    assert why in result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("blkreel: ")]) <= 2
    assert not left_behind(name)
    assert set(tmp_path.iterdir()) == before


_WITHOUT_IO_URING = '''
import ctypes, os, struct, sys
# Loads the number of the system call; io_uring_setup (425) fails with EPERM, all others are allowed.
rows = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000))), 32)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(rows))
assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) and not ctypes.CDLL(None).prctl(22, 2, program, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
'''


def test_io_uring_that_is_refused_has_a_remedy(name):
    """As kernel.io_uring_disabled=2 and profiles of containers refuse it."""
    refused = subprocess.run([sys.executable, "-c", _WITHOUT_IO_URING, Path(sys.executable).with_name("blkreel"),
                              "emulate", DRIVE, "--name", name, "--", "true"], capture_output=True, text=True)
    assert refused.returncode == 1 and "io_uring is not available" in refused.stderr, refused.stderr
    assert "kernel.io_uring_disabled=0" in refused.stderr and not left_behind(name)


def test_a_mount_that_fails_has_the_reason_of_mount(emulate, tmp_path):
    (tmp_path / "drive.img").write_bytes(os.urandom(4096) * (64 * 256))
    (tmp_path / "mnt").mkdir()
    result = emulate("--image", "drive.img", "--mount", "mnt", "--", "true", code=1)
    assert "mount failed: mount: " in result.stderr


def test_an_image_that_is_in_use_is_refused(running, blkreel, tmp_path, name):
    with running("--image", "drive.img") as (process, _):
        blkreel("emulate", DRIVE, "--image", "drive.img", "--name", f"{name}-b", code=5, cwd=tmp_path)
        assert not left_behind(f"{name}-b")
        process.send_signal(signal.SIGTERM)
