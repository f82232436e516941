"""What reads the rows of traces."""

import pytest

from blkreel.traces.format.trace import Trace


@pytest.fixture
def decoded(monkeypatch):
    """The paths of traces whose rows were asked for."""
    paths, real = [], Trace.batches
    monkeypatch.setattr(Trace, "batches", lambda trace, *arguments, **named:
                        paths.append(str(trace.path)) or real(trace, *arguments, **named))
    return paths
