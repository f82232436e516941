"""The published tests at the method's own sizes and lengths, hours of them, on a drive whose clock is its own.

The numbers are the method's, written here by hand. tests/kernel/benchmarks shows shorter ones to the kernel, and
test_published_simulated.py finds again what was put into drives. Most run in `make fuzz`.
"""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from cases import is_fuzzing

millions_of_ios = pytest.mark.skipif(not is_fuzzing(), reason="millions of I/Os: make fuzz FUZZ_ARGS=lengths")

KIB, MIB, GIB, GB = 1 << 10, 1 << 20, 1 << 30, 10**9
S, MS = 10**9, 10**6
SLOW = "read_latency=50ms,write_latency=50ms"


@dataclass(frozen=True)
class Step:
    do: str
    state: str
    labels: dict
    result: dict
    rows: pd.DataFrame | None


@pytest.fixture
def carried_out(blkreel, tmp_path):
    """carried_out(test, drive, *words of the command) is its steps, each with its records by time of submission."""
    def carry_out(name, drive, *words, size="128GiB"):
        output = tmp_path / "test"
        result = blkreel("test", name, "--on", f"nil:{size},{drive},clock=virtual", "-o", output, *words, check=False,
                         timeout=300)
        assert result.returncode in (0, 3), result.stderr
        found = []
        for step in json.loads((output / "test.json").read_text())["steps"]:
            rows = None
            if step["directory"]:
                rows = pd.read_parquet(output / step["directory"] / "records.parquet").sort_values(
                    ["submit_ns", "source_row"], ignore_index=True)
            found.append(Step(step["do"], step["labels"].get("state", ""), step["labels"], step["result"], rows))
        return found

    return carry_out


def measured(steps) -> list[Step]:
    return [step for step in steps if step.rows is not None]


def assert_bursts(rows, count, each, block, every_ns, depth):
    """count bursts of `each` I/Os, all due at once, and the next so much later; never more outstanding."""
    due = rows.groupby("burst").due_ns
    assert (due.nunique() == 1).all()
    assert rows.groupby("burst").size().tolist()[:count] == [each] * count
    assert (np.diff(due.first())[:count - 1] == every_ns).all()
    assert set(rows.length_bytes) == {block}
    assert most_outstanding(rows) == depth


def most_outstanding(rows) -> int:
    at = np.concatenate([rows.submit_ns, rows.submit_ns + rows.latency_ns])
    change = np.repeat([1, -1], len(rows))
    return int(np.cumsum(change[np.lexsort((change, at))]).max())


def test_mixed_burst(carried_out):
    """40 MiB every 2.000 s in the first 8 GiB; ten reads of 400 MiB every 6.2 s from 30 s on; 64,000 reads in all."""
    prepare, alone, mixed = carried_out("mixed-burst", "write_bandwidth=500MB/s", size="256GiB")
    assert prepare.result["name"] == "client"
    reads, writes = mixed.rows[mixed.rows.op == 0], mixed.rows[mixed.rows.op == 1]
    assert len(alone.rows) == len(reads) == 64_000
    assert_bursts(alone.rows, 10, 6400, 64 * KIB, 6_200_000_000, 2)
    assert_bursts(reads, 10, 6400, 64 * KIB, 6_200_000_000, 2)
    # From 0 s until the last read, which begins at 85.8 s.
    assert_bursts(writes, 43, 2560, 16 * KIB, 2 * S, 2)
    assert reads.due_ns.min() - writes.due_ns.min() == 30 * S
    assert writes.burst.max() in (42, 43)
    assert writes.offset_bytes.min() >= 0
    assert 8 * GIB - 10 * MIB < (writes.offset_bytes + writes.length_bytes).max() <= 8 * GIB
    for rows in (alone.rows, reads):
        assert (np.diff(rows.offset_bytes) == 64 * KIB).all()
    assert reads.offset_bytes.min() >= 8 * GIB
    assert alone.rows.offset_bytes.min() > reads.offset_bytes.max()
    # Each read meets the writer a fifth of a second later in its period.
    phases = (reads.groupby("burst").due_ns.first() - writes.due_ns.min()) % (2 * S)
    assert phases.tolist() == [n * S // 5 for n in range(10)]


@millions_of_ios
@pytest.mark.parametrize(("name", "block", "depth"), [("mixed-random", 4 * KIB, 4), ("mixed-sequential", 128 * KIB, 1)])
def test_mixes_by_time(carried_out, name, block, depth):
    """Eleven mixes of 60 s, and after each a rest of 60 s: 22 minutes in each state."""
    states = ["data", "full"] if name == "mixed-random" else ["full"]
    steps = carried_out(name, SLOW, "--set", f"states={','.join(states)}")
    assert [step.result["name"] for step in steps if step.do == "state"] == states
    mixes = measured(steps)
    assert [step.labels["mix"] for step in mixes] == [100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0] * len(states)
    for step in mixes:
        rows = step.rows
        assert 59.9 * S < rows.submit_ns.max() <= 60 * S + MS
        assert set(rows.length_bytes) == {block} and most_outstanding(rows) == depth
        assert abs((rows.op == 0).mean() * 100 - step.labels["mix"]) < 4
        assert (rows.offset_bytes + block).max() <= 64 * GB + MIB
        rest = steps[steps.index(step) + 1]
        assert rest.do == "rest" and rest.result["rest_ns"] == step.result["wall_ns"]
        assert abs(rest.result["rest_ns"] - 60 * S) < S // 10


@millions_of_ios
def test_mixes_by_volume(carried_out):
    """A drive that is faster than 32 GB a minute: it ends there. In larger blocks, which need fewer I/Os."""
    steps = carried_out("mixed-random", "read_latency=20us", "--set", "mixes=100", "--set", "states=data",
                        "--set", "block=64000")
    (step,) = measured(steps)
    assert len(step.rows) == 500_000
    assert step.rows.length_bytes.sum() == 32 * GB
    assert step.result["wall_ns"] < 50 * S
    assert steps[-1].result["rest_ns"] == step.result["wall_ns"]


@millions_of_ios
def test_consistency(carried_out):
    """An hour at depth 32 over the whole of a full drive."""
    prepare, step = carried_out("consistency", "write_latency=500ms", size="32GiB")
    assert prepare.result["name"] == "full"
    assert 3599 * S < step.rows.submit_ns.max() <= 3600 * S + MS
    assert most_outstanding(step.rows) == 32
    assert (step.rows.op == 1).all() and set(step.rows.length_bytes) == {4 * KIB}
    parts = np.bincount(step.rows.offset_bytes // (2 * GIB), minlength=16)
    assert len(parts) == 16 and parts.min() > 0.95 * parts.mean()


@millions_of_ios
def test_depth_sweep(carried_out):
    """Three minutes at each depth, on a drive of 16 GiB in the state enterprise."""
    prepare, *sweep = carried_out("depth-sweep-read", "read_latency=250ms", "--fit", size="16GiB")
    assert prepare.result["name"] == "enterprise"
    assert [step.labels["depth"] for step in sweep] == [1, 2, 4, 8, 16, 32, 64, 128]
    for step in sweep:
        assert 179.4 * S < step.rows.submit_ns.max() <= 180 * S + MS
        assert most_outstanding(step.rows) == step.labels["depth"]
        assert (step.rows.op == 0).all() and set(step.rows.length_bytes) == {4 * KIB}


@millions_of_ios
def test_qd1(carried_out):
    """Four kinds for a minute; twelve block sizes of each, and eight depths, for half a minute: 32 minutes."""
    prepare, *steps = carried_out("qd1", SLOW, size="256GiB")
    assert prepare.result["name"] == "full"
    assert len(steps) == 4 + 4 * 12 + 8
    for number, step in enumerate(steps):
        seconds = 60 if number < 4 else 30
        assert (seconds - 0.1) * S < step.rows.submit_ns.max() <= seconds * S + MS
        assert most_outstanding(step.rows) == step.labels.get("depth", 1)
        assert set(step.rows.length_bytes) == {step.labels["block"]}


@millions_of_ios
def test_trim(carried_out):
    """24 extents of 64 MiB to 8 GiB, one each 8 s, beside a thousand reads a second; the whole drive twice."""
    prepare, extents, refill, full, empty = carried_out("trim", "write_bandwidth=1GB/s")
    assert prepare.result["name"] == "full"
    discards, reads = extents.rows[extents.rows.op == 3], extents.rows[extents.rows.op == 0]
    assert discards.length_bytes.tolist() == [MIB * 64 << n for n in range(8)] * 3
    assert (np.diff(discards.due_ns) == 8 * S).all()
    assert (np.diff(reads.due_ns) == MS).all() and len(reads) >= 192_000
    assert not set(reads.offset_bytes // MIB) & set(discards.offset_bytes // MIB)
    assert refill.rows.length_bytes.sum() == discards.length_bytes.sum() == 3 * 255 * 64 * MIB
    assert [step.rows.length_bytes.tolist() for step in (full, empty)] == [[128 * GIB]] * 2


@millions_of_ios
def test_slc_cache(carried_out):
    """40 % of an erased drive, then 20 % after each of 30 s, 5 min and 30 min, in 1 MiB writes, one outstanding."""
    steps = carried_out("slc-cache", "cache=8GiB")
    assert [step.result["rest_ns"] for step in steps if step.do == "rest"] == [30 * S, 300 * S, 1800 * S]
    fills = measured(steps)
    offsets = np.concatenate([step.rows.offset_bytes for step in fills])
    assert (offsets == np.arange(len(offsets)) * MIB).all()
    assert [round(len(step.rows) / 1310.72) for step in fills] == [40, 20, 20, 20]
    assert all(most_outstanding(step.rows) == 1 for step in fills)
