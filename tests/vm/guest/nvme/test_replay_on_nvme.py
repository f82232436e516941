"""The engine on an NVMe drive: polled completions, zeroes, and a limit."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from tests.kernel.capture.threads.test_own import limited_group, within  # noqa: F401
from tests.vm.guest.nvme.test_nvme_commands import OF_BLOCK_LAYER, commands_of  # noqa: F401
from tests.vm.guest.test_ends import make_trace

MIB = 1 << 20


def attribute(drive, name):
    return Path("/sys/block", Path(drive).name, "queue", name)


def interrupts(drive):
    """Of the queues that carry I/O, since the machine started."""
    controller = re.match(r"nvme\d+", Path(drive).name)[0]
    lines = [line.split() for line in Path("/proc/interrupts").read_text().splitlines()
             if re.search(rf"{controller}q[1-9]\d*$", line)]
    return sum(int(count) for line in lines for count in line[1:] if count.isdigit())


def queues(tracing, drive):
    """Command -> the drive's queues that it came by."""
    found = {}
    for queue, name in re.findall(rf"disk={Path(drive).name}, qid=(\d+),.* cmd=\(nvme_cmd_(\w+)", tracing.text()):
        found.setdefault(name, set()).add(int(queue))
    return found


@pytest.fixture
def polling_nvme(nvme):
    if attribute(nvme, "io_poll").read_text().strip() != "1":
        pytest.skip("needs poll queues: modprobe nvme poll_queues=1")
    return nvme


def random_rows(a_plan, count, ops, seed=1, **more):
    random = np.random.default_rng(seed)
    op = random.choice([OPS[name] for name in ops], count)
    flush = op == OPS["flush"]
    return a_plan(np.where(flush, 0, random.permutation(count) * 65536), op=op,
                  length_bytes=np.where(flush, 0, random.choice([4096, 16384, 65536], count)), **more)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("depth", [1, 16])
def test_polled_reads_and_writes_take_no_interrupt(a_plan, issue, polling_nvme, tracing, depth, plain):
    tracing.enable("nvme/nvme_setup_cmd")
    plan = random_rows(a_plan, 400, ["read", "write"], due_ns=-1 if depth == 16 else np.arange(400) * 1_000_000)
    options = {"target": polling_nvme, "depth": depth, "may_write": True, "plain": plain}
    before = interrupts(polling_nvme)
    totals, records = issue(plan, polled=True, **options)
    polled = interrupts(polling_nvme) - before
    by_polling = queues(tracing, polling_nvme)
    assert set(records["status"]) == {0} and totals["completed_ops"] == 400
    assert totals["features"]["polled"] is True
    assert polled == 0
    before = interrupts(polling_nvme)
    totals, _ = issue(plan, **options)
    assert interrupts(polling_nvme) - before > 0
    assert totals["features"]["polled"] is False
    # The queue for polling is another than those with interrupts.
    assert by_polling["read"] == by_polling["write"] and len(by_polling["read"]) == 1
    assert queues(tracing, polling_nvme)["read"] > by_polling["read"]


def test_what_cannot_be_polled_goes_beside(a_plan, issue, polling_nvme, commands_of):  # noqa: F811
    """One row at a time: each command in its place, whichever ring it came by."""
    plan = random_rows(a_plan, 300, OF_BLOCK_LAYER, seed=2)
    random = np.random.default_rng(3)
    flags = np.where(plan["op"] == OPS["write"], random.choice([0, FLAGS["fua"], FLAGS["preflush"]], 300), 0)
    plan["flags"] = flags
    totals, records = issue(plan, target=polling_nvme, depth=1, may_write=True, polled=True)
    assert set(records["status"]) == {0}
    assert totals["altered"] == totals["dropped"] == {}
    wanted = []
    for op, at, length, flag in zip(*(plan[name].tolist() for name in ("op", "offset_bytes", "length_bytes", "flags")),
                                    strict=True):
        if flag & FLAGS["preflush"]:
            wanted.append(("flush", 0, 0, False))
        name = next(name for name, code in OPS.items() if code == op)
        wanted.append({"flush": ("flush", 0, 0, False), "discard": ("dsm", 0, 0, False)}.get(
            name, (name, at, length, bool(flag & FLAGS["fua"]))))
    assert commands_of() == wanted


def test_a_full_polled_queue_of_all_ops_loses_none(a_plan, issue, polling_nvme):
    plan = random_rows(a_plan, 1500, OF_BLOCK_LAYER, seed=4)
    flags = np.where(plan["op"] == OPS["write"], FLAGS["preflush"] | FLAGS["fua"], 0)
    plan["flags"] = np.where(np.arange(1500) % 3 == 0, flags, 0)
    totals, records = issue(plan, target=polling_nvme, depth=32, may_write=True, polled=True)
    assert sorted(records["source_row"]) == list(range(1500))
    assert set(records["status"]) == {0}
    assert totals["abandoned_ops"] == 0


def test_zeroes_unmap_only_where_they_may(a_plan, issue, scsi_debug, tracing):
    """On a SCSI drive that zeroes and unmaps with one command: this one's trace tells the bit that says which."""
    tracing.enable("scsi/scsi_dispatch_cmd_start")
    flags = np.array([0, FLAGS["may_unmap"], 0, FLAGS["may_unmap"]])
    totals, records = issue(a_plan(np.arange(4) * MIB, op=OPS["write_zeroes"], length_bytes=65536, flags=flags),
                            target=scsi_debug.path, may_write=True, depth=1)
    assert set(records["status"]) == {0} and totals["altered"] == {}
    assert re.findall(r"WRITE_SAME\w* .*?unmap=(\d)", tracing.text()) == ["0", "1"] * 2


def test_a_capture_tells_zeroes_that_may_unmap(rows_of, nvme):
    rows = rows_of(nvme, f"fallocate --zero-range --keep-size --length 64KiB {nvme};"
                         f" fallocate --punch-hole --offset 1MiB --length 64KiB {nvme}")
    zeroes = rows[rows.op == OPS["write_zeroes"]]
    assert (zeroes["flags"] & FLAGS["may_unmap"] != 0).tolist() == [False, True]


def test_a_replay_in_a_control_group_with_a_limit(blkreel, nvme, limited_group, tmp_path):  # noqa: F811
    """The group has its I/Os, their latency has the wait for the limit, and its verdict names the limit.

    Three seconds of them wait, from which the limit makes up for a time in which the guest had no processor.
    """
    count, limit, depth = 160, 20, 64
    trace = make_trace(tmp_path / "t.parquet", submit_ns=np.arange(count) * 10**6, latency_ns=np.full(count, 1000),
                       length_bytes=np.full(count, 4096), offset_bytes=np.arange(count) * 4096,
                       op=np.full(count, OPS["write"]))
    group = limited_group(nvme, limit)
    with within(group):
        process = blkreel.start("replay", trace, "--on", nvme, "--pace", f"depth={depth}", "-o", tmp_path / "run",
                                "--destroy", "GUEST001", "--json")
    code = process.wait()
    assert code in (0, 3), process.output()
    run = open_trace(tmp_path / "run")
    rows = run.table().to_pandas()
    assert set(rows.status) == {0} and len(rows) == count
    device, = run.metadata["devices"]
    assert device["io_max"] == {"riops": limit, "wiops": limit}
    assert re.search(rf"^{device['major']}:{device['minor']} .*\bwios={count}\b", (group / "io.stat").read_text(), re.M)
    assert rows.latency_ns.median() > depth / limit * 1e9 / 2
    entry = json.loads(blkreel("report", tmp_path / "run", "--json").stdout)["entry"]
    limited, = (reason for reason in entry["verdict"]["reasons"] if reason["code"] == "io_max")
    assert limited["level"] == "qualified" and limited["text"] == entry["provider_limit"]
    assert re.fullmatch(rf"limited by its control group from .* on, {limit} write IOPS", limited["text"])
