"""What blktrace and fio make of commands to a drive and of operations on zones: the table of docs/limits.md."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.vm.guest.drives import nvme_path

KIB = 1 << 10
ZONE_BYTES = 4 << 20
# blktrace has begun when its files are there, and has written all when it has ended.
BESIDE_BLKTRACE = """
cd {directory}
blktrace -d {drive} -o peer >blktrace.log 2>&1 & peer=$!
until [ -e /sys/kernel/debug/block/{name}/trace0 ]; do sleep 0.1; done
{work}
dd if={drive} of=/dev/null bs=16k count=1 skip=2 iflag=direct status=none
kill -INT $peer; wait $peer || true
blkparse -q -i peer -d peer.bin -O
"""
READ_OF_DD = ("R", 32 * KIB, 16 * KIB)


@pytest.fixture
def beside_blktrace(program, tmp_path):
    """Runs a shell script and a read by dd; what the drive got by blktrace: [(kind, offset_bytes, length_bytes)]."""
    for name in ("blktrace", "blkparse"):
        program(name, "blktrace")

    def run(drive, work):
        script = BESIDE_BLKTRACE.format(directory=tmp_path, drive=drive, name=Path(drive).name, work=work)
        subprocess.run(["sh", "-ec", script], check=True)
        text = subprocess.run(["blkparse", "-q", "-i", "peer", "-f", "%a\t%d\t%S\t%N\n"], cwd=tmp_path,
                              capture_output=True, text=True, check=True).stdout
        rows = [line.split("\t") for line in text.splitlines() if line.count("\t") == 3]  # others are messages
        return [(kind[:1], int(sector) * 512, int(length)) for action, kind, sector, length in rows if action == "D"]

    return run


@pytest.fixture
def replayed_by_fio(program, tmp_path):
    """What fio issues of the blktrace file: {read: I/Os, write: I/Os, trim: I/Os}."""
    fio = program("fio")

    def run(drive):
        output = tmp_path / "fio.json"
        subprocess.run([fio, "--name=r", f"--read_iolog={tmp_path}/peer.bin", f"--replay_redirect={drive}",
                        "--replay_no_stall=1", "--direct=1", "--ioengine=psync", "--output-format=json",
                        f"--output={output}"], check=True)
        job = json.loads(output.read_text())["jobs"][0]
        return {kind: job[kind]["total_ios"] for kind in ("read", "write", "trim")}

    return run


def test_commands_of_programs(beside_blktrace, replayed_by_fio, nvme, program, tmp_path):
    """All at sector 0, a compare as a write of its data, a verify without a length. fio replays none."""
    cli, data = program("nvme", "nvme-cli"), tmp_path / "data"
    data.write_bytes(bytes(8 * KIB))
    rows = beside_blktrace(nvme, f"""
        {cli} write {nvme} -s 64 -c 15 -z 8192 -d {data}
        {cli} read {nvme} -s 128 -c 7 -z 4096 -d /dev/null
        {cli} verify {nvme} -s 256 -c 7
        {cli} compare {nvme} -s 64 -c 15 -z 8192 -d {data}""")
    verify = rows.pop(2)
    assert verify[1:] == (0, 0) and verify[0] in "RN", "blkparse names no direction without data"
    assert rows == [("W", 0, 8 * KIB), ("R", 0, 4 * KIB), ("W", 0, 8 * KIB), READ_OF_DD]
    assert replayed_by_fio(nvme) == {"read": 1, "write": 0, "trim": 0}


def test_operations_on_zones(beside_blktrace, replayed_by_fio, program, tmp_path):
    """Writes of nothing; an append that a program passes to the drive is a write at sector 0. fio replays none."""
    cli, zoned, data = program("nvme", "nvme-cli"), nvme_path("GUEST005"), tmp_path / "data"
    data.write_bytes(bytes(16 * KIB))
    subprocess.run(["blkzone", "reset", zoned], check=True)
    first, second = (number * ZONE_BYTES // 512 for number in (4, 5))
    rows = beside_blktrace(zoned, f"""
        {cli} zns zone-append {zoned} -s {first} -z 16384 -d {data}
        blkzone finish -o {second} -c 1 {zoned}
        blkzone reset -o {second} -c 1 {zoned}""")
    assert rows == [("W", 0, 16 * KIB), ("W", 5 * ZONE_BYTES, 0), ("W", 5 * ZONE_BYTES, 0), READ_OF_DD]
    assert replayed_by_fio(zoned) == {"read": 1, "write": 0, "trim": 0}
