"""The time left of a preparation, by hand."""

import pytest

from blkreel.replay.prepare.precondition import TimeLeft
from blkreel.replay.prepare.resume_point import Record
from blkreel.replay.prepare.states import state_for

GIB = 1 << 30
CAPACITY = 256 * GIB  # so that sizes and times are the method's


def left(name, *, step, done=0, round_=0, rates=None, **more):
    estimate = TimeLeft(state_for(name, CAPACITY, 512, seed=1, **more))
    for kind, rate in (rates or {}).items():
        estimate.add_rate(kind, rate)
    return estimate, Record("key", name, CAPACITY, step=step, round=round_), done


@pytest.mark.parametrize(("given", "seconds", "longer"), [
    # Half of the fill at 1 GiB/s, and nothing else.
    (left("full", step=1, done=128 * GIB, rates={"sequential": GIB}), 128, False),
    # The random writes are not seen yet: as fast as the fill, or slower.
    (left("enterprise", step=1, done=0, rates={"sequential": GIB}), 512, True),
    (left("enterprise", step=2, done=64 * GIB, rates={"sequential": GIB, "random": GIB / 4}), 4 * 192, False),
    # 8 GiB of random writes, and the rest of five minutes.
    (left("client", step=2, done=0, rates={"sequential": GIB, "random": GIB / 2}), 16 + 300, False),
    (left("client", step=3, rates={"sequential": GIB}), 300, False),
    # The second fill, then five rounds of 16 GiB at least; in the fourth of them; beyond the fifth.
    (left("pts", step=2, done=256 * GIB, rates={"sequential": GIB, "random": GIB / 4}), 5 * 64, True),
    (left("pts", step=3, done=8 * GIB, round_=3, rates={"random": GIB / 4}), 32 + 64, True),
    (left("pts", step=3, done=8 * GIB, round_=9, rates={"random": GIB / 4}), 32, True),
    # An erase that was not seen counts for nothing; a rate of one tells nothing of writes.
    (left("full", step=0, done=128 * GIB, rates={"erase": 64 * GIB}), 2, True),
    (left("op25", step=1, done=0, rates={"sequential": GIB}), 192, False),
])
def test_seconds(given, seconds, longer):
    estimate, record, done = given
    near = pytest.approx(seconds, rel=0.06 if record.name == "client" else 1e-6)
    assert estimate.left(record, done) == (near, longer)


def test_in_words():
    estimate, record, done = left("enterprise", step=1, rates={"sequential": GIB})
    assert estimate.words(record, done) == "; at least 8 min 32 s left in all"
    estimate.add_rate("random", GIB)
    assert estimate.words(record, done) == "; 8 min 32 s left in all"
    estimate, record, done = left("enterprise", step=1)
    assert estimate.words(record, done) == "", "nothing was seen yet"
    estimate.add_rate("sequential", 0.0)
    assert estimate.words(record, done) == ""
