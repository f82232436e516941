"""Parts of a run, each measured by itself with the carry before it, join to what one pass over all of it gives."""

import numpy as np
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import example, given
from hypothesis import strategies as st

from blkreel.analysis.metrics.accumulator import MetricsAccumulator, join
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.partials.boundary_state import Carry, carry_after
from blkreel.analysis.metrics.partials.partial_file import dump, load
from blkreel.common.errors import TraceError
from blkreel.traces.format.schema import COLUMN_TYPES, COMPRESSED_RUN_SCHEMA

GAP_NS = 400
SECOND = 10**9
# Long I/Os that reach over several parts, none, ties in time, seconds between some, and what was never completed.
io = st.fixed_dictionaries({
    "submit_ns": st.one_of(st.integers(0, 3000), st.sampled_from([0, 1000, 2 * SECOND, 3 * SECOND, 900 * SECOND])),
    "latency_ns": st.one_of(st.integers(0, 700), st.sampled_from([-1, 0, 2500, 2 * SECOND])),
    "op": st.integers(0, 4), "ahead": st.integers(0, 900), "length_bytes": st.sampled_from([0, 512, 4096, 1 << 20]),
    "flags": st.sampled_from([0, 1 << 16]), "tid": st.integers(-1, 2), "status": st.sampled_from([0, 0, -5]),
    "queue_ns": st.integers(-1, 50), "burst": st.sampled_from([-1, -1, -1, 0, 1, 7]),
    "idle_removed_ns": st.sampled_from([0, 0, 300, 900]),
    "offset_bytes": st.sampled_from([0, 512, 4096, 8192, 1 << 20, 1 << 40]), "device": st.integers(0, 1)})


def io_of(submit_ns, latency_ns=100, **more):
    """A read alone."""
    return {"submit_ns": submit_ns, "latency_ns": latency_ns, "op": 0, "ahead": 0, "length_bytes": 512, "flags": 0,
            "tid": 1, "status": 0, "queue_ns": -1, "burst": -1, "idle_removed_ns": 0, "offset_bytes": 0, "device": 0,
            **more}


def batch_of(ios):
    columns = {name: np.array([row[name] for row in ios], np.int64) for name in io_of(0)}
    order = np.argsort(columns["submit_ns"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["due_ns"] = np.maximum(-1, columns["submit_ns"] - columns.pop("ahead"))
    columns["idle_removed_ns"] = np.cumsum(columns["idle_removed_ns"])
    fields = [COMPRESSED_RUN_SCHEMA.field(name) for name in columns]
    return pa.record_batch([pa.array(columns[each.name], each.type) for each in fields], pa.schema(fields))


batches = st.lists(io, max_size=40).map(batch_of)


def whole(batch, exact=True):
    metrics = MetricsAccumulator(GAP_NS, exact=exact)
    metrics.feed_batch(batch)
    return metrics.finish()


def parts_of(batch, cuts):
    edges = [0, *sorted(min(cut, batch.num_rows) for cut in cuts), batch.num_rows]
    return [batch.slice(low, high - low) for low, high in zip(edges[:-1], edges[1:], strict=True)]


def in_parts(parts, exact=True):
    """Carries of each part by itself, composed; then each part by itself, as other processes would do it."""
    carry, carries = Carry(), []
    for part in parts:
        carries.append(carry)
        carry = carry.then(carry_after([part]))
    partials = []
    for before, part in zip(carries, parts, strict=True):
        metrics = MetricsAccumulator(GAP_NS, exact=exact, carry=before)
        metrics.feed_batch(part)
        partials.append(load(dump(metrics.finish())))
    assert partials[-1].end == carry
    return partials


def joined(partials):
    while len(partials) > 1:
        # In pairs, as a tree of workers would, and not from the first to the last.
        partials = [join(*partials[i:i + 2]) if i + 1 < len(partials) else partials[i]
                    for i in range(0, len(partials), 2)]
    return partials[0]


@cases(40)
@given(batches, st.lists(st.integers(0, 40), max_size=6), st.booleans())
@example(batch_of([io_of(0), io_of(100 + GAP_NS)]), [1], True)  # a gap as long as those within a burst, at the cut
@example(batch_of([io_of(0), io_of(101 + GAP_NS)]), [1], True)
@example(batch_of([io_of(0, 10_000), *(io_of(1000 * at, 10) for at in range(1, 9))]), range(1, 9), True)
@example(batch_of([io_of(at, op=1, offset_bytes=3584 * at) for at in range(9)]), [0, 1, 3], True)
def test_any_parts_join_to_the_same_digits(batch, cuts, exact):
    one = whole(batch, exact)
    many = joined(in_parts(parts_of(batch, cuts), exact))
    assert many == one
    assert figures(many) == figures(one)


@cases(40)
@given(batches, st.lists(st.integers(0, 40), max_size=6))
def test_an_accumulator_goes_on_as_if_it_had_never_stopped(batch, cuts):
    metrics = MetricsAccumulator(GAP_NS)
    for part in parts_of(batch, cuts):
        metrics.feed_batch(part)
        metrics.finish()  # a look on the way changes nothing
    assert metrics.finish() == whole(batch)
    assert metrics.carry() == carry_after(parts_of(batch, cuts))


def plain_depth(intervals):
    """Time at each number outstanding, by looking at every stretch between two events."""
    times = sorted({t for pair in intervals for t in pair})
    found = {}
    for low, high in zip(times, times[1:], strict=False):
        depth = sum(start <= low and end >= high for start, end in intervals)
        found[depth] = found.get(depth, 0) + high - low
    return [found.get(n, 0) for n in range(max(found, default=-1) + 1)]


@cases(60)
@given(batches)
def test_depth_gaps_and_streams_are_what_a_plain_look_finds(batch):
    partial = whole(batch)
    rows = [row for row in batch.to_pylist() if row["latency_ns"] >= 0]
    for row in rows:
        row["complete_ns"] = row["submit_ns"] + row["latency_ns"]
        row["class"] = {0: "read", 1: "write"}.get(row["op"], "other")
    for part, mine in [(partial, rows)] + [(getattr(partial, name), [row for row in rows if row["class"] == name])
                                           for name in ("read", "write", "other")]:
        intervals = [(row["submit_ns"], row["complete_ns"]) for row in mine]
        assert part.depth.ns.tolist() == plain_depth(intervals)
        assert part.depth.busy_ns == part.busy_ns
        assert int(part.depth.ns.sum()) == part.makespan_ns
    assert sorted(np.repeat(*partial.workload_profile.submit_gaps.items()).tolist()) == sorted(
        b["submit_ns"] - a["submit_ns"] for a, b in zip(rows, rows[1:], strict=False))
    idle = [row["submit_ns"] - max(before["complete_ns"] for before in rows[:i]) for i, row in enumerate(rows) if i]
    assert sorted(np.repeat(*partial.workload_profile.idle_gaps.items()).tolist()) == sorted(
        gap for gap in idle if gap > 0)
    assert partial.workload_profile.idle_gaps.total == partial.makespan_ns - partial.busy_ns
    ends, sequential = {}, {"read": [0, 0], "write": [0, 0]}
    for row in rows:
        if row["class"] == "other":
            continue
        key, place = (row["tid"], row["class"]), (row["device"], row["offset_bytes"])
        if ends.get(key) == place:
            sequential[row["class"]][0] += 1
            sequential[row["class"]][1] += row["length_bytes"]
        ends[key] = (row["device"], row["offset_bytes"] + row["length_bytes"])
    found = partial.workload_profile
    assert [found.sequential_read_ops, found.sequential_read_bytes] == sequential["read"]
    assert [found.sequential_write_ops, found.sequential_write_bytes] == sequential["write"]


def test_parts_that_do_not_follow_each_other_do_not_join():
    batch = batch_of([io_of(t) for t in range(0, 1000, 50)])
    first, second, third = in_parts(parts_of(batch, [5, 10]))
    with pytest.raises(ValueError, match="carry"):
        join(first, third)
    with pytest.raises(ValueError, match="carry"):
        join(second, first)
    with pytest.raises(ValueError, match="carry"):
        join(first + first, second)
    with pytest.raises(TraceError, match="order"):
        MetricsAccumulator(carry=third.end).feed_batch(batch)
    with pytest.raises(TraceError, match="order"):
        carry_after([batch.slice(10), batch.slice(0, 10)])


ROW = {"submit_ns": 5, "latency_ns": 1, "queue_ns": 0, "offset_bytes": 0, "length_bytes": 512, "op": 0, "flags": 0,
       "status": 0, "tid": 1, "due_ns": 4, "burst": -1}


@pytest.mark.parametrize("column, value", [
    ("latency_ns", 1 << 61), ("offset_bytes", -512), ("length_bytes", -1), ("length_bytes", 1 << 60),
    ("submit_ns", 1 << 62), ("submit_ns", -(1 << 62)), ("due_ns", 1 << 62), ("queue_ns", 1 << 62),
    ("idle_removed_ns", -1), ("idle_removed_ns", 1 << 62)])
def test_what_cannot_be_is_told_and_not_counted(column, value):
    row = {**ROW, column: value}
    with pytest.raises(TraceError, match="no drive"):
        MetricsAccumulator(exact=False).feed({name: np.array([number]) for name, number in row.items()})


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("change", [
    {"length_bytes": (1 << 50) - 1}, {"latency_ns": -1, "length_bytes": (1 << 50) - 1},
    {"latency_ns": 8_000_000 * SECOND}, {"queue_ns": 1 << 60}, {"due_ns": 1 << 60}])
def test_sums_beyond_64_bits_are_told_and_not_wrapped(change, exact):
    accumulator = MetricsAccumulator(exact=exact)
    with pytest.raises(TraceError, match="no drive"):
        for _ in range(10):
            accumulator.feed({name: np.full(1000, number) for name, number in {**ROW, **change}.items()})


def test_a_column_with_holes_or_of_another_type_is_refused():
    names = ["submit_ns", "latency_ns", "length_bytes", "op"]
    good = {name: pa.array([1, 2], COLUMN_TYPES[name]) for name in names}
    MetricsAccumulator().feed_batch(pa.record_batch(good))
    for bad in (pa.array([1, None], pa.int64()), pa.array([1, 2], pa.int32())):
        with pytest.raises(TraceError, match="latency_ns"):
            MetricsAccumulator().feed_batch(pa.record_batch({**good, "latency_ns": bad}))


@pytest.mark.parametrize(("row", "says"), [
    ([None, 1, 0], "submit_ns has 1 values missing"), ([1 << 62, 1, 0], "no drive"), ([1, 1 << 62, 0], "no drive")])
def test_a_carry_of_what_cannot_be_is_refused(row, says):
    names = ["submit_ns", "latency_ns", "op"]
    batch = pa.record_batch({name: pa.array([value], COLUMN_TYPES[name]) for name, value in zip(names, row,
                                                                                               strict=True)})
    with pytest.raises(TraceError, match=says):
        carry_after([batch])


def test_hundreds_outstanding_are_counted_as_few_are():
    """Deeper than what is kept in order: bursts of submits, of which the completions come in any order."""
    random = np.random.default_rng(4)
    count = 4000
    submit_ns = np.sort(random.integers(0, 200_000, count))
    latency_ns = np.where(random.random(count) < 0.1, random.integers(0, 60_000, count),
                          random.integers(0, 30_000, count))
    batch = batch_of([io_of(*row, op=op) for *row, op in zip(
        submit_ns.tolist(), latency_ns.tolist(), random.integers(0, 3, count).tolist(), strict=True)])
    run = whole(batch)
    # The area under the depth in one sweep over all events, in the order of time.
    times = np.concatenate([submit_ns, submit_ns + latency_ns])
    order = np.argsort(times, kind="stable")
    depth = np.cumsum(np.repeat([1, -1], count)[order])
    expected = np.bincount(depth[:-1], weights=np.diff(times[order])).astype(np.int64)
    assert run.depth.ns.tolist() == np.trim_zeros(expected, "b").tolist()
    assert run.depth.maximum > 300
    assert joined(in_parts(parts_of(batch, range(0, count, 333)), exact=False)) == whole(batch, exact=False)
