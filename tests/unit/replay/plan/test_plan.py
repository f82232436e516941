"""From a trace to a plan: every I/O once, at its time and place."""

import dataclasses

import numpy as np
import pytest
from columns import joined
from empty_image import empty_image
from small_trace import new_trace

from blkreel.common.errors import TraceError, UsageError
from blkreel.replay.drive.target import find_target
from blkreel.replay.drive.write_support import atomic_bytes
from blkreel.replay.plan.pace import ALL_IDLE, ORIGINAL, Pace
from blkreel.replay.plan.plan import LEAD_NS
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.prepare import compares
from blkreel.replay.run import write_flags
from blkreel.replay.run.write_flags import issued_without
from blkreel.traces.format.metadata_types import of_recording
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.format.writer import TraceWriter

READ, WRITE, FLUSH, DISCARD = (OPS[name] for name in ("read", "write", "flush", "discard"))


@pytest.fixture
def target(tmp_path):
    return find_target(empty_image(tmp_path / "image", 1 << 20))


@pytest.fixture
def trace(tmp_path):
    """trace((submit_ns, offset, length, op, {column: value}), ...) is an open trace."""
    def make(*rows, devices=({"name": "src"},), **metadata):
        names = ["submit_ns", "offset_bytes", "length_bytes", "op"]
        columns = {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}
        for name, default in (("latency_ns", 10), ("flags", 0), ("device", 0)):
            columns[name] = np.array([(row[4] if len(row) > 4 else {}).get(name, default) for row in rows])
        return open_trace(new_trace(tmp_path / "t.parquet", {"devices": list(devices), **metadata}, **columns))

    return make


def planned(plan):
    return {name: values.tolist() for name, values in joined(plan.batches()).items()}


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
    assert (plan.total_ios, plan.duration_ns, plan.drives[0].changed_bytes) == (3, 4000, 512)


def test_flags_go_along_but_for_those_of_a_run(trace, target):
    issued = FLAGS["fua"] | FLAGS["hint_extreme"] | FLAGS["atomic"]
    flags = issued | FLAGS["queue_full"] | FLAGS["passthrough"]
    plan = make_plan(trace((0, 0, 512, WRITE, {"flags": flags})), target)
    assert planned(plan)["flags"] == [issued]


def test_writes_that_a_drive_does_not_take_are_stated(trace, target, tmp_path):
    """By the limits in the kernel's description of the drive; a partition begins at a multiple of the least length."""
    block = tmp_path / "block"
    (block / "part").mkdir(parents=True)
    (block / "queue").mkdir()
    for name, value in (("unit_min", 512), ("unit_max", 4096), ("boundary", 0)):
        (block / f"queue/atomic_write_{name}_bytes").write_text(f"{value}\n")
    drive = dataclasses.replace(target, block=block)
    atomic = {"flags": FLAGS["atomic"]}
    plan = make_plan(trace((0, 4096, 4096, WRITE, atomic), (1, 512, 1024, WRITE, atomic), (2, 0, 8192, WRITE, atomic),
                           (3, 0, 512, WRITE, atomic), (4, 0, 8192, WRITE), (5, 3072, 1536, WRITE, atomic)), target)

    def stated(target, **options):
        drives = [dataclasses.replace(part, target=target) for part in plan.drives]
        return list(issued_without(dataclasses.replace(plan, drives=tuple(drives)), **options))

    assert stated(drive) == [f"{target.path}: 3 atomic writes are issued as plain ones: the drive has those of 512 to "
                             "4,096 bytes, powers of two at a multiple of it"]
    assert stated(drive, passthrough=True) == [
        f"{target.path}: 5 atomic writes are issued as plain ones: --passthrough has neither"]
    part = dataclasses.replace(drive, partition="part", block=block / "part")
    for start, limits in ((7, (512, 4096)), (8, (512, 4096))):
        (block / "part/start").write_text(str(start))
        assert atomic_bytes(part) == limits
    (block / "queue/atomic_write_boundary_bytes").write_text("4096")
    (block / "part/start").write_text("7")
    assert atomic_bytes(part) == atomic_bytes(target) == (0, 0)


def test_commands_that_a_trace_does_not_have_are_stated(trace, target):
    """A program copied past the block layer."""
    plan = make_plan(trace((0, 0, 4096, READ), ledger={"commands_unseen": 3, "uses_lost": 2}, emulated=[]), target)
    line, = issued_without(plan)
    assert line == (f"{plan.trace.name}: 3 commands that programs passed to the drive are not in the trace and not "
                    "issued (such as copy, deallocate, unmap)")
    source = plan.source()
    assert (source["commands_unseen"], source["uses_lost"], source["emulated"]) == (3, 2, [])
    recording = of_recording({"run": {"source": source, "emulated": ["that of the run"]}})
    assert recording["ledger"]["uses_lost"] == 2 and recording["emulated"] == ["that of the run"]
    assert list(issued_without(make_plan(trace((0, 0, 4096, READ), ledger={"commands_unseen": 0}), target))) == []


@pytest.mark.parametrize(("passthrough", "most_bytes", "why"), [
    (False, 524288, "only --passthrough issues them"), (True, 0, "the drive has no such command"),
    (True, 524288, None)])
def test_what_becomes_of_verify_and_compare_is_stated(trace, target, monkeypatch, passthrough, most_bytes, why):
    """Both read, so blocks that they alone name are written beforehand; neither changes the drive."""
    monkeypatch.setattr(write_flags, "verify_bytes", lambda target: most_bytes)
    for module in (write_flags, compares):
        monkeypatch.setattr(module, "has_compare", lambda target: most_bytes > 0)
    verify, compare = OPS["verify"], OPS["compare"]
    plan = make_plan(trace((0, 0, 4096, verify), (1, 8192, 4096, verify), (2, 65536, 512, compare)), target)
    assert list(issued_without(plan, passthrough=passthrough)) == (
        [f"{target.path}: 2 verify commands are not issued: {why}",
         f"{target.path}: 1 compare commands are not issued: {why}"] if why else
        [f"{target.path}: the data of compare commands, 512 B, are read from the drive before the run: its cache may "
         "hold them"])
    assert not plan.drives[0].survey.changes_drive()
    assert plan.drives[0].survey.read_first.bytes >= 8704


PREFLUSH, FUA = FLAGS["preflush"], FLAGS["fua"]


@pytest.mark.parametrize(("device", "metadata", "left"), [
    ({"layer": "request", "fua": False}, {}, 0),
    ({"layer": "request", "fua": True}, {}, FUA),  # the write's own: no flush follows it
    ({"layer": "request", "fua": None}, {}, FUA),
    ({"layer": "request", "kind": "loop"}, {}, 0),  # an earlier trace
    ({"layer": "request", "kind": "disk"}, {}, FUA),
    ({"layer": "bio", "fua": False}, {}, PREFLUSH | FUA),
    ({}, {"capture_layer": "request"}, FUA),  # an import
    ({}, {"capture_layer": "bio"}, PREFLUSH | FUA),
    ({}, {}, PREFLUSH | FUA),
], ids=str)
def test_flushes_that_have_rows_are_not_issued_twice(trace, target, device, metadata, left):
    """A journal's commit on a drive without FUA: a flush, the commit block, a flush. Its row has the flags as well."""
    commit = [(0, 0, 0, FLUSH), (20, 4096, 512, WRITE, {"flags": PREFLUSH | FUA | FLAGS["own"]}), (40, 0, 0, FLUSH)]
    rows = planned(make_plan(trace(*commit, devices=[device], **metadata), target))
    assert rows["flags"] == [0, left | FLAGS["own"], 0]
    assert rows["op"] == [FLUSH, WRITE, FLUSH]


def test_flags_stay_where_the_trace_has_no_rows_of_flushes(trace, target):
    """A slice of the writes alone; and another device of the trace that has such rows."""
    loop = {"kind": "loop", "layer": "request"}
    write = (20, 4096, 512, WRITE, {"flags": PREFLUSH | FUA})
    alone = make_plan(trace(write, devices=[loop]), target)
    assert planned(alone)["flags"] == [PREFLUSH | FUA]
    beside = make_plan(trace(write, (30, 0, 0, FLUSH, {"device": 1}), devices=[loop, loop]), target, device=0)
    assert planned(beside)["flags"] == [PREFLUSH | FUA]


def test_what_is_read_first_is_written_before(trace, target):
    rows = [(0, 0, 8192, READ), (1, 8192, 4096, WRITE), (2, 8192, 8192, READ), (3, 65536, 4096, DISCARD),
            (4, 65536, 4096, READ)]
    plan = make_plan(trace(*rows), target)
    (prefill,) = plan.drives[0].prefill.batches()
    assert (prefill.start.tolist(), prefill.end.tolist()) == ([0, 12288], [8192, 16384])
    declined = make_plan(trace(*rows), target, prefill=False)
    assert not len(declined.drives[0].prefill)
    assert declined.drives[0].unwritten.bytes == plan.drives[0].prefill.bytes


def test_reads_alone_write_only_by_prefill(trace, target):
    assert make_plan(trace((0, 0, 512, READ)), target).writes
    assert not make_plan(trace((0, 0, 512, READ)), target, prefill=False).writes
    for op in (WRITE, DISCARD, OPS["write_zeroes"]):
        assert make_plan(trace((0, 0, 512, op)), target, prefill=False).writes


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
    with pytest.raises(UsageError, match=r"0 \(nvme0n1, 1 I/O\), 1 \(sda, 2 I/Os\).*--device 0"):
        make_plan(opened, target)
    plan = make_plan(opened, target, device=1)
    rows = planned(plan)
    assert rows["source_row"] == [1, 2]
    assert (plan.source()["ios"], plan.source()["rows"]) == (2, 3)
    assert rows["due_ns"] == [LEAD_NS, LEAD_NS + 2]
    with pytest.raises(UsageError, match="no I/O of device 5"):
        make_plan(opened, target, device=5)


def test_a_source_with_a_coarse_clock_is_replayed_without_its_times(trace, target):
    coarse = trace((0, 0, 4096, READ), (1_000_000_000, 8192, 512, READ), clock_resolution_ns=1_000_000_000)
    for pace in (ORIGINAL, Pace("scaled", factor=2), Pace("dependent")):
        with pytest.raises(UsageError, match=r"resolution of 1(\.0*)? s, too coarse to repeat them; .*--pace depth=32"):
            make_plan(coarse, target, pace=pace)
    assert make_plan(coarse, target, pace=Pace("depth", 4)).total_ios == 2
    fine = trace((0, 0, 4096, READ), clock_resolution_ns=1_000_000)
    assert make_plan(fine, target).total_ios == 1


def test_a_source_without_completions_is_not_replayed_at_dependent_pace(trace, target):
    silent = trace((0, 0, 4096, READ, {"latency_ns": -1}), source_lacks=["latency", "thread"])
    with pytest.raises(UsageError, match="recorded no completion.*--pace original"):
        make_plan(silent, target, pace=Pace("dependent"))
    assert make_plan(silent, target).total_ios == 1
