"""Replays that are cut short, by whom and wherever: a readable run marked as partial, or a refusal; never a hang."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest
from helpers import helpers_of, lives
from small_trace import new_trace
from waiting import wait_until

from blkreel.common.errors import TraceError
from blkreel.common.files.output_lock import spool_of
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS, RUN_SCHEMA
from blkreel.traces.spool.contents import SpoolContents
from blkreel.traces.spool.spool import recover

pytestmark = pytest.mark.kernel

MIB = 1 << 20
DRIVE_BYTES = 32 * MIB
KILLS = 8


@pytest.fixture
def trace(tmp_path):
    """trace(count, gap_ns, op) is a trace of I/Os of 4 KiB."""
    def make(count=120_000, gap_ns=10**6, op="write", name="t.parquet", span_bytes=DRIVE_BYTES):
        return new_trace(tmp_path / name, drive_bytes=span_bytes, submit_ns=np.arange(count) * gap_ns, latency_ns=1000,
                         offset_bytes=np.arange(count) * 4096 % span_bytes, op=OPS[op])

    return make


@pytest.fixture
def running(blkreel):
    """running(trace, drive, run) starts a replay; whatever is left of it in the end is killed."""
    processes = []

    def start(trace, drive, run, *arguments):
        processes.append(blkreel.start("replay", trace, "--on", drive, "-o", run, *arguments))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows_written(run):
    try:
        return (spool_of(run / "records.parquet") / "rows.blocks").stat().st_size
    except FileNotFoundError:
        return 0


def complete_rows(run):
    spool = SpoolContents(spool_of(run / "records.parquet"), RUN_SCHEMA, {})
    return sum(batch.num_rows for batch in spool.batches())


def issuing(process):
    """Its helper, once it has one."""
    found = []

    def there():
        found[:] = helpers_of(process.pid)
        return found

    wait_until(there, process)
    return found[0]


def ended(process, seconds=300):
    return *process.communicate(timeout=seconds), process.returncode


@pytest.mark.parametrize("half", ["helper", "command"])
def test_a_kill_at_any_moment_costs_no_row_that_was_written(running, trace, loop_drive, tmp_path, half):
    """Moments between the first row and a second and a half later, at random; each with a run of its own.

    Rows are written while the run goes on (tests/unit/replay/engine/test_nil.py).
    """
    moments, source, drive = random.Random(half), trace(), loop_drive(DRIVE_BYTES)
    for number in range(KILLS):
        run = tmp_path / f"run{number}"
        process = running(source, drive, run)
        wait_until(lambda run=run: rows_written(run) > 0, process)
        helper = issuing(process)
        time.sleep(moments.uniform(0, 1.5))
        written = complete_rows(run)
        os.kill(helper if half == "helper" else process.pid, signal.SIGKILL)
        _, err, code = ended(process)
        wait_until(lambda helper=helper: not lives(helper))
        if half == "command":
            recover(run / "records.parquet")
        else:
            assert code == 1 and "killed by signal 9" in err and "marked as partial" in err
        told = open_trace(run).metadata["run"]
        assert told["partial"]
        assert told["verdict"]["level"] == "invalid"
        rows = open_trace(run).table().to_pandas()
        assert sorted(rows["source_row"]) == list(range(len(rows))), "no row is missing in between"
        assert len(rows) >= written > 0
        assert half == "command" or open_trace(run).metadata["epoch_ns"] is not None


def test_a_kill_before_the_first_row(running, trace, blkreel, held_drive, tmp_path):
    """While what will be read is written: there is no run, and it is said how to go on."""
    drive = held_drive.path
    source = trace(op="read", count=4096, gap_ns=10_000, span_bytes=16 * MIB)
    held_drive.hold()
    process = running(source, drive, tmp_path / "run")
    helper = issuing(process)
    wait_until(lambda: held_drive.in_flight() > 0, process)
    process.kill()
    held_drive.let_go()
    ended(process)
    wait_until(lambda: not lives(helper))
    again = blkreel("replay", source, "--on", drive, "-o", tmp_path / "run", code=1)
    assert "blkreel recover" in again.stderr and "--force" in again.stderr
    with pytest.raises(TraceError, match="no rows"):
        recover(tmp_path / "run/records.parquet")
    trial = trace(count=100, span_bytes=16 * MIB)
    blkreel("replay", trial, "--on", drive, "-o", tmp_path / "run", "--force", code=(0, 3))


def state_of(tmp_path):
    (file,) = (tmp_path / "state").glob("*.json")
    return json.loads(file.read_text())["state"]


@pytest.mark.parametrize("half", ["helper", "command"])
@pytest.mark.parametrize("during", ["prefill", "replay"])
def test_a_killed_replay_does_not_leave_a_drive_that_counts_as_untouched(running, trace, blkreel, loop_drive, tmp_path,
                                                                        half, during):
    drive = loop_drive(64 * MIB)
    blkreel("precondition", drive, "--state", "full")
    assert state_of(tmp_path)["written_since_bytes"] == 0
    source = trace(op="read", count=16_384, span_bytes=64 * MIB) if during == "prefill" else trace()
    process = running(source, drive, tmp_path / "run")
    helper = issuing(process)
    if during == "replay":
        wait_until(lambda: rows_written(tmp_path / "run") > 0, process)
    os.kill(helper if half == "helper" else process.pid, signal.SIGKILL)
    ended(process)
    wait_until(lambda: not lives(helper))
    assert state_of(tmp_path)["name"] == "full"
    assert state_of(tmp_path)["written_since_bytes"] > 0
