"""When a thread first used the pages of a read, held against the clock of the program that used them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blkreel.capture.helper import probe
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import NOT_USED

pytestmark = pytest.mark.kernel

MIB = 1 << 20
# Uses each 16 KiB of the drive for a while, and writes when it began and ended to do so, and its thread.
PROGRAM = """
import ctypes, json, mmap, os, sys, threading, time
kind, drive, output = sys.argv[1:]
STEP, SIZE = 16384, 4 << 20
uses = []
file = os.open(drive, os.O_RDONLY)
mapped = mmap.mmap(file, SIZE, prot=mmap.PROT_READ) if kind == "mmap" else None
if kind == "misaligned":  # the 64 KiB that a fault maps begin in the middle of those of the file
    map_file = ctypes.CDLL(None).mmap
    map_file.restype, map_file.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3,
                                                            ctypes.c_long]
    address = map_file(None, SIZE + 131072, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    address = map_file((address | 65535) + 1 + 32768, SIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | 16, file, 0)  # MAP_FIXED
    mapped = (ctypes.c_ubyte * SIZE).from_address(address)
sink = os.open("/dev/null", os.O_WRONLY)
def use(offset):
    if kind == "read":
        os.pread(file, STEP, offset)
    elif mapped:
        for page in range(0, STEP, 4096):
            mapped[offset + page]
    elif kind == "sendfile":
        os.sendfile(sink, file, offset, STEP)
def run():
    for offset in range(0, SIZE, STEP):
        began = time.monotonic_ns()
        use(offset)
        uses.append((offset, began, time.monotonic_ns(), threading.get_native_id()))
        time.sleep(0.0005)
thread = threading.Thread(target=run)
thread.start()
thread.join()
json.dump(uses, open(output, "w"))
"""


def captured(blkreel, drive, tmp_path, kind, *options, path=None):
    """Metadata, rows, and what the program logged. path: of what it reads instead of the drive."""
    # A loop device reads 2.5 MiB ahead.
    for change in (("--setra", "256"), ("--flushbufs",)):
        subprocess.run(["blockdev", *change, drive], check=True)
    trace, log = tmp_path / "t.parquet", tmp_path / "uses.json"
    program = [sys.executable, "-c", PROGRAM, kind, path or drive, log]
    blkreel("capture", drive, "--workload-only", *options, "-o", trace, "--", *program)
    opened = open_trace(trace)
    if "used_ns" not in opened.schema.names:
        pytest.skip("needs a kernel with the tracepoints of filemap (6.12)")
    assert not check(opened).errors
    return opened.metadata, opened.table().to_pandas(), json.loads(log.read_text())


@pytest.mark.parametrize(("kind", "programs"), [("read", "tp_btf"), ("read", "raw_tp"), ("mmap", "tp_btf"),
                                              ("sendfile", "tp_btf")])
def test_a_use_is_when_the_program_says_so(blkreel, loop_drive, tmp_path, kind, programs):
    metadata, rows, used = captured(blkreel, loop_drive(8 * MIB), tmp_path, kind, "--programs", programs)
    rows = rows[rows.used_ns != -1]
    assert rows.length_bytes.sum() >= 4 * MIB, "all pages that were read are watched"
    # A fault maps the pages around it that are there: the program uses these without another fault.
    around_bytes = 65536 if kind == "mmap" else 0
    known = 0
    for row in rows.itertuples():
        steps = [(began_ns, ended_ns, offset, tid) for offset, began_ns, ended_ns, tid in used
                 if row.offset_bytes - around_bytes - 16384 < offset < row.offset_bytes + row.length_bytes]
        own = [step for step in steps if step[2] + 16384 > row.offset_bytes]
        if not own:
            assert row.used_ns == NOT_USED or kind == "mmap", "read ahead beyond the end"
            continue
        first_used_ns = min(own)[1] - metadata["epoch_ns"]
        if ((rows.offset_bytes == row.offset_bytes) & rows.submit_ns.between(row.submit_ns + 1, first_used_ns)).any():
            # Another test has dropped the page cache meanwhile: these pages were read again.
            assert row.used_ns == NOT_USED, row
            continue
        used_ns = metadata["epoch_ns"] + row.submit_ns + row.used_ns
        assert min(steps)[0] <= used_ns <= min(own)[1], row
        assert row.used_by == own[0][3] and row.used_ns >= row.latency_ns
        known += 1
    assert known >= 32
    mapped = metadata["ledger"]["uses_mapped"]
    sees_faults = probe()["limiter"] and programs == "tp_btf"
    assert mapped >= known if kind == "mmap" and not sees_faults else mapped == 0
    assert str(rows.used_by.max()) in metadata["threads"]


def test_what_a_fault_maps_around_itself_is_not_used_yet(blkreel, loop_drive, program, tmp_path):
    """A fault before the end of a window of read-ahead maps the begin of the next one, too, if it is there. On a slower
    drive it is not, and no thread waits for it before it gets there. With single pages in the cache, the first one is
    the marker, which such a fault leaves out."""
    if not probe()["limiter"]:
        pytest.skip("needs a kernel that lets programs be attached to a function")
    drive, place = loop_drive(64 * MIB), tmp_path / "mounted"
    subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", "-b", "4096", drive], check=True)
    place.mkdir()
    mount, unmount = ["mount", "-o", "noatime,data=journal", drive, place], ["umount", place]  # without large folios
    subprocess.run(mount, check=True)
    (place / "file").write_bytes(os.urandom(4 * MIB))
    subprocess.run(unmount, check=True)
    subprocess.run(mount, check=True)
    try:
        metadata, rows, used = captured(blkreel, drive, tmp_path, "misaligned", "--files", path=place / "file")
        inode = (place / "file").stat().st_ino
    finally:
        subprocess.run(unmount, check=True)
    rows = rows[(rows.inode == inode) & (rows.used_ns >= 0)]
    in_file_bytes = rows.length_bytes.cumsum() - rows.length_bytes  # they are read in order
    own = []
    for row, in_bytes in zip(rows.itertuples(), in_file_bytes, strict=True):
        used_ns = metadata["epoch_ns"] + row.submit_ns + row.used_ns
        own += [began_ns <= used_ns <= ended_ns for offset, began_ns, ended_ns, _ in used
                if 0 <= in_bytes - offset < 16384]
    assert len(own) >= 16
    assert np.mean(own) >= 0.75, rows.to_string()


def test_a_thread_that_waited_was_woken_by_that_read(blkreel, loop_drive, tmp_path):
    """The time since the wake-up and the times of the thread are those at the use: it sleeps after each."""
    _, rows, _ = captured(blkreel, loop_drive(8 * MIB), tmp_path, "read")
    used = rows[rows.used_ns >= 0]
    first = used.iloc[0]
    assert first.used_blocked_ns > 0, "nothing was there for the first use"
    assert first.used_think_ns == first.used_ns - first.latency_ns
    assert (np.diff(used[["used_blocked_ns", "used_slept_ns", "used_runnable_ns"]], axis=0) >= 0).all()
    assert (np.diff(used.used_slept_ns) > 0).mean() >= 0.9


def test_direct_reads_have_no_use(blkreel, loop_drive, program, tmp_path):
    drive = loop_drive(8 * MIB)
    blkreel("capture", drive, "-o", tmp_path / "t.parquet", "--", program("dd"), f"if={drive}", "of=/dev/null",
            "bs=64k", "iflag=direct", "status=none")
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    if "used_ns" in rows:
        assert len(rows) >= 128 and (rows[rows.length_bytes == 65536].used_ns == -1).all()


DIRECT_INTO_MAPPED = """
import mmap, os, sys
drive, path = sys.argv[1:]
file = os.open(path, os.O_RDWR | os.O_CREAT)
os.truncate(file, 65536)
memory = mmap.mmap(file, 65536)
os.preadv(os.open(drive, os.O_RDONLY | os.O_DIRECT), [memory], 0)
os.pread(file, 65536, 0)
"""


@pytest.mark.parametrize("programs", ["tp_btf", "raw_tp"])
def test_a_direct_read_into_a_mapped_file_is_not_of_that_file(blkreel, loop_drive, tmp_path, programs):
    """Its pages are in the page cache, but nothing waits there for the drive."""
    drive = loop_drive(8 * MIB)
    blkreel("capture", drive, "--files", "--programs", programs, "-o", tmp_path / "t.parquet", "--",
            sys.executable, "-c", DIRECT_INTO_MAPPED, drive, tmp_path / "mapped")
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    if "used_ns" not in rows:
        pytest.skip("needs a kernel with the tracepoints of filemap (6.12)")
    read = rows[rows.offset_bytes < 65536]
    assert read.length_bytes.sum() == 65536
    assert (read.used_ns == -1).all() and not (read.inode > 0).any()


@pytest.mark.parametrize("programs", ["tp_btf", "raw_tp"])
def test_the_verifier_goes_through_few_instructions(started, loop_drive, programs):
    """Each capture waits for it at its start: a million instructions take a second."""
    process = started(loop_drive(), "--programs", programs)
    helper, = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    counts = [int(line.partition(":")[2]) for descriptor in Path(f"/proc/{helper}/fdinfo").iterdir()
              for line in descriptor.read_text().splitlines() if line.startswith("verified_insns:")]
    if not counts:
        pytest.skip("needs a kernel that tells the instructions of the verifier (5.16)")
    assert sum(counts) < 200_000, sorted(counts)
