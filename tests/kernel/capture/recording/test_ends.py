"""However a capture ends, the trace is whole or nothing stands under its name."""

import fcntl
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from capture_sources import assert_recorded, skip_unless_it_runs
from spooled import rows_on_disk
from waiting import wait_until

from blkreel.capture.sources import SOURCES
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

READ = "dd if={drive} of=/dev/null bs=4k count={count} iflag=direct status=none"



def spooled(path):
    try:
        return json.loads(path.read_text())
    except OSError:
        return {}


def read(drive, count):
    subprocess.run(READ.format(drive=drive, count=count), shell=True, check=True)


@pytest.mark.parametrize(("descriptor", "source"), [(1, "bpf"), *((index % 2, source)
                                                                  for index, source in enumerate(SOURCES))])
def test_a_capture_without_stdin_or_stdout(blkreel, loop_drive, tracer, tmp_path, descriptor, source):
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    skip_unless_it_runs(source, drive)
    command = READ.format(drive=drive, count=100)
    result = subprocess.run(
        ["/bin/bash", "-c", f'exec "$@" {descriptor}>&-', "bash", blkreel.command, "capture", drive, "-o", trace,
         "--source", source, "--", "sh", "-c", command], env=blkreel.environment, stderr=subprocess.PIPE, text=True,
        timeout=300)
    assert_recorded(result.returncode, result.stderr, source)
    assert open_trace(trace).rows >= (50 if source == "bpftrace" else 100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_capture_well(started, loop_drive, tmp_path, number):
    drive = loop_drive()
    process = started(drive)
    read(drive, 500)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=300)
    assert_recorded(process.returncode, stderr)
    assert "500 I/Os" in stdout
    trace = open_trace(tmp_path / "t.parquet")
    assert trace.rows == 500
    assert trace.metadata["lost"]["total"] == 0 and trace.metadata["unmatched"] == 0
    assert not (tmp_path / ".t.parquet.spool").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_helper_alone_ends_a_capture_early(started, blkreel, loop_drive, tmp_path, number):
    """It was complete and valid, with exit code 0, though the command went on."""
    drive = loop_drive()
    os.mkfifo(tmp_path / "go")
    process = started(drive, "--", "sh", "-c", READ.format(drive=drive, count=100) + f"; read x <{tmp_path}/go")
    wait_until(lambda: len(rows_on_disk(tmp_path / "t.parquet")) >= 100, process)
    helper = subprocess.run(["pgrep", "-P", str(process.pid), "-x", "blkreel-capture"], capture_output=True, text=True)
    os.kill(int(helper.stdout), number)
    wait_until(lambda: not Path(f"/proc/{int(helper.stdout)}").exists(), process)
    (tmp_path / "go").write_text("\n")
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 3 and "ended early, because its helper got a signal" in stderr, stderr
    assert "its helper got a signal" in blkreel("check", tmp_path / "t.parquet", code=3).stderr


def test_ctrl_c_reaches_the_command_and_keeps_the_trace(started, loop_drive, tmp_path):
    drive = loop_drive()
    process = started(drive, "--", "sh", "-c", READ.format(drive=drive, count=100) + "; exec sleep 1000")
    wait_until(lambda: len(rows_on_disk(tmp_path / "t.parquet")) >= 100, process)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130, "the exit code of the command, as in a shell"
    assert open_trace(tmp_path / "t.parquet").rows == 100


def test_a_dead_bpftrace_costs_the_ledger_and_not_the_rows(started, loop_drive, tracer, tmp_path, blkreel):
    drive = loop_drive()
    skip_unless_it_runs("bpftrace", drive)
    process = started(drive, "--source", "bpftrace")
    # Reads until some are on the disk: it hands its lines over in large pieces.
    wait_until(lambda: read(drive, 1000) or len(rows_on_disk(tmp_path / "t.parquet")) >= 1000, process)
    children = subprocess.run(["pgrep", "-P", str(process.pid), "-x", "bpftrace"], capture_output=True, text=True)
    os.kill(int(children.stdout), signal.SIGKILL)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 3 and "broke off: bpftrace has ended" in stderr, stderr
    assert open_trace(tmp_path / "t.parquet").rows >= 1000
    assert "the capture broke off" in blkreel("info", tmp_path / "t.parquet").stdout


def test_a_command_that_outlives_the_time_is_waited_for_and_no_longer_recorded(blkreel, loop_drive, tmp_path):
    drive = loop_drive()
    first, late = READ.format(drive=drive, count=10), READ.format(drive=drive, count=20)
    # The helper has ended when the time is over. Where a busy machine begins later than that, it gets more of it.
    helper = "pgrep -P $PPID -x blkreel-capture >/dev/null"
    script = (f"{first}; {helper} && touch {tmp_path}/begun; while {helper}; do sleep 0.1; done; {late}; "
              f"touch {tmp_path}/end")
    for seconds in (1, 8, 64):
        blkreel("capture", drive, "-o", tmp_path / "t.parquet", "--force", "--for", f"{seconds}s", "--", "sh", "-c",
                script)
        if (tmp_path / "begun").exists():
            break
    assert (tmp_path / "end").exists()
    assert open_trace(tmp_path / "t.parquet").rows == 10


LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81


@pytest.fixture
def vanishing_drive(require_root, tmp_path):
    """A loop drive, and a way to take it out of the machine."""
    image, number = tmp_path / "vanishing.img", 100 + os.getpid() % 900
    image.touch()
    os.truncate(image, 1 << 20)
    control = os.open("/dev/loop-control", os.O_RDWR)
    try:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
    except OSError as error:
        pytest.skip(f"needs a loop drive that can be added: {error.strerror}")
    drive = f"/dev/loop{number}"

    def vanish():
        if Path(f"/sys/block/loop{number}").exists():
            subprocess.run(["losetup", "--detach", drive], check=False, stderr=subprocess.DEVNULL)
            wait_until(remove)

    def remove():
        try:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
        except OSError:
            return False
        return True

    if subprocess.run(["losetup", drive, image]).returncode:
        vanish()
        pytest.skip("needs a loop drive")
    yield drive, vanish
    vanish()
    os.close(control)


def test_a_drive_that_disappears_ends_the_capture_well(started, blkreel, loop_drive, vanishing_drive, tmp_path):
    stays, (drive, vanish) = loop_drive(), vanishing_drive
    process = started(stays, drive, "--for", "250s")
    subprocess.run(["dd", f"if={drive}", "of=/dev/null", "bs=4k", "iflag=direct", "status=none"], check=True)
    read(stays, 100)
    vanish()
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 3 and "taken away" in stderr
    trace = open_trace(tmp_path / "t.parquet")
    rows = trace.table().to_pandas()
    assert (rows.device == 0).sum() == 100 and rows[rows.device == 1].length_bytes.sum() == 1 << 20
    assert "taken away" in blkreel("check", tmp_path / "t.parquet", check=False).stderr


@pytest.mark.parametrize("source", SOURCES)
def test_an_io_that_is_stuck_during_the_whole_capture_is_reported(blkreel, held_drive, tracer, tmp_path, source):
    skip_unless_it_runs(source, held_drive.path)
    held_drive.hold()
    writer = held_drive.write()
    result = blkreel("capture", held_drive.path, "--for", "1s", "--source", source, "-o", tmp_path / "t.parquet",
                     code=3)
    held_drive.let_go()
    assert writer.wait(timeout=300) == 0
    assert "no row for 1 I/O of" in result.stderr and "whole capture" in result.stderr, result.stderr
    metadata = open_trace(tmp_path / "t.parquet").metadata
    assert metadata["ledger"]["stuck"] == {Path(held_drive.path).name: 1}


@pytest.mark.parametrize("source", SOURCES)
def test_an_io_that_begins_or_ends_in_the_capture_is_not_stuck(started, held_drive, tracer, tmp_path, source):
    """One that begins before has no row, and one that ends after has no latency."""
    skip_unless_it_runs(source, held_drive.path)
    held_drive.hold()
    writer = held_drive.write()
    process = started(held_drive.path, "--source", source)
    held_drive.let_go()
    assert writer.wait(timeout=300) == 0
    held_drive.hold()
    writer = held_drive.write()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    held_drive.let_go()
    assert writer.wait(timeout=300) == 0
    assert_recorded(process.returncode, stderr, source)
    metadata = open_trace(tmp_path / "t.parquet").metadata
    assert metadata["ledger"]["stuck"] == {}
    if process.returncode == 0:
        assert (metadata["in_flight_at_start"], metadata["in_flight_at_end"]) == (1, 1)
        rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
        assert rows[["latency_ns", "offset_bytes", "length_bytes", "op"]].values.tolist() == [[-1, 0, 4096, 1]]
