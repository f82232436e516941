"""What was checked is what is written and read: its name may come to stand for something else at any moment after.

Nothing here depends on who is faster: a function of the command is wrapped, and does the disturber's work at its place.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from empty_image import digest, empty_image, stamped
from helpers import helpers_of
from loop_device import is_claimed
from quiet import progress
from small_benchmark import RECIPE
from small_trace import new_trace
from waiting import wait_until

from blkreel.common.errors import SafetyError
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.prepare.precondition import Preparation
from blkreel.replay.prepare.states import state_for
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SIZE = 16 * MIB
# The command, with a shell script run at each end ("after") or start ("before") of a function of it.
DISTURBED = """
import importlib, subprocess, sys
place, when, script = sys.argv[1:4]
module, _, name = place.rpartition(".")
module = importlib.import_module(module)
real = getattr(module, name)
def disturbed(*arguments, **options):
    if when == "before":
        subprocess.run(["sh", "-ec", script], check=True)
    result = real(*arguments, **options)
    if when == "after":
        subprocess.run(["sh", "-ec", script], check=True)
    return result
setattr(module, name, disturbed)
sys.argv = ["blkreel", *sys.argv[4:]]
from blkreel.cli.main import main
main()
"""
AFTER_THE_CHECKS = "blkreel.replay.drive.safety.check", "after"
BEFORE_THE_HELPER = "blkreel.replay.engine.engine._start", "before"
BEFORE_THE_READ_BACK = "blkreel.replay.prepare.precondition.verify", "before"
BEFORE_A_REST = "blkreel.benchmarks.runner.runner.rest", "before"


@pytest.fixture
def trace(tmp_path):
    """Reads ahead of writes, so that there is something to prefill."""
    count = 200
    return new_trace(tmp_path / "t.parquet", drive_bytes=MIB, op=np.arange(count) % 2 * OPS["write"])


@pytest.fixture
def command(trace, tmp_path):
    """command(verb, target) is what blkreel is called with."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.replace("[1, 4]", "[1]"))
    return lambda verb, target: {
        "replay": ["replay", trace, "--on", target, "-o", tmp_path / "run"],
        "precondition": ["precondition", target, "--state", "full"],
        "test": ["test", recipe, "--on", target, "-o", tmp_path / "run"]}[verb]


@pytest.fixture
def disturbed(blkreel):
    """Runs the command with a shell script at that place of it."""
    def run(place, script, words):
        return subprocess.run([sys.executable, "-c", DISTURBED, *place, script, *map(str, words)], text=True,
                              capture_output=True, env=blkreel.environment, timeout=300)

    return run


@pytest.fixture
def image(tmp_path):
    """A file to be written, that is found again under another name when its own stands for something else."""
    path = empty_image(tmp_path / "image", SIZE)
    os.link(path, tmp_path / "the image itself")
    return path


VERBS = pytest.mark.parametrize("verb", ["replay", "precondition", "test"])


@VERBS
def test_a_file_replaced_by_a_link_to_a_drive_after_the_checks(disturbed, command, image, zram_drive, tmp_path, verb):
    """A drive that takes --destroy, which was not given."""
    zram_drive.write_bytes(b"precious" * (MIB // 8))
    before = digest(zram_drive)
    result = disturbed(AFTER_THE_CHECKS, f"ln -sfn {zram_drive} '{image}'", command(verb, image))
    assert image.is_symlink()
    assert result.returncode == 5, result.stderr
    assert f"{image} was replaced after it was checked" in result.stderr
    assert digest(zram_drive) == before
    assert not stamped(tmp_path / "the image itself").any()
    assert not (tmp_path / "run/records.parquet").exists()


@VERBS
def test_a_file_replaced_by_a_link_to_a_drive_when_the_helper_starts(disturbed, command, image, zram_drive, tmp_path,
                                                                   verb):
    """The file is what it was: it is written to, and read back."""
    zram_drive.write_bytes(b"precious" * (MIB // 8))
    before = digest(zram_drive)
    result = disturbed(BEFORE_THE_HELPER, f"ln -sfn {zram_drive} '{image}'", command(verb, image))
    assert result.returncode in (0, 3), result.stderr
    assert digest(zram_drive) == before
    written = stamped(tmp_path / "the image itself")
    assert written[:200].all() if verb == "replay" else written.all()


def test_the_file_is_read_back_and_not_what_has_its_name_then(disturbed, command, image, zram_drive):
    result = disturbed(BEFORE_THE_READ_BACK, f"ln -sfn {zram_drive} '{image}'", command("precondition", image))
    assert result.returncode == 0, result.stderr
    assert "blocks of 4 KiB read back, all as written" in result.stdout


@VERBS
def test_a_loop_device_that_gets_another_image_after_the_checks(disturbed, command, loop_drive, tmp_path, verb):
    drive = loop_drive(SIZE, replaceable=True)
    if not Path(f"/sys/block/{Path(drive).name}/diskseq").exists():
        pytest.skip("needs a kernel that counts what is attached: Linux 5.15")
    other = tmp_path / "other image"
    other.write_bytes(b"precious" * (SIZE // 8))
    once = tmp_path / "once"
    script = f"[ -e '{once}' ] || {{ touch '{once}'; losetup --detach {drive}; losetup {drive} '{other}'; }}"
    images = [other, loop_drive.image_of(drive)]
    before = [digest(path) for path in images]
    result = disturbed(AFTER_THE_CHECKS, script, command(verb, drive))
    assert result.returncode == 5, result.stderr
    assert f"{drive} was replaced after it was checked" in result.stderr and "diskseq" in result.stderr
    assert [digest(path) for path in images] == before


@pytest.mark.parametrize(("verb", "place", "times"), [
    ("replay", BEFORE_THE_HELPER, 2), ("precondition", BEFORE_THE_HELPER, 2),
    ("precondition", BEFORE_THE_READ_BACK, 1), ("test", BEFORE_THE_HELPER, 3), ("test", BEFORE_A_REST, 1)])
def test_nobody_mounts_the_drive_meanwhile(disturbed, command, loop_drive, program, tmp_path, verb, place, times):
    """Prefill and replay; the erase and the filling of a state; reading back; a measurement, and the rest after it."""
    drive = loop_drive(SIZE)
    subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", drive], check=True)
    point, log = tmp_path / "mnt", tmp_path / "log"
    point.mkdir()
    # With the type named, mount(8) asks the kernel even where it finds no file system any more.
    script = f"if mount -t ext4 {drive} '{point}' 2>>'{log}'; then echo mounted >>'{log}'; umount '{point}'; fi"
    result = disturbed(place, script, command(verb, drive))
    assert result.returncode in (0, 3), result.stderr
    lines = [line for line in log.read_text().splitlines() if "dmesg" not in line]
    assert len(lines) == times, lines
    assert all("busy" in line for line in lines)
    subprocess.run(["mkfs.ext4", "-q", drive], check=True)
    subprocess.run(["mount", drive, point], check=True)  # let go of in the end
    subprocess.run(["umount", point], check=True)


def test_a_mount_between_the_checks_and_the_first_write(disturbed, command, loop_drive, program, tmp_path):
    drive = loop_drive(SIZE)
    subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", drive], check=True)
    point = tmp_path / "mnt"
    point.mkdir()
    try:
        result = disturbed(AFTER_THE_CHECKS, f"mount {drive} '{point}'; sync -f '{point}'", command("replay", drive))
        assert result.returncode == 5, result.stderr
        assert "held exclusively" in result.stderr
        assert not stamped(loop_drive.image_of(drive)).any()
    finally:
        subprocess.run(["umount", point], check=True)


def test_a_partition_takes_its_whole_drive(loop_drive):
    drive = loop_drive(SIZE, partscan=True)
    table = "label: dos\nstart=2048, size=8192, type=83\nstart=16384, type=83\n"
    subprocess.run(["sfdisk", "--quiet", "--no-reread", drive], input=table, text=True, check=True)
    for number in (1, 2):
        if not Path(f"{drive}p{number}").exists():
            subprocess.run(["partx", "--add", "--nr", str(number), drive], check=True, capture_output=True)
    first = find_target(f"{drive}p1")
    outside = loop_drive.image_of(drive).read_bytes()[5 * MIB:]
    with held(first) as claim:
        assert os.fstat(claim.descriptor).st_rdev == Path(f"{drive}p1").stat().st_rdev
        assert is_claimed(drive) and is_claimed(f"{drive}p1") and is_claimed(f"{drive}p2")
        Preparation(first, state_for("full", first.size_bytes, 512, seed=1), 1, progress).run()
    assert not is_claimed(drive) and not is_claimed(f"{drive}p2")
    data = loop_drive.image_of(drive).read_bytes()
    assert data[5 * MIB:] == outside and any(data[MIB:2 * MIB])


def test_a_helper_that_outlives_the_command_keeps_others_off(blkreel, command, held_drive, trace):
    """Its writes are in flight, and the kernel does not give them up: who mounts the drive now would lose by them."""
    held_drive.hold()
    replay = blkreel.start(*command("replay", held_drive.path), "--no-prefill")
    try:
        wait_until(lambda: held_drive.in_flight() > 0, replay)
        helpers = helpers_of(replay.pid)
        replay.send_signal(signal.SIGKILL)
        replay.wait()
        assert len(helpers) == 1 and Path(f"/proc/{helpers[0]}").exists()
        assert is_claimed(held_drive.path)
        refused = pytest.raises(SafetyError, match="being written by a command that ended: replay")
        with refused, held(find_target(held_drive.path)):
            pass
    finally:
        held_drive.let_go()
    wait_until(lambda: not is_claimed(held_drive.path))
    replay.communicate()
