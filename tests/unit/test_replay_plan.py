"""From a trace to a plan: every I/O once, at its time and place."""

import dataclasses

import numpy as np
import pytest

from blkreel.replay.idle import ORIGINAL as ALL_IDLE
from blkreel.replay.idle import parse_idle
from blkreel.replay.pace import ORIGINAL, parse_pace
from blkreel.replay.plan import LEAD_NS, plan_trace
from blkreel.replay.target import find_target
from blkreel.traces.errors import BlkreelError, TraceError, UsageError
from blkreel.traces.reader import Trace, open_trace
from blkreel.traces.schema import FLAGS, OPS
from blkreel.traces.writer import TraceWriter

READ, WRITE, FLUSH, DISCARD = (OPS[name] for name in ("read", "write", "flush", "discard"))


@pytest.fixture
def target(tmp_path):
    with open(tmp_path / "image", "wb") as file:
        file.truncate(1 << 20)
    return find_target(tmp_path / "image")


@pytest.fixture
def trace(tmp_path):
    """trace((submit_ns, offset, length, op, {column: value}), ...) is an open trace."""
    def make(*rows, devices=({"name": "src"},)):
        names = ["submit_ns", "offset_bytes", "length_bytes", "op"]
        columns = {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}
        for name, default in (("latency_ns", 10), ("flags", 0), ("device", 0)):
            columns[name] = np.array([(row[4] if len(row) > 4 else {}).get(name, default) for row in rows])
        path = tmp_path / "t.parquet"
        with TraceWriter(path, force=True) as out:
            out.write(columns)
            out.close({"devices": list(devices)})
        return open_trace(path)

    return make


def planned(plan):
    batches = list(plan.batches())
    return {name: np.concatenate([batch[name] for batch in batches]).tolist() for name in batches[0]}


def ranges_of(placed):
    return [(int(start), int(end)) for part in placed.batches()
            for start, end in zip(part.start, part.end, strict=True)]


def make_plan(trace, target, **options):
    return plan_trace(trace, target, **{"pace": ORIGINAL, "idle": ALL_IDLE} | options)


def test_times_start_at_the_lead_and_rows_keep_their_numbers(trace, target):
    plan = make_plan(trace((5000, 0, 4096, READ), (5100, 8192, 512, WRITE), (9000, 0, 0, FLUSH)), target)
    rows = planned(plan)
    assert rows["due_ns"] == [LEAD_NS, LEAD_NS + 100, LEAD_NS + 4000]
    assert rows["offset_bytes"] == [0, 8192, 0]
    assert rows["length_bytes"] == [4096, 512, 0]
    assert rows["op"] == [READ, WRITE, FLUSH]
    assert rows["source_row"] == [0, 1, 2]
    assert (plan.total_ios, plan.duration_ns, plan.changed_bytes) == (3, 4000, 512)


def test_flags_go_along_but_for_those_of_a_run(trace, target):
    flags = FLAGS["fua"] | FLAGS["queue_full"]
    plan = make_plan(trace((0, 0, 512, WRITE, {"flags": flags})), target)
    assert planned(plan)["flags"] == [FLAGS["fua"]]


def test_depth_has_no_times(trace, target):
    plan = make_plan(trace((0, 0, 512, READ), (100, 0, 512, READ)), target, pace=parse_pace("depth=4", target.drive))
    assert planned(plan)["due_ns"] == [-1, -1]
    assert plan.duration_ns is None


def test_idle_is_taken_out_of_times_only(trace, target):
    rows = [(0, 0, 512, READ), (50_000_000, 512, 512, READ), (50_000_005, 1024, 512, READ)]
    plan = make_plan(trace(*rows), target, idle=parse_idle("cap=25ms"))
    assert planned(plan)["due_ns"] == [LEAD_NS, LEAD_NS + 25_000_010, LEAD_NS + 25_000_015]
    assert plan.survey.removed_ns == 24_999_990
    assert plan.duration_ns == 25_000_015


def test_what_is_read_first_is_written_before(trace, target):
    rows = [(0, 0, 8192, READ), (1, 8192, 4096, WRITE), (2, 8192, 8192, READ), (3, 65536, 4096, DISCARD),
            (4, 65536, 4096, READ)]
    plan = make_plan(trace(*rows), target)
    assert ranges_of(plan.prefill) == [(0, 8192), (12288, 16384)]
    declined = make_plan(trace(*rows), target, prefill=False)
    assert not len(declined.prefill)
    assert declined.unwritten.bytes == plan.prefill.bytes


def test_reads_alone_write_only_by_prefill(trace, target):
    assert make_plan(trace((0, 0, 512, READ)), target).writes
    assert not make_plan(trace((0, 0, 512, READ)), target, prefill=False).writes
    for op in (WRITE, DISCARD, OPS["write_zeroes"]):
        assert make_plan(trace((0, 0, 512, op)), target, prefill=False).writes


def test_a_larger_trace_is_packed_with_its_prefill(trace, target):
    plan = make_plan(trace((0, 1 << 30, 4096, READ), (1, 1 << 40, 512, WRITE), (2, (1 << 30) + 512, 512, READ)), target)
    assert plan.mapping.name == "compact"
    assert planned(plan)["offset_bytes"] == [0, 4096, 512]
    assert ranges_of(plan.prefill) == [(0, 4096)]


def test_a_trace_that_does_not_fit_is_refused(trace, target):
    opened = trace((0, 0, 1 << 20, READ), (1, 1 << 30, 4096, READ))
    with pytest.raises(BlkreelError, match="larger drive"):
        make_plan(opened, target)
    with pytest.raises(BlkreelError, match="--map compact"):
        make_plan(opened, target, wanted_map="identity")


def test_small_blocks_grow_on_a_drive_with_large_ones(trace, target):
    large = dataclasses.replace(target, block_bytes=4096)
    plan = make_plan(trace((0, 512, 512, READ), (1, 3584, 1024, WRITE), (2, 4096, 4096, READ)), large)
    rows = planned(plan)
    assert rows["offset_bytes"] == [0, 0, 4096]
    assert rows["length_bytes"] == [4096, 8192, 4096]
    assert plan.survey.rounded == 2


def test_io_of_nothing(trace, target):
    """An empty write that flushes is a flush; what else moves nothing is left out, and counted."""
    plan = make_plan(trace((0, 0, 0, WRITE, {"flags": FLAGS["preflush"]}), (1, 0, 0, READ), (2, 0, 512, READ)), target)
    rows = planned(plan)
    assert rows["op"] == [FLUSH, READ]
    assert rows["source_row"] == [0, 2]
    assert plan.survey.left_out == 1


def test_a_trace_without_io(trace, target, tmp_path):
    with pytest.raises(TraceError, match="nothing to replay"):
        make_plan(trace((0, 0, 0, READ)), target)
    with TraceWriter(tmp_path / "empty.parquet") as out:
        out.close({})
    with pytest.raises(TraceError, match="holds no I/O"):
        make_plan(open_trace(tmp_path / "empty.parquet"), target)


def test_the_trace_is_not_its_own_target(trace, tmp_path):
    opened = trace((0, 0, 512, WRITE))
    before = opened.path.read_bytes()
    with pytest.raises(UsageError, match="the trace itself"):
        make_plan(opened, find_target(opened.path))
    assert opened.path.read_bytes() == before


def test_one_device_is_chosen_of_several(trace, target):
    opened = trace((0, 0, 512, READ, {"device": 0}), (7, 512, 512, READ, {"device": 1}),
                   (9, 1024, 512, READ, {"device": 1}), devices=({"name": "nvme0n1"}, {"name": "sda"}))
    with pytest.raises(UsageError, match=r"0 \(nvme0n1, 1 I/Os\), 1 \(sda, 2 I/Os\).*--device 0"):
        make_plan(opened, target)
    rows = planned(make_plan(opened, target, device=1))
    assert rows["source_row"] == [1, 2]
    assert rows["due_ns"] == [LEAD_NS, LEAD_NS + 2]
    with pytest.raises(UsageError, match="no I/O of device 5"):
        make_plan(opened, target, device=5)


def test_batches_do_not_show(trace, target, monkeypatch):
    random = np.random.default_rng(5)
    submit_ns = np.sort(random.integers(0, 10**6, 500))
    rows = [(int(t), int(random.integers(0, 200)) * 4096, 4096, int(random.integers(0, 2)),
             {"latency_ns": int(random.integers(-1, 3000))}) for t in submit_ns]
    opened = trace(*rows)
    whole = make_plan(opened, target, idle=parse_idle("cap=1us"))
    expected = planned(whole)
    batches = Trace.batches
    monkeypatch.setattr(Trace, "batches", lambda self, columns=None, rows=0: batches(self, columns, 7))
    parts = make_plan(opened, target, idle=parse_idle("cap=1us"))
    assert planned(parts) == expected
    assert parts.survey.removed_ns == whole.survey.removed_ns
    assert ranges_of(parts.prefill) == ranges_of(whole.prefill)


@pytest.mark.parametrize("text", ["", "fast", "depth", "depth=0", "depth=-1", "depth=100000", "x", "depth=4 "])
def test_words_that_are_no_pace(text, target):
    with pytest.raises(UsageError) as error:
        parse_pace(text, target.drive)
    assert error.value.remedy
