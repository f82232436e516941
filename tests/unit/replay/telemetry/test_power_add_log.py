"""A meter's log that comes when a run, or a whole test, is over."""

import json
import shutil

import numpy as np
import pytest
from documented import run_blkreel
from empty_image import empty_image
from tree import APP_START

from blkreel.traces.format.reader import open_trace
from blkreel.traces.telemetry.reader import read_telemetry

RECIPE = """
title = "two rounds"
explain = "reads"
report = "depths"
steps = [
  { do = "state", state = "data", regions = ["all"] },
  { each = { depth = [1, 4] }, do = "measure", role = "depth", name = "depth {depth}", time = "300ms", streams = [
    { op = "read", block = "4K", region = "all", depth = "= depth" }] }]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, command_server):
    """A directory with a run of a trace with a pause, and a test, on a file that stands in for a drive."""
    directory = tmp_path_factory.mktemp("made")
    empty_image(directory / "drive.img", 8 << 20)
    run_blkreel(command_server, directory, "replay", APP_START, "--on", "drive.img", "--map", "wrap", "--pace",
                "x4", "-o", "run")
    (directory / "two.toml").write_text(RECIPE)
    run_blkreel(command_server, directory, "test", "two.toml", "--on", "drive.img", "-o", "test")
    return directory


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made / "run", tmp_path / "run")


@pytest.fixture
def a_test(made, tmp_path):
    return shutil.copytree(made / "test", tmp_path / "test")


def write_log(path, run, watts, *, before_s=1, after_s=1, every_s=0.1, ahead_s=0.0, relative=False):
    metadata = open_trace(run).metadata
    pair = metadata["clock_pairs"][0]
    start_s = 0.0 if relative else (metadata["epoch_ns"] - pair["monotonic_ns"] + pair["realtime_ns"]) / 1e9
    seconds = np.arange(-before_s, metadata["run"]["wall_ns"] / 1e9 + after_s, every_s)
    lines = [f"{start_s + at + ahead_s:.6f},{watts}" for at in seconds]
    path.write_text("time,watts\n" + "\n".join(lines) + "\n")
    return path


def texts_of(verdict):
    return [each["text"] for each in (*verdict["reasons"], *verdict["notes"])]


def reasons(run):
    return texts_of(open_trace(run).metadata["run"]["verdict"])


def test_a_run_gets_its_power_and_is_judged_again(blkreel, run, tmp_path):
    before = open_trace(run).metadata["run"]
    records = (run / "records.parquet").read_bytes()
    assert "power not measured" in reasons(run)
    log = write_log(tmp_path / "meter.csv", run, 3.25)
    told = json.loads(blkreel("power", run, "--log", log, "--json").stdout)
    assert told["runs"][0]["power"]["average_w"] == pytest.approx(3.25)
    assert "power not measured" not in reasons(run)
    after = open_trace(run).metadata["run"]
    assert after["telemetry"]["power"]["energy_j"] == pytest.approx(3.25 * before["wall_ns"] / 1e9, rel=1e-4)
    assert {key: value for key, value in after.items() if key not in ("telemetry", "verdict")} == {
        key: value for key, value in before.items() if key not in ("telemetry", "verdict")}
    assert set(reasons(run)) < set(texts_of(before["verdict"]))
    assert (run / "records.parquet").read_bytes() == records
    # The other sensors are there still.
    assert set(read_telemetry(run).sensors) > {"power_w"}
    assert "power not measured" not in blkreel("report", run).stdout


def test_a_second_log_takes_the_place_of_the_first(blkreel, run, tmp_path):
    for watts in (2.0, 5.0):
        blkreel("power", run, "--log", write_log(tmp_path / "meter.csv", run, watts))
    assert set(read_telemetry(run).series("power_w")[1].tolist()) == {5.0}
    assert open_trace(run).metadata["run"]["telemetry"]["power"]["average_w"] == pytest.approx(5)


def test_clocks_that_are_off_and_times_since_the_start(blkreel, run, tmp_path):
    ahead = write_log(tmp_path / "ahead.csv", run, 4.0, ahead_s=3600)
    result = blkreel("power", run, "--log", ahead, code=1)
    assert "do not overlap" in result.stderr and "offset=SECONDS" in result.stderr
    assert not (run / "amended.json").exists()
    blkreel("power", run, "--log", f"{ahead},offset=-3600")
    assert "power not measured" not in reasons(run)
    blkreel("power", run, "--log", write_log(tmp_path / "relative.csv", run, 6.0, relative=True))
    assert open_trace(run).metadata["run"]["telemetry"]["power"]["average_w"] == pytest.approx(6)


def test_half_a_log_qualifies(blkreel, run, tmp_path):
    wall_s = open_trace(run).metadata["run"]["wall_ns"] / 1e9
    blkreel("power", run, "--log", write_log(tmp_path / "half.csv", run, 4.0, after_s=-wall_s / 2, every_s=0.02))
    assert any(text.startswith("power not measured for") for text in reasons(run))


def test_what_was_amended_does_not_outlive_its_run(blkreel, run, tmp_path):
    blkreel("power", run, "--log", write_log(tmp_path / "meter.csv", run, 4.0))
    blkreel("replay", APP_START, "--on", empty_image(tmp_path / "drive.img", 8 << 20), "--map", "wrap", "--pace", "x8",
            "-o", run, "--force", check=False)
    assert "power not measured" in reasons(run)


def test_amendments_of_another_run_change_nothing(run):
    before = open_trace(run).metadata
    (run / "amended.json").write_text('{"version": 1, "epoch_ns": 1, "run": {"label": "x"}}')
    assert open_trace(run).metadata == before


def test_every_run_of_a_test_gets_its_part(blkreel, a_test, tmp_path):
    first, second = (a_test / step["directory"] for step in json.loads((a_test / "test.json").read_text())["steps"][1:])
    log = tmp_path / "meter.csv"
    # 2 W up to the second run, 5 W from there on; only the first is in what the meter shows at first.
    write_log(log, first, 2.0, before_s=0.05, after_s=0.05, every_s=0.01)
    told = json.loads(blkreel("power", a_test, "--log", log, "--json").stdout)["runs"]
    assert [one["power"] and one["power"]["average_w"] for one in told] == [pytest.approx(2), None]
    assert "do not overlap" in told[1]["why"]
    write_log(tmp_path / "more.csv", second, 5.0, before_s=0.05, after_s=0.05, every_s=0.01)
    log.write_text(log.read_text() + (tmp_path / "more.csv").read_text().partition("\n")[2])
    blkreel("power", a_test, "--log", log)
    rows = json.loads((a_test / "results.json").read_text())["tables"][0]["rows"]
    assert [row["average_w"] for row in rows] == [pytest.approx(2), pytest.approx(5)]
    assert all(row["mb_per_j"] > 0 for row in rows)


def test_what_cannot_be_is_refused(blkreel, run, a_test, tmp_path):
    relative = write_log(tmp_path / "relative.csv", run, 4.0, relative=True)
    for arguments, exit_code, words in (
            ((a_test, "--log", relative), 2, "do not count from 1970"),
            ((run, "--log", tmp_path / "none.csv"), 1, "cannot be read"),
            ((run, "--log", f"{relative},offset=much"), 2, "offset"),
            ((tmp_path, "--log", relative), 1, "without records.parquet"),
            (("sample:app-start", "--log", relative), 1, "is not a run")):
        result = blkreel("power", *arguments, check=False)
        assert result.returncode == exit_code, (arguments, result.stderr)
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_test_is_no_run_and_says_what_it_is(blkreel, a_test):
    result = blkreel("info", a_test, code=1)
    assert "is a test" in result.stderr and "blkreel report" in result.stderr
