"""A run of generated streams, each at its own pace."""

import numpy as np
import pytest
from columns import joined
from empty_image import empty_image

from blkreel.common.errors import UsageError
from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.batch import plan_batch
from blkreel.replay.plan.pace import ORIGINAL, Pace, scaled
from blkreel.replay.plan.plan import LEAD_NS
from blkreel.replay.streams.workload import Stream, plan_workload
from blkreel.traces.format.schema import OPS

MIB = 1 << 20
ABOUT = {"path": "a writer and a reader"}


@pytest.fixture
def target(tmp_path):
    return find_target(empty_image(tmp_path / "image", 8 * MIB))


def writes():
    for burst in range(3):
        at = np.arange(4)
        yield plan_batch(at * 16384, 16384, OPS["write"], due_ns=burst * 10**9 + at * 1000, burst=burst)


def reads():
    yield plan_batch(4 * MIB + np.arange(10) * 65536, 65536, OPS["read"])


def test_each_stream_is_a_lane_at_its_pace(target):
    plan = plan_workload([Stream(0, scaled(2), writes), Stream(1, Pace("depth", 2), reads)], [target], about=ABOUT)
    writer, reader = plan.lanes()
    assert (writer.depth, reader.depth) == (1024, 2)
    rows = joined(writer.batches)
    due_ns = [burst * 500_000_000 + i * 500 for burst in range(3) for i in range(4)]
    assert (rows["due_ns"] - LEAD_NS).tolist() == due_ns
    assert rows["burst"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    rows = joined(reader.batches)
    assert (rows["due_ns"] == -1).all()
    assert (rows["stream"] == 1).all()
    account = plan.pace_account()
    assert (account["name"], account["factor"]) == ("scaled", 2)
    assert account["streams"] == {"1": {"name": "depth", "depth": 2, "factor": None}}
    assert plan.duration_ns is None
    assert plan.total_ios == 22


def test_what_any_stream_reads_is_written_before(target):
    plan = plan_workload([Stream(0, ORIGINAL, writes), Stream(1, ORIGINAL, reads)], [target], about=ABOUT)
    assert (plan.drives[0].prefill.bytes, plan.drives[0].prefill.limit_bytes) == (655_360, 4 * MIB + 655_360)
    assert plan.drives[0].changed_bytes == 12 * 16384
    assert plan.duration_ns == 2 * 10**9 + 3000
    declined = plan_workload([Stream(1, ORIGINAL, reads)], [target], about=ABOUT, prefill=False)
    assert not len(declined.drives[0].prefill)
    assert declined.drives[0].unwritten.bytes == 655_360
    assert not declined.writes


def test_a_stream_past_the_end_is_refused(target):
    def beyond():
        yield plan_batch(np.array([8 * MIB - 4096]), 8192, OPS["read"])

    with pytest.raises(UsageError, match="stream 3 reaches past the end") as error:
        plan_workload([Stream(3, ORIGINAL, beyond)], [target], about=ABOUT)
    assert error.value.remedy
