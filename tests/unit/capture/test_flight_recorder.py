"""The losses of a flight recorder: those in the part that it holds."""

from types import SimpleNamespace

from blkreel.capture.flight_recorder import Ring


def test_losses_keep_their_unit_and_those_without_a_time():
    """ftrace counts events, and not all of them have an interval."""
    intervals = [{"cpu": 0, "first_ns": 1, "last_ns": 5, "count": 3},
                 {"cpu": 1, "first_ns": 20, "last_ns": 30, "count": 4}]
    lost = {"total": 10, "per_cpu": {"0": 5, "1": 5}, "intervals": intervals, "unit": "events"}
    held = Ring.lost_since_begin(SimpleNamespace(dropped_until_ns=10), lost)
    assert held == {"total": 7, "per_cpu": {"0": 2, "1": 5}, "intervals": intervals[1:], "unit": "events"}
    assert Ring.lost_since_begin(SimpleNamespace(dropped_until_ns=None), lost) == lost
