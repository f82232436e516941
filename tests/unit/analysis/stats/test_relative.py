"""Relative performance over workloads, against plain arithmetic and by simulation."""

import numpy as np
import pytest

from blkreel.analysis.stats.intervals import welch
from blkreel.analysis.stats.relative import Workload, relative_performance


def test_one_workload_is_the_ratio_of_two_drives():
    drive, reference = [1.0, 1.1, 1.3], [2.0, 2.2, 2.1]
    found, expected = relative_performance([Workload(drive, reference)]), welch(reference, drive)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_several_workloads_are_their_geometric_mean_whichever_way_is_better():
    found = relative_performance([Workload([1.0], [2.0]), Workload([800.0], [100.0], higher_is_better=True)])
    assert found.value == pytest.approx(4) and found.workloads == 2 and found.low is None


def test_the_reference_is_as_fast_as_itself():
    found = relative_performance([Workload([3.0] * 6, [3.0] * 6)])
    assert (found.value, found.low, found.high) == (1, 1, 1)


@pytest.mark.parametrize("runs", [[], [None, 1.0], [0.0, 1.0]])
def test_without_positive_values_there_is_none(runs):
    assert relative_performance([Workload(runs, [1.0])]) is None
    assert relative_performance([]) is None


def test_the_interval_covers_the_truth():
    random, covered, sets = np.random.default_rng(1), 0, 600
    for _ in range(sets):
        workloads = [Workload(random.lognormal(np.log(mean / 1.5), 0.1, 6), random.lognormal(np.log(mean), 0.05, 6))
                     for mean in (1, 10, 100)]
        found = relative_performance(workloads)
        covered += found.low <= 1.5 <= found.high
    assert 0.92 < covered / sets < 0.98
