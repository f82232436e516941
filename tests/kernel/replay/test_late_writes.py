"""Writes in flight when a command ends: the drive stays claimed until the last of them is done."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers import helpers_of
from loop_device import is_claimed
from small_trace import new_trace
from waiting import wait_until

from blkreel.common.files.output_lock import spool_of
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SIZE = 16 * MIB
OWNER = b"owner's!" * (SIZE // 8)


@pytest.fixture
def trace(tmp_path):
    count = 60_000
    return new_trace(tmp_path / "t.parquet", drive_bytes=SIZE, submit_ns=np.arange(count) * 10**6,
                     offset_bytes=np.arange(count) * 4096 % SIZE, op=OPS["write"])


@pytest.fixture
def command(trace, tmp_path):
    """command(verb, drive): the arguments of blkreel."""
    return lambda verb, drive: [str(word) for word in {
        "replay": ["replay", trace, "--on", drive, "-o", tmp_path / "run"],
        "precondition": ["precondition", drive, "--state", "full", "--erase", "none"]}[verb]]


class Command:
    """A command with writes in flight on a held drive. run: of a replay, which has some rows by then."""

    def __init__(self, blkreel, words, log, drive, run):
        self._log = log
        with open(log, "wb") as file:
            self.process = blkreel.start(*words, stdout=subprocess.DEVNULL, stderr=file, start_new_session=True)
        if run:
            rows = spool_of(run / "records.parquet") / "rows.blocks"
            wait_until(lambda: rows.exists() and rows.stat().st_size > 0, self.process)
            drive.hold()
        # The command itself may have an I/O in flight before.
        wait_until(lambda: drive.in_flight() > 0 and helpers_of(self.process.pid), self.process)
        (self.helper,) = helpers_of(self.process.pid)

    def signal(self, number):
        self.process.send_signal(number)

    def wait_for(self, text):
        wait_until(lambda: text in self.printed(), self.process)

    def printed(self):
        return self._log.read_text()

    def exit_code(self):
        return self.process.wait(timeout=300)


@pytest.fixture
def started(blkreel, command, held_drive, tmp_path):
    """started(verb): a Command on held_drive, whose writes wait."""
    commands = []

    def start(verb):
        if verb == "precondition":
            held_drive.hold()
        run = tmp_path / "run" if verb == "replay" else None
        commands.append(Command(blkreel, command(verb, held_drive.path), tmp_path / "stderr", held_drive, run))
        return commands[-1]

    yield start
    held_drive.let_go()
    for each in commands:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()


def assert_next_owner_keeps_its_data(held_drive):
    """Another program gets the drive after the last write of the command, and its data stays."""
    assert held_drive.in_flight() > 0 and is_claimed(held_drive.path)
    held_drive.let_go()
    wait_until(lambda: not is_claimed(held_drive.path))
    assert held_drive.in_flight() == 0
    with open(os.open(held_drive.path, os.O_WRONLY | os.O_EXCL), "wb", buffering=0) as file:
        assert file.write(OWNER) == SIZE
        os.fsync(file.fileno())
    assert (held_drive.mount / "image").read_bytes() == OWNER


@pytest.mark.parametrize(("verb", "number", "exit_code"), [
    ("precondition", signal.SIGINT, 130), ("replay", signal.SIGTERM, 3), ("replay", signal.SIGHUP, 3)])
def test_a_signal_ends_the_command_after_the_last_write(started, held_drive, tmp_path, verb, number, exit_code):
    command = started(verb)
    command.signal(number)
    command.wait_for(f"in flight on {held_drive.path}; the drive must not be used until they are done\n")
    assert command.process.poll() is None and is_claimed(held_drive.path)
    held_drive.let_go()
    assert command.exit_code() == exit_code
    assert held_drive.in_flight() == 0 and not is_claimed(held_drive.path)
    if verb == "replay":
        assert open_trace(tmp_path / "run").metadata["run"]["partial"] == "interrupted"


@pytest.mark.parametrize("verb", ["precondition", "replay"])
def test_a_second_ctrl_c_leaves_the_writes_in_flight(started, held_drive, blkreel, command, tmp_path, verb):
    first = started(verb)
    first.signal(signal.SIGINT)
    first.wait_for("in flight")
    first.signal(signal.SIGINT)
    assert first.exit_code() == 6
    last = first.printed().splitlines()[-1]
    assert f" writes in flight on {held_drive.path}: using {held_drive.path} before they are done loses data" in last
    assert re.search(r"see when they are done: \S*blkreel drives", last)
    if verb == "replay":
        assert f"in flight on {held_drive.path}" in open_trace(tmp_path / "run").metadata["run"]["partial"]
    assert_refused(blkreel, command, held_drive.path, verb)
    assert_next_owner_keeps_its_data(held_drive)
    assert listed(blkreel, held_drive.path)["writing"] is None
    blkreel(*command("precondition", held_drive.path))


def listed(blkreel, drive):
    drives = json.loads(blkreel("drives", "--json").stdout)["drives"]
    return next(each for each in drives if each["path"] == drive)


def assert_refused(blkreel, command, drive, by):
    """The list of drives and the next command name the earlier one."""
    entry = listed(blkreel, drive)
    assert entry["writing"]["by"] == by
    assert entry["state_words"].startswith(f"being written by a command that ended: {by}, begun ")
    refused = blkreel(*command("precondition", drive), code=5)
    assert f"{drive} is being written by a command that ended: {by}" in refused.stderr


def test_the_command_waits_for_the_writes_of_a_killed_helper(started, held_drive):
    command = started("replay")
    os.kill(command.helper, signal.SIGKILL)
    command.wait_for(f" writes in flight on {held_drive.path}; the drive must not be used until they are done")
    assert not Path(f"/proc/{command.helper}").exists(), "nothing but the kernel keeps the claim"
    assert_next_owner_keeps_its_data(held_drive)
    assert command.exit_code() == 1
    assert "the replay helper was killed by signal 9" in command.printed()


@pytest.mark.parametrize("killed", ["helper and then left", "both"])
def test_the_kernel_keeps_the_claim_of_killed_processes(started, held_drive, blkreel, command, killed):
    first = started("precondition")
    os.kill(first.helper, signal.SIGKILL)
    if killed == "both":
        first.signal(signal.SIGKILL)
        first.exit_code()
    else:
        first.wait_for("in flight")
        first.signal(signal.SIGTERM)
        first.signal(signal.SIGINT)
        assert first.exit_code() == 6
        assert f"left up to 32 writes in flight on {held_drive.path}" in first.printed()
    assert_refused(blkreel, command, held_drive.path, "precondition")
    assert_next_owner_keeps_its_data(held_drive)
    assert listed(blkreel, held_drive.path)["writing"] is None


def test_a_lost_terminal_ends_the_command_after_the_last_write(on_terminal, held_drive, command, blkreel):
    held_drive.hold()
    terminal = on_terminal(*command("precondition", held_drive.path))
    wait_until(lambda: held_drive.in_flight() > 0)
    terminal.hang_up()
    assert_next_owner_keeps_its_data(held_drive)
    terminal.process.wait(timeout=300)
    assert listed(blkreel, held_drive.path)["state_words"].startswith("unknown: preparing full at ")
