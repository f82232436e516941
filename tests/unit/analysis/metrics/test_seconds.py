"""The 1 s bins of traces of any length: seconds in which nothing completed are not kept, and count as zeros."""

import functools
import json
import resource

import numpy as np
import pandas as pd
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.metrics.accumulator import MetricsAccumulator, join
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.partials.boundary_state import Carry
from blkreel.analysis.metrics.partials.partial_file import dump, load
from blkreel.analysis.metrics.partials.seconds import LISTED, Bins
from blkreel.analysis.report.charts.over_time import iops_rows

SECOND = 10**9
DAY = 86_400 * SECOND
# In units of 100 ms: some I/Os side by side, others hours apart, one outstanding for longer than many others last.
io = st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 300_000)), st.one_of(
    st.integers(0, 5), st.integers(0, 200_000)), st.integers(0, 2))
traces = st.lists(io, min_size=1, max_size=40)


def columns_of(ios):
    submit, latency, op = np.array(sorted(ios), np.int64).T
    return {"submit_ns": submit * (SECOND // 10), "latency_ns": latency * (SECOND // 10), "op": op,
            "length_bytes": np.full(len(op), 4096)}


def measured(columns, **more):
    metrics = MetricsAccumulator(**more)
    metrics.feed(columns)
    return metrics.finish()


def parts_of(columns, cuts):
    """Measured apart, each with the carry of those before it."""
    edges = [0, *sorted(min(cut, len(columns["op"])) for cut in cuts), len(columns["op"])]
    carry, found = Carry(), []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        found.append(measured({name: column[low:high] for name, column in columns.items()}, carry=carry))
        carry = found[-1].end
    return found


def plain_bins(columns):
    """Each second of the run for each class, by pandas, and how many of them are whole."""
    frame = pd.DataFrame(columns)
    complete_ns = frame.submit_ns + frame.latency_ns
    since_ns = complete_ns - frame.submit_ns.iloc[0]
    length = int(since_ns.max()) // SECOND + 1
    bins = {name: (since_ns[frame.op == kind] // SECOND).value_counts().reindex(range(length), fill_value=0)
            for kind, name in enumerate(("read", "write", "other"))}
    return bins, int(since_ns.max()) // SECOND


def plain_consistency(bins):
    count, mean = len(bins), bins.mean()
    quartile = np.sort(bins)[-(-count * 3 // 4) - 1]
    below = (bins - quartile).clip(upper=0)
    deviation, downside = bins.std(ddof=0), (below**2).mean()**0.5
    slow = np.sort(bins)[max(0, -(-count // 100) - 1)]
    return {"seconds": count, "mean_iops": mean, "score": mean / deviation if deviation else None,
            "downside_score": quartile / downside if downside else None,
            "first_percentile_over_upper_quartile": slow / quartile if quartile else None,
            "share_under_half_upper_quartile": (2 * bins < quartile).mean()}


def check_consistency(shown, bins):
    if len(bins) < 2:
        assert shown["seconds"] == len(bins) and shown["mean_iops"] is None
        return
    for name, value in plain_consistency(bins).items():
        assert shown[name] == (value if value is None else pytest.approx(value)), name


@cases(25)
@given(traces, st.lists(st.integers(0, 40), max_size=4))
def test_bins_and_consistency_equal_pandas_on_every_second_in_any_split(ios, cuts):
    columns = columns_of(ios)
    whole, joined = measured(columns), functools.reduce(join, parts_of(columns, cuts))
    assert joined == whole and figures(joined) == figures(whole)
    assert load(dump(joined)) == whole
    bins, complete = plain_bins(columns)
    for name, part in whole.classes().items():
        (mine,) = part.seconds.runs
        assert mine.dense().tolist() == bins[name].tolist() and mine.whole == complete
        check_consistency(figures(whole)[name]["consistency"], bins[name][:complete])


@cases(30)
@given(traces, traces)
def test_pooled_runs_are_figured_from_the_seconds_of_both(a, b):
    a, b = columns_of(a), columns_of(b)
    pooled = measured(a) + measured(b)
    (bins_a, whole_a), (bins_b, whole_b) = plain_bins(a), plain_bins(b)
    for name, part in pooled.classes().items():
        assert [bins.dense().tolist() for bins in part.seconds.runs] == [bins_a[name].tolist(), bins_b[name].tolist()]
        check_consistency(figures(pooled)[name]["consistency"],
                          pd.concat([bins_a[name][:whole_a], bins_b[name][:whole_b]]))


@given(st.lists(st.integers(0, 300), max_size=20, unique=True), st.integers(1, 60), st.integers(0, 50))
def test_bins_taken_together_are_the_means_of_all(filled, count, more):
    filled = np.array(sorted(filled), np.int64)
    bins = Bins(filled, filled * 7 + 1, int(filled.max(initial=0)) + 1 + more)
    dense = bins.dense()
    expected = [dense[low:low + count].mean() for low in range(0, len(dense), count)]
    assert bins.together(count).tolist() == expected


def test_a_document_lists_each_second_of_a_short_run_and_the_filled_ones_of_a_long_one():
    def shown(seconds, every):
        ends = np.arange(0, seconds, every) * SECOND
        columns = {"submit_ns": ends, "latency_ns": np.full(len(ends), 1000), "op": np.zeros(len(ends), int),
                   "length_bytes": np.full(len(ends), 512)}
        return figures(measured(columns))["read"]["iops_1s"][0]

    assert shown(6, 2) == [1, 0, 1, 0, 1]
    assert shown(LISTED, LISTED - 1) == [1, *[0] * (LISTED - 2), 1]
    assert shown(LISTED + 1, LISTED) == {"seconds": LISTED + 1, "at_s": [0, LISTED], "ops": [1, 1]}
    # Where most seconds are filled, a list is the shorter form.
    assert shown(LISTED + 1, 1) == [1] * (LISTED + 1)


def test_what_the_document_tells_of_a_long_run_gives_its_bins_back():
    random = np.random.default_rng(3)
    submit_ns = np.sort(random.integers(0, 2 * DAY, 4000))
    partial = measured({"submit_ns": submit_ns, "latency_ns": np.full(4000, 1000), "op": np.zeros(4000, int),
                        "length_bytes": np.full(4000, 512)})
    told = json.loads(json.dumps(figures(partial)["read"]["iops_1s"]))[0]
    bins = pd.Series(told["ops"], told["at_s"]).reindex(range(told["seconds"]), fill_value=0)
    since_s = (submit_ns + 1000 - submit_ns[0]) // SECOND
    assert bins.tolist() == np.bincount(since_s, minlength=told["seconds"]).tolist()


def test_a_chart_of_completions_has_few_points_however_long_the_trace():
    class Entry:
        partial = measured({"submit_ns": np.array([0, 300 * DAY]), "latency_ns": np.array([1000, 1000]),
                            "op": np.array([0, 1]), "length_bytes": np.array([512, 512])})

    rows = iops_rows(Entry)
    together = rows[1]["t"]
    assert 200 <= len(rows) <= 400 and together * len(rows) >= 300 * 86_400
    assert rows[0]["read"] * together == pytest.approx(1) and rows[1]["read"] == 0
    last_s = 300 * 86_400 + 1 - rows[-1]["t"]
    assert rows[-1]["write"] * last_s == pytest.approx(1)


def test_years_take_the_memory_of_their_ios():
    """Six years with an I/O each three days, one of them outstanding for a year: bins of them all would be 1.5 GB a
    class."""
    count, before_kib = 730, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    columns = columns_of([(at * 30 * 86_400, 0, 0) for at in range(count)])
    columns["latency_ns"][7] = 365 * DAY
    first, second = parts_of(columns, [400])
    partial = join(load(dump(first)), load(dump(second)))
    assert len(dump(partial)) < 100_000
    shown, seconds = figures(partial + partial)["read"]["consistency"], (count - 1) * 3 * 86_400
    assert (shown["seconds"], shown["downside_score"]) == (2 * seconds, None)
    assert shown["mean_iops"] == pytest.approx((count - 1) / seconds)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 << 10
