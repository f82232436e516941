"""Generated I/O: every block where it belongs, and as often."""

import numpy as np
import pytest
from columns import joined
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import UsageError
from blkreel.replay.plan.extents import Extents
from blkreel.replay.prepare.states import STATES, state_for
from blkreel.replay.streams.rules import Permutation, ranges
from blkreel.traces.format.schema import OPS

GIB = 1 << 30


def test_a_permutation_is_not_the_identity_and_follows_its_seed():
    index = np.arange(100_000)
    one, other = Permutation(100_000, 1)(index), Permutation(100_000, 2)(index)
    assert (one != other).mean() > 0.99
    assert (np.diff(one) == 1).mean() < 0.01
    assert abs(np.corrcoef(index, one)[0, 1]) < 0.02
    assert (one == Permutation(100_000, 1)(index)).all()


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=10), st.integers(1, 20))
def test_ranges_cover_their_extents_once_and_in_order(pairs, chunk):
    start = np.array([p[0] for p in pairs]) * 512
    extents = Extents.of(start, start + np.array([p[1] for p in pairs]) * 512)
    plan = joined(ranges(extents, "write", chunk * 512))
    assert (np.diff(plan["offset_bytes"]) > 0).all()
    assert plan["length_bytes"].max() <= chunk * 512
    assert plan["length_bytes"].sum() == extents.bytes
    end = plan["offset_bytes"] + plan["length_bytes"]
    assert Extents.of(plan["offset_bytes"], end).start.tolist() == extents.start.tolist()
    assert set(plan["op"]) == {OPS["write"]}
    assert set(plan["due_ns"]) == {-1}


@pytest.mark.parametrize("capacity", [64 << 20, GIB, 256 * GIB, 4096 * GIB])
def test_the_client_state_has_the_fractions_of_the_method(capacity):
    state = state_for("client", capacity, 512, seed=1)
    erase, fill, random, rest = state.steps
    assert erase.total_bytes == capacity
    assert erase.erases
    assert 0.949 < fill.total_bytes / capacity <= 0.95
    assert random.total_bytes == min(8 * GIB, capacity // 32)
    assert rest.rest_ns == int(300e9 * min(1, capacity / (256 * GIB)))
    assert state.scale == min(1, capacity / (256 * GIB))


@pytest.mark.parametrize(("name", "steps", "written"), [
    ("fresh", ["erasing"], 0),
    ("full", ["erasing", "filling"], GIB),
    ("enterprise", ["erasing", "filling", "writing at random"], 2 * GIB),
    ("op25", ["erasing", "filling"], GIB * 3 // 4),
    ("pts", ["erasing", "filling", "filling", "settling"], 2 * GIB + GIB // 16),
    ("enterprise+op25", ["erasing", "filling", "writing at random"], GIB * 3 // 2),
])
def test_the_other_states(name, steps, written):
    state = state_for(name, GIB, 512, seed=1)
    assert [step.what for step in state.steps] == steps
    assert sum(step.total_bytes for step in state.steps if not step.erases) == written
    for step in state.steps[1:]:
        plan = joined(step.plan(0))
        assert plan["length_bytes"].sum() == step.total_bytes
        assert (plan["offset_bytes"] + plan["length_bytes"]).max() <= state.filled_bytes


@pytest.mark.parametrize("capacity", [20 * 10**6 // 4096 * 4096, GIB + 4096, 256 * GIB, 1000204886016])
def test_a_quarter_is_spare(capacity):
    for name in ("op25", "client+op25", "pts+op25", "enterprise+op25"):
        state = state_for(name, capacity, 512, seed=1)
        assert state.usable_bytes == capacity * 3 // 4 // 4096 * 4096
        assert int(state.filled.end.max()) <= state.usable_bytes
        assert state.steps[0].total_bytes == capacity, "all of it is erased"
    assert state_for("full", capacity, 512, seed=1).usable_bytes == capacity


def test_only_the_spans_of_data_are_written():
    state = state_for("data", GIB, 512, seed=1, spans=[(300 << 20, (400 << 20) + 1), (0, 1 << 20)])
    erase, fill = state.steps
    plan = joined(fill.plan(0))
    assert plan["offset_bytes"].min() == 0
    assert plan["length_bytes"].sum() == fill.total_bytes == (101 << 20) + 4096
    assert state.filled_bytes == 1 << 20
    assert state.scale == 1.0, "the spans are as large as was said"
    assert state.filled.end.tolist() == [1 << 20, (400 << 20) + 4096]
    assert state_for("data", GIB, 512, seed=1, spans=[(4096, 8192)]).filled_bytes == 0
    assert state_for("data+op25", GIB, 512, seed=1, spans=[(0, 3 * GIB // 4)]).filled_bytes == 3 * GIB // 4


@pytest.mark.parametrize(("name", "more", "words"), [
    ("data", {}, "--span"),
    ("full", {"spans": [(0, 4096)]}, "takes no spans"),
    ("data", {"spans": []}, "empty"),
    ("data", {"spans": [(8192, 4096)]}, "empty"),
    ("data", {"spans": [(-4096, 4096)]}, "empty"),
    ("data", {"spans": [(0, 2 * GIB)]}, "beyond the usable 1.07 GB"),
    ("data+op25", {"spans": [(0, GIB)]}, "beyond"),
    ("trace", {}, "--trace"),
    ("client", {"trace": {"sha256": "0"}}, "takes no trace"),
    ("client", {"permuted": True}, "no random writes to permute"),
])
def test_words_that_do_not_go_together(name, more, words):
    with pytest.raises(UsageError, match=words):
        state_for(name, GIB, 512, seed=1, **more)


def test_enterprise_by_permutation_takes_each_block_once():
    state = state_for("enterprise", 64 << 20, 512, seed=3, permuted=True)
    offset = joined(state.steps[2].plan(0))["offset_bytes"]
    assert np.sort(offset).tolist() == list(range(0, 64 << 20, 4096))
    again = joined(state_for("enterprise", 64 << 20, 512, seed=3).steps[2].plan(0))["offset_bytes"]
    assert len(np.unique(again)) < len(again)


def test_what_is_issued_tells_preparations_apart():
    def one(name="client", capacity=GIB, seed=1, **more):
        return state_for(name, capacity, 512, seed=seed, **more).identity

    assert one() == one() == one(rest_ns=5), "how long it rests changes no I/O"
    others = [one(), one("full"), one(capacity=2 * GIB), one(seed=2), one("data", spans=[(0, 4096)]),
              one("data", spans=[(0, 8192)]), one("enterprise"), one("enterprise", permuted=True),
              one("trace", trace={"sha256": "a"}), one("trace", trace={"sha256": "b"}), one("full", erase=False)]
    assert all(a != b for at, a in enumerate(others) for b in others[at + 1:])


@pytest.mark.parametrize("name", ["resume", "", "fresh+op25", "client+x", "op25+op25", "trace+op25"])
def test_a_state_that_is_none(name):
    with pytest.raises(UsageError) as error:
        state_for(name, GIB, 512, seed=1)
    assert all(known in error.value.remedy for known in STATES) or "did you mean" in error.value.remedy
