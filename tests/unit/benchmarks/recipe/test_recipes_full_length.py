"""The published tests at the method's own sizes and lengths, hours of them, on a drive whose clock is its own.

test_recipe_files.py has the numbers of the method by hand. Here each step of a test does what its recipe says.
"""

import json

import numpy as np
import pandas as pd
import pytest
from cases import is_fuzzing

from blkreel.benchmarks.recipe.recipe import load_recipe
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.common.units import parse_size_bytes
from blkreel.replay.streams.generate import extent_of, row_count
from blkreel.traces.format.schema import OPS

S, MS = 10**9, 10**6
SLOW = "read_latency=50ms,write_latency=50ms"


def most_outstanding(rows) -> int:
    at = np.concatenate([rows.submit_ns, rows.submit_ns + rows.latency_ns])
    change = np.repeat([1, -1], len(rows))
    return int(np.cumsum(change[np.lexsort((change, at))]).max())


def assert_carried_out(stream, rows, time_ns):
    """The rows of a stream, by time of submission."""
    start, end = extent_of(stream)
    assert rows.offset_bytes.min() >= start and (rows.offset_bytes + rows.length_bytes).max() <= end
    assert set(rows.length_bytes) == set(stream.lengths_bytes or [stream.block_bytes])
    assert abs((rows.op == OPS["read"]).mean() * 100 - stream.read_percent) < 4
    if stream.access in ("sequential", "extents"):
        assert (np.diff(rows.offset_bytes) == rows.length_bytes[:-1]).all()
    if stream.bursts:
        assert (rows.due_ns - rows.due_ns.min() == rows.burst.astype("i8") * stream.bursts.every_ns).all()
        sizes = rows.groupby("burst").length_bytes.sum()
        assert set(sizes if stream.bursts.count else sizes[:-1]) == {stream.bursts.bytes}
    elif stream.timed:
        assert len(set(np.diff(rows.due_ns))) <= 1
    if not stream.timed or stream.bursts:
        assert most_outstanding(rows) == stream.depth
    if not stream.background and len(rows) != row_count(stream):  # else it ended by its volume
        assert 0.99 * time_ns < rows.submit_ns.max() <= time_ns + MS


@pytest.mark.skipif(not is_fuzzing(), reason="millions of I/Os: make fuzz FUZZ_ARGS=lengths")
@pytest.mark.parametrize(("name", "drive", "size", "sets"), [
    ("mixed-burst", "write_bandwidth=500MB/s", "256GiB", {}), ("mixed-random", SLOW, "128GiB", {}),
    ("mixed-sequential", SLOW, "128GiB", {"states": "full"}),
    # A drive that is faster than 32 GB a minute: the volume ends it. In larger blocks, which need fewer I/Os.
    ("mixed-random", "read_latency=20us", "128GiB", {"mixes": "100", "states": "data", "block": "64000"}),
    ("consistency", "write_latency=500ms", "32GiB", {}), ("depth-sweep-read", "read_latency=250ms", "256GiB", {}),
    ("qd1", SLOW, "256GiB", {}), ("trim", "write_bandwidth=1GB/s", "128GiB", {}),
    ("slc-cache", "cache=8GiB", "128GiB", {})])
def test_each_step_does_what_its_recipe_says(blkreel, tmp_path, name, drive, size, sets):
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    blkreel("test", name, "--on", f"nil:{size},{drive},clock=virtual", "-o", tmp_path / "test", *words,
                     code=(0, 3), timeout=600)
    recipe, active_ns = load_recipe(name), None
    steps = steps_of(recipe, recipe.resolve(sets), size_bytes=parse_size_bytes(size), block_bytes=512, seed=1)
    done = json.loads((tmp_path / "test/test.json").read_text())["steps"]
    assert [step.id for step in steps] == [document["id"] for document in done]
    for step, document in zip(steps, done, strict=True):
        if step.do == "state":
            assert document["result"]["name"] == step.state
        elif step.do == "rest":
            assert document["result"]["rest_ns"] == (active_ns if step.time_ns is None else step.time_ns)
        else:
            active_ns = document["result"]["wall_ns"]
            rows = pd.read_parquet(tmp_path / "test" / document["directory"] / "records.parquet").sort_values(
                ["submit_ns", "source_row"], ignore_index=True)
            for stream in step.streams:
                assert_carried_out(stream, rows[rows.stream == stream.number].reset_index(drop=True), step.time_ns)
