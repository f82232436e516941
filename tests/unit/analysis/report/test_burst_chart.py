"""Bursts of several drives over each other: aligned at their start, as long and as fast as they were."""

import numpy as np
import pytest
from synthetic_runs import MS, SECOND, write_run

from blkreel.analysis.charts.spec import inline_data
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document
from blkreel.analysis.report.charts.burst_bars import burst_bars


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    root = tmp_path_factory.mktemp("two")
    return document.comparison([measure(write_run(root / label, label, read_us)) for label, read_us in
                                (("fast", 60), ("slow", 900))])[1][0].entries


def bars(chart, label):
    """(begin, end, rate) of each bar of a drive, as drawn."""
    rows = [row for row in inline_data(chart.spec) if row.get("entry") == label]
    return [(rows[at]["x"], rows[at + 3]["x"], rows[at + 1]["y"]) for at in range(0, len(rows), 4)]


def test_bursts_are_aligned_at_their_start_and_idle_time_is_left_out(two):
    chart = burst_bars(two, "bursts", ["fast", "slow"])
    fast, slow = bars(chart, "fast"), bars(chart, "slow")
    planned = two[0].partial.read.planned
    assert len(fast) == len(slow) == len(planned) > 2
    assert [bar[0] for bar in fast] == [bar[0] for bar in slow]
    for entry, drawn in zip(two, (fast, slow), strict=True):
        table = entry.partial.read.planned
        length_ns = table.end_ns - table.start_ns
        assert np.diff(drawn)[:, 0] == pytest.approx(length_ns / 1e9)
        assert [bar[2] for bar in drawn] == pytest.approx(table.bytes * 1000 / length_ns, rel=1e-4)
    # A burst begins after all drives have ended the one before.
    assert all(after[0] > max(before) for after, *before in zip(
        fast[1:], *([bar[1] for bar in each] for each in (fast, slow)), strict=False))
    axis = chart.spec["encoding"]["x"]["axis"]
    longest_ns = max((table.end_ns - table.start_ns for table in (entry.partial.read.planned for entry in two)),
                     key=lambda lengths: lengths.sum())
    assert slow[-1][1] * SECOND < 1.2 * longest_ns.sum() < planned.start_ns[-1]
    assert {bar[0] for bar in fast} <= set(axis["values"]) and "folded" in axis["title"]
    starts = [row.values["start_ns"] for row in chart.table.rows if row.entry == "fast"]
    assert starts == pytest.approx(planned.start_ns - two[0].partial.end.origin_ns, abs=MS)


def test_bursts_that_are_not_the_same_are_not_drawn(two, tmp_path):
    other = document.comparison([measure(write_run(tmp_path / "other", "other", seconds=6))])[1][0].entries
    assert burst_bars([*two, *other], "bursts", ["fast", "slow", "other"]) is None
    assert burst_bars(other, "bursts", ["other"]) is not None
