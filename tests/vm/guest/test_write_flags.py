"""Atomic writes and write hints on a kernel that has both: by a program, in its trace, and on the wire of a replay."""

import json
import re
from pathlib import Path

import pytest

from blkreel.replay.drive.target import find_target
from blkreel.replay.drive.write_support import atomic_bytes
from blkreel.traces.format.schema import HINTS

WRITER = Path(__file__).resolve().parents[2] / "support/services/hinted_writes.py"
WRITE_ATOMIC_16 = 0x9c


def atomic_lengths(text, block_bytes=512):
    """Of the commands in a trace of the SCSI layer: WRITE ATOMIC (16) has its length in bytes 12 and 13."""
    commands = [bytes.fromhex(raw) for raw in re.findall(r"raw=((?:[0-9a-f]{2} ?){16})", text)]
    return [int.from_bytes(command[12:14], "big") * block_bytes for command in commands
            if command[0] == WRITE_ATOMIC_16]


def test_atomic_writes_and_hints(rows_of, blkreel, scsi_debug, tracing, tmp_path):
    drive = scsi_debug.path
    least, most = atomic_bytes(find_target(drive))
    if not most:
        pytest.skip("needs a drive with atomic writes: Linux 6.11, and scsi_debug with atomic_wr=1")
    assert least <= 4096 and most >= 16384
    tracing.enable("scsi/scsi_dispatch_cmd_start")
    rows_of(drive, f"python3 -S {WRITER} {drive} 4096 16384")
    assert atomic_lengths(tracing.text()) == [4096, 16384]
    flags = {name: {"ios": 1, "bytes": 4096 * (number + 1)} for number, name in enumerate(HINTS, 1)}
    flags["atomic"] = {"ios": 2, "bytes": 4096 + 16384}
    trace, run = tmp_path / "t.parquet", tmp_path / "run"
    assert json.loads(blkreel("info", trace, "--json").stdout)["write_flags"] == flags
    words = ["replay", trace, "--on", drive, "-o", run, "--pace", "asap", "--no-prefill", "--json"]
    refused = blkreel(*words, code=5)
    # an emulated machine issues late, which the verdict says
    result = blkreel(*words, "--destroy", re.search(r"--destroy (\S+)", refused.stderr)[1], code=(0, 3))
    account = json.loads(result.stdout)["run"]
    assert account["error_ops"] == 0 and account["altered"] == {}
    assert account["write_flags"] == {name: {"trace_bytes": total["bytes"], "issued_bytes": total["bytes"]}
                                      for name, total in flags.items()}
    assert sorted(atomic_lengths(tracing.text())) == [4096, 4096, 16384, 16384]
