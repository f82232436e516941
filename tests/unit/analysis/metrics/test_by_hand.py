"""The worked case of docs/method.md, and published figures, to the digit."""

import numpy as np
import pytest

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.partials.bursts import BurstTable, late_starts
from blkreel.analysis.metrics.partials.distributions import PERCENTILES, ValueCounts
from blkreel.analysis.metrics.partials.formulas import consistency, mb_per_s, percentile, too_small, writer_state
from blkreel.common.errors import TraceError
from blkreel.common.verdict import enough

US = 1000


def rows(intervals, op=0, length=4096, **columns):
    """Columns of a batch from (submit, complete) pairs in ns."""
    submit = np.array([start for start, _ in intervals], np.int64)
    latency = np.array([end - start for start, end in intervals], np.int64)
    count = len(submit)
    return {"submit_ns": submit, "latency_ns": latency, "queue_ns": np.full(count, -1),
            "op": np.full(count, op, np.int8), "length_bytes": np.full(count, length),
            "flags": np.zeros(count, np.int32),
            "status": np.zeros(count, np.int16), **{name: np.asarray(values) for name, values in columns.items()}}


def measured(columns, gap_ns=100_000_000):
    accumulator = MetricsAccumulator(gap_ns)
    accumulator.feed(columns)
    return accumulator.finish()


HAND = [(0, 10 * US), (5 * US, 15 * US), (12 * US, 20 * US), (30 * US, 40 * US)]


def test_hand_case():
    numbers = figures(measured(rows(HAND), gap_ns=5 * US))
    read = numbers["read"]
    assert read["service_ns"] == 38 * US
    assert read["busy_ns"] == 30 * US
    assert read["makespan_ns"] == 40 * US
    assert round(read["throughput_by_busy_mb_s"], 1) == 546.1
    assert round(numbers["all"]["data_rate_by_busy_mb_s"], 1) == 546.1
    assert round(numbers["all"]["data_rate_by_wall_mb_s"], 1) == 409.6
    assert read["mean_busy_depth"] == 38 / 30
    # 16384 bytes in bursts of 20 and 10 us.
    assert read["bursts"]["makespan_ns"] == 30 * US
    assert round(read["bursts"]["throughput_mb_s"], 1) == 546.1


@pytest.mark.parametrize(("gap_us", "bursts"), [(5, 2), (10, 1), (9, 2)])
def test_hand_case_bursts(gap_us, bursts):
    assert len(measured(rows(HAND), gap_ns=gap_us * US).read.bursts) == bursts


def test_strays_are_listed_apart_and_stay_in_the_sums():
    busy = [(i * US, i * US + 500) for i in range(16)]
    lone = [(10**9, 10**9 + 3 * US)]
    bursts = figures(measured(rows(busy + lone)))["read"]["bursts"]
    assert bursts["count"] == 2
    assert bursts["strays"] == {"count": 1, "ops": 1, "bytes": 4096, "makespan_ns": 3 * US}
    assert bursts["makespan_ns"] == 15 * US + 500 + 3 * US
    assert bursts["throughput_mb_s"] == 17 * 4096 * 1000 / (18 * US + 500)


def test_one_large_io_is_no_stray():
    assert figures(measured(rows([(0, 9)], length=1 << 20)))["read"]["bursts"]["strays"]["count"] == 0


def test_labeled_bursts_ignore_the_gap():
    labels = np.array([0, 1, 0, 2], np.int32)
    table = measured(rows(HAND, burst=labels)).read.bursts
    assert table.start_ns.tolist() == [0, 5 * US, 30 * US]
    assert table.end_ns.tolist() == [20 * US, 15 * US, 40 * US]
    assert table.ops.tolist() == [2, 1, 1]


def test_ios_without_completion_are_counted_apart():
    columns = rows(HAND)
    columns["latency_ns"][1] = -1
    read = figures(measured(columns))["read"]
    assert (read["ops"], read["unseen_ops"], read["bytes"]) == (3, 1, 3 * 4096)
    assert read["service_ns"] == 28 * US


def test_op_classes_are_apart_and_flushes_carry_no_data():
    columns = rows(HAND)
    columns["op"] = np.array([0, 1, 2, 3], np.int8)
    numbers = figures(measured(columns))
    assert [numbers[name]["ops"] for name in ("read", "write", "other")] == [1, 1, 2]
    assert numbers["all"]["data_bytes"] == 2 * 4096
    assert numbers["all"]["busy_ns"] == 30 * US


def test_nothing_gives_no_figures_rather_than_wrong_ones():
    numbers = figures(MetricsAccumulator().finish())
    assert numbers["read"]["ops"] == 0
    assert numbers["read"]["bursts"]["throughput_mb_s"] is None
    assert numbers["all"]["mean_busy_depth"] is None
    assert numbers["read"]["latency"]["max_ns"] is None


def test_rows_out_of_order_are_refused():
    accumulator = MetricsAccumulator()
    with pytest.raises(TraceError, match="order of submit_ns"):
        accumulator.feed(rows([(5, 6), (4, 7)]))
    accumulator = MetricsAccumulator()
    accumulator.feed(rows([(5, 6)]))
    with pytest.raises(TraceError, match="order of submit_ns"):
        accumulator.feed(rows([(4, 7)]))


def test_lateness_is_split_and_response_counts_from_the_due_time():
    full = 1 << 16
    partial = measured(rows([(10, 20), (30, 50), (60, 61)], due_ns=[4, 0, -1], burst=[-1, -1, -1],
                            flags=np.array([0, full, full], np.int32)))
    assert partial.lateness_host.items()[0].tolist() == [6]
    assert partial.lateness_device.items()[0].tolist() == [30]
    assert partial.read.response.items()[0].tolist() == [16, 50]
    assert partial.lateness.count == 2


def state_of(partial):
    return writer_state(partial.write, partial.keep_up)


@pytest.mark.parametrize(("mb_s", "state", "share"), [(1000, "kept up", 1.0), (70, "kept up", 1.0),
                                                      (10, "fell behind", 0.1526)])
def test_a_writer_of_one_long_stream_that_is_too_slow_fell_behind(mb_s, state, share):
    """64 KiB each millisecond for 5 s, one write at a time: a drive with 10 MB/s ends 28 s late."""
    due = np.arange(5000) * 10**6
    cost = 65536 * 1000 // mb_s
    ends, now = [], 0
    for at in due.tolist():
        now = max(now, at) + cost
        ends.append(now)
    columns = rows(list(zip(np.array(ends) - cost, ends, strict=True)), op=1, length=65536, due_ns=due,
                   burst=[-1] * 5000)
    partial = measured(columns)
    assert partial.write.planned_bursts == 1 and state_of(partial) == state
    writer = figures(partial)["writer"]
    assert writer["written_on_time"] == pytest.approx(share, abs=0.001)
    assert writer["lag_ns"] == max(0, ends[-1] - int(due[-1]))


def test_a_write_that_never_completed_was_not_written_on_time():
    columns = rows([(0, 10), (100, 110), (200, 210), (300, 310)], op=1, due_ns=[0, 100, 200, 300], burst=[0, 0, 0, 0])
    columns["latency_ns"][1] = -1
    assert figures(measured(columns))["writer"]["written_on_time"] == 0.75


def test_writer_keeps_up_or_falls_behind():
    ms = 10**6

    def state(ends_ms, seen=True):
        # Two planned bursts, 2 s apart.
        due = np.array([0, 0, 2000, 2000]) * ms
        columns = rows([(d, e * ms) for d, e in zip(due, ends_ms, strict=True)], op=1, due_ns=due, burst=[-1] * 4)
        if not seen:
            columns["latency_ns"][3] = -1
        return state_of(measured(columns))

    assert state([900, 1999, 2500, 2600]) == "kept up"
    assert state([900, 2000, 2500, 2600]) == "kept up"
    assert state([900, 2001, 2500, 2600]) == "fell behind"
    assert state([900, 1000, 2500, 2600], seen=False) == "fell behind"
    assert state_of(measured(rows(HAND))) == "none"
    assert state_of(measured(rows(HAND, op=1))) == "unplanned"


def test_late_start_looks_at_all_earlier_bursts():
    table = BurstTable.of([(0, 100, 1, 1), (10, 20, 1, 1), (50, 60, 1, 1), (100, 110, 1, 1)])
    assert late_starts(table) == 2


# Nearest rank.

def values(*numbers):
    counts = ValueCounts()
    counts.add(np.array(numbers, np.int64))
    return counts


def test_percentile_of_one_value():
    assert all(values(7).percentile(fraction) == 7 for fraction in PERCENTILES.values())


def test_percentile_takes_a_value_that_occurred():
    counts = values(*range(1, 11))
    assert counts.percentile((50, 100)) == 5
    assert counts.percentile((90, 100)) == 9
    assert counts.percentile((91, 100)) == 10
    assert counts.percentile((99, 100)) == 10


def test_percentile_with_ties():
    assert values(1, 2, 2, 2, 9).percentile((50, 100)) == 2
    assert values(1, 1, 1, 9).percentile((75, 100)) == 1
    assert values(1, 1, 1, 9).percentile((76, 100)) == 9


def test_percentile_of_nothing():
    assert ValueCounts().percentile((50, 100)) is None
    assert ValueCounts().waiting_percentile((50, 100)) is None
    assert ValueCounts().tail(10) == []


def test_percentiles_from_too_few_are_not_shown():
    assert not enough(19, PERCENTILES["p50"]) and enough(20, PERCENTILES["p50"])
    assert not enough(999, PERCENTILES["p99"]) and enough(1000, PERCENTILES["p99"])
    assert not enough(9999, PERCENTILES["p99_9"]) and enough(10_000, PERCENTILES["p99_9"])
    thousand = values(*range(1, 1001))
    assert [percentile(thousand, name) for name in PERCENTILES] == [500, 900, 990, None]
    assert too_small(thousand) == ["p99_9"]


def test_waiting_percentile_weighs_by_latency():
    # 20 of 30 units of waiting are in the one slow I/O.
    assert values(*[1] * 10, 20).waiting_percentile((50, 100)) == 20
    assert values(*[1] * 10, 20).waiting_percentile((33, 100)) == 1
    assert values(*[1] * 10, 20).waiting_percentile((34, 100)) == 20


def test_tail_ends_at_the_slowest():
    tail = values(*range(1, 101)).tail(50)
    assert tail[0] == (1, 100) and tail[-1] == (100, 1)
    assert all(value == 101 - beyond for value, beyond in tail)


def test_consistency():
    scores = consistency(np.array([10, 10, 4, 16], np.int64))
    assert scores.mean_iops == 10
    assert scores.score == pytest.approx(10 / 18**0.5)
    assert scores.downside_score == pytest.approx(10 / 3)  # the upper quartile is 10
    assert scores.first_percentile_over_upper_quartile == 0.4
    assert scores.share_under_half_upper_quartile == 0.25
    assert consistency(np.array([5, 5])).score is None
    # Fast and slow half of the time: the lower median is the slow half, and no second is under it.
    halves = consistency(np.array([100, 10] * 50, np.int64))
    assert halves.downside_score == pytest.approx(100 / (90 / 2**0.5))
    assert halves.share_under_half_upper_quartile == 0.5 and halves.first_percentile_over_upper_quartile == 0.1
    assert consistency(np.array([5])).score is None


def test_empty_seconds_stay():
    second = 10**9
    partial = measured(rows([(0, 1), (3 * second, 3 * second + second // 2)]))
    bins = partial.read.seconds.runs[0]
    assert bins.dense().tolist() == [1, 0, 0, 1] and bins.whole == 3
    assert figures(partial)["read"]["iops_1s"] == [[1, 0, 0, 1]]
    assert [each.tolist() for each in partial.read.seconds.whole().items()] == [[0, 1], [2, 1]]


# Published figures, each against the interval it was rounded from.

def rounds_to(value, published, digits=0):
    half = 0.5 * 10.0**-digits
    return published - half <= value <= published + half


def test_published_depth_one():
    latency_ns = 112_230
    ops = 1000
    columns = rows([(i * latency_ns, (i + 1) * latency_ns) for i in range(ops)])
    numbers = figures(measured(columns))
    assert rounds_to(numbers["read"]["throughput_by_busy_mb_s"], 36.5, 1)
    assert rounds_to(numbers["read"]["latency"]["mean_ns"] / 1000, 112)
    low, high = 36.45e6 / 4096, 36.55e6 / 4096
    assert low <= 8911 <= high and low <= ops / (numbers["read"]["makespan_ns"] / 1e9) <= high
    assert 27.15e6 / 4096 <= 6641 <= 27.25e6 / 4096


@pytest.mark.parametrize(("depth", "latency_us", "iops", "mb_s"), [(128, 860, 148_837, None),
                                                                  (32, 1454.545, 22_000, 90.1)])
def test_published_depths(depth, latency_us, iops, mb_s):
    """A closed loop with `depth` outstanding, each I/O as long: IOPS x latency = depth."""
    latency = round(latency_us * US)
    rounds = 40
    columns = rows([(r * latency, (r + 1) * latency) for r in range(rounds) for _ in range(depth)])
    numbers = figures(measured(columns))
    assert numbers["read"]["mean_busy_depth"] == depth
    rate = numbers["read"]["ops"] / numbers["read"]["busy_ns"] * 1e9
    assert rate == pytest.approx(depth / (latency_us * 1e-6), rel=1e-9)
    if mb_s is None:
        assert rounds_to(rate, iops)
    else:
        assert rounds_to(rate / 1000, iops / 1000)
        assert rounds_to(numbers["read"]["throughput_by_busy_mb_s"], mb_s, 1)
        assert rounds_to(numbers["read"]["latency"]["mean_ns"] / 1e6, 1.455, 3)


def test_published_writer_and_reads():
    assert mb_per_s(40 * 10**6, 2 * 10**9) == 20
    assert 10 * 400 * 2**20 // 65536 == 64_000
