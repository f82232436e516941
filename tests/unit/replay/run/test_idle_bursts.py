"""A replay with shorter idle time has the bursts of its trace."""

import numpy as np
import pytest
from fake_engine import FakeEngine, replay
from small_trace import new_trace

from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report.page.method import PREAMBLE
from blkreel.replay.plan.pace import parse_idle, parse_pace
from blkreel.replay.plan.planner import plan_trace
from blkreel.traces.format.reader import open_trace

MS = 10**6
BURSTS, OPS_OF_BURST = 12, 20


@pytest.fixture
def trace(tmp_path):
    """Bursts of reads or writes 450 ms apart, of I/Os up to 60 ms apart."""
    random = np.random.default_rng(5)
    count = BURSTS * OPS_OF_BURST
    gap_ns = random.integers(1 * MS, 60 * MS, count)
    gap_ns[::OPS_OF_BURST] = 450 * MS
    submit_ns = np.cumsum(gap_ns)
    return open_trace(new_trace(tmp_path / "t.parquet", {"devices": [{"name": "src"}], "lost": {"total": 0}},
                                submit_ns=submit_ns, latency_ns=5000, tid=7,
                                offset_bytes=random.integers(0, 2048, count) * 4096,
                                op=np.repeat(random.integers(0, 2, BURSTS), OPS_OF_BURST)))


def replayed(trace, target, path, pace, idle):
    replay(plan_trace(trace, target, pace=parse_pace(pace, target.drive), idle=parse_idle(idle)), path, FakeEngine())
    return measure(path).partial


def sizes(bursts):
    return bursts.ops.tolist(), bursts.bytes.tolist()


@pytest.mark.parametrize("pace", ["original", "x2", "dependent"])
@pytest.mark.parametrize("idle", ["cap=10ms", "none"])
def test_bursts_are_the_same_with_and_without_idle_time(trace, target, tmp_path, pace, idle):
    whole = replayed(trace, target, tmp_path / "whole", pace, "original")
    shorter = replayed(trace, target, tmp_path / "shorter", pace, idle)
    assert len(whole.read.bursts) > 3 and len(whole.write.bursts) > 3
    for name in ("read", "write"):
        expected, part = getattr(whole, name), getattr(shorter, name)
        assert sizes(part.bursts) == sizes(expected.bursts) and sizes(part.planned) == sizes(expected.planned)
        assert part.bursts.makespan_ns < expected.bursts.makespan_ns
        assert part.late_bursts == expected.late_bursts == 0
    assert shorter.makespan_ns < whole.makespan_ns / 2


def test_the_recomputation_on_the_page_gives_the_same_bursts(trace, target, tmp_path):
    partial, names = replayed(trace, target, tmp_path / "run", "x2", "cap=10ms"), {}
    exec(PREAMBLE.replace("RUN/", f"{tmp_path / 'run'}/"), names)
    bursts = names["bursts"](names["reads"])
    assert len(bursts) > 3
    assert bursts[["start", "end", "ops", "bytes"]].to_numpy().tolist() == partial.read.bursts.rows()[:, :4].tolist()


def test_only_a_run_that_removes_idle_time_records_it(trace, target, tmp_path):
    replayed(trace, target, tmp_path / "whole", "original", "original")
    replayed(trace, target, tmp_path / "fixed-depth", "depth=4", "cap=10ms")
    assert "idle_removed_ns" not in open_trace(tmp_path / "whole").schema.names
    assert set(open_trace(tmp_path / "fixed-depth").table(["idle_removed_ns"])[0].to_pylist()) == {0}
