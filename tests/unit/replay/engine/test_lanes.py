"""The engine with several plans, targets and threads, and with rows that wait for each other; on its null target."""

import numpy as np
import pytest
from cases import cases
from columns import in_plan_order
from engine_rule import issued
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import SafetyError, UsageError
from blkreel.replay.engine.engine import (
    BLOCK_ROWS,
    DEPENDENCY_COLUMNS,
    DEPENDENCY_REACH,
    OMITTED,
    Lane,
)
from blkreel.replay.simulated.spec import ZERO_LATENCY, parse
from blkreel.traces.format.schema import FLAGS, OPS

GIB = 1 << 30
MS = 1_000_000
AFTER = ("after_1", "after_2", "after_3", "after_4")


def dependent(plan, **columns):
    """The plan with dependencies: dependent(plan, after_1=[0, 1], behind=...), what is not named is 0."""
    count = len(plan["op"])
    return plan | {name: np.broadcast_to(np.asarray(columns.get(name, 0), code), count)
                   for name, code in DEPENDENCY_COLUMNS}


@pytest.fixture
def run_lanes(issue):
    return lambda lanes, **options: issue(*lanes, nil_bytes=GIB, **options)


def assert_dependencies_held(plan, rows):
    """Every deadline is what the dependencies say, from the times that the engine itself recorded."""
    for i in range(len(plan["op"])):
        parents = [rows["complete_ns"][i - plan[name][i]] for name in AFTER if plan[name][i]]
        parents += [rows["submit_ns"][i - plan["behind"][i]] + plan["compute_ns"][i]] if plan["behind"][i] else []
        due_ns = max(parents) + plan["delay_ns"][i] if parents else plan["due_ns"][i]
        assert rows["due_ns"][i] == due_ns, i
        assert rows["submit_ns"][i] >= due_ns
        assert bool(rows["flags"][i] & FLAGS["anchored"]) == bool(parents)


def test_a_row_waits_for_the_completion_and_the_delay(a_plan, issue):
    count = 200
    plan = dependent(a_plan(np.arange(count) * 4096), after_1=np.minimum(np.arange(count), 1), delay_ns=50_000)
    totals, records = issue(plan, nil_bytes=GIB)
    rows = in_plan_order(records)
    assert_dependencies_held(plan, rows)
    assert rows["submit_ns"][-1] >= (count - 1) * 50_000
    assert totals["dependent_ops"] == count - 1
    assert totals["max_outstanding"] == 1


def test_rows_inherit_the_delays_of_those_that_they_depend_on(a_plan, issue):
    """Without them each row would have been issued at its own delay after the one before."""
    count = 200
    plan = dependent(a_plan(np.arange(count) * 4096), after_1=np.minimum(np.arange(count), 1), delay_ns=100_000)
    _, records = issue(plan, nil_bytes=GIB)
    rows = in_plan_order(records)
    late_ns = rows["submit_ns"] - rows["due_ns"]
    took_ns = rows["complete_ns"] - rows["submit_ns"] - rows["stall_ns"]
    undelayed_ns = rows["submit_ns"] - rows["host_delay_ns"]
    assert (np.diff(rows["host_delay_ns"]) == late_ns[1:] + rows["stall_ns"][:-1]).all()
    assert (np.diff(undelayed_ns) == 100_000 + took_ns[:-1]).all()


def test_a_row_behind_another_waits_for_its_submission_only(a_plan, issue):
    plan = dependent(a_plan(np.arange(3) * 4096, due_ns=[2 * MS, -1, -1]), behind=[0, 1, 1], delay_ns=[0, MS, MS])
    _, records = issue(plan, nil_bytes=GIB)
    rows = in_plan_order(records)
    assert_dependencies_held(plan, rows)
    assert rows["due_ns"][0] == 2 * MS


def test_chains_do_not_wait_for_each_other(a_plan, issue):
    """Two interleaved chains: the slow one must not hold the fast one back."""
    count = 400
    slow = np.arange(count) % 2 == 0
    plan = dependent(a_plan(np.arange(count) * 4096), after_1=np.where(np.arange(count) < 2, 0, 2),
                    delay_ns=np.where(slow, MS, 1000))
    _, records = issue(plan, nil_bytes=GIB)
    rows = in_plan_order(records)
    assert_dependencies_held(plan, rows)
    assert rows["submit_ns"][slow].max() >= (count // 2 - 1) * MS
    # 199 delays of 1 us against 199 of 1 ms: only a machine that stands still for most of the run could mix them up.
    assert rows["submit_ns"][~slow].max() < rows["submit_ns"][slow].max()


@cases(8)
@given(data=st.data())
def test_any_graph_is_followed(a_plan, issue, data):
    count = data.draw(st.integers(1, 80))
    dependencies = {name: [data.draw(st.one_of(st.just(0), st.integers(0, i))) for i in range(count)]
               for name in (*AFTER, "behind")}
    delay_ns = [data.draw(st.sampled_from([0, 1000, 60_000])) for _ in range(count)]
    compute_ns = [data.draw(st.sampled_from([0, 5000, 70_000])) for _ in range(count)]
    due_ns = [data.draw(st.sampled_from([-1, 0, 100_000])) for _ in range(count)]
    plan = dependent(a_plan(np.arange(count) * 4096, due_ns=due_ns), delay_ns=delay_ns, compute_ns=compute_ns,
                     **dependencies)
    totals, records = issue(plan, nil_bytes=GIB, depth=data.draw(st.integers(1, 8)))
    assert totals["completed_ops"] == count
    assert totals["stopped"] is None
    assert_dependencies_held(plan, in_plan_order(records))


@cases(12)
@given(data=st.data())
def test_computing_rows_share_the_processors_equally(a_plan, run_lanes, data):
    """Threads that read one block after the other, follow each other, or read several at once; by exact fractions."""
    count, processors = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 3))
    columns = {name: [data.draw(st.one_of(st.just(0), st.integers(0, min(i, 6)))) for i in range(count)]
               for name in ("after_1", "after_2", "behind")}
    times_ns = {"delay_ns": [0, 7000], "compute_ns": [0, 9000], "delay_cpu_ns": [0, 1, 11_000, 100_000],
                "compute_cpu_ns": [0, 30_000, 170_001]}
    columns |= {name: [data.draw(st.sampled_from(choices)) for _ in range(count)] for name, choices in times_ns.items()}
    due_ns = [data.draw(st.sampled_from([0, 10_000, 100_000])) for i in range(count)]
    plan = dependent(a_plan(np.arange(count) * 4096, due_ns=due_ns), **columns)
    _, records = run_lanes([Lane([plan], 64, processors=processors)],
                           simulated=(parse("nil:1GiB,read_latency=60us,clock=virtual"),))
    rows = in_plan_order(records)
    exact_ns = issued(plan, rows["complete_ns"] - rows["submit_ns"], processors)
    # Each end of computing is rounded to a nanosecond.
    assert np.abs(rows["submit_ns"] - exact_ns).max() <= 2 * count
    unshared = issued(plan, rows["complete_ns"] - rows["submit_ns"], count)
    assert processors < count or exact_ns == unshared


def test_a_processor_for_each_thread_makes_none_wait(a_plan, run_lanes):
    """Two threads that compute for 1 ms take as long as one on two processors, and twice as long on one."""
    plan = dependent(a_plan(np.arange(4) * 4096, due_ns=0), after_1=[0, 0, 2, 2], delay_cpu_ns=MS)
    ends = {}
    for processors in (0, 1, 2):
        _, records = run_lanes([Lane([plan], 64, processors=processors)], simulated=(ZERO_LATENCY,))
        ends[processors] = in_plan_order(records)["submit_ns"][2:].tolist()
    assert ends == {0: [MS, MS], 1: [2 * MS, 2 * MS], 2: [MS, MS]}


def test_a_completion_counts_as_earlier_by_the_turnaround(a_plan, issue):
    """As far as no row is late for that. Row 5 is a use, which may be past; rows 6 and 7 compute after it."""
    plan = dependent(a_plan(np.arange(8) * 4096, due_ns=0, flags=np.where(np.arange(8) == 5, OMITTED, 0)),
                     after_1=[0, 1, 2, 3, 4, 5, 0, 0], delay_ns=[0, 0, 5000, 20_000, 50_000, 0, 0, 0],
                     behind=[0] * 6 + [1, 2], compute_ns=[0] * 6 + [5000, 50_000])
    _, records = issue(plan, nil_bytes=GIB, turnaround_ns=20_000,
                       simulated=(parse("nil:1GiB,read_latency=100us,clock=virtual"),))
    rows = in_plan_order(records)
    after_ns = rows["submit_ns"][1:] - rows["complete_ns"][0]
    assert after_ns.tolist() == [0, 0, 0, 30_000, 0, 30_000]
    assert (rows["due_ns"] == rows["submit_ns"]).all() and (rows["host_delay_ns"] == 0).all()


def test_rows_in_number_beyond_what_is_known_ahead(a_plan, issue):
    """More rows than are known ahead wait behind one: they come all the same, in bounded memory."""
    count = 5 * BLOCK_ROWS
    back = np.minimum(np.arange(count), DEPENDENCY_REACH)
    plan = dependent(a_plan(np.zeros(count, "i8"), due_ns=0), after_1=back)
    plan["due_ns"] = np.where(np.arange(count) == 0, 20 * MS, -1)
    totals, records = issue(plan, nil_bytes=GIB)
    assert totals["completed_ops"] == count
    assert totals["window_full"] == 1
    rows = in_plan_order(records)
    assert (rows["due_ns"][1:] == rows["complete_ns"][0]).all()


def test_a_dropped_row_does_not_hold_those_behind_it(a_plan, tmp_path, issue):
    drive = tmp_path / "image"
    drive.write_bytes(bytes(1 << 20))
    # A regular file punches holes, so nothing is dropped there; the null target has all commands. Both complete.
    plan = dependent(a_plan(np.arange(3) * 4096, op=[OPS["write"], OPS["discard"], OPS["read"]]), after_1=[0, 1, 1])
    totals, records = issue(plan, target=drive, may_write=True)
    assert totals["completed_ops"] == 3
    assert_dependencies_held(plan, in_plan_order(records))


@pytest.mark.parametrize(("change", "says"), [
    ({"after_1": [0, 2]}, "waits for a row 2 rows back"),
    ({"behind": [0, -1]}, "waits for a row -1 rows back"),
    ({"delay_ns": [0, -5]}, "delay of -5 ns"),
    ({"compute_ns": [0, -7]}, "compute time of -7 ns"),
    ({"delay_cpu_ns": [0, -7]}, "processor time of 0 and -7 ns"),
])
def test_an_invalid_dependency_is_refused(a_plan, issue, change, says):
    plan = dependent(a_plan([0, 4096]))
    with pytest.raises(SafetyError, match=says):
        issue({**plan, **{name: np.array(value) for name, value in change.items()}}, nil_bytes=GIB)


def test_few_rows_of_an_endless_background_are_read_ahead_on_a_virtual_clock(a_plan, run_lanes):
    """A short load took most of its time for 262,000 rows that were never issued."""
    taken = []

    def endless():
        while True:
            due_ns = (np.arange(BLOCK_ROWS) + BLOCK_ROWS * len(taken)) * MS
            taken.append(len(due_ns))
            yield a_plan(np.zeros(BLOCK_ROWS, "i8"), due_ns=due_ns, stream=2)

    load = a_plan(np.arange(50) * 4096, due_ns=np.arange(50) * MS, stream=1)
    totals, _ = run_lanes([Lane([load], 16), Lane(endless(), 4, background=True)],
                          simulated=(parse("nil:1GiB,read_latency=60us,clock=virtual"),))
    assert totals["lanes"][0]["issued_ops"] == 50 and totals["lanes"][1]["issued_ops"] >= 49
    assert len(taken) < 5, "8 blocks are read ahead"


def test_each_lane_keeps_its_own_pace(a_plan, run_lanes):
    """A writer in time beside a reader at a fixed depth: neither waits for the other."""
    at_once = a_plan(np.arange(20 * BLOCK_ROWS) % 1000 * 4096, stream=2)
    for last_ms in (3000, 60_000):  # how far the reader gets until the last write depends on the machine
        timed = a_plan(np.arange(50) * 4096, due_ns=np.append(np.arange(49), last_ms) * MS, stream=1)
        totals, records = run_lanes([Lane([timed], 16), Lane([at_once], 4)])
        first = records["stream"] == 1
        early = (records["complete_ns"][~first] < records["submit_ns"][first].max()).sum()
        if early > BLOCK_ROWS:
            break
    assert early > BLOCK_ROWS, "the reader waited for the last write"
    assert [lane["issued_ops"] for lane in totals["lanes"]] == [50, 20 * BLOCK_ROWS]
    assert (records["submit_ns"][first] >= records["due_ns"][first]).all()
    order = np.argsort(records["source_row"][~first])
    assert (np.diff(records["submit_ns"][~first][order]) >= 0).all()
    assert totals["max_outstanding"] <= 16 + 4


def test_several_threads_share_one_clock(a_plan, run_lanes):
    plans = [a_plan(np.arange(300) * 4096, due_ns=np.arange(300) * 100_000, stream=lane) for lane in range(3)]
    totals, records = run_lanes([Lane([plan], 8, thread) for thread, plan in enumerate(plans)])
    assert totals["threads"] == 3
    assert totals["completed_ops"] == 900
    for lane, plan in enumerate(plans):
        mine = {name: column[records["stream"] == lane] for name, column in records.items()}
        rows = in_plan_order(mine)
        assert np.array_equal(rows["due_ns"], plan["due_ns"])
        assert (rows["submit_ns"] >= plan["due_ns"]).all()


def test_threads_without_a_lane_are_refused(a_plan, run_lanes):
    with pytest.raises(UsageError, match="thread 1 has no lane"):
        run_lanes([Lane([a_plan([0])], 1, 0), Lane([a_plan([0])], 1, 2)])


def test_rows_go_to_the_target_they_name(a_plan, tmp_path, issue):
    images = [tmp_path / "a", tmp_path / "b"]
    for image in images:
        image.write_bytes(bytes(1 << 20))
    plan = {**a_plan(np.arange(100) * 4096, op=OPS["write"]), "target": np.arange(100) % 2}
    totals, records = issue(plan, target=images, may_write=True)
    assert totals["error_ops"] == 0
    assert (records["target"] == records["source_row"] % 2).all()
    for which, image in enumerate(images):
        blocks = np.frombuffer(image.read_bytes(), "u1").reshape(-1, 4096)
        written = np.flatnonzero(blocks.any(1))
        assert written.tolist() == list(range(which, 100, 2))


def test_a_target_that_only_gets_reads_and_flushes_is_opened_read_only(a_plan, tmp_path, issue):
    images = [tmp_path / "written", tmp_path / "read"]
    for image in images:
        image.write_bytes(bytes(1 << 20))
    ops = np.array([OPS["read"], OPS["flush"], OPS["read"], OPS["write"]])
    plan = {**a_plan(np.arange(4) * 4096, op=ops), "target": np.array([1, 1, 1, 0])}
    totals, records = issue(plan, target=images, may_write=(True, False))
    assert totals["error_ops"] == 0 and len(records["op"]) == 4 and any(images[0].read_bytes())
    with pytest.raises(SafetyError, match="row 3 of the plan is a write, and the target is open for reading only"):
        issue({**plan, "target": np.array([0, 0, 0, 1])}, target=images, may_write=(True, False))
    assert not any(images[1].read_bytes())


def test_a_row_for_a_target_that_is_not_there_is_refused(a_plan, issue):
    with pytest.raises(SafetyError, match="target 2 of 2"):
        issue({**a_plan([0, 0]), "target": np.array([1, 2])}, nil_bytes=GIB, nil_targets=2)


def test_the_same_place_on_two_targets_is_no_hazard(a_plan, issue):
    plan = {**a_plan([0, 0], op=OPS["write"]), "target": np.array([0, 1]),
            "captured_ns": np.array([0, 100]), "captured_latency_ns": np.array([50, 50]),
            "idle_removed_ns": np.array([0, 0]), "tid": np.array([-1, -1])}
    assert issue(plan, nil_bytes=GIB, nil_targets=2, may_write=True)[0]["hazard_ops"] == 0


@pytest.mark.parametrize(("ops", "offsets", "captured", "latency", "hazards"), [
    (["write", "write"], [0, 0], [0, 100], [50, 50], 1),      # one after the other, here at once
    (["write", "read"], [0, 4096], [0, 100], [50, 50], 1),    # overlap by half
    (["read", "read"], [0, 0], [0, 100], [50, 50], 0),        # reads harm nobody
    (["write", "write"], [0, 8192], [0, 100], [50, 50], 0),   # neighbors
    (["write", "write"], [0, 0], [0, 100], [150, 50], 0),     # together in the source too
    (["write", "write"], [0, 0], [0, 100], [-1, 50], 0),      # nobody knows
    (["write", "flush"], [0, 0], [0, 100], [50, 50], 0),
    (["discard", "read"], [0, 0], [0, 100], [50, 50], 1),
])
def test_what_counts_as_a_hazard(a_plan, issue, ops, offsets, captured, latency, hazards):
    plan = {**a_plan(offsets, op=[OPS[op] for op in ops], length_bytes=[0 if op == "flush" else 8192 for op in ops]),
            "captured_ns": np.array(captured), "captured_latency_ns": np.array(latency),
            "idle_removed_ns": np.zeros(len(latency)), "tid": np.full(len(latency), -1)}
    totals, records = issue(plan, nil_bytes=GIB, may_write=True)
    assert totals["max_outstanding"] == 2
    assert totals["hazard_ops"] == hazards
    assert ((records["flags"] & FLAGS["hazard"]) != 0).sum() == hazards


@cases(8)
@given(data=st.data())
def test_hazards_are_those_that_the_records_show(a_plan, issue, data):
    count = data.draw(st.integers(1, 150))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    length = random.choice([4096, 8192, 65536, 2 << 20], count)
    plan = {**a_plan(random.integers(0, 40, count) * 4096, op=random.integers(0, 5, count), length_bytes=length),
            "captured_ns": np.cumsum(random.integers(0, 100, count)),
            "captured_latency_ns": random.integers(-1, 200, count), "tid": np.full(count, -1),
            "idle_removed_ns": random.integers(0, 10**12, count)}
    totals, records = issue(plan, nil_bytes=GIB, may_write=True, depth=data.draw(st.integers(1, 30)))
    rows = in_plan_order(records)
    flagged = (rows["flags"] & FLAGS["hazard"]) != 0
    assert totals["hazard_ops"] == flagged.sum()
    assert rows["idle_removed_ns"].tolist() == plan["idle_removed_ns"].tolist()
    start, end = plan["offset_bytes"], plan["offset_bytes"] + plan["length_bytes"]
    begins, ends = plan["captured_ns"], plan["captured_ns"] + plan["captured_latency_ns"]
    known = plan["captured_latency_ns"] >= 0
    for i in range(count):
        others = np.arange(i)
        common = (start[i] < end[others]) & (start[others] < end[i])
        changes = ((plan["op"][others] != OPS["read"]) | (plan["op"][i] != OPS["read"]))
        placed = (plan["op"][others] != OPS["flush"]) & (plan["op"][i] != OPS["flush"])
        apart = (known[others] & (ends[others] <= begins[i])) | (known[i] & (ends[i] <= begins[others]))
        conflicts = common & changes & placed & apart
        # In flight for certain: complete after this one's stamp; perhaps: not complete before it.
        surely = rows["complete_ns"][others] > rows["submit_ns"][i]
        perhaps = rows["complete_ns"][others] >= rows["submit_ns"][i]
        if flagged[i]:
            assert (conflicts & perhaps).any(), i
        elif plan["op"][i] != OPS["flush"]:
            assert not (conflicts & surely).any(), i


def test_an_omitted_row_of_a_plan_without_dependencies_is_refused(a_plan, issue):
    """Only a row that others wait for has a reason to be in the plan."""
    with pytest.raises(SafetyError, match="is omitted, and the plan has no dependencies"):
        issue(a_plan([0], flags=OMITTED), nil_bytes=GIB)
