"""Those tests of tests/kernel that hold for both back ends of an emulated drive, on a kernel with ublk."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.kernel.replay.test_emulated import (  # noqa: F401
    emulate,
    name,
    running,
    test_a_file_system_stays_intact,
    test_a_killed_command_takes_its_drive_down,
    test_a_killed_server_gives_errors_at_once,
    test_a_server_that_hangs_is_aborted,
    test_ctrl_c_ends_it_in_order_and_not_while_mounted,
    test_data_are_those_written,
    test_programs_get_the_latency_of_the_model,
    test_the_state_of_an_image_is_kept,
    test_the_time_of_an_io_begins_when_it_is_issued,
    test_what_others_see_of_it,
)


@pytest.fixture(scope="module", autouse=True)
def require_ublk():
    if not Path("/dev/ublk-control").exists():
        pytest.skip("needs ublk with user copy: Linux 6.5")


def test_reads_do_not_wait_for_flushes(emulate):  # noqa: F811
    """Requests of one queue: the server answers each when it is due."""
    beside = ("dd if=/dev/zero of=$BLKREEL_DEVICE bs=4k count=4 oflag=direct,dsync 2>/dev/null & "
              "while kill -0 $! 2>/dev/null; do "
              "dd if=$BLKREEL_DEVICE of=/dev/null iflag=direct bs=4k count=20 skip=100 2>/dev/null; done")
    drive = "nil:64MiB,read_latency=200us,write_latency=200us,flush_latency=500ms"
    document = json.loads(emulate("--json", "--", "sh", "-c", beside, drive=drive).stdout)
    assert document["backend"] == "ublk"
    assert document["counts"]["flush_ios"] >= 4
    assert document["counts"]["beside_blocking"] > 0


def test_the_device_ends_with_its_last_user(running):  # noqa: F811
    with running() as (process, device):
        held = os.open(device, os.O_RDONLY)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        assert os.pread(held, 512, 0) == bytes(512)
        os.close(held)
