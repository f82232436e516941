"""Preparations that are cut short, on a drive in memory that has a volatile cache and may lose it."""

import random
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from empty_image import empty_image
from hypothesis import given
from hypothesis import strategies as st
from quiet import progress

from blkreel.common.errors import BlkreelError
from blkreel.replay.drive import evidence as drive_evidence
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.prepare import precondition, resume_point
from blkreel.replay.prepare.precondition import Preparation
from blkreel.replay.prepare.resume_point import volatile_bytes
from blkreel.replay.prepare.states import state_for
from blkreel.traces.format.schema import OPS

MIB = 1 << 20
SIZE = 16 * MIB
BLOCK = 4096


@pytest.fixture(autouse=True)
def unread(monkeypatch):
    """The engine writes nothing that could be read back."""
    monkeypatch.setattr(Preparation, "_verify", lambda self: 0)


class Killed(BaseException):
    """Nothing of the process goes on, as after kill -9."""


class Drive:
    """An engine and its drive. blocks: 0 for empty, else in which kind of step it was written last: 1 fill, 2 random.

    cut_after: rows until the next end. what has completed and not been flushed is in a cache of volatile_bytes().
    """

    def __init__(self, seed):
        self.blocks = np.zeros(SIZE // BLOCK, np.int8)
        self.issued_bytes, self.cut_after, self.how = 0, None, None
        self._random = random.Random(seed)
        self._cache = []
        self.dead = False

    def __call__(self, options, lanes, on_rows, on_note):
        waiting = []
        for batch in lanes[0].batches:
            for at in range(len(batch["op"])):
                waiting.append({name: column[at] for name, column in batch.items()})
                if len(waiting) < 24:
                    continue
                if self._complete(waiting, 8, on_rows):
                    return {"stopped": "interrupted"}
        while waiting:
            if self._complete(waiting, 8, on_rows):
                return {"stopped": "interrupted"}
        return {"stopped": None}

    def _complete(self, waiting, count, on_rows):
        """Some of those outstanding, in any order, but none is left behind for long; whether the end has come."""
        first, later = waiting[:4], waiting[4:12]
        self._random.shuffle(later)
        rows = first + later[:count - 4]
        waiting[:12] = later[count - 4:]
        self._random.shuffle(rows)
        for row in rows:
            self._do(row)
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        columns |= {"submit_ns": columns["source_row"] * 10, "complete_ns": columns["source_row"] * 10 + 9,
                    "status": np.zeros(len(rows), np.int16)}
        if self.cut_after is not None:
            self.cut_after -= len(rows)
            if self.cut_after <= 0:
                self.cut_after = None
                if self.how == "kill":
                    self.dead = True
                    raise Killed  # what was done is not told any more
                on_rows(columns)
                return True
        on_rows(columns)
        return False

    def _do(self, row):
        start_bytes, length_bytes = int(row["offset_bytes"]), int(row["length_bytes"])
        blocks = slice(start_bytes // BLOCK, (start_bytes + length_bytes) // BLOCK)
        if row["op"] == OPS["discard"]:
            self.blocks[blocks] = 0
            return
        self.issued_bytes += length_bytes
        self._cache.append((blocks, self.blocks[blocks].copy(), length_bytes))
        while sum(length for _, _, length in self._cache) > volatile_bytes(SIZE):
            self._cache.pop(0)
        self.blocks[blocks] = 2 if length_bytes == BLOCK else 1

    def flush(self):
        self._cache = []

    def lose_power(self):
        """All that the cache held is gone."""
        for blocks, before, _ in reversed(self._cache):
            self.blocks[blocks] = before
        self._cache = []


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    return preparing(tmp_path, monkeypatch)


def preparing(tmp_path, monkeypatch):
    """A function (name, cuts, seed): prepares a drive, cut short so often as (rows, how); the drive and its words."""
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(drive_evidence, "BOOT_ID", boot)

    def run(name, cuts, seed=1, rest_ns=0, **more):
        boot.write_text("0")
        monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / f"state-{random.random()}"))
        target, drive, said = find_target(empty_image(tmp_path / "image", SIZE)), Drive(seed), []
        write_beside = drive_state.write_beside
        monkeypatch.setattr(drive_state, "write_beside",
                            lambda *arguments: None if drive.dead else write_beside(*arguments))
        monkeypatch.setattr(Preparation, "_flush", lambda self: drive.flush())
        state = state_for(name, SIZE, 512, seed=seed, rest_ns=rest_ns, **more)
        for number, (rows, how) in enumerate([*cuts, (None, None)]):
            drive.cut_after, drive.how = rows, how
            try:
                result = Preparation(target, state, seed, progress, engine=drive, notify=said.append).run()
                break
            except (Interrupted, Killed):
                drive.dead = False
                if how == "power":
                    drive.lose_power()
                    boot.write_text(f"{number + 1}")
        monkeypatch.setattr(drive_state, "write_beside", write_beside)
        assert resume_point.load(target) is None
        assert drive_state.load(target) == result
        return drive, said, state

    return run


def wanted(state):
    """What the blocks are in the end, by the rows of each step."""
    drive = Drive(0)
    for step in state.steps:
        if step.plan is not None:
            for batch in step.plan(0):
                for at in range(len(batch["op"])):
                    drive._do({name: column[at] for name, column in batch.items()})
    return drive.blocks


CUTS = st.lists(st.tuples(st.integers(1, 900), st.sampled_from(["interrupt", "kill", "power"])), max_size=4)


@cases(8)
@given(st.sampled_from(["client", "full", "op25", "enterprise+op25"]), CUTS, st.integers(0, 5))
def test_whatever_happens_the_drive_is_as_if_nothing_had(name, cuts, seed):
    """Ctrl-C, kill -9, and power cuts that take all with them that the cache held."""
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as directory:
        drive, _, state = preparing(Path(directory), patched)(name, cuts, seed)
    assert (drive.blocks == wanted(state)).all()
    again = drive.issued_bytes - sum(step.total_bytes for step in state.steps if not step.erases)
    # Writes that were outstanding or in the cache are repeated, and after a kill all since the last stored progress:
    # here, where no time passes, the whole step.
    if not any(how == "kill" for _, how in cuts):
        assert again <= len(cuts) * (volatile_bytes(SIZE) * (1 + 1 / 64) + 48 * (128 << 10))


def test_it_says_what_it_goes_on_with(prepared):
    _, said, _ = prepared("full", [(64, "interrupt"), (32, "power")])
    assert said[0].startswith("resuming full at ")
    assert re.search(r"interrupted \d+ s ago", said[0])
    assert said[2] == "the machine or the drive was restarted: repeating what the drive's cache may have lost"
    assert len(said) == 3


def test_another_preparation_begins_anew_and_says_what_it_drops(tmp_path):
    target, drive, said = find_target(empty_image(tmp_path / "image", SIZE)), Drive(1), []

    def prepare(name, cut=None, seed=1, **more):
        drive.cut_after, drive.how, drive.issued_bytes = cut, "interrupt", 0
        state = state_for(name, SIZE, 512, seed=seed, rest_ns=0)
        return Preparation(target, state, seed, progress, engine=drive, notify=said.append,
                           **more).run()

    for again in ({"name": "op25"}, {"name": "full", "seed": 2}, {"name": "full", "erase": "none"}):
        said.clear()
        with pytest.raises(Interrupted, match="run the same command again to resume"):
            prepare("full", 64)
        assert drive_state.load(target).name is None
        prepare(**again)
        assert said[0].startswith("discarding full at ")
        assert said[0].endswith(f"ago; starting {again['name']}" if again["name"] != "full" else
                                "starting full with other options")
        assert drive.issued_bytes == (SIZE if again["name"] == "full" else SIZE * 3 // 4), "from the beginning"
    with pytest.raises(Interrupted):
        prepare("full", 64)
    said.clear()
    prepare("full", restart=True)
    assert not said
    assert drive.issued_bytes == SIZE


def test_what_ended_is_not_gone_on_with(tmp_path, monkeypatch):
    """A kill between the last two files that are written leaves the note beside the state."""
    target, drive, said = find_target(empty_image(tmp_path / "image", SIZE)), Drive(1), []
    state = state_for("full", SIZE, 512, seed=1)

    def prepare():
        drive.issued_bytes = 0
        Preparation(target, state, 1, progress, engine=drive, notify=said.append).run()

    with monkeypatch.context() as patched:
        patched.setattr(resume_point, "forget", lambda target: None)
        prepare()
    assert resume_point.load(target) is not None
    prepare()
    assert drive.issued_bytes == SIZE and not said


def test_a_drive_that_changed_its_size(tmp_path, monkeypatch):
    """As one does whose partition was made anew; its name is the same."""
    target, drive = find_target(empty_image(tmp_path / "image", SIZE)), Drive(1)
    path = drive_state.file_of(target)
    monkeypatch.setattr(drive_state, "file_of", lambda target: path)
    drive.cut_after, drive.how = 64, "interrupt"
    with pytest.raises(Interrupted):
        Preparation(target, state_for("full", SIZE, 512, seed=1), 1, progress, engine=drive).run()
    with open(tmp_path / "image", "r+b") as file:
        file.truncate(SIZE // 2)
    smaller = find_target(tmp_path / "image")
    state = state_for("full", SIZE // 2, 512, seed=1)
    with pytest.raises(BlkreelError, match=r"had 16.8 MB when .* has 8.39 MB now; .*--restart"):
        Preparation(smaller, state, 1, progress, engine=drive).run()
    Preparation(smaller, state, 1, progress, engine=drive, restart=True).run()
    assert drive_state.load(smaller).name == "full"
    assert drive_state.load(target).name is None
    assert "16.8 MB now" in drive_state.load(target).notes[0]


def test_rounds_keep_their_rates_over_an_interruption(prepared, monkeypatch):
    """A round is 1/16 of the drive: 256 rows. The drive of this test is steady from the start."""
    rounds = []
    issue = Preparation._issue

    def seen(self, step):
        issue(self, step)
        rounds.append((step.what, list(self._record.rates)))

    monkeypatch.setattr(Preparation, "_issue", seen)
    fills = 2 * SIZE // (128 << 10) + 1
    drive, said, _ = prepared("pts", [(fills + 3 * 256 + 100, "interrupt")])
    assert [what for what, _ in rounds] == ["erasing", "filling", "filling", "settling"]
    assert len(rounds[-1][1]) == 5
    assert len(said) == 1
    assert drive.issued_bytes <= 2 * SIZE + 5 * SIZE // 16 + 48 * 4096


def test_an_interrupted_rest_starts_over(prepared, monkeypatch):
    rests = []

    def rest(target, duration_ns, **more):
        rests.append(duration_ns)
        if len(rests) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(precondition, "rest", rest)
    drive, said, state = prepared("client", [(None, None)], rest_ns=7)
    assert rests == [7, 7]
    assert said[0].startswith("resuming client at 100 %")
    assert drive.issued_bytes == sum(step.total_bytes for step in state.steps if not step.erases)
