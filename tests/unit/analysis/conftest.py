"""Runs that many tests only read, and what reads the rows of traces."""

import pytest
from synthetic_runs import write_four_runs

from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document
from blkreel.traces.format.trace import Trace


@pytest.fixture(scope="session")
def four_runs(tmp_path_factory):
    """Two drives, `In memory` and `On disk`, each with the original timing and with idle capped at 3 ms."""
    return write_four_runs(tmp_path_factory.mktemp("four"))


@pytest.fixture(scope="session")
def four_compared(four_runs):
    """(document, sections) of their comparison."""
    return document.comparison([measure(path) for path in four_runs])


@pytest.fixture
def decoded(monkeypatch):
    """The paths of traces whose rows were asked for."""
    paths, real = [], Trace.batches
    monkeypatch.setattr(Trace, "batches", lambda trace, *arguments, **named:
                        paths.append(str(trace.path)) or real(trace, *arguments, **named))
    return paths
