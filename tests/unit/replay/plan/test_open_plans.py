"""Runs that may end before their plan does: at a time, or with the streams in front of them."""

import numpy as np
import pytest
from fake_engine import replay
from hypothesis import given
from hypothesis import strategies as st

from blkreel.benchmarks.recipe.run_stream import stream_of, survey_of
from blkreel.common.errors import UsageError
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import run_engine
from blkreel.replay.plan.batch import plan_batch
from blkreel.replay.plan.plan import LEAD_NS
from blkreel.replay.run.records import IoChecksum, PrefixChecksum
from blkreel.replay.streams.spec import Bursts, StreamSpec
from blkreel.replay.streams.workload import plan_workload
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

MIB = 1 << 20
MS = 10**6


def batches_of(sizes):
    start = 0
    for size in sizes:
        row = np.arange(start, start + size)
        yield plan_batch(row * 4096, 4096, OPS["read"], source_row=row)
        start += size


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 60), st.data())
def test_the_sum_of_the_first_rows_is_known_wherever_a_plan_is_cut(sizes, kept_rows, data):
    """As long as no more rows were fed beyond the cut than are kept."""
    total = sum(sizes)
    cut = data.draw(st.integers(max(0, total - kept_rows), total))
    watched = PrefixChecksum(kept_rows)
    for _ in watched.sum_up(batches_of(sizes)):
        pass
    expected = IoChecksum()
    for batch in batches_of([cut]):
        expected.add(batch)
    assert watched.of_first(cut) == expected
    assert watched.of_first(total + 5).ios == total


def spec(number=0, **changes):
    return StreamSpec(**{"number": number, "name": f"s{number}", "op": "write", "access": "random",
                         "block_bytes": 4096, "start_bytes": number * MIB, "span_bytes": MIB, "depth": 4,
                         "seed": number, **changes})


def plan_of(specs, stop_ns, target):
    streams = [stream_of(one, stop_ns=stop_ns) for one in specs]
    return plan_workload(streams, target, about={"path": "open"}, stop_ns=stop_ns)


@pytest.fixture
def replayed(tmp_path):
    def run(specs, stop_ns=None, engine=run_engine):
        return replay(plan_of(specs, stop_ns, find_target("nil:64MiB")), tmp_path / "run", engine)

    return run


def test_a_run_that_its_time_ends_is_whole(replayed, tmp_path):
    account = replayed([spec()], stop_ns=50 * MS)
    assert account["completed_ops"] == account["planned_ops"] > 1000
    assert account["as_planned"]
    assert account["partial"] is None
    assert open_trace(tmp_path / "run").table(["submit_ns"])["submit_ns"].to_numpy().max() < 55 * MS


def test_a_run_that_its_volume_ends_before_its_time(replayed):
    account = replayed([spec(volume_bytes=MIB)], stop_ns=10**12)
    assert (account["planned_ops"], account["completed_ops"]) == (256, 256)
    assert account["as_planned"]


def test_what_goes_on_behind_others_ends_with_them(replayed, tmp_path):
    writer = spec(0, background=True, bursts=Bursts(64 << 10, 5 * MS))
    reader = spec(1, op="read", read_percent=100, access="sequential",
                  bursts=Bursts(64 << 10, 10 * MS, first_ns=20 * MS, count=3))
    account = replayed([writer, reader])
    assert account["as_planned"]
    assert account["partial"] is None
    rows = open_trace(tmp_path / "run").table(["stream", "burst", "due_ns"]).to_pandas()
    assert (rows.stream == 1).sum() == 48
    # Bursts at 0, 5, .. 40 ms; the reader's last at 40 ms is done at once.
    written = rows[rows.stream == 0]
    assert 8 <= written.burst.nunique() <= 10
    assert (written.groupby("burst").size() == 16).iloc[:-1].all()


def test_an_engine_that_issues_something_else_is_found_out(replayed):
    """The check must not take for planned whatever was issued."""
    def wrong(options, plan, on_rows, on_note):
        def altered(rows):
            on_rows({**rows, "offset_bytes": np.where(rows["source_row"] == 7, 0, rows["offset_bytes"])})

        return run_engine(options, plan, altered, on_note)

    account = replayed([spec(start_bytes=4096, volume_bytes=MIB)], stop_ns=10**12, engine=wrong)
    assert not account["as_planned"]
    assert any("differ from the plan" in reason["text"] for reason in account["verdict"]["reasons"])


def test_the_survey_of_a_stream_needs_no_pass_over_it():
    survey = survey_of(spec(read_percent=50, volume_bytes=80 * MIB), None)
    assert (survey.extent, survey.ios, survey.reads) == ((0, MIB), 20480, True)
    assert survey.bounded
    assert 40 * MIB <= survey.written_bytes <= 41 * MIB  # at most: the last mix may be of writes first
    assert survey.end_ns is None
    endless = survey_of(spec(), 10**9)
    assert (endless.ios, endless.bounded, endless.discarded_bytes) == (None, False, 0)
    assert endless.written_bytes
    bursts = survey_of(spec(bursts=Bursts(MIB, 10**9, first_ns=5, count=3)), None)
    assert (bursts.ios, bursts.end_ns, bursts.written_bytes) == (768, 2 * 10**9 + 5, 3 * MIB)
    rate = survey_of(spec(rate_iops=1000, volume_bytes=MIB), None)
    assert rate.end_ns == 255 * MS
    discards = survey_of(spec(op="discard", access="extents", lengths_bytes=(4096, 8192), every_ns=MS), None)
    assert (discards.ios, discards.discarded_bytes, discards.written_bytes) == (2, 12288, 0)


@pytest.mark.parametrize(("specs", "most"), [
    ([spec(volume_bytes=8 * MIB), spec(1, read_percent=100)], (8 * MIB, 0)),
    ([spec(volume_bytes=8 * MIB), spec(1)], (None, 0)),
    ([spec(volume_bytes=8 * MIB), spec(1, read_percent=50)], (None, 0)),
])
def test_what_only_time_bounds_is_remembered_as_without_a_bound(specs, most):
    """Otherwise the writes of a killed run count as those of another program once they exceed its plan."""
    assert plan_of(specs, 10**9, find_target("nil:64MiB")).drives[0].max_bytes == most


def test_each_stream_is_a_lane_at_its_pace_and_nothing_is_written_before_it_is_read():
    plan = plan_of([spec(bursts=Bursts(MIB, 10**9, count=3)), spec(1, read_percent=100, depth=2)], None,
                   find_target("nil:64MiB"))
    writer, reader = plan.lanes()
    assert (writer.depth, reader.depth) == (4, 2)
    due_ns = np.concatenate([batch["due_ns"] for batch in writer.batches])
    assert (due_ns - LEAD_NS).tolist() == np.repeat(np.arange(3) * 10**9, 256).tolist()
    assert set(next(iter(reader.batches))["due_ns"]) == {-1}
    assert plan.pace_account()["streams"] == {"1": {"name": "depth", "depth": 2, "factor": None}}
    assert plan.duration_ns is None and not len(plan.drives[0].prefill)
    assert (plan.drives[0].unwritten.bytes, plan.drives[0].unwritten.limit_bytes) == (MIB, 2 * MIB)


def test_a_stream_past_the_end_is_refused(replayed):
    with pytest.raises(UsageError, match="past the end"):
        replayed([spec(start_bytes=64 * MIB)], stop_ns=MS)
