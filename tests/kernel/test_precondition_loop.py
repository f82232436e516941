"""Drives put into a state, and what is on them then."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.kernel

MIB = 1 << 20
BLOCK = 4096


def blocks(image):
    return np.frombuffer(image.read_bytes(), np.uint8).reshape(-1, BLOCK)


def counted(drive):
    """Bytes written and discarded, by the kernel's count."""
    fields = Path(f"/sys/class/block/{Path(drive).name}/stat").read_text().split()
    return int(fields[6]) * 512, int(fields[13]) * 512


def state_files(blkreel):
    return list(Path(blkreel.environment["BLKREEL_STATE_DIR"]).glob("*.json"))


def test_client_leaves_95_percent_written_and_a_part_at_random(blkreel, loop_drive):
    size = 64 * MIB
    drive = loop_drive(size)
    image = loop_drive.image_of(drive)
    image.write_bytes(b"\xff" * size)
    written_before, discarded_before = counted(drive)
    result = blkreel("precondition", drive, "--state", "client", "--idle", "100ms", "--json")
    written, discarded = counted(drive)

    filled = size * 95 // 100 // (128 * 1024) * (128 * 1024)
    assert written - written_before == filled + size // 32
    assert discarded - discarded_before == size
    data = blocks(image)
    has_data = data.any(axis=1)
    assert has_data[:filled // BLOCK].all()
    assert not has_data[filled // BLOCK:].any(), "the rest is erased"
    assert len(np.unique(data[:filled // BLOCK], axis=0)) == filled // BLOCK, "no block is like another"

    state = json.loads(result.stdout)["state"]
    assert state["name"] == "client"
    assert state["idle_ns"] == 100_000_000
    assert state["scale"] == size / (256 << 30)
    drives = json.loads(blkreel("drives", "--json").stdout)["drives"]
    assert {entry["path"]: entry["state"]["name"] for entry in drives}[drive] == "client"


@pytest.mark.parametrize(("name", "share", "volume"), [("fresh", 0, 0), ("full", 1, 1), ("op25", 0.75, 0.75),
                                                       ("enterprise", 1, 2)])
def test_the_other_states(blkreel, loop_drive, name, share, volume):
    size = 16 * MIB
    drive = loop_drive(size)
    loop_drive.image_of(drive).write_bytes(b"\xff" * size)
    before, _ = counted(drive)
    blkreel("precondition", drive, "--state", name)
    assert counted(drive)[0] - before == volume * size
    has_data = blocks(loop_drive.image_of(drive)).any(axis=1)
    assert has_data.sum() == share * size // BLOCK
    assert has_data[:int(share * size) // BLOCK].all()


def test_a_dry_run_touches_nothing(blkreel, loop_drive):
    drive = loop_drive(16 * MIB)
    before = counted(drive)
    assert "nothing touched" in blkreel("precondition", drive, "--state", "client", "--dry-run").stdout
    assert counted(drive) == before
    assert not state_files(blkreel)


def test_an_interrupted_preparation_leaves_the_state_unknown(blkreel, loop_drive):
    drive = loop_drive(16 * MIB)
    blkreel("precondition", drive, "--state", "full")
    process = subprocess.Popen([blkreel.command, "precondition", drive, "--state", "client", "--idle", "60s"],
                               env=blkreel.environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    (file,) = state_files(blkreel)
    while json.loads(file.read_text())["state"]["name"] == "full":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(file.read_text())["state"]["name"] is None


def test_a_state_that_is_none(blkreel, loop_drive):
    result = blkreel("precondition", loop_drive(16 * MIB), "--state", "pristine", check=False)
    assert result.returncode == 2
    assert "client" in result.stderr


def test_a_full_disk_under_the_image(blkreel, tiny_filesystem, program):
    image = tiny_filesystem / "image"
    image.touch()
    os.truncate(image, 8 * MIB)  # a sparse file; the file system holds 1 MiB
    attach = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True)
    if attach.returncode:
        pytest.skip(f"needs a loop device: {attach.stderr.strip()}")
    drive = attach.stdout.strip()
    try:
        result = blkreel("precondition", drive, "--state", "full", check=False)
    finally:
        subprocess.run(["losetup", "--detach", drive], check=True)
    assert result.returncode == 1
    assert "filling" in result.stderr
    assert "failed: write of" in result.stderr
