"""Dependent pace: what waits for what, and that the captured latencies give the captured times back."""

import numpy as np
import pytest
from engine_rule import ANCHORS, issued
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.dependencies import Observed
from blkreel.replay.history import History
from blkreel.replay.infer import Inferred
from blkreel.traces.schema import FLAGS

OWN, DEFERRED = FLAGS["own"], FLAGS["deferred"]
THREADS = {"1": {"pid": 1, "comm": "a"}, "2": {"pid": 1, "comm": "a"}, "3": {"pid": 3, "comm": "b"},
           "9": {"pid": 9, "comm": "jbd2/sda-8"}}


def rows(*given, **more):
    """Rows of (submit_ns, latency_ns, tid, waited_on, flags); what a row leaves out is not known."""
    filled = [tuple(row) + (1, -1, 0)[len(row) - 2:] for row in given]
    io = {name: np.array([row[i] for row in filled], np.int64)
          for i, name in enumerate(("submit_ns", "latency_ns", "tid", "waited_on", "flags"))}
    done = io["submit_ns"] + io["latency_ns"]
    io["think_ns"] = np.where(io["waited_on"] >= 0, io["submit_ns"] - done[io["waited_on"]], 0)
    return io | more


def plan_of(anchors, io, sizes=(None,), kept=None):
    """The columns of a lane, made of batches of these sizes. kept: the rows of the trace that are in the lane."""
    kept = np.arange(len(io["submit_ns"])) if kept is None else np.asarray(kept)
    parts, low, turn = [], 0, 0
    while low < len(kept):
        some = kept[low:low + (sizes[turn % len(sizes)] or len(kept))]
        parts.append(anchors.anchor({name: values[some] for name, values in io.items()}, some, io["submit_ns"][some]))
        low, turn = low + len(some), turn + 1
    plan = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return plan | {"due_ns": io["submit_ns"][kept]}


def names(plan, row):
    """What one row waits for: ({rows whose completion}, row whose submission)."""
    return ({row - int(plan[name][row]) for name in ANCHORS if plan[name][row]},
            row - int(plan["behind"][row]) if plan["behind"][row] else None)


def observed(*given, kept=None, reach=None):
    anchors = Observed(THREADS, History(reach) if reach else None)
    return plan_of(anchors, rows(*given), kept=kept), anchors.counts


def test_a_thread_goes_on_when_what_it_waited_for_is_done():
    plan, counts = observed((0, 100), (130, 50, 1, 0), (200, 10, 1, 1))
    assert [names(plan, row) for row in range(3)] == [(set(), None), ({0}, 0), ({1}, 1)]
    assert plan["delay_ns"].tolist() == [0, 30, 20]
    assert issued(plan, [10, 5, 1]) == [0, 40, 65]
    assert (counts["waited"], counts["absolute"]) == (2, 1)


def test_what_is_issued_without_waiting_follows_the_row_before():
    """Two reads at once, then one that waited for the first of them only: its second chain does not overlap itself."""
    plan, counts = observed((0, 100), (120, 40, 1, 0), (125, 90, 1, 0), (170, 10, 1, 1))
    assert names(plan, 2) == (set(), 1)
    assert plan["delay_ns"][2] == 5
    assert names(plan, 3) == ({1}, 2)
    assert issued(plan, [10, 0, 500, 1]) == [0, 30, 35, 45]
    assert counts["followed"] == 1


def test_a_wait_for_another_threads_io():
    plan, _ = observed((0, 100), (10, 40, 2), (60, 10, 2, 1), (105, 5, 2, 0))
    assert names(plan, 3) == ({0}, 2)


def test_a_new_thread_comes_after_its_process():
    """Whatever its process had done by then: not an absolute time, which a fast drive would be long past."""
    plan, counts = observed((0, 100, 1), (110, 500, 1, 0), (130, 10, 2))
    assert names(plan, 2) == ({0}, 1)
    assert issued(plan, [10, 10, 10]) == [0, 20, 40]
    assert counts["caused"] == 1


def test_a_new_process_of_the_application_comes_after_the_application():
    plan, counts = observed((0, 100, 1, -1, OWN), (20, 10, 7), (150, 10, 3, -1, OWN))
    assert names(plan, 1) == (set(), None)
    assert names(plan, 2) == ({0}, 0)
    assert (counts["absolute"], counts["caused"]) == (2, 1)


def test_a_program_that_has_nothing_to_do_with_it_keeps_its_time():
    plan, counts = observed((0, 100, 1, -1, OWN), (150, 10, 3), (170, 10, 3, 1))
    assert names(plan, 1) == (set(), None)
    assert names(plan, 2) == ({1}, 1)
    assert issued(plan, [1, 1, 1]) == [0, 150, 161]
    assert counts["absolute"] == 2


def test_writeback_stays_beside_the_thread_that_caused_it():
    plan, _ = observed((0, 100, 1), (110, 50, 1, 0), (200, 70, 1, -1, DEFERRED), (210, 70, 1, -1, DEFERRED),
                       (230, 9, 1, 1))
    assert names(plan, 2) == names(plan, 3) == (set(), 1)
    assert names(plan, 4) == ({1}, 1), "what was written back on its behalf is no step of the thread's own"


def test_a_journal_stays_beside_the_application():
    """A thread of the kernel that last woke long ago was made to begin by a program since."""
    plan, _ = observed((0, 10, 9), (500, 10, 3), (510, 100, 1, -1, OWN), (560, 10, 3, 1), (640, 20, 9, 0),
                       (670, 5, 9, 4), (700, 5, 9, 2))
    assert names(plan, 4) == ({0}, 2)
    assert plan["delay_ns"][4] == 130
    assert names(plan, 5) == ({4}, 4)
    assert names(plan, 6) == ({2}, 5)


def test_a_completion_that_nobody_saw_is_not_waited_for():
    plan, counts = observed((0, -1), (130, 50, 1, 0), (140, 10, 1))
    assert names(plan, 1) == (set(), 0)
    assert issued(plan, [7, 50, 10]) == [0, 130, 140]
    assert counts["followed"] == 2


def test_a_negative_think_time_is_not_believed():
    plan, counts = observed((0, 100), (50, 10, 1, 0))
    assert names(plan, 1) == (set(), 0)
    assert plan["delay_ns"][1] == 50
    assert counts["reanchored"] == 1


def test_a_wait_for_what_is_not_in_the_plan_keeps_its_time():
    plan, counts = observed((0, 10), (20, 100, 2), (150, 10, 1, 1), (170, 10, 2, 1), kept=[0, 2, 3])
    assert names(plan, 1) == (set(), 0)
    assert names(plan, 2) == ({1}, 1)
    assert issued(plan, [10, 10, 10]) == [0, 150, 170]
    assert counts["reanchored"] == 2


def test_a_wait_for_what_is_too_far_back_keeps_its_time():
    given = [(0, 10, 2)] + [(100 + 10 * i, 5, 1) for i in range(20)] + [(400, 5, 2, 0)]
    plan, counts = observed(*given, reach=8)
    assert max(plan["behind"].max(), plan["after_1"].max()) <= 8
    assert names(plan, 21) == ({20}, 20)
    assert issued(plan, [row[1] for row in given]) == [row[0] for row in given]
    assert counts["reanchored"] == 1


MOMENT = st.tuples(st.integers(0, 3), st.integers(-1, 40), st.sampled_from([-1, 1, 2, 3, 9]), st.integers(-1, 30),
                   st.sampled_from([0, OWN, DEFERRED, OWN | DEFERRED]))
TRACES = st.lists(MOMENT, min_size=1, max_size=40)


def trace_of(moments):
    submit_ns = np.cumsum([gap * 7 for gap, *_ in moments])
    return rows(*[(int(at), latency, tid, min(waited, i - 1), flags)
                  for i, (at, (_, latency, tid, waited, flags)) in enumerate(zip(submit_ns, moments, strict=True))])


@pytest.mark.parametrize("anchors", [lambda: Observed(THREADS), lambda: Observed(THREADS, History(5)), Inferred,
                                     lambda: Inferred(reach=5)])
@given(moments=TRACES, keep=st.integers(1, 2**40 - 1), data=st.data())
def test_the_drive_of_the_trace_gives_its_times_back(anchors, moments, keep, data):
    io = trace_of(moments)
    kept = [row for row in range(len(moments)) if keep >> row & 1] or [0]
    made = anchors()
    plan = plan_of(made, io, kept=kept)
    latency_ns = io["latency_ns"][kept]
    assert issued(plan, latency_ns) == io["submit_ns"][kept].tolist()
    faster = [data.draw(st.integers(0, max(0, int(one)))) for one in latency_ns]
    assert all(here <= there for here, there in zip(issued(plan, faster), io["submit_ns"][kept], strict=True))
    assert (plan["delay_ns"] >= 0).all()
    assert all(plan[name].max() <= made.reach for name in (*ANCHORS, "behind"))
    assert sum(made.counts[name] for name in ("waited", "followed", "caused", "absolute")) == len(kept)


@pytest.mark.parametrize("anchors", [lambda: Observed(THREADS, History(9)), Inferred, lambda: Inferred(reach=9)])
@given(moments=TRACES, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_batches_do_not_show(anchors, moments, sizes):
    io = trace_of(moments)
    whole, parts = plan_of(anchors(), io), plan_of(anchors(), io, sizes)
    assert all(whole[name].tolist() == parts[name].tolist() for name in whole)


def closure(edges, count):
    """All that each row depends on, directly or not."""
    found = []
    for row in range(count):
        direct = edges[row]
        found.append(direct.union(*[found[one] for one in direct]))
    return found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 40), st.integers(1, 2)), min_size=1, max_size=14),
       st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_what_is_left_out_of_an_inferred_graph_follows_from_the_rest(moments, sizes):
    io = trace_of([(gap, latency, tid, -1, 0) for gap, latency, tid in moments])
    submit_ns, latency_ns, tid = io["submit_ns"], io["latency_ns"], io["tid"]
    done_ns = np.maximum(submit_ns + latency_ns, submit_ns + 1)
    count = len(moments)
    for only in (np.ones_like(tid), np.full(count, -1), tid):
        made, found, low = Inferred(most=count + 1), [set() for _ in range(count)], 0
        while low < count:
            some = slice(low, low + sizes[low % len(sizes)])
            after, _ = made.parents(only[some], np.arange(count)[some], submit_ns[some], latency_ns[some])
            for parents in after:
                for row, parent in enumerate(parents.tolist(), low):
                    found[row] |= {parent} - {-1}
            low += sizes[low % len(sizes)]
        first = {int(one): int(np.flatnonzero(only == one)[0]) for one in np.unique(only) if one >= 0}
        full = [{c for c in range(row) if latency_ns[c] >= 0 and done_ns[c] <= submit_ns[row] and
                 (only[c] == only[row] or first.get(int(only[row])) == row)} for row in range(count)]
        # A thread's first row brings all that everybody had done; within threads the closure is the thread's own.
        assert closure(found, count) == closure(full, count)
        for row in range(count):
            dropped = full[row] - found[row]
            assert all(any(submit_ns[kept] >= done_ns[one] for kept in full[row]) for one in dropped)


def test_inferred_depends_on_the_last_completions_of_its_thread():
    """Depth 2: the third comes when the first is done, whatever another thread does meanwhile."""
    made = Inferred()
    plan = plan_of(made, rows((0, 100, 1), (5, 200, 1), (90, 5, 3), (110, 50, 1), (210, 10, 1)))
    assert [names(plan, row) for row in range(5)] == [(set(), None), (set(), 0), (set(), None), ({0}, None),
                                                      ({1, 3}, None)]
    assert plan["delay_ns"].tolist()[3:] == [10, 5]
    assert made.counts["absolute"] == 2
