"""Reading back: what is not as it was written is found, wherever it lies."""

import numpy as np
import pytest
from cases import cases
from empty_image import empty_image
from hypothesis import given
from hypothesis import strategies as st
from quiet import progress

from blkreel.common.errors import BlkreelError
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import EngineOptions, Lane, Payload, run_engine
from blkreel.replay.plan.extents import Extents, MappedBlocks
from blkreel.replay.prepare import resume_point, states, verify
from blkreel.replay.prepare.precondition import Preparation
from blkreel.replay.prepare.states import state_for
from blkreel.replay.streams.rules import ranges
from blkreel.traces.blocksets.block_set import BlockSet

MIB = 1 << 20
SIZE = 16 * MIB


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    """Rates of this machine are steady only by chance."""
    monkeypatch.setattr(states, "_PTS_ROUNDS", 5)


@pytest.fixture
def image(tmp_path):
    return empty_image(tmp_path / "image", SIZE)


def written(image, extents, **shares):
    """Through the real engine."""
    with held(find_target(image)) as claim:
        totals = run_engine(EngineOptions(claims=[claim], may_write=True, payload=Payload(**shares)),
                            [Lane(ranges(extents, "write", 128 << 10), 8)], lambda rows: None, lambda note: None)
    assert totals["bytes"] == {"write": extents.bytes}


def extents_of(*pairs):
    pairs = np.array(pairs, np.int64)
    return Extents.of(pairs[:, 0], pairs[:, 1])


def spoil(image, offset, data=b"\0" * 4096):
    with open(image, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("shares", [{}, {"compressible_percent": 60, "duplicates_percent": 50}])
def test_what_the_engine_writes_is_found_as_written(image, shares):
    extents = extents_of((0, 4 * MIB), (9 * MIB + 512, 9 * MIB + 512 + 5 * 4096 + 1024))
    written(image, extents, **shares)
    found = verify.verify(find_target(image), extents, Payload(**shares), 1, progress, SIZE)
    assert found.blocks == 4 * MIB // 4096 + 6
    assert found.unwritten == "12.6 MB of unwritten space read as zeros"


@pytest.mark.parametrize(("offset", "data"), [
    (0, b"\0" * 4096), (2 * MIB, b"\xff" * 4096), (4 * MIB - 4096, b"\0" * 16), (9 * MIB + 20 * 4096, b"\0" * 1024)])
def test_one_block_that_is_something_else(image, offset, data):
    """The first, the last, one in the middle, the short one at the end of an extent: of 1,045 all are read."""
    extents = extents_of((0, 4 * MIB), (9 * MIB, 9 * MIB + 20 * 4096 + 1024))
    written(image, extents)
    spoil(image, offset, data)
    with pytest.raises(BlkreelError, match=f"1 of 1,045 blocks .* the first at offset {offset:,};"):
        verify.verify(find_target(image), extents, Payload(), 1, progress)


def test_a_block_that_went_to_another_place(image):
    extents = extents_of((0, 4 * MIB))
    written(image, extents)
    spoil(image, MIB, image.read_bytes()[3 * MIB:3 * MIB + 4096])
    with pytest.raises(BlkreelError, match="the first at offset 1,048,576"):
        verify.verify(find_target(image), extents, Payload(), 1, progress)


def test_a_copy_where_there_are_none(image):
    """Duplicates are no block's own; without them such a stamp is as wrong as any."""
    extents = extents_of((0, 4 * MIB))
    written(image, extents, duplicates_percent=100)
    verify.verify(find_target(image), extents, Payload(duplicates_percent=100), 1, progress)
    with pytest.raises(BlkreelError, match="1,024 of 1,024"):
        verify.verify(find_target(image), extents, Payload(), 1, progress)


def test_one_in_a_hundred_is_found_among_many(image):
    """4,096 blocks, of which 3,000 are read: that none of 41 is among them has a chance of less than 1e-23."""
    extents = extents_of((0, SIZE))
    written(image, extents)
    for block in range(50, 4096, 100):
        spoil(image, block * 4096)
    with pytest.raises(BlkreelError, match=r"\d+ of 3,00\d blocks"):
        verify.verify(find_target(image), extents, Payload(), 1, progress)


def test_old_data_beyond_is_a_note(image):
    extents = extents_of((0, 8 * MIB))
    image.write_bytes(b"\xee" * (14 * MIB) + bytes(2 * MIB))
    written(image, extents)
    unwritten = verify.verify(find_target(image), extents, Payload(), 1, progress, SIZE).unwritten
    assert unwritten.endswith("of 300 blocks in 8.39 MB of unwritten space hold old data")
    assert 200 < int(unwritten.split()[0]) < 250, "6 MiB of 8"


EXTENTS = st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 900)), min_size=1, max_size=30)


@pytest.mark.parametrize("most", [30, 3000])
@cases(20)
@given(parts=EXTENTS, seed=st.integers(0, 9))
def test_samples_are_blocks_of_the_extents_with_both_ends_of_each(most, parts, seed):
    start = np.array([p[0] for p in parts]) * 512
    extents = Extents.of(start, start + np.array([p[1] for p in parts]) * 512)
    for blocks in (extents, MappedBlocks(BlockSet.of(extents.start, extents.end))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verify, "SAMPLES", most)
            at, length = verify.samples(blocks, seed)
        assert (np.diff(at) > 0).all()
        own = np.searchsorted(extents.start, at, "right") - 1
        assert ((at - extents.start[own]) % 4096 == 0).all()
        assert (at + length <= extents.end[own]).all()
        assert ((length == 4096) | (at + length == extents.end[own])).all()
        assert set(extents.start.tolist()) <= set(at.tolist())
        assert set(extents.end.tolist()) <= set((at + length).tolist())
        pieces = int((-(-(extents.end - extents.start) // 4096)).sum())
        assert min(pieces, most) <= len(at) <= min(pieces, most + 2 * len(extents))


def test_samples_lie_all_over():
    at, _ = verify.samples(extents_of((0, 1 << 40)), 1)
    share, _ = np.histogram(at, 10, (0, 1 << 40))
    assert share.min() > 200, "of 300 on average"


def test_extents_without_number_cost_no_more(monkeypatch):
    monkeypatch.setattr(verify, "SAMPLES", 10)
    start = np.arange(50_000) * 16384
    at, _ = verify.samples(Extents(start, start + 4096), 1)
    assert 1000 <= len(at) <= 1010


def test_a_drive_that_loses_a_write_is_not_in_the_state(image):
    """What fails is the preparation: it must not be remembered, nor gone on with."""
    target = find_target(image)

    def loses_one(options, plan, on_rows, on_note):
        totals = run_engine(options, plan, on_rows, on_note)
        spoil(image, 4096)
        return totals

    state = state_for("full", SIZE, 512, seed=1)
    with pytest.raises(BlkreelError, match="differ from what was written, the first at offset 4,096"):
        for seed in range(20):  # among 4,096 blocks it may be missed once
            Preparation(target, state, seed, progress, engine=loses_one).run()
    assert drive_state.load(target).name is None
    assert "first at offset 4,096" in drive_state.load(target).notes[0]
    assert resume_point.load(target) is None


def test_what_was_read_back_is_remembered(image):
    target = find_target(image)
    prepared = Preparation(target, state_for("op25", SIZE, 512, seed=1), 1, progress).run()
    assert prepared.verified_blocks >= verify.SAMPLES
    assert "4.19 MB of unwritten space read as zeros" in prepared.notes
    assert drive_state.load(target) == prepared
    fresh = Preparation(target, state_for("fresh", SIZE, 512, seed=1), 1, progress).run()
    assert fresh.verified_blocks == 0
    assert fresh.notes == ["16.8 MB of unwritten space read as zeros"]


def test_a_stamp_names_its_run():
    """As payload.c makes them."""
    seeds = [1, 2, 3, 2**63 + 5]
    for run, seed in enumerate(seeds):
        numbers = [1, 2, 77, 10**9, 2**64 - 1, 2**64 - 200]
        counters = np.array([verify.mixed(number ^ verify.mixed(seed)) for number in numbers], np.uint64)
        assert verify.run_of(counters, seeds).tolist() == [run] * len(numbers)
        assert verify.run_of(counters, seeds[:run]).tolist() == [-1] * len(numbers)
    assert verify.run_of(np.array([0, 1, 2**64 - 1], np.uint64), seeds).tolist() == [-1] * 3


class Loses:
    """The real engine on a drive that loses all writes of some of the engine's runs, and says they are done."""

    def __init__(self, image, lost_runs):
        self.image, self.lost_runs, self.runs = image, lost_runs, 0

    def __call__(self, options, plan, on_rows, on_note):
        before = self.image.read_bytes() if self.runs in self.lost_runs else None
        totals = run_engine(options, plan, on_rows, on_note)
        if before:
            self.image.write_bytes(before)
        self.runs += 1
        return totals


@pytest.mark.parametrize(("name", "lost_runs", "words"), [
    ("client", [2], r"\d+ of 3,00\d blocks .* the first at offset 0;"),
    ("enterprise", [2], r"0 % of the blocks read back from .* random writes, instead of 63 %"),
    ("permuted", [2], r"3,00\d of 3,00\d blocks .* the first at offset 0;"),
    ("pts", [2], r"\d+ of 3,00\d blocks"),
    ("pts", range(4, 40), r"6 % of the blocks read back from .* random writes, instead of \d\d %"),
])
def test_overwriting_that_was_lost_shows(image, name, lost_runs, words):
    """What lies there then is of the fill: the right place, but not the last that was written to it."""
    state = state_for("enterprise" if name == "permuted" else name, SIZE, 512, seed=1, rest_ns=0,
                      permuted=name == "permuted")
    with pytest.raises(BlkreelError, match=words):
        Preparation(find_target(image), state, 1, progress, engine=Loses(image, lost_runs)).run()


@pytest.mark.parametrize(("name", "shares"), [("pts", {}), ("client+op25", {"duplicates_percent": 50}),
                                              ("enterprise+op25", {"duplicates_percent": 100})])
def test_nothing_is_missed_where_nothing_was_lost(image, name, shares):
    state = state_for(name, SIZE, 512, seed=1, rest_ns=0)
    Preparation(find_target(image), state, 1, progress, Payload(**shares)).run()


def test_what_an_earlier_preparation_left_shows(image):
    """Another seed, on a drive that was not erased and loses the fill: each block's place is right."""
    target, state = find_target(image), state_for("full", SIZE, 512, seed=1)
    Preparation(target, state, 1, progress).run()
    with pytest.raises(BlkreelError, match="of 3,00"):
        Preparation(target, state, 50, progress, engine=Loses(image, [0]), erase="none").run()
