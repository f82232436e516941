"""Energy by hand: the integral of a meter's samples, and what a gap in them does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_tests import MS, SECOND, MadeTest, closed_loop

from blkreel.analysis.metrics.energy import Power, mb_per_joule
from blkreel.benchmarks.reports.results import results_of


def test_straight_between_samples():
    """2, 4, 4 and 0 W, a second apart: 3 + 4 + 2 J."""
    power = Power(np.arange(4) * SECOND, [2, 4, 4, 0])
    whole = power.over(0, 3 * SECOND)
    assert whole.joules == pytest.approx(9) and whole.average_w == pytest.approx(3)
    # The second half of the first second runs from 3 to 4 W.
    assert power.over(SECOND // 2, SECOND).joules == pytest.approx(1.75)
    assert (whole.covered_ns, whole.active_ns) == (3 * SECOND, 3 * SECOND)


def test_the_first_and_last_sample_hold_for_one_interval():
    power = Power([SECOND, 2 * SECOND], [5, 5])
    used = power.over(0, 10 * SECOND)
    assert used.joules == pytest.approx(15) and used.covered_ns == 3 * SECOND
    assert used.average_w == pytest.approx(5)


def test_a_gap_is_left_out_and_not_bridged():
    """Samples each second but for 10 s in between: watts are of the time that was measured."""
    times = np.concatenate([np.arange(0, 5), np.arange(15, 20)]) * SECOND
    power = Power(times, [10.0] * 5 + [20.0] * 5)
    used = power.over(0, 19 * SECOND)
    assert used.joules == pytest.approx(4 * 10 + 4 * 20) and used.covered_ns == 8 * SECOND
    assert power.covers(np.array([SECOND, 4 * SECOND, 9 * SECOND, 15 * SECOND])).tolist() == [True, True, False, True]


def test_a_gap_that_the_telemetry_tells_of_counts_even_where_samples_are_near():
    power = Power(np.arange(5) * SECOND, [1] * 5, SECOND, gaps_ns=[[2 * SECOND, 3 * SECOND]])
    assert power.over(0, 4 * SECOND).covered_ns == 3 * SECOND


def test_a_meter_slower_than_it_was_meant_to_be_has_no_gaps():
    used = Power(np.arange(11) * SECOND, [3.0] * 11, SECOND // 100).over(0, 10 * SECOND)
    assert used.covered_ns == 10 * SECOND and used.joules == pytest.approx(30)
    # Two samples an hour apart are no meter at all.
    assert Power([0, 3600 * SECOND], [3, 3], SECOND).over(0, 3600 * SECOND).covered_ns == 0


def test_one_sample_holds_for_its_interval_and_none_gives_nothing():
    assert Power([5 * SECOND], [7], SECOND).over(4 * SECOND, 6 * SECOND).joules == pytest.approx(14)
    none = Power([], [])
    assert none.over(0, SECOND).average_w is None and not none.covers(np.array([1])).any()
    assert mb_per_joule(10, None) is None and mb_per_joule(10, 0.0) is None


def test_samples_out_of_order_are_refused():
    with pytest.raises(ValueError, match="order"):
        Power([2, 1], [1, 1])


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 50)), min_size=2, max_size=40), st.data())
def test_parts_of_a_time_add_up_to_the_whole(steps, data):
    times = np.cumsum([step * SECOND for step, _ in steps])
    power = Power(times, [watts for _, watts in steps], SECOND)
    low, high = int(times[0]) - SECOND, int(times[-1]) + SECOND
    middle = data.draw(st.integers(low, high))
    whole, parts = power.over(low, high), [power.over(low, middle), power.over(middle, high)]
    assert sum(part.joules for part in parts) == pytest.approx(whole.joules, abs=1e-6)
    assert sum(part.covered_ns for part in parts) == whole.covered_ns
    watts = [each for _, each in steps]
    assert whole.average_w is None or min(watts) - 1e-9 <= whole.average_w <= max(watts) + 1e-9


def one_depth(tmp_path, **more):
    """10 s of 4 KiB at 1,000 IOPS."""
    test = MadeTest(tmp_path / "t", "depths")
    test.step("depth", {"depth": 1}, closed_loop(10_000, MS, op=1), **more)
    return results_of(test.path)


def test_mb_per_joule_is_mb_s_per_watt(tmp_path):
    document = one_depth(tmp_path, power=(np.arange(-1, 12) * SECOND, [4.0] * 13))
    figures = document["figures"]["states"][""]["depths"]["1"]
    assert figures["average_w"] == pytest.approx(4)
    assert figures["mb_per_j"] == pytest.approx(4.096 / 4)


def test_what_completes_in_a_gap_of_the_meter_is_no_work(tmp_path):
    """The meter is silent from 3 s to 8 s: the joules of 5 s, and the bytes of those 5 s."""
    times = np.array([-1, 0, 1, 2, 3, 8, 9, 10, 11])
    document = one_depth(tmp_path, power=(times * SECOND, [4.0] * 9))
    assert document["figures"]["states"][""]["depths"]["1"]["mb_per_j"] == pytest.approx(4.096 / 4, rel=1e-3)
    assert "no samples for 5 s of the 10 s" in dict(document["method"])["Energy"]


@pytest.mark.parametrize(("more", "why"), [
    ({}, "power not measured"),
    ({"power_missing": "the meter died"}, "power not measured: the meter died"),
    ({"power": (np.array([100, 101]) * SECOND, [4.0, 4.0])}, "no sample of power during the step"),
])
def test_power_that_was_not_measured_is_no_zero(tmp_path, more, why):
    document = one_depth(tmp_path, **more)
    figures = document["figures"]["states"][""]["depths"]["1"]
    assert figures["average_w"] is None and figures["mb_per_j"] is None
    assert document["tables"][0]["rows"][0]["why"]["mb_per_j"] == why


def test_damaged_telemetry_takes_no_records_with_it(tmp_path):
    test = MadeTest(tmp_path / "t", "depths")
    step = test.step("depth", {"depth": 1}, closed_loop(100, MS), power=([0], [1.0]))
    (test.path / "steps" / step / "telemetry.parquet").write_bytes(b"PAR1 is all that is left")
    document = results_of(test.path)
    assert document["figures"]["states"][""]["depths"]["1"]["mb_s"] == pytest.approx(4.096)
    assert "damaged" in document["tables"][0]["rows"][0]["why"]["average_w"] and not document["missing"]
