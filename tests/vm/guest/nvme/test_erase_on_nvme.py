"""Erasing by the drive's own commands, with the real nvme-cli: the commands, and the content of the drive then."""

import json
import mmap
import os
import re
import subprocess

import pytest

from tests.vm.guest.drives import counters

MIB = 1 << 20
SIZE_MIB = 128


@pytest.fixture
def old_data(nvme):
    """A drive full of something."""
    with mmap.mmap(-1, MIB) as data:  # aligned, as direct I/O needs
        data.write(b"\xff" * MIB)
        drive = os.open(nvme, os.O_WRONLY | os.O_DIRECT)
        try:
            for at in range(SIZE_MIB):
                os.pwrite(drive, data, at * MIB)
        finally:
            os.close(drive)
    return nvme


def holds(drive, value):
    subprocess.run(["blockdev", "--flushbufs", drive], check=True)  # what was read before may not be so any more
    wanted = value * MIB
    with open(drive, "rb", buffering=0) as file:
        return all(file.read(MIB) == wanted for _ in range(SIZE_MIB)) and not file.read(1)


def test_a_format_empties_the_drive(blkreel, old_data, tracing):
    assert holds(old_data, b"\xff")
    discards = counters(old_data)["discards"]
    tracing.enable("nvme/nvme_setup_cmd")
    result = blkreel("precondition", old_data, "--state", "fresh", "--erase", "format", "--destroy", "GUEST001",
                     "--json", timeout=400)
    state = json.loads(result.stdout)["state"]
    assert (state["name"], state["erased_by"]) == ("fresh", "format")
    assert state["notes"] == ["134 MB of unwritten space read as zeros"]
    assert len(re.findall(r"nvme_admin_format_nvm", tracing.text())) == 1
    assert counters(old_data)["discards"] == discards, "nothing was discarded besides"
    assert holds(old_data, b"\0")


def test_a_state_begins_with_a_format(blkreel, old_data):
    result = blkreel("precondition", old_data, "--state", "op25", "--erase", "format", "--destroy", "GUEST001",
                     timeout=400)
    assert re.search(r"3,00\d blocks of 4 KiB read back, all as written", result.stdout)
    assert "33.6 MB of unwritten space read as zeros" in result.stdout
    assert "op25, prepared" in blkreel("drives").stdout


def test_what_the_drive_has_not_is_said_before_it_is_touched(blkreel, old_data):
    """QEMU's drive has no sanitize."""
    result = blkreel("precondition", old_data, "--state", "fresh", "--erase", "sanitize", "--destroy", "GUEST001",
                     code=1)
    assert f"{old_data} has no sanitize by block erase; try --erase format" in result.stderr
    assert holds(old_data, b"\xff")


def test_a_format_wants_the_serial_and_the_whole_drive(blkreel, old_data):
    words = ("precondition", old_data, "--state", "fresh", "--erase", "format")
    for consent in ([], ["--destroy", "GUEST002"]):
        result = blkreel(*words, *consent, code=5)
        assert "--destroy GUEST001" in result.stderr
    assert holds(old_data, b"\xff")
    subprocess.run(["sfdisk", "--quiet", old_data], input="label: gpt\n,32M\n,\n", text=True, check=True)
    partition = f"{old_data}p1"
    result = blkreel("precondition", partition, *words[2:], "--destroy", "GUEST001", code=2)
    assert f"{partition} is a partition, and a format takes the whole drive" in result.stderr
    subprocess.run(["wipefs", "--quiet", "--all", old_data], check=True)
    subprocess.run(["blockdev", "--rereadpt", old_data], check=True)
