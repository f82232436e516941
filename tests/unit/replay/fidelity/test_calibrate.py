"""Up to what rate a machine is faithful: the search by an engine that stands in, and one quick real one."""

import json
import os

import numpy as np
import pytest

from blkreel.cli.commands.doctor import calibration_sentence
from blkreel.cli.main import cli
from blkreel.common.errors import BlkreelError
from blkreel.replay.run import calibrate
from blkreel.replay.run.calibrate import LEVELS, PATTERNS, RATES_IOPS, plan_of
from blkreel.replay.telemetry.sensors.host_counters import OtherWork, read_other_work


class FakeEngine:
    """Issues as late as late_ns(iops, number of the try) says."""

    def __init__(self, late_ns, stopped=None):
        self.rates = []
        self._late_ns, self._stopped = late_ns, stopped

    def __call__(self, options, lanes, on_rows, on_note):
        (rows,) = lanes[0].batches
        due_ns = rows["due_ns"]
        iops = round(len(due_ns) / calibrate.STEP_S)
        self.rates.append(iops)
        late_ns = self._late_ns(iops, self.rates.count(iops))
        on_rows({"due_ns": due_ns, "submit_ns": due_ns + late_ns, "flags": np.zeros(len(due_ns), np.int32)})
        causes = {"overload": {"late_ops": 5, "total_ns": 0}} if late_ns > 100_000 else {}
        return {"stopped": self._stopped, "stall_monitor": {"causes": causes}}


def idle():
    return OtherWork(0, 0)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Fewer I/Os at each rate. The engine that stands in tells the rate by their number."""
    monkeypatch.setattr(calibrate, "STEP_S", 0.05)


def calibrated(engine, other_work=idle, **options):
    return calibrate.calibrate(engine=engine, other_work=other_work, **options)


def test_the_rate_rises_until_it_is_not_held():
    found = calibrated(FakeEngine(
        lambda iops, number: 500 if iops < 60_000 else 50_000 if iops < 150_000 else 200_000))
    assert found["faithful_iops"] == {"poisson": 100_000, "bursts": 100_000}
    assert found["excellent_iops"] == {"poisson": 50_000, "bursts": 50_000}
    assert found["steps"][-1]["level"] == "not faithful"
    assert found["steps"][-1]["iops"] == 200_000
    assert found["steps"][-1]["cause"] == "more I/Os due than the thread can issue"
    assert {step["level"] for step in found["steps"]} == set(LEVELS)
    assert "Faithful replay up to 100,000 IOPS with Poisson arrivals (excellent up to 50,000), and up to 100,000 " in \
        calibration_sentence(found)


def test_one_disturbance_says_nothing_of_a_rate():
    engine = FakeEngine(lambda iops, number: 10**8 if number == 1 else 500)
    found = calibrated(engine)
    assert found["faithful_iops"] == dict.fromkeys(PATTERNS, RATES_IOPS[-1])
    assert "(excellent)" in calibration_sentence(found)


def test_a_machine_that_holds_no_rate():
    found = calibrated(FakeEngine(lambda iops, number: 10**9))
    assert found["faithful_iops"] == {"poisson": 0, "bursts": 0}
    assert len(found["steps"]) == len(PATTERNS)
    assert "exceeds the limit at each rate" in calibration_sentence(found)


def test_it_ends_in_time_on_a_slow_machine():
    now = iter(range(0, 10_000, 5))
    found = calibrated(FakeEngine(lambda iops, number: 0), clock=lambda: next(now))
    assert len(found["steps"]) < 7


def test_an_interruption_is_no_result():
    with pytest.raises(BlkreelError, match="interrupted"):
        calibrated(FakeEngine(lambda iops, number: 0, stopped="interrupted"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_plan_has_its_rate_and_its_bursts(pattern):
    due_ns = plan_of(pattern, 100_000, 1.0, 1)["due_ns"]
    assert len(due_ns) == pytest.approx(100_000, rel=0.01)
    assert (np.diff(due_ns) >= 0).all()
    assert due_ns[-1] == pytest.approx(10**9, rel=0.15)
    if pattern == "bursts":
        assert len(np.unique(due_ns)) == len(due_ns) / 64


def test_a_plan_beyond_what_was_found_is_warned_of():
    assert calibrate.warning_for(10**6, 10**9) is None, "nothing is known yet"
    calibrate.remember(calibrated(FakeEngine(
        lambda iops, number: 500 if iops < 60_000 else 10**8)))
    assert "60,000 IOPS" in calibrate.warning_for(60_000, 10**9)
    assert "limit of this machine 50,000" in calibrate.warning_for(60_000, 10**9)
    assert calibrate.warning_for(50_000, 10**9) is None
    assert calibrate.warning_for(60_000, None) is None, "at a fixed depth nothing is due"


@pytest.mark.parametrize(("work", "words"), [
    (OtherWork(10**15, 0), "other programs used"), (OtherWork(0, 10**15), "stolen by a hypervisor")])
def test_a_calibration_on_a_busy_machine_is_not_stored(work, words):
    calibrate.remember(calibrated(FakeEngine(lambda iops, number: 500)))
    before = calibrate.recall()
    works = iter([OtherWork(0, 0), work])
    busy = calibrated(FakeEngine(lambda iops, number: 10**8), lambda: next(works))
    assert words in busy["busy"] and "limit" in busy["busy"]
    calibrate.remember(busy)
    assert calibrate.recall() == before, "the earlier one remains"


def test_own_work_is_not_that_of_others(tmp_path, monkeypatch):
    (tmp_path / "stat").write_text("cpu  300 20 80 9000 500 5 15 70 40 0\ncpu0 1 2 3\n")
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(os, "times", lambda: os.times_result((1.0, 0.5, 0.25, 0.25, 99.0)))
    assert read_other_work(tmp_path) == OtherWork(others_ns=4_200_000_000 - 2_000_000_000, steal_ns=700_000_000)
    assert read_other_work(tmp_path / "missing") == OtherWork(0, 0)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"cpu_model": "another", "faithful_iops": {"poisson": 1}}'])
def test_what_is_damaged_or_of_another_machine_is_not_believed(tmp_path, text):
    (tmp_path / "state").mkdir()
    (tmp_path / "state/calibration.json").write_text(text)
    assert calibrate.recall() is None
    assert calibrate.warning_for(10**9, 1) is None


def test_a_place_that_cannot_be_written(monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", "/proc/nowhere")
    with pytest.raises(BlkreelError, match="BLKREEL_STATE_DIR"):
        calibrate.remember({})


def test_on_this_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "RATES_IOPS", RATES_IOPS[:3])
    exit_code = cli.main(["doctor", "--calibrate", "--json"], standalone_mode=False)
    output, errors = capsys.readouterr()
    found = json.loads(output)["calibration"]
    assert exit_code == (3 if found["busy"] else 0 if max(found["faithful_iops"].values()) else 1)
    assert {step["pattern"] for step in found["steps"]} == set(PATTERNS)
    assert all(0 <= step["p50_ns"] <= step["p99_ns"] <= step["max_ns"] for step in found["steps"])
    stored = tmp_path / "state/calibration.json"
    if found["busy"]:
        assert "calibration not stored: " in errors and not stored.exists()
    else:
        assert json.loads(stored.read_text()) == found
