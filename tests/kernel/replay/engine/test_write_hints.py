"""Write hints: those of a program are in the trace, and its replay gives the drive the same bytes of each.

The observer is a BPF program that reads the hint of each request. The kernel's own events do not have it.
"""

import ctypes
import fcntl
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_trace import new_trace
from tree import TREE

from blkreel.traces.format.schema import FLAGS, HINTS, OPS

pytestmark = pytest.mark.kernel

PROGRAM = f"{sys.executable} -S {TREE}/tests/support/services/hinted_writes.py"
# As the program says.
WRITTEN = {name: {"ios": 1, "bytes": 4096 * (number + 1)} for number, name in enumerate(HINTS, 1)}
COUNTER = TREE / "tests/support/services/hint_counter.bpf.c"


@pytest.fixture(autouse=True)
def require_hints():
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 9):
        pytest.skip("needs Linux 6.9, whose block layer has write hints")


@pytest.fixture
def hints_given(program, tmp_path):
    """hints_given(drive) attaches the observer; calling what it returns gives {number of the hint: bytes written}."""
    libbpf = ctypes.CDLL("libbpf.so.1")
    for name in ("bpf_object__open_file", "bpf_object__find_program_by_name", "bpf_program__attach"):
        getattr(libbpf, name).restype = ctypes.c_void_p
    opened = []

    def watch(drive):
        number, file = Path(drive).stat().st_rdev, tmp_path / "counter.bpf.o"
        headers = f"/usr/include/{platform.machine()}-linux-gnu"
        subprocess.run([program("clang"), "-target", "bpf", "-O2", "-g", f"-DMAJOR={os.major(number)}",
                        f"-DMINOR={os.minor(number)}", "-idirafter", headers, "-c", COUNTER, "-o", file], check=True)
        counter = ctypes.c_void_p(libbpf.bpf_object__open_file(str(file).encode(), None))
        assert counter.value
        opened.append(counter)
        assert libbpf.bpf_object__load(counter) == 0
        found = ctypes.c_void_p(libbpf.bpf_object__find_program_by_name(counter, b"count_issue"))
        links.append(ctypes.c_void_p(libbpf.bpf_program__attach(found)))
        assert links[-1].value
        sums = libbpf.bpf_object__find_map_fd_by_name(counter, b"bytes")

        def seen():
            count, value = {}, ctypes.c_uint64()
            for hint in range(256):
                assert libbpf.bpf_map_lookup_elem(sums, ctypes.byref(ctypes.c_uint32(hint)), ctypes.byref(value)) == 0
                if value.value:
                    count[hint] = value.value
            return count

        return seen

    links = []
    yield watch
    for link in links:
        libbpf.bpf_link__destroy(link)
    for counter in opened:
        libbpf.bpf_object__close(counter)


def flags_of(blkreel, path):
    blkreel("check", path, code=(0, 3))  # the kernel may keep a completion from BPF
    return json.loads(blkreel("info", path, "--json").stdout)["write_flags"]


@pytest.mark.parametrize(("programs", "options"), [("tp_btf", []), ("raw_tp", ["--threads", "2"])])
def test_the_drive_gets_the_bytes_of_each_hint(blkreel, loop_drive, hints_given, tmp_path, programs, options):
    drive, trace, run = loop_drive(), tmp_path / "t.parquet", tmp_path / "run"
    blkreel("capture", drive, "-o", trace, "--programs", programs, "--", *PROGRAM.split(), drive)
    assert flags_of(blkreel, trace) == WRITTEN
    assert "hint_extreme" in blkreel("info", trace).stdout
    other = loop_drive()
    seen = hints_given(other)
    result = blkreel("replay", trace, "--on", other, "-o", run, "--pace", "depth=1", "--no-prefill", "--json", *options,
                     code=(0, 3))  # a busy machine issues late, which the verdict says
    assert seen() == {0: 4096} | {number: 4096 * (number + 1) for number in range(1, 6)}
    assert "hint" not in result.stderr
    account = json.loads(result.stdout)["run"]
    assert account["write_flags"] == {name: {"trace_bytes": total["bytes"], "issued_bytes": total["bytes"]}
                                      for name, total in WRITTEN.items()}
    assert account["altered"] == {} and account["error_ops"] == 0
    assert flags_of(blkreel, run) == WRITTEN
    assert not list(Path("/dev").glob(".blkreel-*"))


def test_the_hint_of_a_job_of_fio(blkreel, loop_drive, program, tmp_path):
    """Its hint of direct I/O is one of the descriptor, which Linux no longer has; so the writes are buffered."""
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    job = [program("fio"), "--name=w", f"--filename={drive}", "--rw=write", "--bs=64k", "--size=1M", "--end_fsync=1",
           "--write_hint=long"]
    try:
        blkreel("capture", drive, "-o", trace, "--", *job)
    finally:
        with open(drive, "rb") as node:
            fcntl.fcntl(node, 1036, struct.pack("Q", 0))
    assert flags_of(blkreel, trace)["hint_long"]["bytes"] == 1 << 20
    assert len(flags_of(blkreel, trace)) == 1


def test_the_hints_of_a_background(blkreel, loop_drive, hints_given, tmp_path):
    """Of a trace that the foreground has none of: all but those of its last pass."""
    flags, number = [FLAGS[name] for name in HINTS], np.arange(1, len(HINTS) + 1)
    new_trace(tmp_path / "b.parquet", drive_bytes=1 << 20, op=OPS["write"], flags=flags, length_bytes=number * 4096,
              offset_bytes=number << 16, submit_ns=number * 1_000_000)
    trace = new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(20) * 1_000_000)
    drive = loop_drive()
    seen = hints_given(drive)
    result = blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", "--background", tmp_path / "b.parquet",
                     "--no-prefill", "--background-lead", "1s", "--json", code=(0, 3))
    bytes_by_hint = seen()
    assert bytes_by_hint.keys() == set(number.tolist())
    passes = [bytes_by_hint[hint] / (4096 * hint) for hint in number.tolist()]
    assert min(passes) >= 1 and max(passes) - min(passes) <= 1
    assert "hint" not in result.stderr and json.loads(result.stdout)["run"]["altered"] == {}
