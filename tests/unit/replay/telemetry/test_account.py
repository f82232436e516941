"""A steady rate, others' I/O, and what a run's account and its verdict make of what was measured."""

import threading
from unittest.mock import Mock

import numpy as np
import pytest

from blkreel.common.files.typed_document import record
from blkreel.replay.drive.external_io import DiskCount
from blkreel.replay.fidelity.health import invalid, power, qualified
from blkreel.replay.telemetry.account import account_of
from blkreel.replay.telemetry.drive import ExternalIos
from blkreel.replay.telemetry.power.rails import NO_METER
from blkreel.replay.telemetry.recorder import simulated_telemetry
from blkreel.replay.telemetry.source import Sampler, Sensor
from blkreel.traces.format import metadata_types
from blkreel.traces.telemetry.file import Telemetry, sensor

S = 10**9


class Clock:
    """A clock that goes on by what the readings take."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns


class Scripted:
    """Gives what a list says for each reading: a value, an exception, or a time in ns that the reading takes."""

    def __init__(self, clock, script):
        self.sensors = [Sensor("a", "W", "test")]
        self._clock, self._script = clock, list(script)

    def read(self):
        step = self._script.pop(0) if self._script else 1.0
        if isinstance(step, int):
            self._clock.now_ns += step
            step = 2.0
        if isinstance(step, Exception):
            raise step
        return {"a": step}


def sampled(script, ticks):
    """A sampler of 1 Hz whose waits let the clock go on at once."""
    clock, taken, gaps, notes = Clock(), [], [], []

    class Sink:
        def samples(self, at, values):
            taken.append((at, values["a"]))

        def gap(self, name, begin, end):
            gaps.append((begin, end))

        def note(self, name, text):
            notes.append(text)

    sampler = Sampler("test", [Scripted(clock, script)], 1.0, Sink(), clock_ns=clock)

    def wait(seconds):
        nonlocal ticks
        ticks -= 1
        clock.now_ns += round(seconds * S)
        return ticks < 0

    sampler._ending = threading.Event()
    sampler._ending.wait = wait
    sampler.begin()
    assert sampler.end()
    return taken, gaps, notes


def test_the_rate_is_kept_by_deadlines_and_does_not_drift():
    """Each reading takes 0.3 s, and the next is a second after the one before began all the same."""
    taken, gaps, notes = sampled([300_000_000] * 60, 50)
    at = [time_ns - S * 3 // 20 for time_ns, _ in taken[1:-1]]
    assert np.diff(at).tolist() == [S] * (len(at) - 1)
    assert len(at) == 50 and not gaps and not notes


def test_what_is_missed_is_a_gap_and_is_not_made_up_for():
    taken, gaps, notes = sampled([1.0, 1.0, 3 * S + S // 2, 1.0, 1.0], 6)
    times = [time_ns for time_ns, _ in taken]
    assert len(gaps) == 2 or len(gaps) == 1
    assert all(end - begin > S for begin, end in gaps)
    assert all(b > a for a, b in zip(times, times[1:-1], strict=False))
    # After the long one, deadlines are whole seconds after the start again.
    assert [time_ns % S for time_ns in times[3:6]] == [0, 0, 0]


def test_a_sensor_that_dies_and_comes_back_has_a_gap_and_a_note():
    gone = OSError(19, "No such device", "/sys/temp1_input")
    taken, gaps, notes = sampled([1.0, 1.0, gone, gone, gone, 1.0, 1.0], 8)
    assert gaps == [(1 * S, 5 * S)]
    assert "No such device" in notes[0] and "/sys/temp1_input" in notes[0] and "3" in notes[-1]
    assert len(taken) == 7


def test_a_sensor_that_is_gone_for_good_has_a_gap_to_the_end():
    taken, gaps, notes = sampled([1.0, 1.0] + [ValueError("it broke")] * 20, 8)
    assert gaps[-1][0] == S and gaps[-1][1] >= 8 * S
    assert "it broke" in notes[0]


def test_a_sensor_that_hangs_holds_up_nothing_but_itself(monkeypatch):
    monkeypatch.setattr("blkreel.replay.telemetry.source._JOIN_S", 0.2)
    hangs, hanging, first = threading.Event(), threading.Event(), [True]

    class Hanging(Scripted):
        def read(self):
            if not first:
                hangs.set()
                hanging.wait(300)
            first.clear()
            return {"a": 1.0}

    sampler = Sampler("test", [Hanging(None, [])], 0.05, Mock())
    sampler.begin()
    assert hangs.wait(300)
    assert not sampler.end()
    hanging.set()


# -- others' I/O

def rows(complete_ns, length=4096, op=0):
    count = len(complete_ns)
    return {"complete_ns": np.array(complete_ns), "submit_ns": np.array(complete_ns) - 1000,
            "length_bytes": np.full(count, length), "op": np.full(count, op), "target": np.zeros(count, int)}


def add(live, these, reads=True):
    mask = np.full(len(these["op"]), reads)
    live.take(these, mask, ~mask)


def test_foreign_io_is_told_when_it_happens_and_ours_never():
    """1000 reads of ours a second; in the third second somebody writes four times."""
    live, ours = ExternalIos(), rows(np.arange(5000) * 1_000_000)
    add(live, ours)
    for tenth in range(51):
        # The kernel is ahead of our stamps by up to 50 ms.
        done = min(5000, tenth * 100 + (50 if tenth % 2 else 0))
        others = max(0, min(4, tenth - 25))
        live.add_count(1000 * S + tenth * S // 10, DiskCount(7 + done, 512 + done * 4096, others, others * 8192))
    time_ns, value = live.series(1000 * S)
    assert time_ns[0] == 1000 * S
    assert value[:26].tolist() == [0] * 26
    assert value.tolist() == sorted(value.tolist()) and value[-1] == 4
    assert value[30] == 4


def test_a_drive_that_splits_ios_has_no_foreign_ones():
    live = ExternalIos()
    add(live, rows(np.arange(100) * 10**7, 1 << 20))
    live.add_count(0, DiskCount(0, 0, 0, 0))
    live.add_count(2 * S, DiskCount(800, 100 << 20, 0, 0))
    assert live.series(0)[1].tolist() == [0, 0]
    assert len(ExternalIos().series(0)[0]) == 0


# -- the account

def told(suffix=""):
    time_ns = np.arange(-1, 12) * S
    ends_ns = np.array([-S, 11 * S])
    samples = {"temperature_c": (time_ns, np.array([30, 31, 40, 50, 45, 44, 43, 42, 41, 40, 39, 38, 99.0])),
               "power_w": (time_ns, np.full(13, 4.0)), "throttle_events": (time_ns, np.maximum(time_ns / S - 9, 0)),
               "smart.media_errors": (ends_ns, np.array([1.0, 1.0])),
               "smart.host_reads": (ends_ns, np.array([1.0, 8.0])),
               "smart.critical_warning": (np.arange(3) * S, np.array([0.0, 2.0, 1.0]))}
    samples = {name.replace("smart", f"smart{suffix}") if name.startswith("smart") else f"{name}{suffix}": series
               for name, series in samples.items()}
    sensors = {name: sensor("", "test", 1.0) for name in samples}
    sensors["link_width"] = sensor("lanes", "", missing="no link")
    return Telemetry(sensors, {"after": {"took_ns": 9}}, 0, samples)


METER = {"meter": "command: meter", "rail": "drive"}


def test_an_account_of_a_run_of_ten_seconds():
    found = account_of(told(), 10 * S, METER)
    assert found["temperature_c"] == {"start": 31, "max": 50, "end": 38}
    assert found["power"] == {**METER, "rate_hz": 1.0, "average_w": 4, "energy_j": 40, "gaps": 0, "covered_ns": 10 * S}
    assert found["throttled"] == 2
    assert found["smart"] == {"changed": {"critical_warning": 1, "host_reads": 7}, "critical_warning": 3, "took_ns": 9,
                              "writes": None}
    assert found["missing"] == {"link_width": "no link"} and found["link"] is None and found["drives"] is None


def test_an_account_behind_the_lead_of_a_background_is_of_the_foreground():
    telemetry = told()
    time_ns, watts = telemetry.samples["power_w"]
    telemetry.samples["power_w"] = time_ns, np.where(time_ns < 5 * S, 1.0, 9.0)
    found = account_of(telemetry, 5 * S, METER, begin_ns=5 * S)
    assert found["temperature_c"] == {"start": 43, "max": 43, "end": 38}
    assert (found["power"]["average_w"], found["power"]["covered_ns"]) == (9, 5 * S)


def test_each_drive_of_a_run_is_told_of():
    found = account_of(told(".nvme2n1"), 10 * S, METER, ["nvme2n1"])
    assert found["temperature_c"] is None and found["smart"] is None and found["throttled"] is None
    other = found["drives"]["nvme2n1"]
    assert other["temperature_c"]["max"] == 50 and other["throttled"] == 2
    assert other["smart"]["changed"]["host_reads"] == 7
    other["smart"]["changed"]["media_errors"] = 1
    other["link"] = {"least_width": 2}
    before = {"": None, "nvme2n1": {"speed_gts": 8, "width": 4}}
    assert [reason["text"].split()[0] for reason in invalid(read(found), before)] == ["nvme2n1", "1"]
    assert next(qualified(read(found)))["text"] == "thermal throttling of nvme2n1: 2 times"


def test_nothing_that_is_unknown_is_a_zero():
    found = account_of(Telemetry({"temperature_c": sensor("C", "", missing="modprobe drivetemp")}), S, None)
    assert found == {"temperature_c": None, "power": None, "throttled": None, "link": None, "smart": None,
                     "drives": None, "missing": {"temperature_c": "modprobe drivetemp"}, "notes": {},
                     "meter_given": False}


def counters(**values):
    times = np.arange(3) * S
    return Telemetry({f"smart.{name}": sensor("", "test") for name in values}, samples={
        f"smart.{name}": (times[:len(each)], np.array(each, float)) for name, each in values.items()})


@pytest.mark.parametrize(("values", "writes"), [
    # The media counter grows by 4 MiB at a time, the host counter by a data unit.
    ({"data_units_written": [1000, 1003, 1010], "media_bytes_written": [40 << 20, 44 << 20, 60 << 20]},
     {"unit": "B", "host": 5_120_000, "media": 20 << 20, "host_step": 512_000, "media_step": 4 << 20}),
    ({"host_program_pages": [7, 10, 17], "ftl_program_pages": [3, 4, 8]},
     {"unit": "page", "host": 10, "media": 15, "host_step": 1, "media_step": 2}),
    ({"data_units_written": [7, 10]}, None),
    ({"data_units_written": [7, 10], "media_bytes_written": [0, 0]}, None),
    ({"data_units_written": [7, 10], "media_bytes_written": [9, 2]}, None),
    ({"data_units_written": [7], "media_bytes_written": [9]}, None)])
def test_counters_of_writes_have_a_growth_and_a_step(values, writes):
    smart = account_of(counters(**values), 10 * S, METER)["smart"]
    assert (smart or {"writes": None})["writes"] == writes


def test_gaps_of_a_meter_are_in_neither_figure():
    telemetry = told()
    telemetry.sensors["power_w"]["gaps"] = [[2 * S, 5 * S], [-9 * S, -2 * S]]
    power = account_of(telemetry, 10 * S, METER)["power"]
    assert (power["average_w"], power["energy_j"], power["gaps"], power["covered_ns"]) == (4, 28, 1, 7 * S)


def read(account):
    """The account as its readers have it, None: of a run without one."""
    return record(metadata_types.Telemetry, account)


def reasons(account, wall_ns=10 * S, link=None):
    telemetry = read(account)
    found = [list(invalid(telemetry, {"": link})), [*qualified(telemetry), *power(telemetry, wall_ns)[0]]]
    assert all(reason["level"] == level for level, of in zip(("invalid", "qualified"), found, strict=True)
               for reason in of)
    return [[reason["text"] for reason in of] for of in found]


@pytest.mark.parametrize(("changes", "level", "words"), [
    ({"throttled": 3}, 1, "thermal throttling of the drive: 3 times"),
    ({"throttled": 1}, 1, "thermal throttling of the drive: 1 time"),
    ({"smart": {"changed": {"warning_temperature_time": 2}, "critical_warning": 0}}, 1, "2 min of the drive above"),
    ({"smart": {"changed": {}, "critical_warning": 2}}, 1, "temperature warning of the drive"),
    ({"smart": {"changed": {"media_errors": 2}, "critical_warning": 0}}, 0, "2 new media errors of the drive"),
    ({"smart": {"changed": {"reported_uncorrectable": 1}, "critical_warning": 0}}, 0, "uncorrectable"),
    ({"smart": {"changed": {"crc_errors": 5}, "critical_warning": 0}}, 1, "5 new failed transfers"),
    ({"link": {"least_speed_gts": 2.5, "least_width": 4}}, 0, "fell from 16 GT/s to 2.5 GT/s"),
])
def test_what_speaks_against_a_run(changes, level, words):
    good = {**account_of(told(), 10 * S, METER), "throttled": 0, "smart": {"changed": {}, "critical_warning": 0}}
    assert reasons(good, link={"speed_gts": 16, "width": 4}) == [[], []]
    found = reasons({**good, **changes}, link={"speed_gts": 16, "width": 4})
    assert len(found[level]) == 1 and words in found[level][0]
    assert not found[1 - level]


def test_power_without_a_meter_is_a_note_and_of_a_broken_meter_a_reason():
    unknown = account_of(Telemetry({}), S, None)
    no_meter = {**unknown, "missing": {"power_w": NO_METER}}
    for account in (None, unknown, no_meter):
        assert power(read(account), S) == ([], [{"code": "power_not_measured", "text": "power not measured"}])
    unknown["meter_given"] = True
    broken = {**unknown, "missing": {"power_w": "the program ended with 3"}}
    assert reasons(broken)[1] == ["power not measured: the program ended with 3"]
    alone = {**unknown, "notes": {"power_w": ["the program ended with 3 before the run did"]}}  # after one sample
    assert reasons(alone)[1] == ["power not measured: the program ended with 3 before the run did"]
    measured = {**METER, "rate_hz": 1, "average_w": 4, "energy_j": 32, "gaps": 2, "covered_ns": 8 * S}
    assert "20.0 %" in reasons({**unknown, "power": measured})[1][0]
    assert not reasons({**unknown, "power": {**measured, "covered_ns": 96 * S // 10}})[1]


def test_a_simulated_drive_tells_its_own():
    totals = {"start_monotonic_ns": 5, "simulated": {"samples": [
        [0, 30, 2.5, 0], [S, 60, 7.5, 1], [2 * S, 61, 7.5, 1], [3 * S, 50, 2.5, 0], [4 * S, 62, 5, 1]]}}
    telemetry = simulated_telemetry(totals)
    assert telemetry.series("throttle_events")[1].tolist() == [0, 1, 1, 1, 2]
    assert telemetry.sensors["power_w"]["source"] == "simulated"
    account = account_of(telemetry, 4 * S, {"meter": "simulated", "rail": "drive"})
    # The first one is of the time before the run; the second stands for it.
    assert telemetry.series("power_w")[1].tolist() == [7.5, 7.5, 7.5, 2.5, 5]
    assert account["throttled"] == 2 and account["power"]["energy_j"] == pytest.approx(7.5 + 7.5 + 5 + 3.75)
    assert simulated_telemetry({}) is None and simulated_telemetry({"simulated": {"samples": []}}) is None
