"""Data of a chosen kind on a drive: by a preparation, by a replay beforehand, and by the writes of the trace."""

import hashlib
import json
import subprocess

import numpy as np
import pytest

from blkreel.traces.format.schema import OPS
from blkreel.traces.format.writer import TraceWriter

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
    with TraceWriter(tmp_path / "t.parquet") as out:
        out.write({"submit_ns": np.arange(count) * 1000, "latency_ns": np.full(count, 1000),
                   "offset_bytes": np.random.default_rng(1).permutation(count) * 65536,
                   "length_bytes": np.full(count, 65536), "op": np.arange(count) % 2 * OPS["write"]})
        out.close({"devices": [{"name": "src", "size_bytes": SIZE}]})
    result = blkreel("replay", tmp_path / "t.parquet", "--on", drive, "-o", tmp_path / "run", "--pace", "depth=8",
                     "--map", "identity", *SHARES, "--json", check=False)
    assert result.returncode in (0, 3), result.stderr
    run = json.loads(result.stdout)["run"]
    assert run["payload"] == {"compressible_percent": 75, "duplicates_percent": 40, "buffers_full_ops": 0}
    assert run["prefill"]["bytes"] == SIZE // 2
    assert_shares(loop_drive.image_of(drive).read_bytes(), streams=2)
    shown = json.loads(blkreel("report", tmp_path / "run", "--json").stdout)
    assert shown["entry"]["payload"]["compressible_percent"] == 75


def test_a_run_that_writes_nothing_tells_of_no_data(blkreel, loop_drive, tmp_path):
    drive = loop_drive(SIZE)
    with TraceWriter(tmp_path / "t.parquet") as out:
        out.write({"submit_ns": np.arange(9) * 1000, "latency_ns": np.full(9, 1000), "offset_bytes": np.zeros(9, "i8"),
                   "length_bytes": np.full(9, 4096), "op": np.zeros(9, "i1")})
        out.close({"devices": [{"name": "src", "size_bytes": SIZE}]})
    result = blkreel("replay", tmp_path / "t.parquet", "--on", drive, "-o", tmp_path / "run", "--no-prefill", "--json",
                     check=False)
    assert json.loads(result.stdout)["run"]["payload"] is None


@pytest.mark.parametrize("share", ["-1", "101", "half"])
def test_what_is_no_percentage_is_refused(blkreel, tmp_path, share):
    result = blkreel("precondition", tmp_path, "--state", "full", "--compressible", share, check=False)
    assert result.returncode == 2
    assert "--compressible" in result.stderr
