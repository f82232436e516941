"""The order of imported rows that need no file to be sorted."""

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from blkreel.traces.importers.nearly_sorted import WAITING_ROWS, TooFarBack, nearly_sorted


def passed_on(batches, waiting_rows):
    """Times and numbers of arrival as they leave, and the length of each batch."""
    arrival = np.cumsum([0, *map(len, batches)])
    columns = ({"submit_ns": np.array(times), "tid": np.arange(begin, begin + len(times))}
               for begin, times in zip(arrival, batches, strict=False))
    parts = list(nearly_sorted(columns, waiting_rows))
    return (np.concatenate([part["submit_ns"] for part in parts]).tolist(),
            np.concatenate([part["tid"] for part in parts]).tolist(), [len(part["tid"]) for part in parts])


@cases(16)
@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=9), min_size=1, max_size=9), st.integers(1, 12))
def test_rows_are_in_order_of_time_then_of_arrival_or_refused(batches, waiting_rows):
    times = [time for batch in batches for time in batch]
    try:
        submit_ns, arrival, _ = passed_on(batches, waiting_rows)
    except TooFarBack:
        # Some row belongs before as many others as wait.
        assert max(sum(before > time for before in times[:at]) for at, time in enumerate(times)) >= 1
        assert len(times) > waiting_rows
        return
    order = np.argsort(times, kind="stable")
    assert submit_ns == np.array(times)[order].tolist()
    assert arrival == order.tolist()


def test_batches_in_order_pass_unchanged_and_few_wait():
    batches = [list(range(begin, begin + 10)) for begin in range(0, 100, 10)]
    assert passed_on(batches, 15)[2] == [10] * 10
    with pytest.raises(TooFarBack):
        passed_on([*batches, [3]], 15)
    assert passed_on([*batches, [3]], 200)[0] == sorted([*range(100), 3])


def test_rows_with_and_without_a_column_are_sorted_together():
    always = {name: np.zeros(1, np.int64) for name in ("offset_bytes", "length_bytes", "op")}
    parts = list(nearly_sorted(iter([always | {"submit_ns": np.array([5]), "cpu": np.array([1], np.int16)},
                                     always | {"submit_ns": np.array([2])}])))
    assert parts[0]["submit_ns"].tolist() == [2, 5] and parts[0]["cpu"].tolist() == [-1, 1]


def test_the_limit_is_above_the_ios_in_flight_of_any_drive():
    assert WAITING_ROWS >= 65_536
