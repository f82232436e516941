"""A test as a whole: its steps in order, what is remembered of them, and going on after an interruption."""

import errno
import json
import os

import pytest
from empty_image import empty_image
from emulated_accounts import account
from fake_engine import FakeEngine
from small_benchmark import RECIPE, STEPS
from small_trace import new_trace
from tree import GAME_LOAD

from blkreel import write_trace
from blkreel.benchmarks.benchmark_file import read_test
from blkreel.benchmarks.recipe.recipe import parse_recipe
from blkreel.benchmarks.recipe.steps import steps_of
from blkreel.benchmarks.runner import drive
from blkreel.benchmarks.runner.drive import check_unchanged, units_of
from blkreel.benchmarks.runner.record import create, read_resumable
from blkreel.benchmarks.runner.runner import check_traces
from blkreel.common.device import describe
from blkreel.common.errors import BlkreelError, OutputExists, TraceError, UsageError
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.traces.format.reader import open_trace

MIB = 1 << 20
ROUNDS = """
title = "t"
explain = "e"
report = "rounds"
steps = [
  { do = "measure", role = "round", name = "round-{round}", each = { round = 8 }, until_steady = "round", streams = [
    { op = "write", block = "64K", volume = "1MiB" }] }]
"""
REPLAYS = """
title = "t"
explain = "e"
report = "trace-passes"
steps = [{ do = "state", state = "STATE" }, { each = { pass_number = 2 }, do = "replay", trace = "TRACE" }]
"""


def told(tmp_path):
    return json.loads((tmp_path / "out/test.json").read_text())


def test_every_step_is_carried_out_and_remembered(a_test, tmp_path):
    testing = a_test()
    testing.run()
    assert testing.done == STEPS
    document = told(tmp_path)
    assert [step["status"] for step in document["steps"]] == ["done"] * 5
    assert document["ended_at"]
    assert document["steps"][0]["result"]["name"] == "full"
    assert document["steps"][2]["result"] == {"rest_ns": 10**6}
    for step, depth in ((document["steps"][1], 1), (document["steps"][3], 4)):
        run = open_trace(tmp_path / "out" / step["directory"]).metadata["run"]
        assert run["source"]["labels"] == step["labels"] == {"depth": depth}
        assert (run["source"]["test"], run["source"]["step"], run["source"]["role"]) == ("mine", step["id"], "depth")
        assert run["source"]["streams"][0]["depth"] == depth
        assert (run["planned_ops"], run["completed_ops"], run["as_planned"]) == (16, 16, True)
        assert step["result"]["bytes"] == MIB


@pytest.mark.parametrize(("state", "written"), [("full", None), ("client", None), ("fresh", 8 * 4096)])
def test_what_a_trace_reads_is_written_first_only_if_the_state_does_not_hold_it(a_test, tmp_path, state, written):
    """Another write would make the blocks of a degraded drive like new."""
    trace = write_trace(tmp_path / "reads.parquet", {
        "submit_ns": range(8), "latency_ns": [10] * 8, "op": ["read"] * 8, "length_bytes": [4096] * 8,
        "offset_bytes": [number * MIB for number in range(8)]})
    a_test(REPLAYS.replace("STATE", state).replace("TRACE", str(trace))).run()
    for step in told(tmp_path)["steps"][1:]:
        run = open_trace(tmp_path / "out" / step["directory"]).metadata["run"]
        assert (run["prefill"] and run["prefill"]["bytes"]) == written
        assert run["unwritten_bytes"] == 0 and run["completed_ops"] == 8


def test_an_interrupted_measurement_is_done_again_and_the_others_are_not(a_test, tmp_path):
    # The erase and the fill of the state are the first two runs of the engine.
    with pytest.raises(Interrupted, match="interrupted at 'depth-4'") as error:
        a_test(engine=FakeEngine(stopped="interrupted", at=4)).run()
    assert f"blkreel test --resume {tmp_path / 'out'}" in error.value.remedy
    assert error.value.exit_code == 130
    assert [step["status"] for step in told(tmp_path)["steps"]] == ["done", "done", "done", "failed", "waiting"]
    testing = a_test()
    testing.run()
    assert testing.done == ["depth-4", "rest"]
    document = told(tmp_path)
    assert document["steps"][3]["interrupted"] == 1
    kept = tmp_path / "out/steps/04-depth-4.interrupted-1"
    assert open_trace(kept).metadata["run"]["partial"] == "interrupted"
    assert open_trace(tmp_path / "out/steps/04-depth-4").metadata["run"]["partial"] is None


def test_where_it_matters_an_interrupted_measurement_gets_its_state_again(a_test, tmp_path):
    text = RECIPE.replace('role = "depth"', 'role = "depth", resume_from = "state"')
    with pytest.raises(Interrupted):
        a_test(text, engine=FakeEngine(stopped="interrupted", at=4)).run()
    testing = a_test(text)
    testing.run()
    assert testing.done == STEPS
    names = {path.name for path in (tmp_path / "out/steps").iterdir()}
    assert names == {"02-depth-1", "02-depth-1.interrupted-1", "04-depth-4", "04-depth-4.interrupted-1"}


def test_an_error_says_how_to_go_on_and_keeps_the_rest(a_test, tmp_path):
    with pytest.raises(BlkreelError, match="the drive is gone") as error:
        a_test(engine=FakeEngine(at=3, error=BlkreelError("the drive is gone", "plug it in"))).run()
    assert error.value.remedy.startswith("plug it in")
    assert "blkreel test --resume" in error.value.remedy
    step = told(tmp_path)["steps"][1]
    assert (step["status"], step["error"]) == ("failed", "the drive is gone")
    a_test().run()
    assert {step["status"] for step in told(tmp_path)["steps"]} == {"done"}


@pytest.mark.parametrize(("rates", "done"), [
    # 50 40 41 40 41 spread over 10 of 42.4; the next five, over 1 of 40.4.
    ([100, 60, 50, 40, 41, 40, 41, 40], 8), ([40] * 5, 5)])
def test_rounds_end_once_they_are_steady_and_those_left_are_skipped(a_test, tmp_path, monkeypatch, rates, done):
    testing, rates = a_test(ROUNDS), iter(rates)
    measure = testing._measure
    monkeypatch.setattr(testing, "_measure", lambda record: {**measure(record), "bytes_per_s": next(rates)})
    testing.run()
    steps = told(tmp_path)["steps"]
    assert [step["status"] for step in steps] == ["done"] * done + ["skipped"] * (8 - done)
    assert [step["result"]["steady"] for step in steps[:done]] == [False] * (done - 1) + [True]
    assert [step["error"] for step in steps[done:]] == [f"steady after {done} rounds"] * (8 - done)


def test_a_drive_in_the_state_already_is_not_prepared_again(a_test, tmp_path):
    text = RECIPE.partition("steps = ")[0] + 'steps = [{ do = "state", state = "full" }]'
    a_test(text.replace("}]", '}, { do = "rest", time = "1ms" }]')).run()
    (tmp_path / "out").rename(tmp_path / "first")
    engine = FakeEngine()
    testing = a_test(text, engine=engine)
    testing.run()
    assert not engine.calls
    assert told(tmp_path)["steps"][0]["result"]["reused"] is True


def test_what_lies_there_is_not_overwritten(a_test, tmp_path):
    with pytest.raises(Interrupted):
        a_test(engine=FakeEngine(stopped="interrupted", at=3)).run()
    with pytest.raises(BlkreelError, match="an unfinished test") as error:
        create(tmp_path / "out", {}, [], force=False)
    assert "blkreel test --resume" in error.value.remedy
    a_test().run()
    with pytest.raises(OutputExists):
        create(tmp_path / "out", {}, [], force=False)
    create(tmp_path / "out", {}, [], force=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("years of work")
    for force in (False, True):
        with pytest.raises(BlkreelError):
            create(tmp_path / "other", {}, [], force=force)
    assert (tmp_path / "other/thesis.txt").exists()


def test_a_test_that_a_full_disk_kept_from_its_start_is_started_again(tmp_path, monkeypatch):
    """There is nothing to resume yet, and what is left is in the way of nothing."""
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("blkreel.benchmarks.runner.record.write_json", full)
        with pytest.raises(BlkreelError, match="No space left") as error:
            create(tmp_path / "out", {}, [], force=False)
    assert error.value.remedy == "free disk space, then run the same command again"
    create(tmp_path / "out", {}, [], force=False)


@pytest.mark.parametrize(("content", "said"), [
    (None, "is not a test directory"), ('{"version": 1, "st', "damaged"), ("[1]", "damaged"),
    ('{"version": 1}', "damaged"), ('{"version": 1, "steps": [7]}', "damaged"), ('{"version": 2}', "version 2")])
def test_a_directory_that_is_no_test_or_a_damaged_one(tmp_path, content, said):
    if content is not None:
        (tmp_path / "test.json").write_text(content)
    with pytest.raises(TraceError, match=said):
        read_test(tmp_path)


def test_what_is_read_may_lack_what_going_on_needs(tmp_path):
    (tmp_path / "test.json").write_text('{"version": 1, "steps": [], "test": "mine"}')
    assert read_test(tmp_path)[0]["test"] == "mine"
    with pytest.raises(TraceError, match="damaged: overrides is missing"):
        read_resumable(tmp_path)


def test_another_drive_than_it_was_begun_on_is_refused(tmp_path):
    first, other = (find_target(empty_image(tmp_path / name, MIB)) for name in ("a", "b"))
    head = {"drive": describe(first.drive)}
    check_unchanged(head, first)
    with pytest.raises(UsageError, match="is another drive"):
        check_unchanged(head, other)
    with pytest.raises(UsageError, match="changed from '1.0' to '' since"):
        check_unchanged({"drive": {**head["drive"], "firmware": "1.0"}}, first)
    with pytest.raises(UsageError, match="changed from 4096 to 512 bytes"):
        check_unchanged({**head, "block_bytes": 4096}, first)


def test_a_drive_without_a_serial_is_known_by_its_description(tmp_path, monkeypatch):
    """Steps on two simulated or emulated drives of one size became one result."""
    fast, slow = (find_target(f"nil:1GiB,read_latency={latency}") for latency in ("80us", "900us"))
    with pytest.raises(UsageError, match="is another drive"):
        check_unchanged({"drive": describe(fast.drive), "units": units_of(fast)}, slow)
    target = find_target(empty_image(tmp_path / "a", MIB))
    monkeypatch.setattr(drive, "account_of", lambda file: account(drive="nil:usb,read_latency=80us"))
    head = {"drive": describe(target.drive), "units": units_of(target)}
    check_unchanged(head, target)
    monkeypatch.setattr(drive, "account_of", lambda file: account(drive="nil:usb,read_latency=900us"))
    with pytest.raises(UsageError, match="is another drive"):
        check_unchanged(head, target)


def test_a_trace_of_several_devices_is_to_be_cut_first(blkreel, tmp_path):
    trace = new_trace(tmp_path / "both.parquet", submit_ns=[0, 10], device=[0, 1])
    result = blkreel("test", "trace", "--set", f"trace={trace}", "--on", "nil:1GiB,clock=virtual", "-o", tmp_path / "t",
                     check=False)
    assert result.returncode == 2 and f"slice {trace} --device 0 -o one.parquet" in result.stderr


def test_a_test_of_a_trace_needs_one():
    text = ('title = "t"\nexplain = "e"\nreport = "trace"\n[[steps]]\ndo = "replay"\ntrace = "= trace"\n'
            '[parameters.trace]\nkind = "trace"\nvalue = ""\nabout = "which"\n')
    recipe = parse_recipe("mine", text.encode())

    def steps(**given):
        return steps_of(recipe, recipe.resolve(given), size_bytes=MIB, block_bytes=512, seed=1)

    target = find_target("nil:1TiB")
    with pytest.raises(UsageError, match="no trace to replay"):
        check_traces(steps(), target)
    with pytest.raises(BlkreelError, match="no-such"):
        check_traces(steps(trace="no-such.parquet"), target)
    with pytest.raises(BlkreelError, match="touches 319 MB"):
        check_traces(steps(trace=GAME_LOAD), find_target("nil:1MiB"))
    check_traces(steps(trace=GAME_LOAD), target)
