"""What is measured beside a replay on an NVMe drive: its temperature by hwmon, its SMART by nvme-cli as it is."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.common.device import drive_of
from blkreel.replay.telemetry.sensors.smart import Smart, smart
from blkreel.replay.telemetry.sensors.smart_formats import UNITS
from blkreel.traces.format.reader import open_trace
from blkreel.traces.telemetry.reader import read_telemetry

MIB = 1 << 20


@pytest.fixture
def trace(tmp_path):
    """A write of 4 KiB each 10 ms, for two and a half seconds."""
    count = 250
    return new_trace(tmp_path / "t.parquet", drive_bytes=64 * MIB, submit_ns=np.arange(count) * 10**7, latency_ns=1000,
                     op=1)


def hwmon_of(drive):
    """By the way from the drive downwards; the code under test goes upwards."""
    chips = list(Path("/sys/block", Path(drive).name, "device").glob("hwmon*/temp1_input"))
    chips += list(Path("/sys/block", Path(drive).name, "device/device/hwmon").glob("hwmon*/temp1_input"))
    (chip,) = chips
    return chip


def smart_log(drive):
    asked = subprocess.run(["nvme", "smart-log", "-o", "json", drive], check=True, capture_output=True)
    return json.loads(asked.stdout)


def test_fields_of_the_real_program_are_known(nvme, program):
    program("nvme", "nvme-cli")
    of_nvme = smart(drive_of(nvme))
    values, raw = of_nvme.query(), smart_log(nvme)
    assert of_nvme.is_live
    assert {"temperature_c", "critical_warning", "media_errors", "data_units_written", "host_writes", "power_on_hours",
            "thermal_1_transitions", "thermal_2_time"} <= set(values) <= set(UNITS)
    assert values["temperature_c"] == raw["temperature"] - 273


def test_smartctl_tells_the_same(nvme, program):
    path, drive = program("smartctl", "smartmontools"), drive_of(nvme)
    by_smartctl, by_nvme = Smart(drive, "smartctl", path).query(), smart(drive).query()
    # What smartctl reads to find out what the drive is, is counted.
    assert set(by_smartctl) <= set(by_nvme)
    for field in ("temperature_c", "critical_warning", "media_errors", "power_on_hours", "data_units_written"):
        assert by_smartctl[field] == by_nvme[field], field


def test_a_replay_tells_heat_and_smart_of_its_drive(blkreel, nvme, trace, tmp_path, program):
    program("nvme", "nvme-cli")
    before = smart_log(nvme)
    blkreel("replay", trace, "--on", nvme, "-o", tmp_path / "run", "--destroy", "GUEST001", code=(0, 3))
    after = smart_log(nvme)
    run, found = open_trace(tmp_path / "run").metadata["run"], read_telemetry(tmp_path / "run")
    told = run["telemetry"]
    chip = hwmon_of(nvme)
    time_ns, value = found.series("temperature_c")
    assert found.sensors["temperature_c"]["source"] == "hwmon nvme"
    assert abs(int(chip.read_text()) / 1000 - value[-1]) < 2
    assert len(value) >= 3
    assert time_ns[0] < 0 and time_ns[-1] >= run["wall_ns"] - 10**9
    assert told["temperature_c"]["start"] == value[0]
    assert set(found.smart) == {"before", "after"}
    written = told["smart"]["changed"]["host_writes"]
    # Neighbors may be merged on their way.
    assert 200 <= written <= float(after["host_write_commands"]) - float(before["host_write_commands"])
    assert told["throttled"] == 0 and told["smart"]["critical_warning"] == 0
    assert found.series("foreign_ios")[1].max() == run["foreign_ios"] == 0
    assert told["power"] is None and "power_w" in told["missing"]



def test_doctor_names_the_drives_that_tell_their_temperature(blkreel, nvme):
    result = blkreel("doctor", "--json", check=False, timeout=300)
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert hwmon_of(nvme)
    assert Path(nvme).name in checks["temperature"]["detail"].partition(";")[0]
