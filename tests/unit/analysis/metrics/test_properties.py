"""Identities that hold for every trace, and every figure computed in a second way."""

import math

import numpy as np
import pandas as pd
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.definitions.registry import figures

GAP_NS = 400
io = st.tuples(st.integers(0, 5000), st.one_of(st.just(-1), st.integers(0, 900)), st.integers(0, 4),
               st.integers(0, 300), st.sampled_from([512, 4096, 1 << 20]), st.integers(0, 1), st.integers(-1, 3),
               st.integers(0, 1), st.integers(-1, 50))


def columns_of(ios):
    frame = pd.DataFrame(sorted(ios), columns=["submit_ns", "latency_ns", "op", "ahead", "length_bytes", "full", "tid",
                                               "failed", "queue_ns"])
    columns = {name: frame[name].to_numpy(np.int64) for name in frame}
    columns["due_ns"] = np.maximum(-1, columns["submit_ns"] - columns.pop("ahead"))
    columns["flags"] = columns.pop("full") << 16
    columns["status"] = -5 * columns.pop("failed")
    columns["burst"] = np.full(len(frame), -1)
    columns["offset_bytes"] = columns["submit_ns"] * 7919 % (1 << 28) * 4096
    return columns


traces = st.lists(io, max_size=60).map(columns_of)


def measured(columns, cuts=()):
    accumulator = MetricsAccumulator(GAP_NS)
    edges = [0, *sorted(cuts), len(columns["submit_ns"])]
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        accumulator.feed({name: column[start:end] for name, column in columns.items()})
    return accumulator.finish()


@cases(20)
@given(traces, traces, traces)
def test_pooling_is_associative_and_sums(a, b, c):
    a, b, c = measured(a), measured(b), measured(c)
    assert (a + b) + c == a + (b + c)
    pooled = a + b
    assert pooled.runs == 2
    assert pooled.read.ops == a.read.ops + b.read.ops
    assert figures(pooled)["write"]["service_ns"] == a.write.service_ns + b.write.service_ns
    assert len(pooled.read.bursts) == len(a.read.bursts) + len(b.read.bursts)
    # Percentiles come from the I/Os of both, not from their percentiles.
    both = np.sort(np.concatenate([np.repeat(*p.read.latency.items()) for p in (a, b)]))
    if len(both):
        assert pooled.read.latency.percentile((90, 100)) == both[math.ceil(len(both) * 90 / 100 - 1e-9) - 1]


def test_partials_with_different_gaps_do_not_pool():
    with pytest.raises(ValueError, match="gap"):
        MetricsAccumulator(1).finish() + MetricsAccumulator(2).finish()


# The same figures with plain pandas and loops, sharing nothing with the package.

def plain_busy(frame):
    covered, reach = 0, None
    for submit, complete in frame[["submit_ns", "complete_ns"]].itertuples(index=False):
        begin = submit if reach is None else max(submit, reach)
        covered += max(0, complete - begin)
        reach = complete if reach is None else max(reach, complete)
    return covered


def plain_bursts(frame, gap):
    bursts, reach = [], None
    for row in frame.itertuples():
        if reach is None or row.submit_ns - reach > gap:
            bursts.append([])
        bursts[-1].append(row)
        reach = row.complete_ns if reach is None else max(reach, row.complete_ns)
    return [(max(r.complete_ns for r in b) - min(r.submit_ns for r in b), len(b), sum(r.length_bytes for r in b))
            for b in bursts]


def plain_percentile(series, per_mille):
    """The smallest value that at least per_mille/1000 of the values do not exceed."""
    ordered = sorted(series)
    if len(ordered) * (1000 - per_mille) < 10 * 1000:
        return None
    return next(x for x in ordered if 1000 * sum(y <= x for y in ordered) >= per_mille * len(ordered))


def plain_waiting(series, percent):
    total = sum(series)
    if len(series) * (100 - percent) < 1000 or not total:
        return None
    return next(x for x in sorted(series) if 100 * sum(y for y in series if y <= x) >= percent * total)


def plain_distribution(series):
    return {"n": len(series), "mean_ns": sum(series) / len(series) if series else None,
            "p50_ns": plain_percentile(series, 500), "p90_ns": plain_percentile(series, 900),
            "p99_ns": plain_percentile(series, 990), "p99_9_ns": plain_percentile(series, 999),
            "max_ns": max(series, default=None), "error": 0}


def check_against_pandas(columns):
    frame = pd.DataFrame(columns)
    unseen, frame = frame[frame.latency_ns < 0], frame[frame.latency_ns >= 0].copy()
    frame["complete_ns"] = frame.submit_ns + frame.latency_ns
    numbers = figures(measured(columns, (len(columns["submit_ns"]) // 3,)))
    assert numbers["all"]["busy_ns"] == plain_busy(frame)
    if len(frame):
        assert numbers["all"]["makespan_ns"] == frame.complete_ns.max() - frame.submit_ns.min()
    data = frame[frame.op < 2].length_bytes.sum()
    assert numbers["all"]["data_bytes"] == data
    for name, ops in (("read", [0]), ("write", [1]), ("other", [2, 3, 4])):
        mine, shown = frame[frame.op.isin(ops)], numbers[name]
        assert shown["ops"] == len(mine)
        assert shown["bytes"] == mine.length_bytes.sum()
        assert shown["unseen_ops"] == unseen.op.isin(ops).sum()
        assert shown["error_ops"] == (mine.status != 0).sum()
        assert shown["service_ns"] == mine.latency_ns.sum()
        assert shown["busy_ns"] == plain_busy(mine)
        bursts = plain_bursts(mine, GAP_NS)
        assert shown["bursts"]["count"] == len(bursts)
        assert shown["bursts"]["makespan_ns"] == sum(b[0] for b in bursts)
        strays = [b for b in bursts if b[1] < 16 and b[2] < 2**20]
        assert shown["bursts"]["strays"] == {
            "count": len(strays), "ops": sum(b[1] for b in strays), "bytes": sum(b[2] for b in strays),
            "makespan_ns": sum(b[0] for b in strays)}
        if shown["bursts"]["makespan_ns"]:
            assert shown["bursts"]["throughput_mb_s"] == pytest.approx(
                mine.length_bytes.sum() / 1e6 / (sum(b[0] for b in bursts) / 1e9))
        latencies = mine.latency_ns.tolist()
        assert {k: v for k, v in shown["latency"].items() if k != "too_small"} == plain_distribution(latencies)
        timed = mine[mine.due_ns >= 0]
        assert ({k: v for k, v in shown["response"].items() if k != "too_small"}
                == plain_distribution((timed.complete_ns - timed.due_ns).tolist()))
        assert shown["waiting"] == {f"p{p}_ns": plain_waiting(latencies, p) for p in (50, 90, 99)}
        assert shown["queue"]["n"] == (mine.queue_ns >= 0).sum()
    timed = frame[frame.due_ns >= 0]
    late = timed.submit_ns - timed.due_ns
    full = timed["flags"] == 1 << 16
    for name, mine in (("host", late[~full]), ("device", late[full])):
        assert ({k: v for k, v in numbers["lateness"][name].items() if k != "too_small"}
                == plain_distribution(mine.tolist()))


@cases(25)
@given(traces)
def test_every_figure_equals_plain_pandas(columns):
    check_against_pandas(columns)


@pytest.mark.parametrize("seed", range(2))
def test_every_figure_equals_plain_pandas_with_percentiles(seed):
    """Long enough that p99 is shown, with ties and overlaps."""
    random = np.random.default_rng(seed)
    count = 1500
    ops = random.integers(0, 2, count) * (seed > 0)
    ios = zip(random.integers(0, 10**6, count), random.integers(-1, 400, count), ops, random.integers(0, 300, count),
              random.choice([512, 4096, 65536], count), random.integers(0, 2, count), random.integers(0, 5, count),
              random.integers(0, 2, count), random.integers(-1, 9, count), strict=True)
    check_against_pandas(columns_of(ios))
