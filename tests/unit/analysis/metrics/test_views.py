"""Bins, places, threads and bursts, held against loops over the rows that share nothing with the package."""

import numpy as np
import pandas as pd
import pytest

from blkreel.analysis.metrics.accumulator import MetricsAccumulator

GAP_NS = 50_000_000
CLASSES = ("read", "write", "other")


def rows(seed, count=3000, span_ns=7_000_000_000):
    random = np.random.default_rng(seed)
    submit_ns = 10**12 + np.sort(random.integers(0, span_ns, count))
    label = np.where(random.random(count) < 0.3, random.integers(0, 9, count), -1)
    due_ns = np.where(random.random(count) < 0.1, -1, submit_ns - random.integers(0, 200_000_000, count))
    return pd.DataFrame({
        "submit_ns": submit_ns, "latency_ns": np.where(random.random(count) < 0.02, -1,
                                                       random.lognormal(16, 1.5, count).astype(np.int64)),
        "queue_ns": random.integers(-1, 3000, count), "offset_bytes": random.integers(0, 1 << 24, count) * 4096,
        "length_bytes": 512 << random.integers(0, 10, count), "op": random.integers(0, 5, count),
        "flags": random.integers(0, 2, count) << 16, "status": 0, "tid": random.integers(-1, 5, count),
        "device": np.where(np.arange(count) % 7, 0, 2), "due_ns": due_ns, "burst": label})


def measured(frame, exact=True):
    metrics = MetricsAccumulator(GAP_NS, exact=exact)
    for low in range(0, len(frame), 700):
        metrics.feed({name: frame[name].to_numpy()[low:low + 700] for name in frame})
    return metrics.finish()


def seen(frame):
    frame = frame[frame.latency_ns >= 0].copy()
    frame["complete_ns"] = frame.submit_ns + frame.latency_ns
    frame["kind"] = frame.op.clip(upper=2)
    return frame


@pytest.mark.parametrize("seed, span_ns", [(1, 7 * 10**9), (2, 100_000_000), (3, 10**13)])
def test_timeline_heat_and_threads(seed, span_ns):
    frame = rows(seed, span_ns=span_ns)
    partial, frame = measured(frame), seen(frame)
    origin_ns = frame.submit_ns.min()
    line = partial.timeline
    assert line.used == (frame.complete_ns.max() - origin_ns) // line.width_ns + 1
    # No wider and no higher than they must be.
    assert line.width_ns == 1_000_000 or line.used > 200
    for kind in (0, 1):
        mine = frame[frame.kind == kind]
        at = (mine.complete_ns - origin_ns) // line.width_ns
        by_bin = mine.groupby(at).length_bytes
        assert line.bytes[kind].tolist() == by_bin.sum().reindex(range(400), fill_value=0).tolist()
        assert line.ops[kind].tolist() == by_bin.size().reindex(range(400), fill_value=0).tolist()
        assert [heat.device for heat in partial.heats] == [0, 2]
        for heat in partial.heats:
            cells, on_device = np.zeros((32, 64), np.int64), mine[mine.device == heat.device]
            np.add.at(cells, (on_device.offset_bytes // heat.height_bytes,
                              (on_device.submit_ns - origin_ns) // heat.width_ns), on_device.length_bytes)
            assert (heat.cells[kind] == cells).all()
        sums = mine.groupby("tid").agg(ops=("op", "size"), bytes=("length_bytes", "sum"), ns=("latency_ns", "sum"))
        name = CLASSES[kind]
        assert {tid: (getattr(t, f"{name}_ops"), getattr(t, f"{name}_bytes"), getattr(t, f"{name}_service_ns"))
                for tid, t in partial.threads.sums.items()} == {tid: tuple(sums.loc[tid]) for tid in sums.index}


def test_a_stream_on_each_of_two_drives_is_sequential():
    """As the drives of a RAID below a scan: the thread reads of them by turns, on each from where it ended there."""
    at = np.arange(20)
    frame = pd.DataFrame({"submit_ns": at, "latency_ns": 1, "queue_ns": -1, "offset_bytes": at // 2 * 4096,
                          "length_bytes": 4096, "op": 0, "flags": 0, "status": 0, "tid": 7, "device": at % 2,
                          "due_ns": -1, "burst": -1})
    partial = measured(frame)
    assert (partial.threads.sums[7].read_ops, partial.threads.sums[7].read_sequential_ops) == (20, 18)
    (process,) = partial.threads.named({})
    assert (process["threads"], process["read_sequential_bytes"]) == (1, 18 * 4096)


def row_of(latency_ns):
    """The row of a latency: 4 per power of two from 8 ns on, written without the package's bins."""
    power = max(int(latency_ns).bit_length() - 3, 0)
    return min(4 * power + (int(latency_ns) >> power), 163)


def cells_of(frame, width_ns):
    """(kind, submit of the slowest, its latency, I/Os) of each cell, one row after the other."""
    cells, origin_ns = {}, frame.submit_ns.min()
    for row in frame[frame.kind < 2].to_dict("records"):
        since_ns, latency_ns = row["submit_ns"] - origin_ns, row["latency_ns"]
        key = (row["kind"], since_ns // width_ns, row_of(latency_ns))
        before = cells.setdefault(key, (latency_ns, since_ns, 0))
        cells[key] = (*(before[:2] if before[0] >= latency_ns else (latency_ns, since_ns)), before[2] + 1)
    return [(key[0], since_ns, latency_ns, ops) for key, (latency_ns, since_ns, ops) in sorted(cells.items())]


@pytest.mark.parametrize("seed, span_ns", [(1, 7 * 10**9), (2, 10_000_000), (3, 10**13)])
def test_each_cell_of_latency_over_time_has_its_slowest_io(seed, span_ns):
    frame = rows(seed, span_ns=span_ns)
    frame.loc[frame.index % 50 == 7, "latency_ns"] = 0
    frame.loc[1234, "latency_ns"] = 4 * 10**12
    points, frame = measured(frame).latency_points, seen(frame)
    assert list(zip(points.kind, points.since_ns, points.latency_ns, points.ops, strict=True)) == \
        cells_of(frame, points.width_ns)
    # No wider than it must be.
    last_ns = frame[frame.kind < 2].submit_ns.max() - frame.submit_ns.min()
    assert last_ns // points.width_ns < 256 and (points.width_ns == 1 << 16 or last_ns // points.width_ns >= 128)


@pytest.mark.parametrize("most", [1500, 600, 150, 20])
def test_thinned_points_lose_no_io_and_no_rare_slow_one(most):
    frame = rows(4, count=20_000)
    slow = [500, 9_000, 9_001, 18_000]
    frame.loc[slow, "latency_ns"], frame.loc[slow, "op"] = [4 * 10**12, 10**12, 2 * 10**12, 3 * 10**12], 0
    points = measured(frame).latency_points
    thin = points.thinned(most)
    assert points.count > 2000 and thin.count <= most
    assert {4 * 10**12, 10**12, 2 * 10**12, 3 * 10**12} <= set(thin.latency_ns.tolist())
    if most > 200:
        assert thin.ops.sum() == points.ops.sum() == (seen(frame).kind < 2).sum()
    whole = set(zip(points.kind, points.since_ns, points.latency_ns, strict=True))
    assert set(zip(thin.kind, thin.since_ns, thin.latency_ns, strict=True)) <= whole
    again = points.thinned(most)
    assert thin == again and points.thinned(points.count) == points


def bursts_of(frame, begin, reach):
    """(start, end, ops, bytes, uncut start, uncut end) of each, as the definition says, one row after the other."""
    found, latest, loose = {}, None, 0
    for row in frame.to_dict("records"):
        key, removed_ns = ("label", row["burst"]), row.get("idle_removed_ns", 0)
        if row["burst"] < 0:
            loose += latest is None or row[begin] + removed_ns - latest > GAP_NS
            latest = row[reach] + removed_ns if latest is None else max(latest, row[reach] + removed_ns)
            key = ("loose", loose)
        found.setdefault(key, []).append({**row, "removed_ns": removed_ns})
    return sorted((min(row[begin] for row in burst), max(row["complete_ns"] for row in burst), len(burst),
                   sum(row["length_bytes"] for row in burst), min(row[begin] + row["removed_ns"] for row in burst),
                   max(row["complete_ns"] + row["removed_ns"] for row in burst)) for burst in found.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("removes_idle_time", [False, True])
def test_bursts_by_time_and_by_label_as_they_were_and_as_planned(seed, removes_idle_time):
    frame = rows(seed, count=600, span_ns=20 * 10**9)
    if removes_idle_time:
        random = np.random.default_rng(seed)
        frame["idle_removed_ns"] = np.cumsum(np.where(random.random(600) < 0.2, random.integers(0, 10**9, 600), 0))
    partial, frame = measured(frame), seen(frame)
    for kind, name in enumerate(CLASSES):
        part, mine = getattr(partial, name), frame[frame.kind == kind]
        timed = mine[mine.due_ns >= 0]
        for table, expected in ((part.bursts, bursts_of(mine, "submit_ns", "complete_ns")),
                                (part.planned, bursts_of(timed, "due_ns", "due_ns"))):
            assert len(expected) > 20
            columns = table.rows()[:, [0, 1, 2, 3, 6, 7]]
            assert sorted(map(tuple, columns.tolist())) == expected
        late = sum(any(earlier[5] > burst[4] for earlier in expected[:i]) for i, burst in enumerate(expected))
        assert part.late_bursts == late


@pytest.mark.parametrize("seed", range(2))
def test_bins_hold_what_exact_distributions_hold(seed):
    frame = rows(seed)
    exact, binned = measured(frame), measured(frame, exact=False)
    for name in CLASSES:
        for of in ("latency", "response", "queue", "sizes"):
            assert getattr(getattr(exact, name), of).count > 400
            assert getattr(getattr(exact, name), of).to_histogram() == getattr(getattr(binned, name), of)
    for of in ("lateness_host", "lateness_device"):
        assert getattr(exact, of).to_histogram() == getattr(binned, of)
    assert exact.workload_profile.submit_gaps.to_histogram() == binned.workload_profile.submit_gaps
    assert exact.workload_profile.idle_gaps.to_histogram() == binned.workload_profile.idle_gaps
