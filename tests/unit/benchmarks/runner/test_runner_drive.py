"""A test and other users of its drive: none while it rests, and a drive that others wrote to has no known state."""

import fcntl
import json
from contextlib import contextmanager

import pytest
from empty_image import empty_image
from fake_engine import FakeEngine
from quiet import progress
from small_benchmark import RECIPE, STEPS

from blkreel.benchmarks.runner import runner
from blkreel.benchmarks.runner.runner import BenchmarkRunner
from blkreel.common.errors import SafetyError
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import run_engine
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.prepare.precondition import Preparation
from blkreel.replay.prepare.states import state_for

MIB = 1 << 20


def interrupted_at_depth_4(a_test):
    # The erase and the fill of the state are the first two runs of the engine.
    with pytest.raises(Interrupted):
        a_test(engine=FakeEngine(stopped="interrupted", at=4)).run()


def prepare_fresh(target):
    Preparation(target, state_for("fresh", target.size_bytes, 512, seed=1), 1, progress).run()


@pytest.mark.parametrize("what", ["written", "discarded", "prepared"])
def test_a_drive_that_was_used_since_gets_its_state_again(a_test, target, what):
    interrupted_at_depth_4(a_test)
    if what == "prepared":
        prepare_fresh(target)
    else:
        amounts = (MIB, 0) if what == "written" else (0, MIB)
        drive_state.about_to_write(target, *amounts, by="somebody's replay")(*amounts)
    test = a_test()
    test.run()
    assert test.done == STEPS
    (said,) = (line for line in test.said if "was used since" in line)
    assert ("fresh" if what == "prepared" else "somebody's replay") in said


def test_what_the_test_itself_wrote_before_it_was_interrupted_is_no_use_by_others(a_test):
    interrupted_at_depth_4(a_test)
    test = a_test(engine=FakeEngine(stopped="interrupted", at=1))
    with pytest.raises(Interrupted):
        test.run()
    assert test.done == ["depth-4"]
    test = a_test()
    test.run()
    assert test.done == ["depth-4", "rest"] and not test.said


def test_a_run_that_was_killed_and_left_its_bound_is_the_tests_own(a_test, target):
    interrupted_at_depth_4(a_test)
    state = drive_state.load(target)
    state.since[-1] |= {"ended": False, "written_bytes": 3 * MIB}
    drive_state._save_summed(target, state)
    test = a_test()
    test.run()
    assert test.done == ["depth-4", "rest"]


@pytest.mark.parametrize(("rests", "status"), [(1, "skipped"), (2, "done")])
def test_where_nothing_is_left_to_be_measured_nothing_is_done_again(a_test, target, monkeypatch, rests, status):
    """The last measurement is done before the second rest, or skipped after the first."""
    calls = []

    def rest(*_, **__):
        calls.append(1)
        if len(calls) == rests:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "rest", rest)
    interrupted = a_test()
    with pytest.raises(Interrupted):
        interrupted.run()
    [step for step in interrupted.record.steps if step.measures][-1].status = status
    interrupted.record.save()
    prepare_fresh(target)
    test = a_test()
    test.run()
    assert test.done == ["rest"] * (3 - rests)


def test_whoever_uses_the_drive_meanwhile_ends_the_test(a_test, target, monkeypatch):
    monkeypatch.setattr(runner, "rest", lambda *_, **__: prepare_fresh(target))
    with pytest.raises(SafetyError, match="was used by others during the test mine") as error:
        a_test().run()
    assert "blkreel test --resume" in error.value.remedy
    monkeypatch.setattr(runner, "rest", lambda *_, **__: None)
    test = a_test()
    test.run()
    assert test.done == STEPS


def test_rounds_that_were_skipped_are_wanted_again_with_a_new_state(a_test, target, monkeypatch):
    text = RECIPE.replace("depth = [1, 4]", "depth = 7").replace('"depth",', '"depth", until_steady = "depth",')
    measure = BenchmarkRunner._measure
    monkeypatch.setattr(BenchmarkRunner, "_measure", lambda self, record: {
        **measure(self, record), "bytes_per_s": 40.0})
    test = a_test(engine=FakeEngine(stopped="interrupted", at=7), text=text)  # the fifth, that would be steady
    with pytest.raises(Interrupted):
        test.run()
    for step in test.record.steps[-4:]:
        step.status = "skipped"
    test.record.save()
    drive_state.about_to_write(target, MIB, 0, by="somebody")(MIB, 0)
    test = a_test(text=text)
    test.run()
    assert test.done[0] == "state full"
    status = [step.status for step in test.record.steps if step.do == "measure"]
    assert status == ["done"] * 5 + ["skipped"] * 2


def test_nobody_gets_the_drive_between_the_steps(a_test, tmp_path, monkeypatch):
    image, seen = empty_image(tmp_path / "image", 8 * MIB), []

    def rest(*_, **__):
        with open(image, "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append("held")

    monkeypatch.setattr(runner, "rest", rest)
    a_test(on=find_target(image), engine=run_engine).run()
    assert seen == ["held"] * 2
    with open(image, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go of in the end


def test_a_drive_that_somebody_else_holds_is_left_alone(a_test, monkeypatch):
    @contextmanager
    def held(target):
        raise SafetyError("it is locked by another program", "wait")
        yield

    monkeypatch.setattr(runner, "held", held)
    test = a_test()
    with pytest.raises(SafetyError, match="locked") as error:
        test.run()
    assert error.value.remedy.startswith("wait; then resume with: blkreel test --resume")
    assert test.done == []


@pytest.mark.parametrize(("state", "made", "test", "kept"), [
    *(("full", {"erase": first}, {"erase": then}, first == then) for first in ("discard", "none")
      for then in ("discard", "none")),
    *(("client", {"rested_ns": rested_ns}, {"text": RECIPE.replace('state = "full"', 'state = "client", idle = "1ms"')},
       rested_ns == 10**6) for rested_ns in (10**6, 10**3))])
def test_a_state_counts_as_there_only_where_it_was_erased_and_rested_as_asked(target, a_test, state, made, test, kept):
    rest = {"rest_ns": made.pop("rested_ns")} if "rested_ns" in made else {}
    Preparation(target, state_for(state, target.size_bytes, 512, seed=1, **rest), 1, progress, **made).run()
    again = a_test(**test)
    again.run()
    assert json.loads(again.record.path.read_text())["steps"][0]["result"]["reused"] is kept


def test_whoever_interrupts_a_state_is_told_one_way_to_go_on(a_test):
    with pytest.raises(Interrupted) as error:
        a_test(engine=FakeEngine(stopped="interrupted", at=2)).run()
    assert error.value.remedy.startswith("resume with: blkreel test --resume")
    assert "same command" not in str(error.value)
