"""Commands to the drive: the NVMe driver's own trace of each of them, and nvme-cli."""

import json
import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from quiet import progress

from blkreel.common.device import drive_of
from blkreel.replay.drive import write_support
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.drive.write_support import WriteSupport, has_compare, verify_bytes
from blkreel.replay.prepare import compares
from blkreel.replay.prepare.compares import compare_data
from blkreel.replay.run import write_flags
from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.format.schema import CHECKS, FLAGS, OPS, ZONE_OPS

MIB = 1 << 20
OF_BLOCK_LAYER = [name for name in OPS if name not in (*ZONE_OPS, *CHECKS)]
CHECKOUT = Path(__file__).resolve().parents[4]
PASS = f"python3 -S {CHECKOUT}/tests/support/services/pass_commands.py"
FUA = 0x4000
COMMAND = re.compile(r"disk=(\w+),.* cmd=\((?:nvme_cmd_)?(\w+) ?(.*)\)")
NAMES = {"0xc": "verify"}  # those that Linux 6.1 has no name for


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
            fields = {name: int(value, 0) for name, value in re.findall(r"\b(slba|len|ctrl)=(\w+)", match[3])}
            if "slba" in fields:
                length = (fields["len"] + 1) * block_bytes
                found.append((match[2], fields["slba"] * block_bytes, length, bool(fields.get("ctrl", 0) & FUA)))
            else:
                name = NAMES.get(match[2], match[2])
                found.append((name, *words(match[3]), False) if name in CHECKS else (name, 0, 0, False))
        return found

    def words(text):
        """Place of a command that the kernel shows as the bytes of its words from 10 on."""
        shown = bytes.fromhex(re.search(r"cdw10=([0-9a-f ]+)", text)[1])
        return (int.from_bytes(shown[:8], "little") * block_bytes,
                (int.from_bytes(shown[8:10], "little") + 1) * block_bytes)

    return commands


def as_command(op, offset_bytes, length_bytes, flags):
    """The command of a row. A drive's dataset management holds its ranges in its data, where no trace looks."""
    name = {OPS["read"]: "read", OPS["write"]: "write", OPS["flush"]: "flush", OPS["discard"]: "dsm",
            OPS["write_zeroes"]: "write_zeroes", OPS["verify"]: "verify", OPS["compare"]: "compare"}[op]
    if name in ("flush", "dsm"):
        return name, 0, 0, False
    return name, offset_bytes, length_bytes, bool(flags & FLAGS["fua"])


@pytest.fixture
def commands_with_data():
    """What a drive has beyond reads and writes: verifies of up to so many bytes, compares with what it holds now."""
    with ExitStack() as stack:
        def support(drive, verify_bytes, *compared):
            blocks = BlockSet.of(*np.array(compared).T)
            with held(find_target(drive)) as claim, compare_data(blocks, claim, progress) as memory:
                descriptor = os.dup(memory)
            stack.callback(os.close, descriptor)
            return [WriteSupport(verify_bytes=verify_bytes, compare_data=descriptor)]

        yield support


def test_commands_of_programs_have_their_place(rows_of, nvme, commands_of, program, tmp_path):
    """By each way that a program has: IO_CMD (nvme-cli), SUBMIT_IO, and uring_cmd on the character device (fio)."""
    cli, blocks = program("nvme", "nvme-cli"), drive_of(nvme).logical_block_bytes
    assert blocks == 512
    generic = nvme.replace("nvme", "ng")
    data = tmp_path / "data"
    data.write_bytes(bytes(65536))
    rows = rows_of(nvme, f"""
        exec >{tmp_path}/log
        {cli} write {nvme} -s 8 -c 15 -z 8192 -d {data}
        {cli} write {nvme} -s 4096 -c 7 -z 4096 -d {data} --force-unit-access
        {cli} read {nvme} -s 64 -c 127 -z 65536 -d /dev/null
        {cli} write-zeroes {nvme} -s 512 -c 63
        {cli} write-zeroes {nvme} -s 1024 -c 7 --deac || true
        {cli} flush {nvme} -n 1
        {cli} compare {nvme} -s 8 -c 7 -z 4096 -d {data}
        {cli} verify {nvme} -s 8 -c 7 || true
        {cli} dsm {nvme} --ad -s 2048 -b 8
        {PASS} {nvme} submit:1:200:8:{FUA} submit:2:300:16:0
        dd if={nvme} of=/dev/null bs=4k count=1 iflag=direct status=none
        {program("fio")} --name=u --filename={generic} --ioengine=io_uring_cmd --cmd_type=nvme --rw=randrw --bs=16k \
            --size=16m --iodepth=4 --number_ios=60 --thread --output={tmp_path}/fio""")
    commands = commands_of()
    passed = rows["flags"] & FLAGS["passthrough"] != 0
    assert (~passed).sum() == 1, "the read of dd"
    seen = [as_command(*row) for row in rows[["op", "offset_bytes", "length_bytes", "flags"]].to_numpy().tolist()]
    assert "dsm" in {name for name, *_ in commands}
    assert seen == [command for command in commands if command[0] != "dsm"]
    assert {("compare", 4096, 4096, False), ("verify", 4096, 4096, False)} <= set(seen)
    assert {name for name, *_ in seen} == {"read", "write", "flush", "write_zeroes", *CHECKS} and len(seen) >= 70
    assert [command for command in seen if command[3]] == [("write", 2 * MIB, 4096, True),
                                                           ("write", 102400, 4096, True)]
    assert rows["flags"][(rows.op == OPS["write_zeroes"]) & (rows.offset_bytes == 524288)].tolist()[0] & (
        FLAGS["may_unmap"])
    summary = rows.attrs["summary"]
    assert summary["ledger"]["commands_unseen"] == 1
    assert summary["diskstats"]["difference"] == 0 and summary["missing"] == []
    assert any("passed to the drive" in line for line in summary["incomplete"])
    assert (rows.latency_ns > 0).all() and (rows["flags"] & FLAGS["own"] != 0).all()
    names = {entry["process"] for entry in rows.attrs["metadata"]["threads"].values()}
    assert {"nvme", "python3", "fio"} <= names


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_commands_to_a_scsi_drive_have_their_place(rows_of, scsi_debug, kind):
    """SG_IO, in each length of a command that a drive takes."""
    scsi_debug()
    commands = {"08 00 10 08 08 00:read:4096": ("read", 0x1008, 8, 0),
                "0a 00 00 40 00 00:write:131072": ("write", 64, 256, 0),
                "28 00 00 00 02 00 00 00 10 00:read:8192": ("read", 0x200, 16, 0),
                "2a 08 00 00 03 00 00 00 08 00:write:4096": ("write", 0x300, 8, FLAGS["fua"]),
                "a8 00 00 00 04 00 00 00 00 08 00 00:read:4096": ("read", 0x400, 8, 0),
                "8a 08 00 00 00 00 00 00 05 00 00 00 00 08 00 00:write:4096": ("write", 0x500, 8, FLAGS["fua"]),
                "88 00 00 00 00 00 00 00 06 00 00 00 00 01 00 00:read:512": ("read", 0x600, 1, 0),
                "35 00 00 00 00 00 00 00 00 00:none:0": ("flush", 0, 0, 0),
                "12 00 00 00 24 00:read:36": None, "00 00 00 00 00 00:none:0": None,  # INQUIRY, TEST UNIT READY
                "2f 00 00 00 02 00 00 00 08 00:none:0": ("verify", 0x200, 8, 0),
                "8f 02 00 00 00 00 00 00 06 00 00 00 00 01 00 00:write:512": ("compare", 0x600, 1, 0),
                "42 00 00 00 00 00 00 00 00 00:none:0": "unseen"}  # UNMAP of nothing
    words = " ".join(f"'{word}'" for word in commands)
    rows = rows_of(scsi_debug.path, f"{PASS} {scsi_debug.path} {words} >/dev/null", "--programs", kind)
    names = {code: op for op, code in OPS.items()}
    passed = rows[rows["flags"] & FLAGS["passthrough"] != 0]
    assert [(names[op], offset // 512, length // 512, flags & FLAGS["fua"]) for op, offset, length, flags in
            passed[["op", "offset_bytes", "length_bytes", "flags"]].to_numpy().tolist()] == [
                place for place in commands.values() if isinstance(place, tuple)]
    summary = rows.attrs["summary"]
    assert summary["ledger"]["commands_unseen"] == 1 and summary["ledger"]["other_ops"] >= 2
    assert summary["diskstats"]["difference"] == 0 and summary["missing"] == []
    assert (passed.latency_ns > 0).all()


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


@pytest.mark.parametrize("passthrough", [False, True])
def test_each_row_of_a_plan_is_a_command(a_plan, issue, nvme, commands_of, commands_with_data, passthrough):
    """Every kind of I/O, as the engine hands it on: FUA in the command itself, a flush before a preflush write."""
    random = np.random.default_rng(7)
    op = random.choice([OPS[name] for name in (*OF_BLOCK_LAYER, *CHECKS * passthrough)], 300)
    length = np.where(op == OPS["flush"], 0, random.choice([4096, 8192, 65536], 300))
    with_fua = ["write", "read", "write_zeroes"] if passthrough else ["write"]
    flags = np.where(np.isin(op, [OPS[name] for name in with_fua]) & (random.random(300) < 0.5), FLAGS["fua"], 0)
    plan = a_plan(random.integers(0, 1000, 300) * 65536 * (op != OPS["flush"]), op=op, length_bytes=length,
                  flags=flags)
    support = commands_with_data(nvme, MIB, (0, 64 * MIB))
    before = len(commands_of())
    totals, records = issue(plan, target=nvme, depth=1, may_write=True, passthrough=passthrough, write_support=support)
    wanted = [as_command(*row) for row in zip(*(plan[name].tolist() for name in
                                                ("op", "offset_bytes", "length_bytes", "flags")), strict=True)]
    assert commands_of()[before:] == wanted
    assert set(records["status"]) == {0}
    assert totals["altered"] == totals["dropped"] == {}


@pytest.mark.parametrize("passthrough", [False, True])
def test_a_preflush_is_a_flush_before_its_write(a_plan, issue, nvme, commands_of, passthrough):
    flags = FLAGS["preflush"] | FLAGS["fua"]
    issue(a_plan(np.arange(5) * MIB, op=OPS["write"], flags=flags), target=nvme, depth=1, may_write=True,
          passthrough=passthrough)
    assert commands_of() == [command for at in range(5)
                             for command in (("flush", 0, 0, False), ("write", at * MIB, 4096, True))]


def test_a_replay_of_verify_and_compare(blkreel, rows_of, nvme, commands_of, program, tmp_path, monkeypatch):
    """With --passthrough the drive gets each of them. Both are named where they are left out.

    QEMU 7.2 has verify and does not announce it, so that its announcement is made up. The replay overwrites the blocks
    of the first compare, not those of the second.
    """
    cli, data = program("nvme", "nvme-cli"), tmp_path / "data"
    data.write_bytes(bytes(4096))
    rows = rows_of(nvme, f"""
        exec >{tmp_path}/log
        dd if=/dev/zero of={nvme} bs=64k count=4 oflag=direct status=none
        {cli} verify {nvme} -s 8 -c 7
        {cli} verify {nvme} -s 128 -c 63
        {cli} compare {nvme} -s 8 -c 7 -z 4096 -d {data}
        {cli} compare {nvme} -s 2048 -c 7 -z 4096 -d {data}""")
    names = {code: op for op, code in OPS.items()}
    assert [names[op] for op in rows.op] == ["write"] * 4 + ["verify", "verify", "compare", "compare"]
    has_verify = verify_bytes(find_target(nvme)) > 0
    identified = subprocess.run([cli, "id-ctrl", nvme, "-o", "json"], capture_output=True, text=True, check=True).stdout
    assert has_verify == bool(json.loads(identified)["oncs"] & 1 << 7)
    assert has_compare(find_target(nvme)) == bool(json.loads(identified)["oncs"] & 1 << 0) is True
    blkreel("slice", tmp_path / "t.parquet", "-o", tmp_path / "compares.parquet", "--op", "compare")
    for number, (passthrough, announced) in enumerate(((False, False), (True, False), (True, True))):
        if announced:
            has_verify = True
            for module in (write_support, write_flags):
                monkeypatch.setattr(module, "verify_bytes", lambda target: MIB)
        before = len(commands_of())
        result = blkreel("replay", tmp_path / "t.parquet", "--on", nvme, "-o", tmp_path / f"run-{number}", "--idle",
                         "cap=1ms", "--map", "identity", "--json", "--destroy", "GUEST001", "--seed", str(number),
                         *["--passthrough"] * passthrough, check=False)
        issued = passthrough and has_verify
        left_out = {} if passthrough else {"compare": 2}
        assert result.returncode in (0, 3), result.stderr
        assert ("2 verify commands are not issued" in result.stderr) == (not issued)
        assert ("2 compare commands are not issued: only --passthrough issues them" in result.stderr) != passthrough
        assert ("the data of compare commands, 8.19 KB, are read from the drive before the run" in result.stderr) == (
            passthrough)
        run = json.loads(result.stdout)["run"]
        assert run["dropped"] == left_out | ({} if issued else {"verify": 2})
        assert [place for name, *place, _ in commands_of()[before:] if name == "verify"] == (
            [[4096, 4096], [65536, 32768]] if issued else [])
        assert [place for name, *place, _ in commands_of()[before:] if name == "compare"] == (
            [[4096, 4096], [MIB, 4096]] if passthrough else [])
        assert [run[key] for key in ("compares", "compared_bytes", "compares_unequal", "error_ops")] == (
            [2, 8192, 1, 0] if passthrough else [0, 0, 0, 0])
        assert ("compared_data" in {reason["code"] for reason in run["verdict"]["reasons"]}) == passthrough
    alone = ("replay", tmp_path / "compares.parquet", "--on", nvme, "-o", tmp_path / "alone", "--map", "identity",
             "--json", "--destroy", "GUEST001", "--passthrough")
    before = len(commands_of())
    assert "the data of compare commands, 8.19 KB, are" in blkreel(*alone, "--dry-run").stderr
    with monkeypatch.context() as patch:
        patch.setattr(compares, "MOST_BYTES", 8191)
        result = blkreel(*alone, check=False)
    assert result.returncode == 1 and "need 8.19 KB of data in memory, more than" in result.stderr
    assert not {"write", "compare"} & {name for name, *_ in commands_of()[before:]}
    result = blkreel(*alone, check=False)
    run = json.loads(result.stdout)["run"]
    assert [run[key] for key in ("compares", "compares_unequal", "error_ops")] == [2, 0, 0]
    assert "compared_data" not in {reason["code"] for reason in run["verdict"]["reasons"]} and run["dropped"] == {}


def test_a_compare_has_the_data_of_before_the_run(a_plan, issue, nvme, commands_with_data):
    """Random data, so that only the right ones are equal; the run writes some of the compared blocks in between."""
    Path(nvme).write_bytes(np.random.default_rng(3).bytes(MIB))
    subprocess.run(["blockdev", "--flushbufs", nvme], check=True)
    compare, write, read = (OPS[name] for name in ("compare", "write", "read"))
    equal = [(8192, 4096, compare), (12288, 12288, compare), (512, 512, compare)]
    overlapping = [(16384, 512, write), (12288, 12288, compare), (16384, 512, compare), (16384, 512, read)]
    support = commands_with_data(nvme, 0, (512, 1024), (8192, 24576))
    for rows, unequal in ((equal, 0), ([*overlapping, *equal[::2], (16896, 4096, compare)], 2)):
        offset, length, op = np.array(rows).T
        totals, records = issue(a_plan(offset, op=op, length_bytes=length), target=nvme, depth=1, may_write=True,
                                passthrough=True, write_support=support)
        assert set(records["status"]) == {0} and totals["dropped"] == {} and totals["error_ops"] == 0
        assert totals["compares_unequal"] == unequal


def test_long_rows_are_several_commands(a_plan, issue, nvme, commands_of, commands_with_data):
    """None is longer than the drive takes, none is missing, and what a deallocation names reads as zeros."""
    Path(nvme).write_bytes(b"x" * (32 * MIB))
    subprocess.run(["blockdev", "--flushbufs", nvme], check=True)
    op = [OPS[name] for name in ("write", "read", "write_zeroes", "discard", "write", "verify", "compare")]
    length = [3, 9, 40, 16, 10, 3, 11]
    plan = a_plan(np.array([32, 0, 64, 8, 112, 0, 24]) * MIB, op=np.array(op), length_bytes=np.array(length) * MIB,
                  flags=np.array([FLAGS["preflush"], 0, 0, 0, FLAGS["fua"], 0, 0]))
    support = commands_with_data(nvme, 512 << 10, (24 * MIB, 35 * MIB))
    before = len(commands_of())
    totals, records = issue(plan, target=nvme, depth=1, may_write=True, passthrough=True,
                            write_support=support)
    commands = commands_of()[before:]
    assert set(records["status"]) == {0} and totals["altered"] == totals["dropped"] == {}
    assert totals["compares_unequal"] == 1, "the first row writes the last 3 MiB"
    limit_bytes = int(Path("/sys/block", Path(nvme).name, "queue/max_hw_sectors_kb").read_text()) << 10
    assert commands[0][0] == "flush" and [name for name, *_ in commands].count("dsm") == 1
    for name, first, bytes_, fua in (("write", 32, 3, False), ("read", 0, 9, False), ("write_zeroes", 64, 40, False),
                                     ("write", 112, 10, True), ("verify", 0, 3, False), ("compare", 24, 11, False)):
        parts = sorted((offset, length) for kind, offset, length, bit in commands
                       if kind == name and bit == fua and first * MIB <= offset < (first + bytes_) * MIB)
        assert len(parts) > 1 and sum(length for _, length in parts) == bytes_ * MIB
        assert [offset for offset, _ in parts] == [first * MIB + sum(length for _, length in parts[:at])
                                                   for at in range(len(parts))]
        assert max(length for _, length in parts) <= (32 * MIB if name == "write_zeroes" else limit_bytes)
    content = Path(nvme).read_bytes()[:32 * MIB]
    assert content == b"x" * (8 * MIB) + bytes(16 * MIB) + b"x" * (8 * MIB)


def test_a_replay_by_commands_is_as_safe_as_any(blkreel, rows_of, nvme, commands_of, tmp_path):
    """By the name of the character device, too: the checks are those of its namespace."""
    generic = nvme.replace("nvme", "ng")
    source = rows_of(nvme, f"dd if=/dev/zero of={nvme} bs=4k count=40 oflag=direct,dsync status=none;"
                           f"dd if={nvme} of=/dev/null bs=64k count=10 iflag=direct status=none;"
                           f"blkdiscard -f --offset 8MiB --length 1MiB {nvme}")
    arguments = ("replay", tmp_path / "t.parquet", "-o", tmp_path / "run", "--idle", "cap=1ms", "--map", "identity",
                 "--json")
    assert blkreel(*arguments, "--on", generic, check=False).returncode == 2, "a character device without --passthrough"
    for on in (nvme, generic):
        assert "--destroy GUEST001" in blkreel(*arguments, "--on", on, "--passthrough", code=5).stderr
    subprocess.run(["mkfs.ext4", "-q", "-F", nvme], check=True)
    (tmp_path / "mounted").mkdir()
    subprocess.run(["mount", nvme, tmp_path / "mounted"], check=True)
    mounted = blkreel(*arguments, "--on", generic, "--passthrough", "--destroy", "GUEST001", check=False)
    subprocess.run(["umount", tmp_path / "mounted"], check=True)
    assert mounted.returncode == 5 and "mounted" in mounted.stderr
    subprocess.run(["sfdisk", "-q", nvme], input="start=2048, size=16384\n", text=True, check=True, capture_output=True)
    part = blkreel(*arguments, "--on", f"{nvme}p1", "--passthrough", "--destroy", "GUEST001", check=False)
    assert part.returncode == 2 and "commands address the whole namespace" in part.stderr
    subprocess.run(["blkdiscard", "-f", nvme], check=True)
    before = len(commands_of())
    result = blkreel(*arguments, "--on", generic, "--passthrough", "--destroy", "GUEST001", code=(0, 3))
    run = json.loads(result.stdout)["run"]
    assert run["passthrough"] and run["engine"]["features"]["passthrough"] is True
    assert run["completed_ops"] == len(source) and run["as_planned"] and run["foreign_ios"] == 0
    assert run["error_ops"] == 0
    commands = commands_of()[before:]
    writes = [offset for name, offset, _, fua in commands if name == "write" and fua]
    assert sorted(writes) == sorted(source.offset_bytes[source.op == OPS["write"]])
    assert [name for name, *_ in commands].count("dsm") >= 1


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
    # an emulated machine issues late, which the verdict says
    result = blkreel("replay", tmp_path / "t.parquet", "--on", nvme, "-o", tmp_path / "run", "--destroy", "GUEST001",
                     "--idle", "cap=1ms", "--map", "identity", "--polled", "--json", code=(0, 3))
    run = json.loads(result.stdout)["run"]
    assert run["engine"]["features"]["polled"] is True
    assert run["completed_ops"] == len(source) and run["as_planned"] and run["foreign_ios"] == 0
    writes = [command for command in commands_of()[before:] if command[0] == "write" and command[3]]
    assert sorted(offset for _, offset, *_ in writes) == sorted(source.offset_bytes[source.op == OPS["write"]])
