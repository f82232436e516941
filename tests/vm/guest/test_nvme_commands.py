"""Commands to the drive: the NVMe driver's own trace of each of them, and nvme-cli."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from blkreel.common.device import drive_of
from blkreel.traces.format.schema import FLAGS, OPS

MIB = 1 << 20
FUA = 0x4000
COMMAND = re.compile(r"disk=(\w+),.* cmd=\(nvme_cmd_(\w+) ?(.*)\)")


@pytest.fixture
def commands_of(tracing, nvme):
    """The commands for the drive since now: [(name, offset_bytes, length_bytes, fua)]; no place for what has none."""
    block_bytes = drive_of(nvme).logical_block_bytes
    tracing.enable("nvme/nvme_setup_cmd")

    def commands():
        found = []
        for line in tracing.text().splitlines():
            match = COMMAND.search(line)
            if not match or match[1] != Path(nvme).name:
                continue
            fields = {name: int(value, 0) for name, value in re.findall(r"(\w+)=(\w+)", match[3])}
            if "slba" in fields:
                length = (fields["len"] + 1) * block_bytes
                found.append((match[2], fields["slba"] * block_bytes, length, bool(fields.get("ctrl", 0) & FUA)))
            else:
                found.append((match[2], 0, 0, False))
        return found

    return commands


def as_command(op, offset_bytes, length_bytes, flags):
    """The command of a row. A drive's dataset management holds its ranges in its data, where no trace looks."""
    name = {OPS["read"]: "read", OPS["write"]: "write", OPS["flush"]: "flush", OPS["discard"]: "dsm",
            OPS["write_zeroes"]: "write_zeroes"}[op]
    if name in ("flush", "dsm"):
        return name, 0, 0, False
    return name, offset_bytes, length_bytes, bool(flags & FLAGS["fua"])


def test_each_row_of_a_capture_is_a_command(rows_of, nvme, commands_of):
    rows = rows_of(nvme, f"""
        dd if={nvme} of=/dev/null bs=4k count=2 skip=7 iflag=direct status=none
        dd if=/dev/zero of={nvme} bs=4k count=3 seek=3 oflag=direct status=none
        dd if=/dev/zero of={nvme} bs=8k count=2 seek=5 oflag=direct,dsync status=none
        dd if=/dev/zero of={nvme} bs=4k count=1 seek=9 oflag=direct conv=fsync status=none
        blkdiscard -f --offset 8MiB --length 1MiB {nvme}
        blkdiscard -f --zeroout --offset 16MiB --length 64KiB {nvme}
        dd if=/dev/zero of={nvme} bs=4k count=1 seek=20 status=none conv=fsync""")
    seen = [as_command(*row) for row in rows[["op", "offset_bytes", "length_bytes", "flags"]].to_numpy().tolist()]
    assert seen == commands_of()
    assert ("flush", 0, 0, False) in seen
    assert [(name, *rest) for name, *rest in seen if rest[-1]] == [("write", 40960, 8192, True),
                                                                   ("write", 49152, 8192, True)]
    assert ("write_zeroes", 16 * MIB, 65536, False) in seen
    discards = rows[rows.op == OPS["discard"]]
    assert discards[["offset_bytes", "length_bytes"]].to_numpy().tolist() == [[8 * MIB, MIB]]


def test_each_row_of_a_plan_is_a_command(a_plan, issue, nvme, commands_of):
    """Every kind of I/O, as the engine hands it on: FUA in the command itself, a flush before a preflush write."""
    random = np.random.default_rng(7)
    op = random.choice(list(OPS.values()), 300)
    length = np.where(op == OPS["flush"], 0, random.choice([4096, 8192, 65536], 300))
    flags = np.where((op == OPS["write"]) & (random.random(300) < 0.5), FLAGS["fua"], 0)
    plan = a_plan(random.integers(0, 1000, 300) * 65536 * (op != OPS["flush"]), op=op, length_bytes=length,
                  flags=flags)
    totals, records = issue(plan, target=nvme, depth=1, may_write=True)
    wanted = [as_command(*row) for row in zip(*(plan[name].tolist() for name in
                                                ("op", "offset_bytes", "length_bytes", "flags")), strict=True)]
    assert commands_of() == wanted
    assert set(records["status"]) == {0}
    assert totals["altered"] == totals["dropped"] == {}


def test_a_preflush_is_a_flush_before_its_write(a_plan, issue, nvme, commands_of):
    flags = FLAGS["preflush"] | FLAGS["fua"]
    issue(a_plan(np.arange(5) * MIB, op=OPS["write"], flags=flags), target=nvme, depth=1, may_write=True)
    assert commands_of() == [command for at in range(5)
                             for command in (("flush", 0, 0, False), ("write", at * MIB, 4096, True))]


def test_drives_are_described_as_nvme_cli_does(blkreel, rows_of, nvme, nvme_drives, program):
    listed = json.loads(subprocess.run([program("nvme", "nvme-cli"), "list", "-o", "json"], capture_output=True,
                                       text=True, check=True).stdout)["Devices"]
    theirs = {entry["DevicePath"]: entry for entry in listed}
    mine = {entry["path"]: entry for entry in json.loads(blkreel("drives", "--json").stdout)["drives"]}
    for path in nvme_drives:
        assert mine[path]["model"] == theirs[path]["ModelNumber"].strip()
        assert mine[path]["serial"] == mine[path]["destroy"] == theirs[path]["SerialNumber"].strip()
        assert mine[path]["size_bytes"] == theirs[path]["PhysicalSize"]
        assert drive_of(path).firmware == theirs[path]["Firmware"].strip()
    entry, = rows_of(nvme, "true").attrs["metadata"]["devices"]
    assert (entry["model"], entry["firmware"]) == (theirs[nvme]["ModelNumber"], theirs[nvme]["Firmware"])
    assert "GUEST001" not in json.dumps(entry), "a trace is shared; the serial number stays at home"


def test_polled_reads_have_rows_and_latencies(rows_of, nvme, program, tmp_path):
    if Path(f"/sys/block/{Path(nvme).name}/queue/io_poll").read_text().strip() != "1":
        pytest.skip("needs poll queues: modprobe nvme poll_queues=1")
    rows = rows_of(nvme, f"{program('fio')} --name=p --filename={nvme} --direct=1 --rw=randread --bs=4k"
                         f" --ioengine=io_uring --hipri --iodepth=4 --number_ios=1000 --output={tmp_path}/fio")
    assert len(rows) == 1000 and (rows.latency_ns > 0).all()
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


def test_a_replay_wants_the_serial_and_issues_the_trace(blkreel, rows_of, nvme, commands_of, tmp_path):
    source = rows_of(nvme, f"dd if=/dev/zero of={nvme} bs=4k count=40 oflag=direct,dsync status=none;"
                           f"blkdiscard -f --offset 8MiB --length 1MiB {nvme}")
    refused = blkreel("replay", tmp_path / "t.parquet", "--on", nvme, "-o", tmp_path / "run", check=False)
    assert refused.returncode == 5 and "--destroy GUEST001" in refused.stderr
    before = len(commands_of())
    result = blkreel("replay", tmp_path / "t.parquet", "--on", nvme, "-o", tmp_path / "run", "--destroy", "GUEST001",
                     "--idle", "cap=1ms", "--map", "identity", "--polled", "--json", check=False)
    assert result.returncode in (0, 3), result.stderr  # an emulated machine issues late, which the verdict says
    run = json.loads(result.stdout)["run"]
    assert run["engine"]["features"]["polled"] is True
    assert run["completed_ops"] == len(source) and run["as_planned"] and run["foreign_ios"] == 0
    writes = [command for command in commands_of()[before:] if command[0] == "write" and command[3]]
    assert sorted(offset for _, offset, *_ in writes) == sorted(source.offset_bytes[source.op == OPS["write"]])
