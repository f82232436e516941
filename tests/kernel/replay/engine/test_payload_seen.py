"""Data of a chosen kind on a drive: by a preparation, by a replay beforehand, and by the writes of the trace."""

import hashlib
import json
import subprocess

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SIZE = 64 * MIB
SHARES = ("--compressible", "75", "--duplicates", "40")
# The blocks that the others of one stream of writes are copies of.
ORIGINALS = 256


def assert_shares(data, streams):
    blocks = [data[at:at + 4096] for at in range(0, len(data), 4096)]
    distinct = len({hashlib.sha256(block).digest() for block in blocks})
    assert (distinct - streams * ORIGINALS) / len(blocks) == pytest.approx(0.60, abs=0.01)
    packed = subprocess.run(["zstd", "-1", "--stdout", "--quiet"], input=data, capture_output=True, check=True).stdout
    assert len(packed) / len(data) == pytest.approx(0.25, abs=0.01)


@pytest.fixture
def zstd(program):
    return program("zstd")


def test_a_preparation_writes_it_and_remembers(blkreel, loop_drive, zstd):
    drive = loop_drive(SIZE)
    prepared = json.loads(blkreel("precondition", drive, "--state", "full", *SHARES, "--json").stdout)["state"]
    assert_shares(loop_drive.image_of(drive).read_bytes(), streams=1)
    assert prepared["payload"] == {"compressible_percent": 75, "duplicates_percent": 40}


def test_a_replay_writes_it_beforehand_and_as_the_trace_does(blkreel, loop_drive, zstd, tmp_path):
    drive = loop_drive(SIZE)
    count = SIZE // 65536
    new_trace(tmp_path / "t.parquet", drive_bytes=SIZE, latency_ns=1000,
              offset_bytes=np.random.default_rng(1).permutation(count) * 65536, length_bytes=65536,
              op=np.arange(count) % 2 * OPS["write"])
    result = blkreel("replay", tmp_path / "t.parquet", "--on", drive, "-o", tmp_path / "run", "--pace", "depth=8",
                     "--map", "identity", *SHARES, "--json", code=(0, 3))
    run = json.loads(result.stdout)["run"]
    assert run["payload"] == {"compressible_percent": 75, "duplicates_percent": 40, "buffers_full_ops": 0}
    assert run["prefill"]["bytes"] == SIZE // 2
    assert_shares(loop_drive.image_of(drive).read_bytes(), streams=2)
    shown = json.loads(blkreel("report", tmp_path / "run", "--json").stdout)
    assert shown["entry"]["payload"]["compressible_percent"] == 75


@pytest.mark.parametrize("share", ["-1", "101", "half"])
def test_what_is_no_percentage_is_refused(blkreel, tmp_path, share):
    result = blkreel("precondition", tmp_path, "--state", "full", "--compressible", share, code=2)
    assert "--compressible" in result.stderr
