"""Meters beside a test of several runs, and the files that loggers really write."""

import pytest

from blkreel.benchmarks.recipe.recipe import load_recipe
from blkreel.cli.commands.drive.test import _overrides
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.replay.telemetry.options import TelemetryOptions
from blkreel.replay.telemetry.power.log import PowerLog, parse_power_log
from blkreel.replay.telemetry.power.samples import ClockPairs, cleaned

S = 10**9
UNIX = 1_800_000_000
PAIRS = ClockPairs((1000 * S, UNIX * S), (1100 * S, (UNIX + 100) * S))
GOOD = "time,watts\n" + "".join(f"{UNIX + second},{second}.5\n" for second in range(4))


@pytest.fixture
def log(tmp_path):
    def write(text, encoding="utf-8"):
        (tmp_path / "meter.csv").write_text(text, encoding=encoding)
        return PowerLog(tmp_path / "meter.csv")
    return write


def test_times_since_a_start_are_of_no_run_of_a_test(log):
    """Each of its runs would get the watts of the first seconds of the log."""
    relative = log("time,watts\n0,1\n1,2\n")
    assert len(relative.read(PAIRS, 1000 * S).watts) == 2
    with pytest.raises(UsageError, match="not since 1970, but a test has several runs"):
        relative.for_several_runs()
    with pytest.raises(UsageError, match="not since 1970"):
        TelemetryOptions(power_log=relative).for_several_runs()


def test_a_log_that_turns_out_so_only_later_gives_no_power(log, tmp_path):
    waiting = PowerLog(tmp_path / "meter.csv").for_several_runs()
    log("time,watts\n")
    assert PowerLog(tmp_path / "meter.csv").for_several_runs()
    log("time,watts\n0,1\n1,2\n")
    with pytest.raises(BlkreelError, match="not since 1970"):
        waiting.read(PAIRS, 1000 * S)
    log(GOOD)
    assert waiting.read(PAIRS, 1000 * S).watts.tolist() == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("told", ["a.csv", "a.csv,offset=-2.5", "a,b.csv,offset=0.1,columns=Time (s):Voltage*Current"])
def test_a_test_that_goes_on_has_the_meter_it_was_begun_with(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = TelemetryOptions(sample_hz=5.0, power_log=parse_power_log(told)).for_several_runs()
    account = begun.account()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = TelemetryOptions().resumed_from(account)
    assert (again.sample_hz, again.power_log.path, again.power_log.offset_s, again.power_log.columns) == (
        5.0, tmp_path / begun.power_log.path, begun.power_log.offset_s, begun.power_log.columns)
    assert again.power_log.of_several_runs
    other = TelemetryOptions(power_command="meter")
    assert other.resumed_from(account) == other
    assert TelemetryOptions().resumed_from(None) == TelemetryOptions()
    command = TelemetryOptions(power_command="meter --lines")
    assert TelemetryOptions().resumed_from(command.account()) == command


def test_a_trace_is_found_from_wherever_a_test_goes_on(tmp_path, monkeypatch):
    (tmp_path / "game.parquet").touch()
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("trace")
    stored = {"overrides": {"trace": "game.parquet", "states": "fresh"}, "working_directory": str(tmp_path)}
    assert _overrides(recipe, stored) == stored["overrides"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert _overrides(recipe, stored) == {"trace": str(tmp_path / "game.parquet"), "states": "fresh"}
    stored["overrides"]["trace"] = "sample:app-start"
    assert _overrides(recipe, stored) == stored["overrides"]


@pytest.mark.parametrize(("text", "encoding", "samples"), [
    (GOOD, "utf-16", 4),                                             # a logger on Windows
    (GOOD, "utf-8-sig", 4),
    (GOOD.replace(",1.5", ",\0" + "1.5"), "utf-8", 4),               # a block that was not written yet
    ("time,watts\n" + '"' + "x" * 200_000 + '",1\n' + GOOD, "utf-8", 4),
    (GOOD.replace("2.5", '"2.5'), "utf-8", 4),                       # a quotation mark that nothing closes
])
def test_files_that_are_not_quite_a_csv(log, text, encoding, samples):
    found = log(text, encoding).read(PAIRS, 1000 * S)
    assert len(found.watts) == samples and found.watts[0] == 0.5


@pytest.mark.parametrize("offset", ["1e300", "1e12", "-1e10"])
def test_an_offset_beyond_any_clock_is_no_number_of_seconds(offset):
    with pytest.raises(UsageError, match="is not a number of seconds"):
        parse_power_log(f"meter.csv,offset={offset}")


def test_a_log_of_a_head_alone_says_so(log):
    with pytest.raises(BlkreelError, match="no line with a time and watts"):
        _ = log("time,watts\n").is_absolute


def test_a_meter_the_wrong_way_round_is_none():
    with pytest.raises(BlkreelError, match=r"average power -3 W is negative"):
        cleaned([0, 1, 2], [-2.0, -3.0, -4.0])
    assert len(cleaned([0, 1, 2], [-0.1, 3.0, 4.0]).watts) == 3  # noise around nothing
