"""An NVMe namespace with two paths: captured at its head, with a path that fails, and replayed beside external I/O."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from blkreel.replay.drive.external_io import count_of_disk
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from tests.vm.guest.drives import counters, multipath_head
from tests.vm.guest.test_ends import make_trace

MIB = 1 << 20
BLOCK_BYTES = 65536


@pytest.fixture(scope="module")
def head():
    return multipath_head("GUEST004")


@pytest.fixture
def policy(head):
    """policy(name) sets how the head chooses the path of an I/O."""
    file = (Path("/sys/block", Path(head).name, "device").resolve() / "iopolicy")
    before = file.read_text()
    yield file.write_text
    file.write_text(before)


def paths_of(head):
    name = Path(head).name
    controller, namespace = name.rsplit("n", 1)
    return sorted(path.name for path in Path("/sys/block").glob(f"{controller}c*n{namespace}"))


def dd(head, kind, count, first=0):
    files = f"if={head} of=/dev/null skip={first} iflag=direct"
    if kind == "write":
        files = f"if=/dev/zero of={head} seek={first} oflag=direct"
    return f"dd {files} bs={BLOCK_BYTES} count={count} status=none"


def test_a_head_is_recorded_by_the_requests_of_its_paths(rows_of, head, policy):
    policy("round-robin")
    before = {path: counters(path) for path in paths_of(head)}
    rows = rows_of(head, f"{dd(head, 'write', 20)}; {dd(head, 'read', 12, 100)};"
                         f" dd if=/dev/zero of={head} bs=4k seek=4000 count=3 conv=fsync status=none",
                   "--programs", "raw_tp")
    after = {path: counters(path) for path in paths_of(head)}
    device, = rows.attrs["metadata"]["devices"]
    assert device["path"] == head and device["paths"] == sorted(before) and len(before) == 2
    assert device["layer"] == rows.attrs["metadata"]["capture_layer"] == "request"
    assert "the requests of its paths" in rows.attrs["stderr"]
    direct = rows[rows.length_bytes == BLOCK_BYTES]
    assert direct.offset_bytes[direct.op == OPS["write"]].tolist() == [at * BLOCK_BYTES for at in range(20)]
    assert direct.offset_bytes[direct.op == OPS["read"]].tolist() == [at * BLOCK_BYTES for at in range(100, 112)]
    assert (rows.op == OPS["flush"]).sum() == 1
    assert (rows.latency_ns > 0).all() and set(rows.status) == {0} and set(rows.device) == {0}
    assert direct.groupby("op").tid.nunique().tolist() == [1, 1]
    for path in before:
        assert after[path]["writes"] > before[path]["writes"], "the I/O went through both paths"
    summary = rows.attrs["summary"]
    assert summary["missing"] == [] and summary["diskstats"]["difference"] == 0
    assert summary["diskstats"]["issued"] == len(rows) + summary["ledger"]["empty_flushes"]


def test_an_io_that_fails_over_to_another_path_is_one_row(rows_of, head, policy):
    """The controller does not see the doorbell, so the I/O is in flight on its path when the kernel resets it."""
    policy("numa")
    first = {path: counters(path)["reads"] for path in paths_of(head)}
    Path(head).open("rb", buffering=0).read(4096)
    path, = (path for path, reads in first.items() if counters(path)["reads"] > reads)
    controller = Path("/sys/block", path).resolve().parent
    config = controller / "device/config"
    # Bits 1 and 2 of the PCI command: memory space and bus master. The reset switches them on again.
    silence = f"printf '\\000\\004' | dd of={config} bs=1 seek=4 conv=notrunc status=none"
    rows = rows_of(head, f"{dd(head, 'write', 3)}; {silence}; {dd(head, 'write', 1, 50)} & "
                         f"until grep -q '[1-9]' /sys/block/{path}/inflight; do :; done; "
                         f"echo 1 > {controller}/reset_controller || true; wait; {dd(head, 'read', 2, 50)}")
    assert rows.offset_bytes.tolist() == [at * BLOCK_BYTES for at in (0, 1, 2, 50, 50, 51)]
    assert rows.op.tolist() == [OPS["write"]] * 4 + [OPS["read"]] * 2
    assert {rows.attrs["metadata"]["threads"][str(tid)]["comm"] for tid in rows.tid} == {"dd"}
    assert set(rows.status) == {0} and (rows.latency_ns > 0).all()
    summary = rows.attrs["summary"]
    assert summary["ledger"]["failed_over"] == 1
    assert summary["missing"] == [] and summary["diskstats"]["difference"] == 0


def test_external_io_on_a_head_is_counted_during_a_replay(blkreel, head, tmp_path):
    """A replay of ten minutes, which ends when the external reads are done."""
    count = 6000
    trace = make_trace(tmp_path / "t.parquet", submit_ns=np.arange(count) * 10**8, latency_ns=np.full(count, 1000),
                       length_bytes=np.full(count, 4096), offset_bytes=np.arange(count) % 100 * 4096,
                       op=np.full(count, OPS["read"]))
    disk = Path("/sys/block", Path(head).name)
    before = count_of_disk(disk).read_ios
    process = blkreel.start("replay", trace, "--on", head, "-o", tmp_path / "run", "--destroy", "GUEST004", "--json")
    wait_until(lambda: count_of_disk(disk).read_ios > before + 3 or process.poll() is not None)
    for _ in range(20):
        with Path(head).open("rb", buffering=0) as external:
            os.posix_fadvise(external.fileno(), 32 * MIB, MIB, os.POSIX_FADV_DONTNEED)
            os.pread(external.fileno(), 4096, 32 * MIB)
    assert process.poll() is None, process.output()
    os.kill(process.pid, signal.SIGINT)
    code = process.wait()
    out, err = process.output()
    assert code == 3, out + err
    run = json.loads(out)["run"]
    assert 0 < run["completed_ops"] < count and run["foreign_ios"] >= 1


def test_a_path_that_is_removed_and_added_again_is_reported(blkreel, head, tmp_path):
    """The path comes back as another disk, whose I/O the capture does not see."""
    path = paths_of(head)[0]
    pci = Path("/sys/block", path).resolve().parent.joinpath("device").resolve()
    script = (f"{dd(head, 'read', 4)}; echo 1 > {pci}/remove; until [ ! -e /sys/block/{path} ]; do sleep 0.2; done;"
              f" {dd(head, 'read', 4, 4)}; echo 1 > /sys/bus/pci/rescan;"
              f" until [ $(ls -d /sys/block/{Path(head).name.rsplit('n', 1)[0]}c*n1 | wc -l) = 2 ]; do sleep 0.2; done")
    result = blkreel("capture", head, "-o", tmp_path / "t.parquet", "--json", "--", "sh", "-ec", script, code=3)
    summary = json.loads(result.stdout)
    assert summary["missing"] == [f"paths of {Path(head).name} were added during the capture (1), and their I/O is not "
                                  "recorded: capture again"]
    assert summary["diskstats"]["difference"] is None, "the path took its counters with it"
    assert open_trace(tmp_path / "t.parquet").rows == 8
