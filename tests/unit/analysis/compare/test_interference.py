"""What writes do to reads, against a version that looks at each read by itself."""

import numpy as np
import pandas as pd
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.compare import interference_file
from blkreel.analysis.compare.interference import ERROR, WINDOWS_NS, Interference
from blkreel.traces.format.schema import FLAGS

MS = 1_000_000
READ, WRITE, APPEND = 0, 1, 5
rows = st.lists(st.tuples(st.integers(0, 30 * MS), st.sampled_from([-1, 0, 1, 255, 3 * MS, 40 * MS, 2000 * MS]),
                          st.sampled_from([4096, 65_536]), st.sampled_from([READ, READ, WRITE, WRITE, APPEND, 3]),
                          st.sampled_from([0, 0, 0, 2])),
                min_size=1, max_size=60)


def frame(given_rows):
    t = pd.DataFrame([(*row, 0)[:5] for row in given_rows],
                     columns=["gap", "latency_ns", "length_bytes", "op", "device"])
    t["submit_ns"] = t.gap.cumsum()
    t["flags"] = 0
    return t.drop(columns="gap")


def fed(t, cuts=()):
    found = Interference()
    edges = [0, *sorted(cuts), len(t)]
    for begin, end in zip(edges, edges[1:], strict=False):
        found.feed({name: t[name].to_numpy()[begin:end] for name in t})
    return found


def test_reads_of_a_background_are_left_out():
    t = frame([(0, 100, 4096, READ), (10, 100, 4096, WRITE), (10, 100, 4096, READ)])
    t.loc[2, "flags"] = FLAGS["role_background"]
    found = fed(t)
    assert (found.reads, found.writes) == (1, 1)


def one_by_one(t):
    """latency, bytes in each window and writes in flight of each read."""
    told = []
    for index in t.index[(t.op == READ) & (t.latency_ns >= 0)]:
        read, before = t.loc[index], t.loc[:index - 1] if index else t.loc[:-1]
        writes = before[before.op.isin([WRITE, APPEND]) & (before.latency_ns >= 0) & (before.device == read.device)]
        told.append({"latency": read.latency_ns, **{
            window: writes.length_bytes[writes.submit_ns > read.submit_ns - window].sum() for window in WINDOWS_NS},
            "in_flight": (writes.submit_ns + writes.latency_ns > read.submit_ns).sum()})
    return pd.DataFrame(told, columns=["latency", *WINDOWS_NS, "in_flight"])


def check(shown, x, latency):
    bins = x.map(lambda value: int(value).bit_length())
    assert [row["n"] for row in shown["bins"]] == bins.value_counts().sort_index().tolist()
    for row, (_, mine) in zip(shown["bins"], latency.groupby(bins), strict=True):
        ordered = mine.sort_values().to_numpy()
        assert row["mean_ns"] == pytest.approx(mine.mean())
        assert row["from"] <= x[mine.index].min() and x[mine.index].max() < row["to"]
        for name, per_cent in (("p50_ns", 50), ("p99_ns", 99)):
            if len(mine) * (100 - per_cent) < 1000:
                assert row[name] is None
            else:
                assert row[name] == pytest.approx(ordered[-(-len(mine) * per_cent // 100) - 1], rel=ERROR)
    if shown["slope_ns"] is not None:
        assert shown["slope_ns"] == pytest.approx(np.polyfit(x.astype(float), latency.astype(float), 1)[0], rel=1e-4,
                                                  abs=1e-6)
    if shown["rank_correlation"] is not None:
        kept = latency.map(lambda value: value >> max(0, int(value).bit_length() - 8))
        octave = latency.map(lambda value: max(0, int(value).bit_length() - 8))
        expected = bins.corr(kept + octave * 256, method="spearman")
        assert shown["rank_correlation"] == pytest.approx(expected, abs=1e-9)


@cases(10)
@given(rows, st.lists(st.integers(0, 60), max_size=3))
def test_each_read_meets_what_was_written_before_it(given_rows, cuts):
    t = frame(given_rows)
    shown, expected = fed(t, [min(cut, len(t)) for cut in cuts]).document(), one_by_one(t)
    assert shown["reads"] == len(expected)
    assert shown["writes"] == (t.op.isin([WRITE, APPEND]) & (t.latency_ns >= 0)).sum()
    if len(expected):
        for window in shown["windows"]:
            check(window, expected[window["window_ns"]], expected.latency)
        check(shown["in_flight"], expected.in_flight, expected.latency)


def test_a_drive_that_suffers_from_writes_shows_it():
    """Reads take 1 ms, and 1 ms more for each 128K write of the last 10 ms; those of a steady drive do not."""
    random = np.random.default_rng(5)
    count = 800
    op = (random.random(count) < .4).astype(int)
    submit_ns = np.cumsum(random.integers(0, 4 * MS, count))
    t = pd.DataFrame({"submit_ns": submit_ns, "latency_ns": np.full(count, 100), "length_bytes": 131_072, "op": op,
                      "device": 0, "flags": 0})
    met = one_by_one(t)[WINDOWS_NS[0]] // 131_072
    t.loc[t.op == READ, "latency_ns"] = MS + met.to_numpy() * MS + random.integers(0, 1000, len(met))
    window = fed(t, [300, 301, 600]).document()["windows"][0]
    assert window["slope_ns"] * 131_072 == pytest.approx(MS, rel=.01)
    assert window["rank_correlation"] > .9
    assert window["bins"][0]["p50_ns"] == pytest.approx(MS, rel=.01) and window["bins"][0]["to"] == 1
    assert window["bins"][-1]["p50_ns"] > 3 * MS
    t.latency_ns = random.integers(MS, 2 * MS, count)
    assert abs(fed(t).document()["windows"][0]["rank_correlation"]) < .12


def test_runs_pool_read_by_read():
    a, b = frame([(MS, MS, 4096, WRITE), (MS, 300, 4096, READ)] * 20), frame([(MS, 500, 4096, READ)] * 30)
    both = (fed(a) + fed(b)).document()
    assert both["reads"] == 50 and both["windows"][0]["bins"][0]["n"] == 30
    assert sum(row["n"] for row in both["in_flight"]["bins"]) == 50


@cases(20)
@given(rows, rows)
def test_what_is_kept_is_what_was_found_alone_and_pooled(a, b):
    a, b = fed(frame(a)), fed(frame(b))
    loaded = [interference_file.load(interference_file.dump(each)) for each in (a, b)]
    assert [each.document() for each in loaded] == [a.document(), b.document()]
    assert (loaded[0] + loaded[1]).document() == (a + b).document()
