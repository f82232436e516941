"""Dependent pace: what waits for what, and that the captured latencies give the captured times back."""

import numpy as np
import pytest
from cases import cases
from columns import in_batches
from engine_rule import COMPLETIONS, issued, planned, waited_for
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.dependencies import Observed
from blkreel.replay.plan.history import History
from blkreel.replay.plan.infer import Inferred
from blkreel.traces.format.schema import FLAGS

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


def names(plan, row):
    """What one row waits for: ({rows whose completion}, row whose submission)."""
    return waited_for(plan, row), row - int(plan["behind"][row]) if plan["behind"][row] else None


def observed(*given, kept=None, reach=None):
    dependencies = Observed(THREADS, History(reach) if reach else None)
    return planned(dependencies, rows(*given), kept=kept), dependencies.counts


def test_what_is_issued_without_waiting_follows_the_row_before():
    """Two reads at once, then one that waited for the first of them only: its second chain does not overlap itself."""
    plan, counts = observed((0, 100), (120, 40, 1, 0), (125, 90, 1, 0), (170, 10, 1, 1))
    assert names(plan, 2) == (set(), 1)
    assert plan["delay_ns"][2] == 5
    assert names(plan, 3) == ({1}, 2)
    assert issued(plan, [10, 0, 500, 1]) == [0, 30, 35, 45]
    assert counts["followed"] == 1


def test_two_waits_between_two_rows_are_no_computing():
    """The thread waits for thread 2's reads in turn, from 10 to 50 and from 60 to 90."""
    given = rows((0, 5, 1), (1, 49, 2), (51, 39, 2, 1), (95, 5, 1, 2), blocked_ns=np.array([0, 0, 49, 70]))
    plan = planned(Observed(THREADS), given)
    assert (plan["compute_ns"][3], plan["delay_ns"][3]) == (20, 5)
    assert issued(plan, [0, 0, 0, 0]) == [0, 1, 2, 25]


@pytest.mark.parametrize("blocked_ns", [[-1, 40], [0, -1], [-1, -1], [90, 40], None])
def test_without_blocked_times_a_row_follows_the_completion_alone(blocked_ns):
    """Also where the count began again, as in another capture."""
    more = {} if blocked_ns is None else {"blocked_ns": np.array(blocked_ns)}
    plan = planned(Observed(THREADS), rows((0, 100), (105, 100, 1, 0), **more))
    assert plan["compute_ns"].tolist() == [0, 0]
    assert issued(plan, [1, 1]) == [0, 6]


def test_what_was_blocked_is_counted_by_thread():
    """Kernel threads follow other threads' rows: the count of one says nothing of the other."""
    given = rows((0, 100, 1), (20, 50, 9), (130, 10, 9, 0), blocked_ns=np.array([0, 0, 10]))
    plan = planned(Observed(THREADS), given)
    assert plan["compute_ns"].tolist() == [0, 0, 0]


READ_AHEAD, INHERITED = FLAGS["read_ahead"], FLAGS["inherited"]


@pytest.mark.parametrize("make", [lambda: Observed(THREADS), Inferred], ids=["observed", "inferred"])
@pytest.mark.parametrize(("ios", "truncated"), [(4, 0), (5, 1), (9, 1)])
def test_rows_that_wait_for_more_than_four_completions_are_counted(make, ios, truncated):
    """In batches of two rows, as in one: the wave is submitted at once, and the row waits for all of it."""
    given = rows(*[(i, 200 - 10 * i) for i in range(ios)], (250, 10, 1, 0), (270, 10, 1, ios),
                 blocked_ns=np.array([0] * ios + [190, 200]))
    for sizes in ((None,), (2,)):
        dependencies = make()
        plan = planned(dependencies, given, sizes)
        assert dependencies.counts["truncated"] == truncated
        assert names(plan, ios)[0] == set(range(min(ios, 4)))


@pytest.mark.parametrize("change", [
    {"blocked_ns": [0, 0, 50, 70]},  # row 0 was complete when the thread fell asleep
    {"blocked_ns": [-1, -1, -1, -1]},
    {"latency_ns": [130, 100, 0, 10]},  # completes after the wake-up
    {"latency_ns": [-1, 100, 0, 10]},
    {"tid": [2, 1, 1, 1]},
    {"tid": [2, 2, 1, 1]},  # woken by another thread's I/O
    {"flags": [DEFERRED, 0, 0, 0]},
    {"flags": [READ_AHEAD, 0, 0, 0]},
    {"flags": [0, READ_AHEAD, 0, 0]},
    {"flags": [0, 0, 0, INHERITED]},
], ids=str)
def test_what_else_a_thread_has_outstanding_is_not_waited_for(change):
    """The thread sleeps from 30 to 110, and row 1 wakes it."""
    both = rows((0, 80), (10, 100), (20, 0), (120, 10, 1, 1), blocked_ns=np.array([0, 0, 0, 80]))
    assert names(planned(Observed(THREADS), both), 3) == ({0, 1}, 2)
    less = both | {name: np.array(values) for name, values in change.items()}
    assert names(planned(Observed(THREADS), less), 3) == ({1}, 2)


def submitted_by_waves(waves, latency_ns):
    """(submit, blocked) of a thread that submits waves of I/Os, computes, waits for all of a wave, and thinks."""
    submit_ns, blocked_ns, at, blocked = [], [], 0, 0
    for gaps, compute_ns, think_ns in waves:
        first = len(submit_ns)
        for gap_ns in gaps:
            at += gap_ns
            submit_ns.append(at)
            blocked_ns.append(blocked)
        asleep_ns = at + compute_ns
        done_ns = max(submit_ns[row] + latency_ns[row] for row in range(first, len(submit_ns)))
        blocked += max(0, done_ns - asleep_ns)
        at = max(done_ns, asleep_ns) + think_ns
    return submit_ns, blocked_ns


WAVE = st.tuples(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(0, 50), st.integers(0, 50))


@cases(16)
@given(waves=st.lists(WAVE, min_size=1, max_size=6), data=st.data())
def test_waves_of_ios_take_the_time_that_the_program_takes_on_any_drive(waves, data):
    count = sum(len(gaps) for gaps, *_ in waves)
    # On the drive of the capture each I/O is outstanding when the thread falls asleep.
    slow = data.draw(st.lists(st.integers(150, 300), min_size=count, max_size=count))
    other = data.draw(st.lists(st.integers(0, 600), min_size=count, max_size=count))
    submit_ns, blocked_ns = submitted_by_waves(waves, slow)
    waited_on, wave = [], range(0)
    for gaps, *_ in waves:
        last = max(wave, key=lambda row: submit_ns[row] + slow[row], default=-1)
        waited_on += [last] * len(gaps)
        wave = range(len(waited_on) - len(gaps), len(waited_on))
    given = rows(*zip(submit_ns, slow, [1] * count, waited_on, strict=True), blocked_ns=np.array(blocked_ns))
    assert issued(planned(Observed(THREADS), given), other) == submitted_by_waves(waves, other)[0]


@pytest.mark.parametrize(("given", "kept", "waits", "latencies", "times", "count"), [
    # Whatever its process had done by then: not an absolute time, which a fast drive would be long past.
    ([(0, 100, 1), (110, 500, 1, 0), (130, 10, 2)], None, {2: ({0}, 1)}, [10, 10, 10], [0, 20, 40], {"caused": 1}),
    ([(0, 100, 1, -1, OWN), (20, 10, 7), (150, 10, 3, -1, OWN)], None, {1: (set(), None), 2: ({0}, 0)}, None, None,
     {"absolute": 2, "caused": 1}),
    ([(0, 100, 1, -1, OWN), (150, 10, 3), (170, 10, 3, 1)], None, {1: (set(), None), 2: ({1}, 1)}, [1, 1, 1],
     [0, 150, 161], {"absolute": 2}),
    ([(0, -1), (130, 50, 1, 0), (140, 10, 1)], None, {1: (set(), 0)}, [7, 50, 10], [0, 130, 140], {"followed": 2}),
    ([(0, 10), (20, 100, 2), (150, 10, 1, 1), (170, 10, 2, 1)], [0, 2, 3], {1: (set(), 0), 2: ({1}, 1)}, [10, 10, 10],
     [0, 150, 170], {"reanchored": 2})],
    ids=["a new thread comes after its process", "a new process of the application comes after the application",
         "a program that has nothing to do with it keeps its time", "a completion that nobody saw is not waited for",
         "a wait for what is not in the plan keeps its time"])
def test_what_a_row_waits_for(given, kept, waits, latencies, times, count):
    plan, counts = observed(*given, **({} if kept is None else {"kept": kept}))
    assert {row: names(plan, row) for row in waits} == waits
    assert latencies is None or issued(plan, latencies) == times
    assert {name: counts[name] for name in count} == count


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


def test_a_negative_think_time_is_not_believed():
    plan, counts = observed((0, 100), (50, 10, 1, 0))
    assert names(plan, 1) == (set(), 0)
    assert plan["delay_ns"][1] == 50
    assert counts["reanchored"] == 1


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


@pytest.mark.parametrize("dependencies", [lambda: Observed(THREADS), lambda: Observed(THREADS, History(5)), Inferred,
                                     lambda: Inferred(reach=5)])
@given(moments=TRACES, keep=st.integers(1, 2**40 - 1), data=st.data())
def test_the_drive_of_the_trace_gives_its_times_back(dependencies, moments, keep, data):
    io = trace_of(moments)
    io["blocked_ns"] = np.array(data.draw(st.lists(st.integers(-1, 60), min_size=len(moments), max_size=len(moments))))
    kept = [row for row in range(len(moments)) if keep >> row & 1] or [0]
    made = dependencies()
    plan = planned(made, io, kept=kept)
    latency_ns = io["latency_ns"][kept]
    assert issued(plan, latency_ns) == io["submit_ns"][kept].tolist()
    faster = [data.draw(st.integers(0, max(0, int(one)))) for one in latency_ns]
    assert all(here <= there for here, there in zip(issued(plan, faster), io["submit_ns"][kept], strict=True))
    assert (plan["delay_ns"] >= 0).all()
    assert all(plan[name].max() <= made.reach for name in (*COMPLETIONS, "behind"))
    assert sum(made.counts[name] for name in ("waited", "followed", "caused", "absolute")) == len(kept)


@pytest.mark.parametrize("dependencies", [lambda: Observed(THREADS, History(9)), Inferred, lambda: Inferred(reach=9)])
@given(moments=TRACES, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_batches_do_not_show(dependencies, moments, sizes):
    io = trace_of(moments)
    io["blocked_ns"] = np.arange(len(moments)) * 7
    whole, parts = planned(dependencies(), io), planned(dependencies(), io, sizes)
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
        made, found = Inferred(max_parents=count + 1), [set() for _ in range(count)]
        for some in in_batches(np.arange(count), sizes):
            after, _ = made.parents(only[some], some, submit_ns[some], latency_ns[some])
            for parents in after:
                for row, parent in zip(some.tolist(), parents.tolist(), strict=True):
                    found[row] |= {parent} - {-1}
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
    plan = planned(made, rows((0, 100, 1), (5, 200, 1), (90, 5, 3), (110, 50, 1), (210, 10, 1)))
    assert [names(plan, row) for row in range(5)] == [(set(), None), (set(), 0), (set(), None), ({0}, None),
                                                      ({1, 3}, None)]
    assert plan["delay_ns"].tolist()[3:] == [10, 5]
    assert made.counts["absolute"] == 2
