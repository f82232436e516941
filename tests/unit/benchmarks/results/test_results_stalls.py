"""Periodic stalls and the steady state: what was put into made-up completions is found, and chance is not."""

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from synthetic_tests import MS, SECOND

from blkreel.benchmarks.reports.consistency import became_steady, steady
from blkreel.benchmarks.step_metrics.fine_bins import FineBins
from blkreel.benchmarks.step_metrics.stalls import find, period_of

seeds = st.integers(0, 2**32 - 1)


def binned(complete_ns):
    bins = FineBins(0)
    for part in np.array_split(complete_ns, 7):
        bins.add(part)
    return bins


def completions(random, seconds, iops, spread=0.3):
    """Completions of a closed loop, at intervals with this spread around 1/iops."""
    count = int(seconds * iops)
    return np.cumsum(SECOND / iops * random.lognormal(0, spread, count)).astype(np.int64)


def stalled(times, period_ns, length_ns, first_ns):
    """The same with all time pushed on by each stall: nothing completes from its begin to its end."""
    work = period_ns - length_ns
    passed = np.maximum(0, -(-(times - first_ns) // work))
    return times + passed * length_ns, int(passed[-1])


@cases(20)
@given(seeds, st.integers(300, 20_000), st.integers(400, 5000), st.floats(0.02, 0.6), st.floats(0, 1),
       st.integers(5, 40))
def test_a_known_stall_is_found(seed, iops, period_ms, share, phase, count):
    random = np.random.default_rng(seed)
    period_ns, length_ns = period_ms * MS, int(period_ms * MS * share)
    if length_ns < 8 * SECOND / iops or length_ns < 10 * MS:
        length_ns = int(max(8 * SECOND / iops, 10 * MS))
    work = period_ns - length_ns
    if work < length_ns / 4:
        return
    seconds = (count + phase) * work / SECOND
    times, expected = stalled(completions(random, seconds, iops), period_ns, length_ns, int(phase * work))
    found = find(binned(times))
    assert found is not None and found.complete
    assert found.period_ns == pytest.approx(period_ns, rel=0.02)
    # The pause begins at the last completion before it, up to some intervals earlier.
    assert abs(found.length_ns - length_ns) <= max(0.05 * length_ns, 3 * SECOND / iops)
    assert abs(found.count - expected) <= max(1, expected // 10)


@cases(20)
@given(seeds, st.integers(300, 20_000), st.floats(0, 1), st.integers(0, 60), st.integers(10, 60))
def test_chance_has_no_period(seed, iops, spread, pauses, seconds):
    """Pauses of any length at random times, among completions that vary a lot."""
    random = np.random.default_rng(seed)
    times = completions(random, seconds, iops, spread)
    for at in np.sort(random.integers(0, len(times), pauses)):
        times[at:] += random.integers(20 * MS, 400 * MS)
    assert find(binned(times)) is None


def test_stalls_are_found_among_odd_pauses():
    """Twelve stalls of 200 ms, one a second; two pauses of another cause, and one stall that did not come."""
    times = completions(np.random.default_rng(3), 12, 5000)
    for at_ms, length_ms in [*((number * 1000 + 300, 200) for number in range(12) if number != 6), (2650, 150),
                             (9800, 90)]:
        times = times[(times < at_ms * MS) | (times >= (at_ms + length_ms) * MS)]
    found = find(binned(times))
    assert found is not None and found.count == 11
    assert found is not None and found.length_ns == pytest.approx(200 * MS, rel=0.02)
    assert found.period_ns == pytest.approx(SECOND, rel=0.03)


@pytest.mark.parametrize(("low", "is_found"), [(2000, True), (9000, True), (11_000, False)])
def test_dips_below_half_of_the_rate_are_found_too(low, is_found):
    """Each second, 300 ms at a lower rate, at which some I/Os go on."""
    rates = np.tile(np.repeat([20_000, low], [7, 3]), 30)
    times = np.concatenate([index * 100 * MS + np.arange(rate // 10) * (SECOND // rate)
                            for index, rate in enumerate(rates)])
    found = find(binned(times))
    assert (found is not None) == is_found
    if found is not None:
        assert not found.complete
        assert found.period_ns == pytest.approx(SECOND, rel=0.02)
        assert found.length_ns == pytest.approx(300 * MS, rel=0.1)


@pytest.mark.parametrize(("times", "period"), [
    ([0, 10, 20, 30, 40, 50], 10),
    ([3, 13, 33, 43, 53, 63, 73, 83], 10),  # one did not come
    ([0, 10, 20, 24, 30, 40, 50, 60], 10),  # one is of another cause
    ([3, 13, 33, 43, 53], None),  # of so few, each has to come
    ([0, 10, 20], None),  # three are too few to tell
    ([0, 7, 23, 29, 44, 61], None),
    ([0, 10, 20, 31], None),  # four have to be quite even
])
def test_period_by_hand(times, period):
    found = period_of(np.array(times))
    assert (found and round(found[0], 6)) == period


def test_bins_keep_both_ends_of_a_pause_whatever_the_batches():
    times = np.array([100, 900_000, 5_300_017, 9_100_000, 9_100_001])
    begin, length = binned(times).pauses()
    assert begin.tolist() == [900_000, 5_300_017] and length.tolist() == [4_400_017, 3_799_983]
    bins = FineBins(0)
    for one in times[::-1]:  # completions of a deep queue come out of order
        bins.add(np.array([one]))
    assert bins.pauses()[1].tolist() == length.tolist() and bins.counts.tolist() == binned(times).counts.tolist()


def test_bins_of_a_long_run_stay_few(monkeypatch):
    monkeypatch.setattr("blkreel.benchmarks.step_metrics.fine_bins.MAX_BINS", 64)
    times = np.arange(0, 10 * SECOND, 10 * MS)
    bins = binned(times)
    assert bins.used <= 64 and bins.counts.sum() == 1000 and bins.width_ns == 256 * MS
    # Ends of pauses stay exact.
    assert (bins.pauses()[1] == 10 * MS).all()


@pytest.mark.parametrize(("rounds", "steady_from"), [
    ([100] * 5, 0),
    ([100, 100, 100, 100, 121], None),  # spreads over 21 of 104.2
    ([96, 98, 100, 102, 104], 0),  # spread 8, slope 2: 8 of 100
    ([94, 97, 100, 103, 106], None),  # slope 3: 12 of 100, at a spread of only 12
    ([500] * 8 + [100] * 20, 8),  # a fast beginning is even, and does not stay
    ([500] * 8 + [100] * 4, None),  # too short to tell
    ([900, 700, 500, 400, 300, 250, 200, 180, 150, 130], None),
])
def test_steady_by_hand(rounds, steady_from):
    assert became_steady(rounds) == steady_from


def test_steady_rate_and_time_of_a_drive_that_stalls():
    """Rounds of whole periods: with rounds of a sixtieth, 10 s, some would hold a stall of 4 s and some none."""
    fast, slow = np.arange(0, 100 * SECOND, SECOND // 1000), np.arange(100 * SECOND, 700 * SECOND, SECOND // 200)
    slow = slow[slow % (25 * SECOND) < 21 * SECOND]
    bins = binned(np.concatenate([fast, slow]))
    found, round_ns, rounds = steady(bins, 700 * SECOND, 25 * SECOND)
    assert (round_ns, rounds) == (25 * SECOND, 27)
    assert found.at_ns == 100 * SECOND and found.iops == pytest.approx(200 * 21 / 25, rel=1e-3)
    assert steady(bins, 700 * SECOND, None)[0] is None
