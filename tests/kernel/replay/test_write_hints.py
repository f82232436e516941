"""Write hints: those of a program are in the trace."""

import fcntl
import json
import platform
import struct
import sys

import pytest
from tree import TREE

from blkreel.traces.format.schema import HINTS

pytestmark = pytest.mark.kernel

PROGRAM = f"{sys.executable} -S {TREE}/tests/support/services/hinted_writes.py"
# As the program says.
WRITTEN = {name: {"ios": 1, "bytes": 4096 * (number + 1)} for number, name in enumerate(HINTS, 1)}


@pytest.fixture(autouse=True)
def require_hints():
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 9):
        pytest.skip("needs Linux 6.9, whose block layer has write hints")


def flags_of(blkreel, path):
    assert blkreel("check", path, check=False).returncode in (0, 3)  # the kernel may keep a completion from BPF
    return json.loads(blkreel("info", path, "--json").stdout)["write_flags"]


@pytest.mark.parametrize("programs", ["tp_btf", "raw_tp"])
def test_each_hint_is_recorded(blkreel, loop_drive, tmp_path, programs):
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    blkreel("capture", drive, "-o", trace, "--programs", programs, "--", *PROGRAM.split(), drive)
    assert flags_of(blkreel, trace) == WRITTEN
    assert "hint_extreme" in blkreel("info", trace).stdout


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
