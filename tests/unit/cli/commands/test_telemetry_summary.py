"""Messages about sensors: before a run in `doctor`, after it in one line."""

import pytest
from damaged import StoredMetadata
from fake_sysfs import NVME, PCI, Sys, rapl
from synthetic_runs import write_run

from blkreel.analysis.report import present
from blkreel.analysis.report.verdict import of_runs
from blkreel.cli.requirements import sensors
from blkreel.cli.ui.replay_summary import telemetry_line
from blkreel.common.files.typed_document import record
from blkreel.traces.format.metadata_types import Telemetry

S = 10**9
POWER = {"meter": "command: meter", "rail": "drive", "rate_hz": 2, "average_w": 4.2, "energy_j": 42, "gaps": 0,
         "covered_ns": 10 * S}


def block(sys_tree, path):
    disk = sys_tree.disk(path)
    sys_tree.file(f"{path}/size", 2048)
    sys_tree.file(f"{path}/dev", "259:0")
    entry = sys_tree.root / "class/block" / disk.name
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.symlink_to(disk)


def test_doctor_tells_whose_temperature_is_known(tmp_path, monkeypatch):
    installed, sys_tree = {}, Sys(tmp_path / "sys")
    monkeypatch.setattr("blkreel.cli.requirements.find_program", installed.get)
    block(sys_tree, f"{PCI}/nvme/nvme0/nvme0n1")
    block(sys_tree, "devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda")
    block(sys_tree, "devices/virtual/block/loop0")
    sys_tree.chip("nvme", PCI, **NVME)
    heat, power = sensors(sys_tree.root)
    assert heat.status == "note" and heat.detail == "of nvme0n1; not of sda"
    assert heat.remedy == "apt-get install nvme-cli; apt-get install smartmontools; modprobe drivetemp"
    assert power.detail == "no sensor" and "--power-command" in power.remedy
    installed |= {"nvme": "/usr/sbin/nvme", "smartctl": "/usr/sbin/smartctl"}
    sys_tree.chip("drivetemp", "devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0", temp1_input=30000)
    sys_tree.chip("ina226", power1_input=5, power1_label="12V")
    rapl(sys_tree)
    heat, power = sensors(sys_tree.root)
    assert (heat.status, heat.detail, heat.remedy) == ("ok", "of nvme0n1, sda", "")
    assert power.detail.startswith("ina226-12v, package-0;")


def test_a_run_has_one_line_of_what_was_measured():
    assert telemetry_line(Telemetry()) == ""
    heat = {"start": 34.2, "max": 61.9, "end": 58}
    line = telemetry_line(record(Telemetry, {"temperature_c": heat, "power": POWER}))
    assert line == ("drive temperature 34 C at start, 58 C at end, max 62 C; "
                    "4.2 W on average, 42 J in 10.0 s (command: meter)")
    assert "(log: a.csv, 3 gaps)" in telemetry_line(
        record(Telemetry, {"power": {**POWER, "gaps": 3, "meter": "log: a.csv"}}))


@pytest.mark.parametrize(("starts_c", "words"), [
    ([40, 41, 43, 40], None), ([40, 40, 43.1], "at 43 C, the set at 40 C"), ([40, None, 36.5, 41], "at 36 C, the set"),
    ([None, None], None), ([], None), ([70], None)])
def test_a_set_of_runs_begins_equally_warm(starts_c, words):
    found = of_runs([{"level": "valid", "reasons": []}] * 6, starts_c)
    texts = [reason["text"] for reason in found["reasons"]]
    assert (found["level"], len(texts)) == (("qualified", 1) if words else ("valid", 0))
    assert not words or words in texts[0]


def test_a_report_tells_of_a_set_that_began_at_other_temperatures(tmp_path):
    paths = [write_run(tmp_path / f"run{seed}", seed=seed) for seed in (1, 2)]
    for path, start_c in zip(paths, (30, 50), strict=True):
        stored = StoredMetadata(path / "records.parquet")
        telemetry = {"temperature_c": {"start": start_c, "max": 60, "end": 60}}
        stored.replace({**stored.whole, "run": {**stored.whole["run"], "telemetry": telemetry}})
    (entry,) = present.compare(paths)["sections"][0]["entries"]
    assert any("began with the drive at" in reason["text"] for reason in entry["verdict"]["reasons"])
