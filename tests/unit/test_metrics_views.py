"""Bins, places, threads and bursts, held against loops over the rows that share nothing with the package."""

import numpy as np
import pandas as pd
import pytest

from blkreel.analysis.metrics import MetricsAccumulator

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
        "device": 0, "due_ns": due_ns, "burst": label})


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
    line, heat = partial.timeline, partial.heat
    assert line.used == (frame.complete_ns.max() - origin_ns) // line.width_ns + 1
    # No wider and no higher than they must be.
    assert line.width_ns == 1_000_000 or line.used > 200
    for kind in (0, 1):
        mine = frame[frame.kind == kind]
        at = (mine.complete_ns - origin_ns) // line.width_ns
        by_bin = mine.groupby(at).length_bytes
        assert line.bytes[kind].tolist() == by_bin.sum().reindex(range(400), fill_value=0).tolist()
        assert line.ops[kind].tolist() == by_bin.size().reindex(range(400), fill_value=0).tolist()
        cells = np.zeros((32, 64), np.int64)
        np.add.at(cells, (mine.offset_bytes // heat.height_bytes, (mine.submit_ns - origin_ns) // heat.width_ns),
                  mine.length_bytes)
        assert (heat.cells[kind] == cells).all()
        sums = mine.groupby("tid").agg(ops=("op", "size"), bytes=("length_bytes", "sum"), ns=("latency_ns", "sum"))
        name = CLASSES[kind]
        assert {tid: (getattr(t, f"{name}_ops"), getattr(t, f"{name}_bytes"), getattr(t, f"{name}_service_ns"))
                for tid, t in partial.threads.sums.items()} == {tid: tuple(sums.loc[tid]) for tid in sums.index}


def bursts_of(frame, begin, reach):
    """(start, end, ops, bytes) of each, as the definition says, one row after the other."""
    found, latest, loose = {}, None, 0
    for row in frame.to_dict("records"):
        key = ("label", row["burst"])
        if row["burst"] < 0:
            loose += latest is None or row[begin] - latest > GAP_NS
            latest = row[reach] if latest is None else max(latest, row[reach])
            key = ("loose", loose)
        found.setdefault(key, []).append(row)
    return sorted((min(row[begin] for row in burst), max(row["complete_ns"] for row in burst), len(burst),
                   sum(row["length_bytes"] for row in burst)) for burst in found.values())


@pytest.mark.parametrize("seed", range(3))
def test_bursts_by_time_and_by_label_as_they_were_and_as_planned(seed):
    frame = rows(seed, count=600, span_ns=20 * 10**9)
    partial, frame = measured(frame), seen(frame)
    for kind, name in enumerate(CLASSES):
        part, mine = getattr(partial, name), frame[frame.kind == kind]
        timed = mine[mine.due_ns >= 0]
        for table, expected in ((part.bursts, bursts_of(mine, "submit_ns", "complete_ns")),
                                (part.planned, bursts_of(timed, "due_ns", "due_ns"))):
            assert len(expected) > 20
            assert sorted(map(tuple, table.rows()[:, :4].tolist())) == expected
        late = sum(any(earlier[1] > burst[0] for earlier in expected[:i]) for i, burst in enumerate(expected))
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
    assert exact.fingerprint.submit_gaps.to_histogram() == binned.fingerprint.submit_gaps
    assert exact.fingerprint.idle_gaps.to_histogram() == binned.fingerprint.idle_gaps
