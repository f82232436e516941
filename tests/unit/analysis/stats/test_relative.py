"""Relative performance over workloads, against plain arithmetic and by simulation."""

import numpy as np
import pytest

from blkreel.analysis.report.workloads import Score
from blkreel.analysis.stats.intervals import welch
from blkreel.analysis.stats.relative import relative_performance, relative_to


def workload(drive, reference, higher_is_better=False):
    return Score("", "", higher_is_better, str, {"drive": drive, "reference": reference})


def relative(*workloads):
    return relative_performance(workloads, "drive", "reference")


def test_one_workload_is_the_ratio_of_two_drives():
    drive, reference = [1.0, 1.1, 1.3], [2.0, 2.2, 2.1]
    found, expected = relative(workload(drive, reference)), welch(reference, drive)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_several_workloads_are_their_geometric_mean_whichever_way_is_better():
    found = relative(workload([1.0], [2.0]), workload([800.0], [100.0], higher_is_better=True))
    assert found.value == pytest.approx(4) and found.workloads == 2 and found.low is None


def test_the_reference_is_as_fast_as_itself():
    found = relative(workload([3.0] * 6, [3.0] * 6))
    assert (found.value, found.low, found.high) == (1, 1, 1) and not found.differs
    noisy = relative_to([workload([1.0, 2.0], [3.0, 4.0])], "reference")["reference"]
    assert (noisy.value, noisy.low, noisy.high) == (1, 1, 1), "the spread of its runs is no doubt about that"


@pytest.mark.parametrize("runs", [[], [None, 1.0], [0.0, 1.0]])
def test_without_positive_values_there_is_none(runs):
    assert relative(workload(runs, [1.0])) is None
    assert relative() is None


@pytest.mark.parametrize("reference, differs", [([1.5, 1.6], True), ([1.011, 1.0112], False), ([0.7, 1.5], False)])
def test_a_drive_differs_where_the_interval_excludes_1_and_the_effect_is_no_trifle(reference, differs):
    assert relative(workload([1.0, 1.001], reference)).differs == differs
    assert not relative(workload([1.0], [2.0])).differs  # no interval of one run


def test_only_drives_with_a_result_on_every_workload_have_one_of_all():
    workloads = [workload([1.0], [2.0]), Score("", "", False, str, {"reference": [3.0], "other": [3.0]})]
    assert list(relative_to(workloads, "reference")) == ["reference"] and relative_to([], "reference") == {}


def test_the_interval_covers_the_truth():
    random, covered, sets = np.random.default_rng(1), 0, 600
    for _ in range(sets):
        workloads = [workload(random.lognormal(np.log(mean / 1.5), 0.1, 6), random.lognormal(np.log(mean), 0.05, 6))
                     for mean in (1, 10, 100)]
        found = relative(*workloads)
        covered += found.low <= 1.5 <= found.high
    assert 0.92 < covered / sets < 0.98
