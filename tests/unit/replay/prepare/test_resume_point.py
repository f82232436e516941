"""What is noted of a preparation: never more than is done, and after a reboot never what a cache may have lost."""

import json
import re
import time

import numpy as np
import pytest
from cases import cases
from empty_image import empty_image
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import BlkreelError
from blkreel.replay.drive import evidence as drive_evidence
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import find_target
from blkreel.replay.prepare import resume_point
from blkreel.replay.prepare.resume_point import LowWater, Record, SavedRecord, volatile_bytes
from blkreel.replay.prepare.states import state_for
from blkreel.traces.format.schema import OPS

MIB = 1 << 20


@pytest.fixture
def boot(tmp_path, monkeypatch):
    """boot("b") makes this machine one that was started anew."""
    def start(name):
        (tmp_path / "boot_id").write_text(f"{name}\n")

    monkeypatch.setattr(drive_evidence, "BOOT_ID", tmp_path / "boot_id")
    start("a")
    return start


@pytest.fixture
def target(tmp_path):
    return find_target(empty_image(tmp_path / "image", 64 * MIB))


@given(st.permutations(range(60)), st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(0, 1000))
def test_the_mark_is_the_first_row_that_is_not_done(order, sizes, first):
    """Rows in any order, in blocks of any sizes; each row is as long as its number says."""
    low, done, at = LowWater(first, 10), set(), 0
    for size in sizes:
        rows = np.array(order[at:at + size], np.int64) + first
        at += size
        low.add(rows, rows + 1)
        done.update(rows.tolist())
        mark = next(row for row in range(first, first + 61) if row not in done)
        assert low.rows == mark
        assert low.done_bytes == 10 + sum(range(first + 1, mark + 1))


def noted_of(target, name="full", step=1):
    """What is noted of a preparation of the target that has come to that step."""
    return SavedRecord(target, Record("key", name, target.size_bytes, step=step),
                       state_for(name, target.size_bytes, 512, seed=1))


def rows_of(first, count, length=128 << 10, at_ns=0):
    row = np.arange(first, first + count)
    return {"source_row": row, "length_bytes": np.full(count, length), "op": np.full(count, OPS["write"]),
            "submit_ns": row * 1000 + at_ns, "complete_ns": row * 1000 + 1000 + at_ns}


def test_what_is_noted_is_read_again(target, boot):
    noted = noted_of(target)
    noted.take(rows_of(0, 16))
    noted.take(rows_of(20, 4))
    noted.save()
    found = resume_point.load(target)
    assert (found.rows, found.done_bytes) == (16, 2 * MIB)
    assert found.percent == pytest.approx(100 * 2 / 64)
    assert found == noted.record
    assert re.fullmatch(r"full at 3 %, interrupted \d+ s ago", resume_point.describe(found))
    resume_point.forget(target)
    assert resume_point.load(target) is None


@cases(10)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_after_a_reboot_the_mark_is_so_far_back_as_a_cache_may_lose(tmp_path_factory, counts):
    """Whatever was noted when: the mark for a reboot is behind by the cache, and not much more than it has to be."""
    directory = tmp_path_factory.mktemp("drive")
    target = find_target(empty_image(directory / "image", 64 * MIB))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BLKREEL_STATE_DIR", str(directory / "state"))
        noted, row = noted_of(target), 0
        for count in counts:
            noted.take(rows_of(row, count))
            row += count
        noted.save()
        record = noted.record
        behind = record.done_bytes - record.safe_bytes
        assert record.safe_bytes == record.safe_rows * (128 << 10)
        assert behind >= volatile_bytes(target.size_bytes) or record.safe_rows == 0
        assert behind <= volatile_bytes(target.size_bytes) + max(counts) * (128 << 10) + MIB // 16


def test_a_reboot_goes_back_and_a_second_one_no_further(target, boot):
    state = state_for("full", target.size_bytes, 512, seed=1)
    noted = noted_of(target)
    for first in range(0, 200, 10):
        noted.take(rows_of(first, 10))
    noted.save()
    record = resume_point.load(target)
    assert not SavedRecord(target, record, state).rewind_after_power(), "the machine was on all the time"
    assert record.rows == 200
    boot("b")
    again = SavedRecord(target, record, state)
    assert again.rewind_after_power()
    assert record.rows == record.safe_rows
    assert 200 - 30 <= record.rows <= 200 - 8
    again.save()
    boot("c")
    third = resume_point.load(target)
    back = third.rows
    assert SavedRecord(target, third, state).rewind_after_power()
    assert third.rows == back, "nothing was written since"


def test_a_reboot_soon_after_going_on_goes_back_to_where_the_first_would_have(target, boot):
    """What was in the cache before Ctrl-C is in there still when it goes on."""
    state = state_for("full", target.size_bytes, 512, seed=1)
    noted = noted_of(target)
    for first in range(0, 200, 10):
        noted.take(rows_of(first, 10))
    noted.save()
    safe = noted.record.safe_rows
    again = SavedRecord(target, resume_point.load(target), state)
    again.take(rows_of(200, 2))
    again.save()
    assert again.record.rows == 202
    assert again.record.safe_rows == safe


def test_the_end_of_a_step_is_flushed_and_holds(target, boot):
    noted = noted_of(target, "client")
    noted.take(rows_of(0, 100))
    noted.next_step()
    found = resume_point.load(target)
    assert (found.step, found.rows, found.safe_rows, found.round_bytes) == (2, 0, 0, 0)
    assert 96 < found.percent < 97, "61 MiB of 63 are filled"


def test_it_is_noted_about_once_a_second(target, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    saved = []
    monkeypatch.setattr(drive_state, "write_beside", lambda target, path, document: saved.append(now[0]))
    noted = noted_of(target, step=0)
    for row in range(100):
        noted.take(rows_of(row, 1, 4096))
        now[0] += 0.1
    assert 9 <= len(saved) <= 11
    saved.clear()
    for row in range(100, 400):
        noted.take(rows_of(row, 1))
        now[0] += 0.01
    assert 30 <= len(saved) <= 40, "of a small device 1 MiB each, which is 8 rows"


def test_the_rate_of_a_round_leaves_out_its_interruptions(target):
    """Two stretches of the engine's, each with a clock of its own."""
    noted = noted_of(target, "pts", step=3)
    noted.begin_engine()
    noted.take(rows_of(0, 500, 4096, at_ns=7_000_000))
    noted.begin_engine()
    noted.take(rows_of(500, 500, 4096, at_ns=-200_000))
    assert noted.record.round_bytes == 1000 * 4096
    assert noted.round_bytes_per_s == pytest.approx(4096e6)


@pytest.mark.parametrize("text", ["", "{}", '{"preparing": {"key": "x"}}', "[]"])
def test_a_damaged_note_is_none(target, text):
    path = drive_state.progress_file(target)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert resume_point.load(target) is None


def test_a_directory_that_cannot_be_written(target, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", "/proc/nowhere")
    noted = noted_of(target, step=0)
    with pytest.raises(BlkreelError, match="BLKREEL_STATE_DIR"):
        noted.save()


def test_a_run_that_writes_ends_what_was_interrupted(target):
    """Going on would leave what the run has written in the midst of the state."""
    noted = noted_of(target, step=0)
    noted.save()
    drive_state.about_to_write(target, 0, 0)
    assert resume_point.load(target) is not None
    drive_state.about_to_write(target, 4096, 0)
    assert resume_point.load(target) is None


def test_the_note_is_whole_or_the_one_before(target, monkeypatch):
    noted = noted_of(target, step=0)
    noted.save()
    before = drive_state.progress_file(target).read_text()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dumps", full)
    with pytest.raises(BlkreelError):
        noted.save()
    assert drive_state.progress_file(target).read_text() == before
