"""kill -9 of a capture's two processes at any moment: what was recorded stays, and nothing half done has a name."""

import json
import mmap
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers import lives

from blkreel.capture import ledger
from blkreel.capture.options import CaptureOptions
from blkreel.capture.session import run_capture
from blkreel.common.errors import TraceError
from blkreel.common.files.output_lock import spool_of
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.spool.block_file import BlockFile
from blkreel.traces.spool.blocks import NOTE
from blkreel.traces.spool.notes import Note
from blkreel.traces.spool.spool import recover

pytestmark = pytest.mark.kernel

BLOCK_BYTES = 4096
AT_ONCE = 3
# Of completions that the kernel keeps from BPF, a capture records the I/O when its tag is used again.
UNSEEN = 2
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["blkreel.capture.session"])


class Reader:
    """Reads a drive block after block, and knows when each read began and ended."""

    def __init__(self, drive, size_bytes):
        self.blocks = size_bytes // BLOCK_BYTES
        self.times_ns: list[tuple[int, int]] = []
        self._fd = os.open(drive, os.O_RDONLY | os.O_DIRECT)
        self._buffer = mmap.mmap(-1, BLOCK_BYTES)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        while not self._ends.wait(0.001):
            began_ns = time.monotonic_ns()
            os.preadv(self._fd, [self._buffer], len(self.times_ns) % self.blocks * BLOCK_BYTES)
            self.times_ns.append((began_ns, time.monotonic_ns()))

    def stop(self):
        self._ends.set()
        self._thread.join()
        os.close(self._fd)


@pytest.fixture
def reader(loop_drive):
    drive = loop_drive(256 << 20)
    reader = Reader(drive, 256 << 20)
    reader.drive = drive
    yield reader
    reader.stop()


class Capture:
    """A capture in a process of its own, forked from one that has imported everything."""

    def __init__(self, output, drive):
        self.output = output
        options = CaptureOptions(output=output, devices=[drive], source="bpf", ring_bytes=1 << 20)
        self.process = _PROCESSES.Process(target=run_capture, args=(options,))
        self.process.start()

    def wait_for_rows(self):
        """Until all so far is on the disk; returns that time. An interrupt before the capture begins leaves nothing.

        The helper finds names in a thread of its own, which on a busy machine comes later than the rows.
        """
        wait_until(lambda: written_until_ns(self.output) > 0, self.process.is_alive)
        now_ns = time.monotonic_ns()
        wait_until(lambda: written_until_ns(self.output) > now_ns, self.process.is_alive)
        wait_until(lambda: has_names(self.output), self.process.is_alive)
        return now_ns

    def helper(self):
        """Its pid, None where it does not run."""
        try:
            found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except OSError:
            return None
        return int(found[0]) if found else None

    def kill(self, victim):
        """Kill one of the two, wait for both to be gone. Returns the moment of the kill."""
        helper = self.helper()
        killed_ns = time.monotonic_ns()
        if victim == "parent":
            self.process.kill()
        elif helper:
            kill(helper)
        self.end(helper)
        return killed_ns

    def end(self, helper):
        self.process.join(300)
        assert not self.process.is_alive(), "the death of the helper ends the capture"
        if helper:
            wait_until(lambda: not lives(helper))


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def wait_until(holds, goes_on=lambda: True, seconds=300):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline and goes_on(), "waited in vain"
        time.sleep(0.005)


def written_until_ns(output):
    """The time of the last row on the disk; 0 before there is one."""
    try:
        epoch_ns = json.loads((spool_of(output) / "metadata.json").read_text()).get("epoch_ns")
        with BlockFile(spool_of(output) / "rows.blocks") as blocks:
            times_ns = [columns["submit_ns"].max() for columns in blocks.rows() if len(columns["op"])]
    except OSError:
        return 0
    return epoch_ns + times_ns[-1] if epoch_ns and times_ns else 0


def has_names(output):
    with BlockFile(spool_of(output) / "rows.blocks") as blocks:
        return any(block.kind == NOTE and blocks.json(block, Note)["note"] == "threads" for block in blocks.blocks())


def recovered(output):
    """The trace, finished by the process that was left, and alone in its directory."""
    if not output.exists():
        recover(output, ended=ledger.ended)
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    return open_trace(output)


def assert_holds(trace, reader, until_ns, unseen=0):
    """Every read that was whole between the start and `until_ns`, each once, and none out of order.

    unseen: so many may be missing between two others.
    """
    times_ns = np.array(reader.times_ns)
    epoch_ns = trace.metadata["epoch_ns"]
    rows = trace.table(["offset_bytes", "submit_ns", "op"]).to_pandas()
    blocks = rows.offset_bytes.to_numpy() // BLOCK_BYTES
    gaps = np.diff(blocks) % reader.blocks - 1
    assert (rows.op == 0).all() and (gaps >= 0).all() and gaps.sum() <= unseen, "one after the other"
    owed = np.flatnonzero((times_ns[:, 0] > epoch_ns) & (times_ns[:, 1] < until_ns))
    if len(owed):
        assert len(rows) and blocks[0] <= owed[0] and blocks[-1] >= owed[-1]
        owed = np.intersect1d(owed, blocks)
        submit_ns = epoch_ns + rows.submit_ns.to_numpy()[np.searchsorted(blocks, owed)]
        assert (submit_ns >= times_ns[owed, 0]).all() and (submit_ns <= times_ns[owed, 1]).all()


def each(count, one):
    """one(random numbers, output) `count` times, some at once; the first failure is raised.

    In memory, because a disk that others write to takes its time.
    """
    def run(number):
        directory = Path(place) / str(number)
        directory.mkdir()
        one(random.Random(number), directory / "t.parquet")

    with (tempfile.TemporaryDirectory(dir="/dev/shm", prefix="blkreel-test-") as place,
          ThreadPoolExecutor(AT_ONCE) as pool):
        list(pool.map(run, range(count)))


@pytest.mark.parametrize("victim, count", [("parent", 12), ("helper", 12)])
def test_killed_while_recording(reader, victim, count):
    def one(draw, output):
        capture = Capture(output, reader.drive)
        written_ns = capture.wait_for_rows()
        time.sleep(draw.uniform(0, 1.3))
        killed_ns = capture.kill(victim)
        trace = recovered(output)
        findings = check(trace)
        assert findings.errors == []
        if victim == "parent":
            # The helper came to its end: all of it is there, and accounted for.
            assert_holds(trace, reader, killed_ns)
            assert not any("may be missing" in warning for warning in findings.warnings)
            assert trace.metadata["recovered"]
            assert trace.metadata["lost"]["total"] == 0 and trace.metadata["threads"]
        else:
            # What it had not written is lost: how much that is depends on when it had a processor.
            assert_holds(trace, reader, written_ns, unseen=UNSEEN)
            assert "broke off" in findings.warnings[0] and trace.metadata["threads"]

    each(count, one)


@pytest.mark.parametrize("victim, count", [("parent", 6), ("helper", 6)])
def test_killed_while_attaching(reader, victim, count):
    def one(draw, output):
        capture = Capture(output, reader.drive)
        if victim == "helper":
            wait_until(capture.helper, capture.process.is_alive)
        time.sleep(draw.uniform(0, 0.4))
        capture.kill(victim)
        if not output.exists() and not spool_of(output).exists():
            assert list(output.parent.iterdir()) == []
            return
        try:
            trace = recovered(output)
        except TraceError as error:
            assert "before the first" in str(error)
            assert [path.name for path in output.parent.iterdir()] == [spool_of(output).name]
            return
        assert check(trace).errors == []

    each(count, one)


@pytest.mark.parametrize("victim, count", [("parent", 5), ("helper", 5)])
def test_killed_while_finishing(reader, victim, count):
    def one(draw, output):
        capture = Capture(output, reader.drive)
        capture.wait_for_rows()
        os.kill(capture.process.pid, signal.SIGINT)
        time.sleep(draw.uniform(0, 0.1))
        capture.kill(victim)
        if spool_of(output).exists():
            recover(output, ended=ledger.ended)
        trace = recovered(output)
        assert check(trace).errors == [] and trace.rows > 0

    each(count, one)
