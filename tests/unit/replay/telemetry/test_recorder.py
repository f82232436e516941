"""What is measured beside a run, from its sources to its account; the run goes on whatever becomes of them."""

import os
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from fake_sysfs import PCI, Sys

from blkreel.common.device import Drive
from blkreel.common.files import typed_document
from blkreel.replay.drive.target import find_target
from blkreel.replay.fidelity.health import power
from blkreel.replay.telemetry.options import TelemetryOptions
from blkreel.replay.telemetry.power.log import PowerLog
from blkreel.replay.telemetry.recorder import Recorder
from blkreel.traces.format.metadata_types import Telemetry
from blkreel.traces.format.schema import OPS
from blkreel.traces.telemetry.file import FILE
from blkreel.traces.telemetry.reader import read_telemetry

S = 10**9
CONTROLLER = f"{PCI}/nvme/nvme0"


@pytest.fixture
def target(tmp_path):
    (tmp_path / "image").write_bytes(bytes(1 << 20))
    return find_target(tmp_path / "image")


@pytest.fixture
def sys_root(tmp_path):
    """A machine with one NVMe drive that has a temperature."""
    tree = Sys(tmp_path / "sys")
    tree.file(f"{CONTROLLER}/nvme0n1/stat", "0 0 0 0 0 0 0 0 0 0 0")
    tree.chip("nvme", CONTROLLER, temp1_input=41000)
    return tree.root


@pytest.fixture
def nvme(target, sys_root):
    drive = Drive("nvme0n1", "/dev/nvme0n1", "disk", 259, 0, 1 << 20, 512, 512)
    return replace(target, drive=drive, block=sys_root / CONTROLLER / "nvme0n1")


@pytest.fixture(autouse=True)
def nvme_cli(tmp_path, monkeypatch):
    """nvme_cli(script) is the only program that is installed."""
    program = tmp_path / "nvme"
    monkeypatch.setattr("blkreel.replay.telemetry.sensors.smart.find_program",
                        lambda name: str(program) if program.exists() else None)

    def install(script):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return install


def record(target, tmp_path, options=None, seconds=0.3, sys_root=None, during=lambda: None, totals=None):
    recorder = Recorder(options or TelemetryOptions(sample_hz=20), [target], tmp_path, False,
                        **({"sys_root": sys_root} if sys_root else {}))
    with recorder:
        start_ns = time.monotonic_ns()
        during()
        time.sleep(seconds)
        wall_ns = time.monotonic_ns() - start_ns
    recorder.finish({"start_monotonic_ns": start_ns} if totals is None else totals, wall_ns)
    return recorder.account(), read_telemetry(tmp_path)


def test_a_drive_is_sampled_before_during_and_after(nvme, sys_root, tmp_path):
    account, found = record(nvme, tmp_path, sys_root=sys_root, seconds=1.2)
    assert account["temperature_c"] == {"start": 41, "max": 41, "end": 41}
    time_ns, value = found.series("temperature_c")
    assert time_ns[0] < 0 and time_ns[-1] > 1.1 * S and set(value) == {41}
    assert found.sensors["temperature_c"]["rate_hz"] == 1 and found.sensors["foreign_ios"]["samples"] >= 5
    assert found.series("foreign_ios")[1].max() == 0
    assert "nvme-cli" in account["missing"]["smart"] and "nvme-cli" in account["missing"]["throttle_events"]
    assert "--power-command" in account["missing"]["power_w"]
    assert not (tmp_path / f".{FILE}.spool").exists()


def test_foreign_io_of_a_run_has_its_time(nvme, sys_root, tmp_path):
    stat = nvme.disk_block / "stat"

    def somebody_reads():
        time.sleep(0.5)
        # All at once, as the kernel does: who reads it finds one or the other.
        (tmp_path / "stat").write_text("3 0 24 0 0 0 0 0 0 0 0\n")
        (tmp_path / "stat").replace(stat)

    account, found = record(nvme, tmp_path, sys_root=sys_root, during=somebody_reads)
    time_ns, value = found.series("foreign_ios")
    assert value[0] == 0 and value[-1] == 3
    assert 0.4 * S < time_ns[np.argmax(value > 0)] < 100 * S


def test_external_io_is_missing_where_the_kernel_counts_nothing(nvme, sys_root, tmp_path):
    """iostats are switched off: the sensor was 0 during the whole run."""
    recorder = Recorder(TelemetryOptions(sample_hz=20), [nvme], tmp_path, False, sys_root=sys_root)
    with recorder:
        start_ns = time.monotonic_ns()
        recorder.take({"op": np.array([OPS["read"]]), "target": np.zeros(1, int), "length_bytes": np.array([4096]),
                       "submit_ns": np.array([0]), "complete_ns": np.array([1000])})
        time.sleep(0.2)
    recorder.finish({"start_monotonic_ns": start_ns}, 10**8)
    assert "foreign_ios" in recorder.account()["missing"]
    found = read_telemetry(tmp_path)
    assert len(found.series("foreign_ios")[1]) == 0 and "switched off" in found.sensors["foreign_ios"]["missing"]


def test_a_meters_samples_are_in_the_account(target, tmp_path):
    options = TelemetryOptions(power_command="while :; do date '+%s.%N 6'; sleep 0.1; done")
    account, found = record(target, tmp_path, options, seconds=1.0)
    power = account["power"]
    assert power["average_w"] == 6 and power["covered_ns"] > 0.3 * S
    assert power["energy_j"] == pytest.approx(6 * power["covered_ns"] / S, rel=1e-3)
    assert power["meter"] == "command: while :; do date '+%s.%N 6'; sleep 0.1; done"
    assert "power_w" not in account["missing"] and found.sensors["power_w"]["samples"] >= 3


def test_a_log_that_misses_the_run_is_told_with_its_remedy(target, tmp_path):
    (tmp_path / "log.csv").write_text("time,power\n100,4\n101,4\n")
    account, _ = record(target, tmp_path, TelemetryOptions(power_log=PowerLog(tmp_path / "log.csv")))
    assert account["power"] is None
    assert "do not overlap" in account["missing"]["power_w"] and "offset=" in account["missing"]["power_w"]
    (tmp_path / "b").mkdir()
    account, _ = record(target, tmp_path / "b", TelemetryOptions(power_log=PowerLog(tmp_path / "none")))
    assert "cannot be read" in account["missing"]["power_w"]


def test_a_log_that_covers_the_run_is_cut_to_it(target, tmp_path):
    now = time.time()
    (tmp_path / "log.csv").write_text("time,power\n" + "".join(f"{now - 60 + at / 10},3\n" for at in range(1200)))
    account, found = record(target, tmp_path, TelemetryOptions(power_log=PowerLog(tmp_path / "log.csv")))
    assert account["power"]["average_w"] == 3 and account["power"]["meter"] == "log: log.csv"
    assert account["power"]["energy_j"] == pytest.approx(3 * account["power"]["covered_ns"] / S, rel=1e-3)
    assert found.sensors["power_w"]["samples"] < 20


@pytest.mark.parametrize("begins", ["echo 0 1", "sleep 0.2; kill -INT {pid}"])
def test_a_run_that_fails_still_ends_what_was_begun(target, tmp_path, begins):
    """The second is a Ctrl-C while the first line of the meter is waited for."""
    options = TelemetryOptions(power_command=f"{begins.format(pid=os.getpid())}; exec sleep 100")
    recorder = Recorder(options, [target], tmp_path, False)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), recorder:
        raise KeyboardInterrupt
    assert threading.active_count() == before
    recorder.discard()
    assert not (tmp_path / f".{FILE}.spool").exists() and not (tmp_path / FILE).exists()


@pytest.mark.parametrize("broken", ["SampledDrive", "TelemetrySpool", "account_of", "Sampler", "PowerCommand"])
def test_whatever_breaks_is_a_reason_and_no_failure(nvme, sys_root, tmp_path, monkeypatch, broken):
    def breaks(*_, **__):
        raise RuntimeError("it broke")

    monkeypatch.setattr(f"blkreel.replay.telemetry.recorder.{broken}", breaks)
    recorder = Recorder(TelemetryOptions(power_command="sleep 1"), [nvme], tmp_path, False, sys_root=sys_root)
    monkeypatch.setattr("blkreel.replay.telemetry.power.command._FIRST_LINE_S", 0.1)
    with recorder:
        recorder.epoch(time.monotonic_ns())
        recorder.take({"op": np.zeros(3, int)})
    recorder.finish({}, S)
    account = recorder.account()
    assert any("it broke" in reason for reason in account["missing"].values())
    assert power(typed_document.record(Telemetry, account), S)[0]
    recorder.discard()


@pytest.mark.parametrize("broken", ["power.log.PowerLog.read", "drive.SampledDrive.external_ios_series"])
def test_what_breaks_at_the_end_loses_nothing_else(nvme, sys_root, tmp_path, monkeypatch, broken):
    def breaks(*_, **__):
        raise RuntimeError("it broke")

    monkeypatch.setattr(f"blkreel.replay.telemetry.{broken}", breaks)
    account, found = record(nvme, tmp_path, TelemetryOptions(power_log=PowerLog(tmp_path / "log")), sys_root=sys_root)
    assert any("it broke" in reason for reason in account["missing"].values())
    assert account["temperature_c"]["start"] == 41 and found.sensors["temperature_c"]["samples"] >= 2


def test_no_drive_has_no_heat(tmp_path):
    nil = find_target("nil:1GiB")
    account, found = record(nil, tmp_path)
    assert account["missing"]["temperature_c"] == account["missing"]["power_w"] == "the target is not a drive"
    totals = {"start_monotonic_ns": 5, "simulated": {"samples": [[0, 30, 2, 0], [S, 60, 4, 0]]}}
    (tmp_path / "b").mkdir()
    account, found = record(nil, tmp_path / "b", totals=totals)
    assert account["power"]["meter"] == "simulated" and account["throttled"] == 0
    assert found.epoch_ns == 5 and found.series("temperature_c")[1].tolist() == [30, 60]


def test_counters_of_writes_and_the_latency_log_are_read_from_an_ocp_drive(nvme, sys_root, tmp_path, nvme_cli):
    """Data units 1000 to 1100, and media writes of 80 MiB in steps of 4 MiB."""
    (tmp_path / "units").write_text("1000 4194304")
    nvme_cli(f'''read units media < {tmp_path}/units
case "$*" in
smart-log*) echo "{{\\"critical_warning\\": 0, \\"temperature\\": 300, \\"data_units_written\\": $units}}";;
id-ctrl*) echo "{{\\"lpa\\": 62}}";;
supported-log-pages*) echo "{{\\"supported_logs\\": [{{\\"lid_0xc0 \\": 1}}, {{\\"lid_0xc3 \\": 1}}]}}";;
*smart-add-log*) echo "{{\\"Physical media units written\\": {{\\"hi\\": 0, \\"lo\\": $media}}}}";;
*latency-monitor-log*) echo "{{\\"Feature Status\\": 1}}";;
*) exit 1;;
esac''')
    recorder = Recorder(TelemetryOptions(), [nvme], tmp_path, False, sys_root=sys_root)
    with recorder:
        (tmp_path / "units").write_text(f"1100 {84 << 20}")
    recorder.finish({"start_monotonic_ns": time.monotonic_ns()}, S)
    account = recorder.account()
    assert account["smart"]["writes"] == {"unit": "B", "host": 51_200_000, "media": 80 << 20,
                                          "host_step": 100 * 512_000, "media_step": 4 << 20}
    assert recorder.latency_logs() == {"nvme0n1": {"Feature Status": 1}}
    nvme_cli("exit 1")
    assert recorder.latency_logs() == {} and "exited with 1" in recorder.account()["missing"]["latency_log.nvme0n1"]


def test_who_asks_smart_finds_what_changed(nvme, sys_root, tmp_path, nvme_cli, monkeypatch):
    monkeypatch.setattr("blkreel.replay.telemetry.recorder._SMART_PERIOD_S", 0.2)
    (tmp_path / "count").write_text("4")
    nvme_cli(f'''echo "{{\\"critical_warning\\": 0, \\"temperature\\": 345, \\"media_errors\\": 0,
\\"thm_temp1_trans_count\\": $(cat {tmp_path}/count), \\"host_read_commands\\": 9}}"''')
    (sys_root / "class/hwmon/hwmon0").unlink()
    account, found = record(nvme, tmp_path, TelemetryOptions(), sys_root=sys_root, seconds=0.7,
                            during=lambda: (tmp_path / "count").write_text("6"))
    assert account["throttled"] == 2
    assert account["smart"]["changed"] == {"thermal_1_transitions": 2}
    assert found.smart["before"]["thermal_1_transitions"] == 4 and found.smart["before"]["took_ns"] > 0
    # Without hwmon, SMART tells the temperature, too.
    assert account["temperature_c"]["end"] == 72 and found.sensors["temperature_c"]["source"] == "nvme smart-log"
    assert found.sensors["smart.thermal_1_transitions"]["samples"] >= 3
    nvme_cli("exit 1")
    (tmp_path / "b").mkdir()
    account, _ = record(nvme, tmp_path / "b", sys_root=sys_root)
    assert account["smart"] is None and "exited with 1" in account["missing"]["smart"]
