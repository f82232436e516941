"""A plan of several lanes: streams at their own paces, devices on one clock, and work shared among threads."""

import numpy as np
import pyarrow as pa
import pytest
from columns import joined
from empty_image import empty_image
from engine_rule import COMPLETIONS, issued
from fake_engine import replay
from small_trace import new_trace

from blkreel.common.errors import UsageError
from blkreel.replay.drive.safety import check_distinct
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import OMITTED
from blkreel.replay.plan import shards
from blkreel.replay.plan.batch import issued_rows
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT, ORIGINAL, Pace, parse_idle, parse_pace, parse_paces, scaled
from blkreel.replay.plan.plan import LEAD_NS, PlannedCounts
from blkreel.replay.plan.planner import plan_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS, RUN_SCHEMA
from blkreel.traces.format.trace import Trace
from blkreel.traces.samples import SAMPLES
from blkreel.traces.transform.anonymize import anonymize
from blkreel.traces.transform.merge import merge
from blkreel.traces.transform.rows import trace_schema
from blkreel.traces.transform.slice import Selection, slice_trace

READ, WRITE = OPS["read"], OPS["write"]
MIB = 1 << 20


@pytest.fixture
def image(tmp_path):
    """image(name, size_bytes) is a target."""
    def make(name="image", size_bytes=64 * MIB):
        return find_target(empty_image(tmp_path / name, size_bytes))

    return make


@pytest.fixture
def trace(tmp_path):
    """trace(submit_ns=[...], ...) is an open trace; columns that are not given are the same in all rows."""
    def make(threads=None, **columns):
        given = pa.schema([(name, pa.int64()) for name in columns])
        schema = RUN_SCHEMA if "stream" in columns else trace_schema(given)
        return open_trace(new_trace(tmp_path / "t.parquet", {"devices": [{"name": "a"}, {"name": "b"}],
                                                             "threads": threads or {}}, schema=schema, **columns))

    return make


def rows_of(lane):
    return joined(lane.batches)


def plan_of(trace, target, pace=ORIGINAL, idle=ALL_IDLE, **options):
    return plan_trace(trace, target, pace=pace, idle=idle, **options)


def account_of(plan):
    """That of its pace, once all rows are planned."""
    counts = PlannedCounts()
    for lane in plan.lanes(counts):
        rows_of(lane)
    return plan.pace_account(counts)


@pytest.mark.parametrize(("factor", "expected"), [(2, [0, 500, 1000]), (0.5, [0, 2000, 4000]), (3, [0, 333, 667])])
def test_a_scaled_replay_divides_all_times(trace, image, factor, expected):
    plan = plan_of(trace(submit_ns=np.array([5, 1005, 2005])), image(), scaled(factor))
    assert (rows_of(plan.lanes()[0])["due_ns"] - LEAD_NS).tolist() == expected
    assert plan.duration_ns == expected[-1]
    assert plan.pace_account()["factor"] == factor


def test_idle_time_is_capped_before_it_is_scaled(trace, image):
    plan = plan_of(trace(submit_ns=np.array([0, 10_100])), image(), scaled(2), parse_idle("cap=1us"))
    assert (rows_of(plan.lanes()[0])["due_ns"] - LEAD_NS).tolist() == [0, 550]


def test_words_of_paces(image):
    drive = image().drive
    assert parse_pace("x1", drive) == parse_pace("original", drive) == ORIGINAL
    assert parse_pace("x.5", drive) == parse_pace("x0.5", drive) == scaled(0.5)
    assert parse_pace("dependent", drive) == DEPENDENT
    assert parse_paces(["1:depth=4", "x2", "3:original"], drive) == (scaled(2), {1: Pace("depth", 4), 3: ORIGINAL})
    assert parse_paces([], drive) == (ORIGINAL, {})
    for words in (["x0"], ["x"], ["x-1"], ["x1e9"], ["xnan"], ["x1001"], ["1:"], ["1:fast"], ["a:original"],
                  ["original", "asap"], ["1:x2", "1:x3"]):
        with pytest.raises(UsageError) as error:
            parse_paces(words, drive)
        assert error.value.remedy, words


def test_a_stream_with_its_own_pace_is_a_lane_of_its_own(trace, image):
    """A writer in time, and a reader that always has four outstanding."""
    stream = np.arange(20) % 3
    opened = trace(submit_ns=np.arange(20) * 1000, stream=stream, op=np.where(stream == 1, READ, WRITE))
    plan = plan_of(opened, image(), stream_paces={1: Pace("depth", 4)})
    timed, reader = plan.lanes()
    assert reader.depth == 4
    assert timed.thread == reader.thread == 0
    read, rest = rows_of(reader), rows_of(timed)
    assert read["source_row"].tolist() == list(range(1, 20, 3))
    assert (read["due_ns"] == -1).all()
    assert sorted(rest["source_row"].tolist()) == [row for row in range(20) if row % 3 != 1]
    assert (rest["due_ns"] == LEAD_NS + rest["source_row"] * 1000).all()
    assert plan.duration_ns is None
    assert plan.pace_account()["streams"] == {"1": {"name": "depth", "depth": 4, "factor": None}}


def test_a_stream_that_is_not_there(trace, image):
    opened = trace(submit_ns=np.arange(3))
    with pytest.raises(UsageError, match="no stream 1.*it has none"):
        plan_of(opened, image(), stream_paces={1: ORIGINAL})
    opened = trace(submit_ns=np.arange(3), stream=np.array([0, 2, 2]))
    with pytest.raises(UsageError, match=r"no stream 1.*it has: 0, 2"):
        plan_of(opened, image(), stream_paces={1: ORIGINAL})


def test_devices_of_one_trace_share_a_clock(trace, image):
    device = np.array([1, 0, 1, 0, 2])
    opened = trace(submit_ns=np.array([0, 10, 400, 10_000, 10_010]), device=device,
                   op=np.array([READ, WRITE, WRITE, WRITE, READ]), offset_bytes=np.array([0, 1 << 40, 4096, 0, 0]))
    small, large = image("small", MIB), image("large")
    plan = plan_of(opened, {0: small, 1: large}, idle=parse_idle("cap=1us"))
    (lane,) = plan.lanes()
    rows = rows_of(lane)
    assert rows["source_row"].tolist() == [0, 1, 2, 3]
    assert rows["target"].tolist() == [1, 0, 1, 0]
    assert (rows["due_ns"] - LEAD_NS).tolist() == [0, 10, 400, 1500], "idle is what both of them idle"
    assert [drive.mapping.name for drive in plan.drives] == ["compact", "identity"]
    assert rows["offset_bytes"].tolist() == [0, 4096, 4096, 0]
    assert [drive.prefill.bytes for drive in plan.drives] == [0, 4096]
    assert plan.total_ios == 4


def test_one_drive_cannot_be_two(image, tmp_path):
    one = image("one")
    (tmp_path / "other-name").hardlink_to(one.path)
    with pytest.raises(UsageError, match="are one drive"):
        check_distinct({0: one, 1: find_target(tmp_path / "other-name")})
    check_distinct({0: one, 1: image("two")})


def test_a_dependent_plan_waits_across_devices(trace, image):
    opened = trace(submit_ns=np.array([0, 150, 300]), device=np.array([0, 1, 0]), tid=5,
                   waited_on=np.array([-1, 0, 1]), think_ns=np.array([0, 50, 50]))
    plan = plan_of(opened, {0: image("a"), 1: image("b")}, DEPENDENT)
    rows = rows_of(plan.lanes()[0])
    assert rows["after_1"].tolist() == [0, 1, 1]
    assert rows["delay_ns"].tolist() == [0, 50, 50]
    alone = plan_of(opened, image("a"), DEPENDENT, device=0)
    counts = PlannedCounts()
    rows = rows_of(alone.lanes(counts)[0])
    assert rows["behind"].tolist() == [0, 1]
    assert rows["delay_ns"].tolist() == [0, 300]
    assert alone.pace_account(counts)["anchored"]["reanchored"] == 1


def test_think_time_is_capped_where_the_drive_idled(trace, image):
    """Compute while another I/O is under way is no idle time, and stays."""
    opened = trace(submit_ns=np.array([0, 50, 4000, 90_000]), latency_ns=np.array([100, 5000, 100, 100]),
                   tid=np.array([1, 2, 1, 1]), waited_on=np.array([-1, -1, 0, 2]),
                   think_ns=np.array([0, 0, 3900, 85_900]))
    rows = rows_of(plan_of(opened, image(), DEPENDENT, parse_idle("cap=1us")).lanes()[0])
    assert rows["delay_ns"].tolist() == [0, 0, 3900, 5050 + 1000 - 4100]


def test_a_trace_that_observed_nothing_is_inferred(trace, image):
    opened = trace(submit_ns=np.array([0, 150, 300]), tid=5)
    plan = plan_of(opened, image(), DEPENDENT)
    assert plan.pace_account()["dependencies"] == "inferred"
    counts = PlannedCounts()
    rows = rows_of(plan.lanes(counts)[0])
    assert rows["after_1"].tolist() == [0, 1, 1]
    assert rows["delay_ns"].tolist() == [0, 50, 50]
    account = plan.pace_account(counts)
    assert account["anchored"] == {"waited": 2, "followed": 0, "caused": 0, "absolute": 1, "reanchored": 0,
                                   "truncated": 0, "windowed": 0, "woken": 0, "used": 0}
    assert account["dependencies_inferred"] == 0.6667
    assert account["dependencies_known"] is None
    list(plan.batches())  # another pass, as for the load time without latency, changes nothing
    assert plan.pace_account(counts) == account


def test_read_ahead_is_counted_of_what_the_load_time_covers(trace, image):
    """Workload I/O of all lanes, and only of plans with dependencies. The trace has no blocked times."""
    own, read_ahead = FLAGS["own"], FLAGS["read_ahead"]
    opened = trace(submit_ns=np.arange(8) * 200, stream=np.array([0, 1] * 4), due_ns=-1, burst=-1, source_row=-1,
                   tid=5, flags=np.array([own | read_ahead] * 3 + [own] * 3 + [read_ahead] * 2))
    assert account_of(plan_of(opened, image(), DEPENDENT, stream_paces={1: DEPENDENT}))["read_ahead"] == {
        "ios": 6, "read_ahead_ios": 3, "blocked_unknown_ios": 3, "in_time_ios": None, "used_by_mapping_ios": 0}
    assert plan_of(opened, image()).pace_account()["read_ahead"] is None


def test_read_ahead_of_a_plan_without_the_writes_is_a_share_of_the_reads(trace, image):
    opened = trace(submit_ns=np.arange(6) * 200, tid=5, op=np.array([0, 1, 1, 0, 1, 1]),
                   flags=np.array([1, 0, 0, 0, 0, 0]) * FLAGS["read_ahead"])
    account = account_of(plan_of(opened, image(), DEPENDENT, without=("writes",)))["read_ahead"]
    assert (account["ios"], account["read_ahead_ios"]) == (2, 1)


@pytest.mark.parametrize(("own", "in_time"), [(FLAGS["own"], 2), (0, 3)])
def test_read_ahead_that_nothing_waited_for_is_counted(trace, image, own, in_time):
    """Rows 1, 3, 4 and 6 are read-ahead; row 5 waits for 3, and row 6 is of another program if any is workload I/O."""
    flags = np.array([0, 1, 0, 1, 1, 0, 1]) * FLAGS["read_ahead"] | np.array([1] * 6 + [0]) * own
    opened = trace(submit_ns=np.arange(7) * 200, tid=5, waited_on=np.array([-1, 0, 0, 2, 2, 3, 3]), flags=flags)
    assert account_of(plan_of(opened, image(), DEPENDENT))["read_ahead"]["in_time_ios"] == in_time


@pytest.mark.parametrize(("ledger", "ios"), [({"uses_mapped": 1}, 1), ({"uses_mapped": 9}, 2), ({}, 0), (None, 0)])
def test_uses_that_the_capture_saw_by_their_mapping_are_counted(trace, image, ledger, ios):
    """Of a slice the ledger has those of the whole recording, and the trace has two uses."""
    opened = trace(submit_ns=np.arange(4) * 200, tid=5, waited_on=np.array([-1, 0, 1, 2]), blocked_ns=0,
                   used_ns=np.array([150, -2, 150, -2]), used_by=np.array([5, -1, 5, -1]), used_think_ns=-1,
                   used_blocked_ns=-1)
    opened.metadata["ledger"] = ledger
    assert account_of(plan_of(opened, image(), DEPENDENT))["read_ahead"]["used_by_mapping_ios"] == ios


@pytest.mark.parametrize(("own", "asleep", "waiting"), [(FLAGS["own"], 0.5, 0.2), (0, 0.3333, 0.1333)])
def test_the_shares_of_sleep_and_waits_are_those_between_the_rows_of_a_thread(trace, image, own, asleep, waiting):
    """Of what the load time covers. Thread 5 sleeps 600 of 1,200 ns and waits 240 for a processor, and thread 6, of
    another program, 0 of 600; its last row has no count. What 5 slept before its first row does not count."""
    opened = trace(submit_ns=np.arange(7) * 200, tid=np.array([5, 6, 5, 5, 6, 6, 5]),
                   waited_on=np.array([-1, -1, 0, 2, 1, 4, 3]),
                   flags=np.array([1, 0, 1, 1, 0, 0, 1]) * own, blocked_ns=0,
                   slept_ns=np.array([50, 9, 350, 450, 9, -1, 650]),
                   runnable_ns=np.array([30, 0, 150, 150, 0, -1, 270]))
    account = account_of(plan_of(opened, image(), DEPENDENT))
    assert (account["asleep_share"], account["waiting_share"]) == (asleep, waiting)
    assert plan_of(opened, image()).pace_account()["asleep_share"] is None


@pytest.mark.parametrize(("changes", "least_ns"), [
    ({}, 400), ({"ledger": {"computed_ns": 4000, "longest_computed_ns": 900}}, 1600), ({"duration_ns": 2400}, 0),
    ({"duration_ns": None}, None), ({"command": None}, None), ({"cpu_count": None}, None),
    ({"command": [], "filters": {"command": True}}, 400), ({"ledger": {}}, None), ({"ledger": None}, None)])
def test_what_a_command_computed_at_least_during_its_ios(trace, image, changes, least_ns):
    """Of 1,600 ns of a capture the I/Os span 1,200; the rest may have been computing before and after."""
    opened = trace(submit_ns=np.arange(7) * 200, tid=5)
    ledger = {"computed_ns": 1000, "longest_computed_ns": 800}
    opened.metadata.update({"command": ["a"], "cpu_count": 2, "duration_ns": 1600, "ledger": ledger} | changes)
    assert plan_of(opened, image()).source()["least_computed_ns"] == least_ns


@pytest.mark.parametrize("make", [
    lambda trace, output: anonymize(trace, output, key=b"k"),
    lambda trace, output: slice_trace(trace, output, Selection(ops=("read",))),
    lambda trace, output: merge([trace, trace], output, align="start", onto_one=True, backgrounds=[1])])
def test_what_is_made_of_a_trace_states_what_its_command_computed(tmp_path, image, make):
    source = open_trace(new_trace(tmp_path / "t.parquet", {
        "command": ["a"], "cpu_count": 2, "ledger": {"computed_ns": 1000, "longest_computed_ns": 800}},
        submit_ns=np.arange(7) * 200, latency_ns=100))
    source.metadata["duration_ns"] = 1600
    make(source, tmp_path / "made.parquet")
    assert plan_of(open_trace(tmp_path / "made.parquet"), image()).source()["least_computed_ns"] == 400


def test_a_dependent_plan_on_several_copies(trace, image):
    opened = trace(submit_ns=np.array([0, 150, 300]), tid=5, waited_on=np.array([-1, 0, 1]),
                   think_ns=np.array([0, 50, 50]))
    plan = plan_of(opened, image(), DEPENDENT, map_name="tile=3")
    rows = rows_of(plan.lanes()[0])
    assert rows["source_row"].tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert rows["after_1"].tolist() == [0] * 3 + [3] * 6
    assert issued(rows, [10] * 9) == [LEAD_NS + at for at in [0] * 3 + [60] * 3 + [120] * 3]


def test_every_row_is_issued_by_one_thread_and_neighbors_by_the_same(trace, image):
    random = np.random.default_rng(3)
    count = 4000
    offset = random.integers(0, 900 * MIB // 4096, count) * 4096
    opened = trace(submit_ns=np.arange(count) * 100, offset_bytes=offset)
    plan = plan_of(opened, image(size_bytes=1024 * MIB), threads=4)
    lanes = plan.lanes()
    assert [lane.thread for lane in lanes] == [0, 1, 2, 3]
    parts = [rows_of(lane) for lane in lanes]
    assert sorted(np.concatenate([part["source_row"] for part in parts]).tolist()) == list(range(count))
    regions = [set((part["offset_bytes"] >> 24).tolist()) for part in parts]
    for part, mine in zip(parts, regions, strict=True):
        assert (np.diff(part["source_row"]) > 0).all()
        assert len(part["op"]) > count / 10
        assert sum(bool(mine & others) for others in regions) == 1


@pytest.mark.parametrize(("pace", "threads", "depths"), [
    (Pace("depth", 10), 3, [4, 3, 3]), (Pace("depth", 2), 4, [1, 1]), (Pace("depth", 1), 4, [1]),
    (ORIGINAL, 2, [1024, 1024])])
def test_threads_share_the_depth(trace, image, pace, threads, depths):
    plan = plan_of(trace(submit_ns=np.arange(9)), image(), pace, threads=threads)
    assert [lane.depth for lane in plan.lanes()] == depths
    assert (plan.pace_account()["threads"]["note"] is None) == (len(depths) == threads)


def test_devices_are_shared_among_threads_before_places(trace, image):
    opened = trace(submit_ns=np.arange(8), device=np.arange(8) % 2)
    plan = plan_of(opened, {0: image("a"), 1: image("b")}, threads=2)
    assert [rows_of(lane)["target"].tolist() for lane in plan.lanes()] == [[0] * 4, [1] * 4]


def test_threads_where_the_intensity_needs_them(trace, image, monkeypatch):
    monkeypatch.setattr(shards.os, "cpu_count", lambda: 8)
    burst = np.concatenate([np.arange(50) * 10**6, 60 * 10**6 + np.arange(12_000) * 500])
    opened = trace(submit_ns=burst, offset_bytes=0)
    assert len(plan_of(opened, image(), threads="auto").lanes()) == 3
    assert len(plan_of(opened, image(), scaled(0.5), threads="auto").lanes()) == 2
    assert len(plan_of(opened, image(), map_name="tile=2", threads="auto").lanes()) == 5
    assert len(plan_of(opened, image(), Pace("depth", 8), threads="auto").lanes()) == 1
    monkeypatch.setattr(shards.os, "cpu_count", lambda: 2)
    assert len(plan_of(opened, image(), threads="auto").lanes()) == 1


def test_threads_are_those_of_the_ios_that_the_plan_issues(trace, image, monkeypatch):
    monkeypatch.setattr(shards.os, "cpu_count", lambda: 8)
    count = 12_000

    def threads(opened, **options):
        return len(plan_of(opened, image(), threads="auto", **options).lanes())

    sparse = trace(submit_ns=np.arange(count) * 10**6, latency_ns=1000, offset_bytes=0)
    assert threads(sparse) == 1
    assert threads(sparse, idle=parse_idle("none")) == 2, "idle time removed: a million I/Os a second"
    # A burst of writes to the second device, beside few reads on both.
    is_burst = np.arange(count) % 100 != 0
    burst = trace(submit_ns=np.arange(count) * 500, offset_bytes=0, op=np.where(is_burst, WRITE, READ),
                  device=np.where(is_burst, 1, np.arange(count) // 100 % 2))
    assert threads(burst, device=1) == 3
    assert threads(burst, device=0) == 1
    assert threads(burst, device=1, without=("writes",)) == 1


@pytest.fixture
def groups_trace(trace):
    """Three programs; the first two waited for each other, the third has two threads of its own."""
    def make(count=600, **more):
        random = np.random.default_rng(7)
        tid = random.choice([1, 2, 3, 4], count)
        group = np.isin(tid, [1, 2])
        waited = np.full(count, -1)
        for row in range(1, count):
            earlier = np.flatnonzero(group[:row] == group[row])[-8:]
            if len(earlier) and random.random() < 0.7:
                waited[row] = random.choice(earlier)
        submit = np.cumsum(random.integers(0, 300, count))
        think = np.where(waited >= 0, submit - submit[waited] - 100, 0)
        return trace(threads={"1": {"pid": 1}, "2": {"pid": 2}, "3": {"pid": 3}, "4": {"pid": 3}}, submit_ns=submit,
                     tid=tid, waited_on=waited, think_ns=think, **more)

    return make


def anchors_by_row(rows):
    """{source row: the source rows that it waits for, and for how long}."""
    source, names = rows["source_row"].tolist(), (*COMPLETIONS, "behind")
    return {one: ({source[i - rows[name][i]] for name in names if rows[name][i]}, int(rows["delay_ns"][i]))
            for i, one in enumerate(source)}


def test_no_dependency_crosses_a_thread(groups_trace, image):
    opened = groups_trace()
    whole = anchors_by_row(rows_of(plan_of(opened, image(), DEPENDENT).lanes()[0]))
    plan = plan_of(opened, image(), DEPENDENT, threads=4)
    parts = [anchors_by_row(rows_of(lane)) for lane in plan.lanes()]
    assert len(parts) == 2
    assert plan.pace_account()["threads"] == {
        "count": 2, "by": "threads", "note": "the trace has 2 groups of threads that did not wait for each other"}
    assert sum(len(part) for part in parts) == len(whole)
    assert parts[0] | parts[1] == whole


def test_a_use_of_pages_is_a_row_that_is_not_issued(trace, image):
    """Thread 2 uses at 700 what thread 1 read at 0."""
    opened = trace(submit_ns=np.array([0, 500, 1000]), latency_ns=100, tid=np.array([1, 2, 2]), waited_on=[-1, 0, -1],
                   think_ns=[0, 400, 0], used_ns=[700, -2, -1], used_by=[2, -1, -1], used_think_ns=[600, -1, -1],
                   used_blocked_ns=[-1, -1, -1])
    counts = PlannedCounts()
    rows = rows_of(plan_of(opened, image(), DEPENDENT).lanes(counts)[0])
    assert ((rows["flags"] & OMITTED) != 0).tolist() == [False, False, True, False]
    assert (rows["due_ns"] - LEAD_NS).tolist() == [0, 500, 700, 1000]
    assert (rows["after_4"][2], rows["behind"].tolist(), rows["compute_ns"][2]) == (2, [0, 0, 1, 1], 200)
    assert counts.dependencies[0]["used"] == 1 and len(issued_rows(rows)["op"]) == 3
    plan = plan_of(opened, image(), DEPENDENT, threads=2)
    assert len(plan.lanes()) == 1, "the use joins both threads"
    original = rows_of(plan_of(opened, image()).lanes()[0])
    assert len(original["op"]) == 3


def test_what_waits_for_all_stays_on_one_thread(groups_trace, trace, image):
    plan = plan_of(groups_trace(flags=FLAGS["own"]), image(), DEPENDENT, threads=2)
    assert len(plan.lanes()) == 1
    assert "waited for each other" in plan.pace_account()["threads"]["note"]
    opened = trace(submit_ns=np.arange(4) * 1000, tid=np.array([1, 2, 1, 2]))
    assert "inferred" in plan_of(opened, image(), DEPENDENT, threads=2).pace_account()["threads"]["note"]


@pytest.mark.parametrize("options", [{}, {"threads": 3}, {"pace": DEPENDENT}, {"pace": DEPENDENT, "threads": 3}])
def test_batches_do_not_show(groups_trace, image, monkeypatch, options):
    opened, target = groups_trace(), image()
    expected = [rows_of(lane) for lane in plan_of(opened, target, **options).lanes()]
    batches = Trace.batches
    monkeypatch.setattr(Trace, "batches", lambda self, columns=None, rows=0: batches(self, columns, 7))
    parts = [rows_of(lane) for lane in plan_of(opened, target, **options).lanes()]
    for one, other in zip(expected, parts, strict=True):
        assert all(one[name].tolist() == other[name].tolist() for name in one.keys() | other.keys())


# Least share of I/Os that wait for another one. Each large read of a model is several I/Os of one thread, which waits
# only for the last of them.
KNOWN = {"model-load": 0.4, "model-load-direct": 0.02}


@pytest.mark.parametrize(("name", "idle"), [(name, ("original", "cap=25ms")[index % 2])
                                            for index, name in enumerate(SAMPLES)])
def test_a_drive_like_the_captured_one_gives_the_times_of_a_shipped_trace_back(name, idle):
    opened = open_trace(f"sample:{name}")
    plan = plan_of(opened, find_target("nil:1TiB"), DEPENDENT, parse_idle(idle), device=0)
    counts = PlannedCounts()
    rows = rows_of(plan.lanes(counts)[0])
    captured = rows_of(plan_of(opened, find_target("nil:1TiB"), ORIGINAL, parse_idle(idle), device=0).lanes()[0])
    is_io = rows["flags"] & OMITTED == 0  # the others are uses of pages
    due_ns, at_once = (np.array(issued(rows, latency_ns))[is_io] for latency_ns in (
        rows["captured_latency_ns"], np.zeros(len(rows["op"]), np.int64)))
    # A use whose read completed while its thread computed since another completion is due later by that much
    # (docs/replay.md): exact without uses, within 0.1 % with them.
    late_ns = due_ns - captured["due_ns"]
    assert late_ns.min() >= 0 and late_ns.max() <= (0 if is_io.all() else 1e-3 * captured["due_ns"].max())
    assert (at_once <= captured["due_ns"]).all()
    assert at_once.max() < captured["due_ns"].max(), "on a drive that takes no time it is faster"
    account = plan.pace_account(counts)
    assert account["dependencies"] == "observed"
    assert account["dependencies_known"] > KNOWN.get(name, 0.5)
    assert account["anchored"]["absolute"] < len(at_once) / 10


@pytest.mark.parametrize(("options", "lanes"), [
    ({"threads": 2}, 2), ({"pace": DEPENDENT, "threads": 3}, 2), ({"pace": Pace("depth", 7), "threads": 3}, 3),
    ({"pace": DEPENDENT, "stream_paces": {1: Pace("depth", 2), 2: scaled(3)}}, 3)])
def test_a_run_of_several_lanes_is_as_planned(groups_trace, tmp_path, options, lanes):
    opened = groups_trace(**({"stream": np.arange(600) % 3} if "stream_paces" in options else {}))
    plan = plan_of(opened, find_target("nil:1GiB"), **options)
    assert len(plan.lanes()) == lanes
    account = replay(plan, tmp_path / "run", last_use=True)
    assert account["as_planned"]
    assert len(account["engine"]["lanes"]) == lanes
    rows = open_trace(tmp_path / "run").table()["source_row"].to_numpy()
    assert sorted(rows.tolist()) == list(range(600))


def test_the_time_of_what_was_captured_is_told_without_that_of_others(trace, tmp_path):
    own = np.array([0, FLAGS["own"], FLAGS["own"], 0])
    opened = trace(submit_ns=np.array([0, 1, 3, 40]) * 10**6, flags=own, tid=np.array([1, 2, 2, 3]))
    for pace in (ORIGINAL, DEPENDENT):
        plan = plan_of(opened, find_target("nil:1GiB"), pace)
        account = replay(plan, tmp_path / pace.name)
        rows = open_trace(tmp_path / pace.name).table().to_pandas().set_index("source_row")
        assert account["own_wall_ns"] == (rows["submit_ns"] + rows["latency_ns"])[2] - rows["submit_ns"][1]
        assert account["wall_ns"] > account["own_wall_ns"]


def test_lanes_without_rows_are_no_harm(trace, tmp_path):
    opened = trace(submit_ns=np.arange(50) * 1000, offset_bytes=0)
    plan = plan_of(opened, find_target("nil:1GiB"), threads=5)
    account = replay(plan, tmp_path / "run")
    assert account["as_planned"]
    assert sorted(lane["planned_ops"] for lane in account["engine"]["lanes"]) == [0, 0, 0, 0, 50]
