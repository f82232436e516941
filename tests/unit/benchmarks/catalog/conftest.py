"""Small runs, a small test, and their results, made once."""

import pytest
from synthetic_catalog import run_of
from synthetic_fleet import small_test

from blkreel.benchmarks.catalog import collected


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory):
    """Two runs of each of two drives."""
    root = tmp_path_factory.mktemp("runs")
    return [run_of(root / f"{label}-{number}", label, cost_us, seed=number * 2 + index)
            for index, (label, cost_us) in enumerate((("fast", 100), ("slow", 300))) for number in range(2)]


@pytest.fixture(scope="session")
def a_test(tmp_path_factory):
    return small_test(tmp_path_factory.mktemp("tests") / "trace", "trace")


@pytest.fixture(scope="session")
def results(small_runs):
    """(result, partial) of each of small_runs."""
    return [collected(run, host="lab") for run in small_runs]
