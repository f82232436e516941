"""The account of a background, of rows whose times are chosen."""

from types import SimpleNamespace

import numpy as np
import pytest

from blkreel.replay.background.account import Backgrounds
from blkreel.replay.plan.mapping import Part
from blkreel.traces.format.schema import OPS

MS, S = 10**6, 10**9
READ, WRITE = OPS["read"], OPS["write"]
# (stream, op, submit, complete in ms, bytes). The foreground runs from 1000 to 2000 ms.
ROWS = [(1, WRITE, 500, 600, 1000), (1, WRITE, 900, 1100, 100), (1, READ, 1200, 1300, 10_000),
        (1, WRITE, 1500, 1750, 10), (1, WRITE, 1600, 0, 100_000), (2, WRITE, 1600, 1700, 100_000),
        (1, WRITE, 1900, 2100, 1)]


def batch(rows):
    columns = dict(zip(("stream", "op", "submit_ns", "complete_ns", "length_bytes"), np.array(rows).T, strict=True))
    return columns | {name: columns[name] * MS for name in ("submit_ns", "complete_ns")}


def background(spans):
    return SimpleNamespace(
        number=1, counted_op="write", sha256=lambda: None, spec=SimpleNamespace(text="a"), words=lambda: "a",
        part=Part(0, 1), asked_bytes_s=1.0, phase=0.0, period_ns=None,
        due_bytes=lambda begin_ns, ends_ns: spans.append((begin_ns, ends_ns[0], ends_ns[-1])) or 220 + ends_ns * 0)


@pytest.mark.parametrize("batch_rows", [1, len(ROWS)])
def test_what_counts_is_what_completed_while_the_foreground_ran(batch_rows):
    """One write is in flight at the begin and one at the end, one failed, and one is of another stream."""
    spans = []
    backgrounds = Backgrounds([background(spans)], S, S)
    for begin in range(0, len(ROWS), batch_rows):
        backgrounds.add(batch(ROWS[begin:begin + batch_rows]), {"complete_ns": np.array([1600 * MS])})
    backgrounds.add(None, {"complete_ns": np.array([2 * S])})
    (running,) = backgrounds.account(is_final=False)
    assert running["reached_share"] is None and not spans
    (account,) = backgrounds.account(is_final=True)
    assert spans == [(S, 1900 * MS, 2 * S)]
    assert (account["ios"], account["bytes"]) == (5, 1111)
    assert (account["reached_bytes_s"], account["reached_share"]) == (110, 0.5)
    assert account["outstanding_share"] == (100 + 250 + 100) / 1000


@pytest.mark.parametrize(("times", "has_p50", "has_p99"), [(6, False, False), (7, True, False), (333, True, False),
                                                           (334, True, True)])
def test_a_percentile_has_ten_writes_beyond_it(times, has_p50, has_p99):
    """The rows have three writes that count, of 200, 250 and 200 ms."""
    backgrounds = Backgrounds([background([])], S, S)
    backgrounds.add(batch(ROWS * times), {"complete_ns": np.array([2 * S])})
    (account,) = backgrounds.account(is_final=True)
    for name, is_given, expected_ms in (("p50", has_p50, 200), ("p99", has_p99, 250)):
        value_ns = account[f"latency_{name}_ns"]
        # Rounded down by at most 1/1024.
        assert expected_ms * MS * 1023 / 1024 <= value_ns <= expected_ms * MS if is_given else value_ns is None
