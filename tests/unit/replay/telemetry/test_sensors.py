"""Sensors of the kernel, in trees of files that look like sysfs."""

import pytest
from fake_sysfs import NVME, PCI, Sys, rapl
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.telemetry.power import rails as power
from blkreel.replay.telemetry.power.rails import Rapl
from blkreel.replay.telemetry.sensors import hwmon
from blkreel.replay.telemetry.sensors.sysfs import cpu_throttling, link, link_of
from blkreel.replay.telemetry.source import Sensor


@pytest.fixture
def sys_tree(tmp_path):
    return Sys(tmp_path / "sys")


def read(found):
    (source,) = found.sources
    assert {sensor.name for sensor in source.sensors} == set(source.read())
    return source.read()


def test_each_temperature_of_an_nvme_drive_has_its_label(sys_tree):
    disk = sys_tree.disk(f"{PCI}/nvme/nvme0/nvme0n1")
    sys_tree.chip("coretemp", temp1_input=90000)
    sys_tree.chip("nvme", f"{PCI}/nvme/nvme0", **NVME)
    assert read(hwmon.temperatures(disk, sys_tree.root)) == pytest.approx(
        {"temperature_c": 38.85, "temperature_c.sensor-1": 41.85, "temperature_c.sensor-2": -1.15})


def test_of_several_drives_each_gets_its_own_sensor(sys_tree):
    """They all have the same name, and the order of their numbers is that of their discovery."""
    other = PCI.replace("03:00", "04:00")
    sys_tree.chip("nvme", f"{other}/nvme/nvme1", temp1_input=50000)
    sys_tree.chip("nvme", PCI, temp1_input=30000)
    first, second = sys_tree.disk(f"{PCI}/nvme/nvme0/nvme0n1"), sys_tree.disk(f"{other}/nvme/nvme1/nvme1n1")
    assert read(hwmon.temperatures(first, sys_tree.root)) == {"temperature_c": 30}
    assert read(hwmon.temperatures(second, sys_tree.root, ".nvme1n1")) == {"temperature_c.nvme1n1": 50}


def test_a_drive_of_a_subsystem_is_reached_through_its_controller(sys_tree):
    disk = sys_tree.disk("devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
    controller = sys_tree.disk(f"{PCI}/nvme/nvme0")
    (disk.parent / "nvme0").symlink_to(controller)
    sys_tree.chip("nvme", f"{PCI}/nvme/nvme0", temp1_input=33000)
    sys_tree.link()
    assert read(hwmon.temperatures(disk, sys_tree.root)) == {"temperature_c": 33}
    assert link_of(disk) == {"speed_gts": 8, "width": 4, "best_speed_gts": 16, "best_width": 4}


def test_a_sata_drive_has_its_temperature_by_drivetemp(sys_tree):
    ata = "devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0"
    sys_tree.chip("drivetemp", "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0", temp1_input=50000)
    sys_tree.chip("drivetemp", ata, temp1_input=29000, temp1_max=70000)
    assert read(hwmon.temperatures(sys_tree.disk(f"{ata}/block/sdb"), sys_tree.root)) == {"temperature_c": 29}


@pytest.mark.parametrize(("name", "module", "words"), [
    ("sda", False, "modprobe drivetemp"), ("sda", True, "smartmontools"), ("nvme0n1", False, "CONFIG_NVME_HWMON"),
    ("loop3", False, "loop3 is not an NVMe")])
def test_a_temperature_that_is_missing_says_why(sys_tree, name, module, words):
    sys_tree.chip("coretemp", temp1_input=90000)
    if module:
        sys_tree.disk("module/drivetemp")
    found = hwmon.temperatures(sys_tree.disk(f"devices/x/block/{name}"), sys_tree.root)
    assert not found.sources
    (missing,) = found.missing
    assert missing.name == "temperature_c" and words in missing.reason


def test_a_sensor_that_tells_rubbish_is_an_error_and_no_zero(sys_tree):
    disk = sys_tree.disk(f"{PCI}/nvme/nvme0/nvme0n1")
    chip = sys_tree.chip("nvme", PCI, temp1_input=30000)
    (source,) = hwmon.temperatures(disk, sys_tree.root).sources
    for text in ("", "n/a\n"):
        (chip / "temp1_input").write_text(text)
        with pytest.raises(ValueError, match="no number"):
            source.read()
    (chip / "temp1_input").unlink()
    with pytest.raises(OSError):
        source.read()


def test_power_rails_of_chips(sys_tree):
    sys_tree.chip("ina226", in1_input=12000, curr1_input=350, power1_input=4200000)
    sys_tree.chip("ina3221", in1_input=3300, curr1_input=1500, in2_input=5000, curr2_input=10, curr3_input=9,
                  curr1_label="M.2 3V3")
    sys_tree.chip("power_meter", power1_average=150000000, power1_label="System")
    rails = hwmon.power_rails(sys_tree.root)
    values = {key: rail.read()[rail.sensors[0].name] for key, rail in rails.items()}
    assert values == pytest.approx({"ina226-power1": 4.2, "ina3221-m-2-3v3": 4.95, "ina3221-curr2": 0.05,
                                    "power-meter-system": 150})
    assert rails["ina3221-m-2-3v3"].sensors[0].rail == "M.2 3V3"


def test_two_chips_of_one_name_keep_their_rails_apart(sys_tree):
    sys_tree.chip("ina226", "devices/i2c/1-0040", power1_input=1000000)
    sys_tree.chip("ina226", "devices/i2c/1-0041", power1_input=2000000)
    rails = hwmon.power_rails(sys_tree.root)
    assert sorted(rails) == ["ina226-hwmon1-power1", "ina226-power1"]


def test_the_processors_rails_are_named_and_are_no_drives(sys_tree):
    rapl(sys_tree)
    rapl(sys_tree, "intel-rapl:1", "psys")
    rapl(sys_tree, "intel-rapl-mmio:0", "package-0")
    sys_tree.disk("class/powercap/intel-rapl")
    found = power.processor_rails(sys_tree.root)
    assert sorted(source.sensors[0].name for source in found.sources) == ["power_w.package-0", "power_w.psys"]
    assert power.rail_of_drive(None, sys_tree.root).missing[0].reason == power.NO_METER


@given(st.lists(st.integers(0, 999_999), min_size=2, max_size=20), st.integers(0, 999_999))
def test_a_counter_that_wraps_around_loses_nothing(tmp_path_factory, used, start):
    """Seconds apart, each with less than a whole turn of a counter of one joule."""
    zone = rapl(Sys(tmp_path_factory.mktemp("rapl")), energy=start, most=1_000_000)
    clock = iter(range(0, 10**12, 10**9))
    source = Rapl(Sensor("power_w.package-0", "W", "powercap", "package-0"), zone, lambda: next(clock))
    assert source.read() == {}
    at, watts = start, []
    for energy in used:
        at = (at + energy) % 1_000_000
        (zone / "energy_uj").write_text(str(at))
        watts.append(source.read()["power_w.package-0"])
    assert watts == pytest.approx([energy / 1e6 for energy in used])


def test_the_meter_that_is_named_becomes_the_drives(sys_tree):
    sys_tree.chip("ina226", power1_input=4200000, power1_label="12V")
    zone = rapl(sys_tree, energy=5)
    found = power.rail_named("ina226-12v", sys_tree.root)
    assert read(found) == pytest.approx({"power_w": 4.2})
    assert found.sources[0].sensors[0].rail == "12V"
    (source,) = power.rail_named("power_w.package-0", sys_tree.root).sources
    assert source.sensors[0].name == "power_w" and source.sensors[0].rail == "package-0"
    (zone / "energy_uj").chmod(0)
    (missing,) = power.rail_named("ina", sys_tree.root).missing
    assert missing.name == "power_w" and "ina226-12v" in missing.reason


def test_a_rail_in_the_drive_itself_needs_no_name(sys_tree):
    disk = sys_tree.disk(f"{PCI}/nvme/nvme0/nvme0n1")
    sys_tree.chip("ina226", power1_input=9000000)
    assert power.rail_of_drive(disk, sys_tree.root).missing
    sys_tree.chip("nvme", PCI, temp1_input=30000, power1_input=3000000)
    assert read(power.rail_of_drive(disk, sys_tree.root)) == {"power_w": 3}


def test_the_link_is_read_anew_each_time(sys_tree):
    sys_tree.link()
    disk = sys_tree.disk(f"{PCI}/nvme/nvme0/nvme0n1")
    (source,) = link(disk).sources
    assert source.read() == {"link_speed_gts": 8, "link_width": 4}
    sys_tree.link(speed="2.5 GT/s PCIe", width=2)
    assert source.read() == {"link_speed_gts": 2.5, "link_width": 2}
    assert [missing.name for missing in link(sys_tree.disk("devices/virtual/block/loop0")).missing] == [
        "link_speed_gts", "link_width"]


def test_heat_of_processors_is_counted_from_the_run_on(sys_tree):
    assert cpu_throttling(sys_tree.root).missing
    core = sys_tree.file("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", 7)
    (source,) = cpu_throttling(sys_tree.root).sources
    assert source.read() == {"throttle_events.cpu": 0}
    core.write_text("9\n")
    assert source.read() == {"throttle_events.cpu": 2}
