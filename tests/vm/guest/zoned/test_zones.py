"""Zoned drives: null_blk with zones, and an NVMe drive whose zones have less capacity than size."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from blkreel.traces.format.schema import OP_NAMES, OPS
from tests.vm.guest.drives import nvme_path

KIB, MIB = 1 << 10, 1 << 20
ZONE_BYTES = 4 * MIB
ZONE = re.compile(r"start: 0x(\w+), len 0x\w+, cap 0x\w+, wptr 0x(\w+) reset:\d+ non-seq:\d+, zcond:\s*(\d+)")
# Of a zone: at its pointer, an explicit open and a close, a finish and a reset.
WORK = """
dd if=/dev/zero of={drive} bs=16k count=4 seek=256 oflag=direct,seek_bytes,nocache status=none seek={first}
blkzone open -o {second_sector} -c 1 {drive}
dd if=/dev/zero of={drive} bs=32k count=2 oflag=direct,seek_bytes seek={second} status=none
blkzone close -o {second_sector} -c 1 {drive}
dd if=/dev/zero of={drive} bs=64k count=1 oflag=direct,seek_bytes seek={third} status=none
blkzone finish -o {third_sector} -c 1 {drive}
dd if={drive} of=/dev/null bs=16k count=2 iflag=direct,skip_bytes skip={first} status=none
blkzone reset -o {first_sector} -c 1 {drive}
dd if=/dev/zero of={drive} bs=16k count=1 oflag=direct,seek_bytes seek={first} status=none
"""
# blktrace has begun when its files are there, and has written all when it has ended.
BESIDE_BLKTRACE = """
cd {directory}
blktrace -d {drive} -o peer >blktrace.log 2>&1 & peer=$!
until [ -e /sys/kernel/debug/block/{name}/trace0 ]; do sleep 0.1; done
{work}
kill -INT $peer; wait $peer || true
"""


def work_on(drive, first=4, written=0):
    """The commands on three zones from number `first` on. written: bytes of the second that are written already."""
    places = {name: (first + number) * ZONE_BYTES for number, name in enumerate(("first", "second", "third"))}
    sectors = {f"{name}_sector": place // 512 for name, place in places.items()}
    places["second"] += written
    return re.sub(r" seek=256|,nocache", "", WORK.format(drive=drive, **places, **sectors))


def rows_of_work(first=4, written=0):
    """(op, offset_bytes, length_bytes) of work_on()."""
    a, b, c = ((first + number) * ZONE_BYTES for number in range(3))
    return [*(("write", a + number * 16 * KIB, 16 * KIB) for number in range(4)), ("zone_open", b, 0),
            *(("write", b + written + number * 32 * KIB, 32 * KIB) for number in range(2)), ("zone_close", b, 0),
            ("write", c, 64 * KIB), ("zone_finish", c, 0),
            *(("read", a + number * 16 * KIB, 16 * KIB) for number in range(2)), ("zone_reset", a, 0),
            ("write", a, 16 * KIB)]


def zones(drive):
    """(start, write pointer, condition) of each zone in bytes, by the program blkzone. A full zone has no pointer."""
    text = subprocess.run(["blkzone", "report", drive], capture_output=True, text=True, check=True).stdout
    found = [(int(start, 16) * 512, int(pointer, 16) * 512, int(condition))
             for start, pointer, condition in ZONE.findall(text)]
    assert len(found) == text.count("start:") > 0
    return [(start, start + pointer if condition != 14 else None, condition) for start, pointer, condition in found]


def listed(rows):
    return [(OP_NAMES[op], offset, length)
            for op, offset, length in rows[["op", "offset_bytes", "length_bytes"]].to_numpy().tolist()]


@pytest.fixture
def zoned_null_blk(null_blk):
    return lambda **attributes: null_blk(zoned=1, zone_size=4, zone_nr_conv=1, memory_backed=1, **attributes)


# Where the driver makes no difference.
on_null_blk = pytest.mark.parametrize("zoned", ["null_blk"], indirect=True)
on_nvme = pytest.mark.parametrize("zoned", ["nvme"], indirect=True)


@pytest.fixture(params=["null_blk", "nvme"])
def zoned(request, zoned_null_blk):
    """A zoned drive with all zones empty."""
    if request.param == "null_blk":
        return zoned_null_blk()
    drive = nvme_path("GUEST005")
    subprocess.run(["blkzone", "reset", drive], check=True)
    return drive


def destroy(drive):
    name = Path(drive).name
    return "GUEST005" if name.startswith("nvme") else f"{name}:{64 * MIB}"


def replay(blkreel, tmp_path, drive, *options, check=True, confirm=None):
    result = blkreel("replay", tmp_path / "t.parquet", "--on", drive, "-o", tmp_path / "run", "--destroy",
                     confirm or destroy(drive), "--pace", "asap", "--force", "--json", *options, check=False)
    if not check:
        return result
    assert result.returncode in (0, 3), result.stderr  # an emulated machine issues late, which the verdict says
    run = json.loads(result.stdout)["run"]
    assert run["error_ops"] == 0, run["errors"]
    return run


def test_each_operation_on_a_zone_is_a_row_and_is_replayed(rows_of, blkreel, zoned, zoned_null_blk, tmp_path):
    rows = rows_of(zoned, f"{work_on(zoned)}blkzone reset {zoned}\n{work_on(zoned, first=8)}")
    assert listed(rows) == [*rows_of_work(), ("zone_reset_all", 0, 0), *rows_of_work(8)]
    assert (rows.latency_ns > 0).all() and (rows.status == 0).all()
    summary = rows.attrs["summary"]
    assert summary["ledger"]["other_ops"] == 0 and summary["diskstats"]["difference"] == 0
    device, = rows.attrs["metadata"]["devices"]
    assert (device["zoned"], device["zone_bytes"]) == ("host-managed", ZONE_BYTES)
    blkreel("check", tmp_path / "t.parquet")
    info = blkreel("info", tmp_path / "t.parquet").stdout
    assert "host-managed, zones of 4.19 MB" in info and "zone_finish" in info
    after = zones(zoned)
    subprocess.run(["blkzone", "reset", zoned], check=True)
    run = replay(blkreel, tmp_path, zoned)
    assert run["completed_ops"] == run["planned_ops"] == len(rows) and run["as_planned"] and run["foreign_ios"] == 0
    assert zones(zoned) == after


def test_write_pointers_are_put_where_the_trace_found_them(rows_of, blkreel, zoned, tmp_path):
    written = 96 * KIB
    fill = ["dd", "if=/dev/zero", f"of={zoned}", "bs=32k", "oflag=direct,seek_bytes", f"seek={5 * ZONE_BYTES}",
            "status=none"]
    subprocess.run([*fill, "count=3"], check=True)
    rows = rows_of(zoned, work_on(zoned, written=written))
    assert listed(rows) == rows_of_work(written=written)
    after = zones(zoned)
    # Other data lies in the zones now: more in the second one, and the third is full.
    for _ in range(2):
        run = replay(blkreel, tmp_path, zoned)
        assert run["completed_ops"] == len(rows) and run["prefill"]["bytes"] == written
        assert zones(zoned) == after
    before = zones(zoned)
    result = replay(blkreel, tmp_path, zoned, "--no-prefill", check=False)
    assert result.returncode == 1 and "would refuse" in result.stderr
    assert "writes that are not at the write pointer of their zone (the first is row 0: zone 4" in result.stderr
    assert "--prefill" in result.stderr and zones(zoned) == before


@on_null_blk
def test_writes_off_the_write_pointer_are_refused_before_the_first_one(rows_of, blkreel, zoned, null_blk, tmp_path):
    regular = null_blk()
    rows_of(regular, f"dd if=/dev/zero of={regular} bs=4k count=4 oflag=direct status=none seek=1024\n"
                     f"dd if=/dev/zero of={regular} bs=4k count=3 oflag=direct status=none seek=1025\n"
                     f"dd if={regular} of=/dev/null bs=4k count=8 iflag=direct status=none skip=1024")
    before = zones(zoned)
    result = replay(blkreel, tmp_path, zoned, check=False)
    assert result.returncode == 1
    assert ("would refuse 3 of 7 writes and zone operations: 3 writes that are not at the write pointer of their zone "
            f"(the first is row 4: zone 1, {4 * MIB + 4096:,} instead of {4 * MIB + 4 * 4096:,})") in result.stderr
    assert "--without writes" in result.stderr and zones(zoned) == before
    run = replay(blkreel, tmp_path, zoned, "--without", "writes")
    assert run["completed_ops"] == 8
    result = replay(blkreel, tmp_path, zoned, "--map", "wrap", check=False)
    assert result.returncode == 2 and "--map wrap" in result.stderr
    assert [zone[2] for zone in zones(zoned)][2:] == [zone[2] for zone in before][2:]


@on_nvme
def test_a_trace_of_zones_on_a_drive_without(rows_of, blkreel, zoned, null_blk, tmp_path):
    rows = rows_of(zoned, work_on(zoned))
    run = replay(blkreel, tmp_path, null_blk())
    data = [row for row in rows_of_work() if row[2]]
    assert run["completed_ops"] == len(data)
    assert run["dropped"] == {name: 1 for name in ("zone_reset", "zone_open", "zone_close", "zone_finish")}
    reasons = [reason for reason in run["verdict"]["reasons"] if "no zones" in reason["text"]]
    assert len(reasons) == 4 and {reason["level"] for reason in reasons} == {"qualified"}
    assert len(rows) == len(data) + 4


def test_appends_have_the_place_that_the_drive_chose(rows_of, blkreel, zoned_null_blk, null_blk, program, tmp_path):
    """btrfs appends data; blktrace has writes to the start of the zone that complete elsewhere."""
    for name, package in (("blktrace", "blktrace"), ("blkparse", "blktrace"), ("mkfs.btrfs", "btrfs-progs")):
        program(name, package)
    drive = zoned_null_blk(size=256)
    subprocess.run(["mkfs.btrfs", "-q", "-f", "-O", "zoned", "-d", "single", "-m", "single", drive], check=True)
    directory = tmp_path / "btrfs"
    directory.mkdir()
    subprocess.run(["mount", "-t", "btrfs", drive, directory], check=True)
    work = (f"for n in 1 2 3; do dd if=/dev/urandom of={directory}/f$n bs=16k count=4 oflag=direct status=none; done\n"
            f"umount {directory}")
    rows = rows_of(drive, BESIDE_BLKTRACE.format(drive=drive, directory=tmp_path, name=Path(drive).name, work=work))
    places = rows.offset_bytes[rows.op == OPS["zone_append"]].tolist()
    assert places == [places[0] + at * 16 * KIB for at in range(12)] and places[0] % ZONE_BYTES == 0
    assert rows.attrs["summary"]["bytes"]["zone_append"] == 12 * 16 * KIB
    text = subprocess.run(["blkparse", "-q", "-i", "peer", "-f", "%a %d %S %N\n"], cwd=tmp_path, capture_output=True,
                          text=True, check=True).stdout
    issued, completed = ([int(sector) * 512 for action, kind, sector, length in map(str.split, text.splitlines())
                          if action == letter and kind == "WS" and int(length) == 16 * KIB] for letter in "DC")
    assert issued == [places[0]] * 12 and completed == places
    after = zones(drive)
    for target in (drive, null_blk(size=256)):
        run = replay(blkreel, tmp_path, target, confirm=f"{Path(target).name}:{256 * MIB}")
        assert run["altered"] == {"zone_append": 12} and run["completed_ops"] == len(rows)
    assert zones(drive) == after


@on_nvme
def test_what_fio_writes_to_zones_is_replayed(rows_of, blkreel, zoned, program, tmp_path):
    """fio keeps to the write pointers by moving its writes, and resets zones that are full."""
    rows = rows_of(zoned, f"{program('fio')} --name=z --filename={zoned} --direct=1 --zonemode=zbd --rw=randwrite "
                          "--bs=256k --size=48M --io_size=40M --max_open_zones=3 --ioengine=libaio --iodepth=4 "
                          f"--output={tmp_path}/fio")
    writes = rows[rows.op == OPS["write"]]
    assert writes.length_bytes.sum() == 40 * MIB and (writes.status == 0).all()
    after = zones(zoned)
    run = replay(blkreel, tmp_path, zoned)
    assert run["completed_ops"] == len(rows) and run["written_bytes"] == 40 * MIB
    assert zones(zoned) == after


@on_null_blk
def test_zones_are_filled_one_after_the_other_and_reset(blkreel, zoned):
    listed = next(entry for entry in json.loads(blkreel("drives", "--json").stdout)["drives"] if entry["path"] == zoned)
    assert (listed["zoned"], listed["zone_bytes"]) == ("host-managed", ZONE_BYTES)
    assert "zones of 4.19 MB" in blkreel("drives").stdout
    confirm = ("--destroy", destroy(zoned), "--json")
    state = json.loads(blkreel("precondition", zoned, "--state", "full", *confirm).stdout)["state"]
    assert state["erased_by"] == "discard" and state["verified_blocks"] > 0 and state["notes"] == []
    assert {condition for _, _, condition in zones(zoned)} <= {0, 14}, "without a pointer, or full"
    blkreel("precondition", zoned, "--state", "data", "--span", "4MiB-13MiB", *confirm)
    pointers = [pointer - start for start, pointer, condition in zones(zoned) if condition not in (0, 14)]
    assert [pointer for pointer in pointers if pointer] == [MIB]
    blkreel("precondition", zoned, "--state", "fresh", *confirm)
    assert {condition for _, _, condition in zones(zoned)} <= {0, 1}
    refused = blkreel("precondition", zoned, "--state", "client", *confirm, check=False)
    assert refused.returncode == 2 and "zones take no random writes" in refused.stderr


def test_more_active_zones_than_the_drive_has(rows_of, blkreel, zoned_null_blk, tmp_path):
    drive = zoned_null_blk()
    rows_of(drive, "".join(f"dd if=/dev/zero of={drive} bs=4k count=1 oflag=direct,seek_bytes status=none "
                           f"seek={(4 + number) * ZONE_BYTES}\n" for number in range(8)))
    nvme = nvme_path("GUEST005")
    subprocess.run(["blkzone", "reset", nvme], check=True)
    result = replay(blkreel, tmp_path, nvme, check=False)
    assert result.returncode == 1
    assert ("would refuse 2 of 8 writes and zone operations: 2 writes to an empty zone beside 6 active ones, the most "
            "of the drive (the first is row 6: zone 10)") in result.stderr
