"""The time with a read outstanding, added up in any order of the rows."""

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from synthetic_tests import write_step

import blkreel
from blkreel.replay.engine import spans
from blkreel.replay.engine.spans import ReadTimes, RunSpan
from blkreel.traces.format.schema import FLAGS, OPS

S = 10**9


def rows_of(random, count, longest_ns=3000):
    submit_ns = np.sort(random.integers(0, 50_000, count))
    return {"submit_ns": submit_ns, "complete_ns": submit_ns + random.integers(-1, longest_ns, count),
            "due_ns": submit_ns - random.integers(0, 2000, count), "op": random.integers(0, 2, count),
            "flags": random.choice([0, FLAGS["own"], FLAGS["queue_full"], FLAGS["own"] | FLAGS["queue_full"]], count)}


def expected(rows):
    busy = np.zeros(60_000, bool)
    reads = (rows["op"] == OPS["read"]) & (rows["complete_ns"] >= rows["submit_ns"])
    start = np.where(rows["flags"] & FLAGS["queue_full"], rows["due_ns"], rows["submit_ns"])
    for begin, end in zip(start[reads], rows["complete_ns"][reads], strict=True):
        busy[begin + 2000:end + 2000] = True
    own = reads & (rows["flags"] & FLAGS["own"] != 0)
    own = own if own.any() else reads
    return {"load_time_ns": int(rows["complete_ns"][own].max() - rows["submit_ns"][own].min()),
            "wait_ns": int(busy.sum())}


@cases(20)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 80), parts=st.integers(1, 6), merge_rows=st.integers(1, 50))
def test_read_times_are_those_of_the_rows_in_any_order(seed, count, parts, merge_rows):
    random = np.random.default_rng(seed)
    rows = rows_of(random, count)
    times = ReadTimes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "_MERGE_ROWS", merge_rows)
        for part in np.array_split(random.permutation(count), parts):
            times.add({name: column[part] for name, column in rows.items()})
        if ((rows["op"] == OPS["read"]) & (rows["complete_ns"] >= rows["submit_ns"])).any():
            assert times.account() == expected(rows)
        else:
            assert times.account() is None


def test_an_io_waits_for_a_full_queue_for_at_most_as_long_as_in_the_report(tmp_path):
    """A run far behind its plan: the account and the report give the same wait."""
    times = ReadTimes()
    rows = {"submit_ns": np.array([200 * S]), "complete_ns": np.array([201 * S]), "due_ns": np.array([S]),
            "op": np.array([OPS["read"]]), "flags": np.array([FLAGS["queue_full"]])}
    times.add(rows)
    columns = {**{name: rows[name] for name in ("submit_ns", "due_ns", "op", "flags")}, "latency_ns": np.array([S]),
               "length_bytes": np.array([4096]), "offset_bytes": np.array([0])}
    path = write_step(tmp_path / "run", columns)
    assert times.account()["wait_ns"] == blkreel.open(path).figures["read"]["wait_ns"] == 61 * S


def late_end(rows):
    """Row, I/Os and time of the end, by its definition."""
    for first in range(1, len(rows["source_row"])):
        end_ns = rows["complete_ns"][:first].max()
        if (rows["submit_ns"][first] - end_ns >= 10**6 and
                rows["source_row"][first:].max() < rows["source_row"][:first].max()):
            return (rows["source_row"][first], len(rows["source_row"]) - first, rows["complete_ns"].max() - end_ns)
    return None


@cases(40)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), parts=st.integers(1, 4), moved=st.integers(0, 3))
def test_a_late_end_has_the_last_ios_after_a_pause_that_others_follow_in_the_trace(seed, count, parts, moved):
    random = np.random.default_rng(seed)
    submit_ns = np.cumsum(random.choice([1000, 3 * 10**6], count))
    row = np.arange(count)
    for place in random.integers(0, count, moved):
        row = np.append(np.delete(row, place), row[place])
    rows = {"submit_ns": submit_ns, "complete_ns": submit_ns + 500_000, "source_row": row, "flags": 0 * row}
    span = RunSpan(finds_late_end=True)
    for part in np.array_split(np.arange(count), parts):
        span.add({name: column[part] for name, column in rows.items()})
    found = span.late_end
    assert ((found.row, found.ios, found.late_ns) if found.ios else None) == late_end(rows)


def test_settled_time_is_counted_and_needs_no_memory(monkeypatch):
    monkeypatch.setattr(spans, "_MERGE_ROWS", 100)
    times, count = ReadTimes(), 50_000
    submit_ns = np.arange(count) * S
    rows = {"submit_ns": submit_ns, "complete_ns": submit_ns + 7, "due_ns": submit_ns, "op": np.zeros(count),
            "flags": np.zeros(count, int)}
    for part in np.array_split(np.arange(count), 1000):
        times.add({name: column[part] for name, column in rows.items()})
    assert len(times._outstanding._starts_ns) < 5000
    assert times.account() == {"load_time_ns": (count - 1) * S + 7, "wait_ns": 7 * count}
