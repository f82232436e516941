"""SMART from programs that print what nvme-cli and smartctl print."""

import json
import os

import pytest

from blkreel.common.device import Drive
from blkreel.replay.telemetry.sensors.smart import smart, thermal_transitions
from blkreel.replay.telemetry.sensors.smart_formats import UNITS, from_nvme_cli, from_ocp, from_smartctl, listed_logs

NVME = Drive("nvme0n1", "/dev/nvme0n1", "disk", 259, 0, 1 << 40, 512, 4096)
SATA = Drive("sda", "/dev/sda", "disk", 8, 0, 1 << 40, 512, 4096)
LOOP = Drive("loop0", "/dev/loop0", "loop", 7, 0, 1 << 30, 512, 4096)

NVME_CLI = {
    "critical_warning": 2, "temperature": 345, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3,
    "endurance_grp_critical_warning_summary": 0, "data_units_read": 123456789, "data_units_written": 987654321,
    "host_read_commands": 1234567890, "host_write_commands": 2345678901, "controller_busy_time": 4567,
    "power_cycles": 12, "power_on_hours": 345, "unsafe_shutdowns": 6, "media_errors": 0, "num_err_log_entries": 78,
    "warning_temp_time": 9, "critical_comp_time": 1, "temperature_sensor_1": 345, "temperature_sensor_2": 350,
    "thm_temp1_trans_count": 4, "thm_temp2_trans_count": 1, "thm_temp1_total_time": 60, "thm_temp2_total_time": 7,
}
SMARTCTL_NVME = {
    "json_format_version": [1, 0],
    "smartctl": {"version": [7, 3], "platform_info": "x86_64-linux", "argv": ["smartctl", "-j", "-a", "/dev/nvme0n1"],
                 "exit_status": 4},
    "device": {"name": "/dev/nvme0n1", "info_name": "/dev/nvme0n1", "type": "nvme", "protocol": "NVMe"},
    "smart_status": {"passed": False, "nvme": {"value": 2}},
    "nvme_smart_health_information_log": {
        "critical_warning": 2, "temperature": 72, "available_spare": 100, "available_spare_threshold": 10,
        "percentage_used": 3, "data_units_read": 123456789, "data_units_written": 987654321, "host_reads": 1234567890,
        "host_writes": 2345678901, "controller_busy_time": 4567, "power_cycles": 12, "power_on_hours": 345,
        "unsafe_shutdowns": 6, "media_errors": 0, "num_err_log_entries": 78, "warning_temp_time": 9,
        "critical_comp_time": 1, "temperature_sensors": [72, 77]},
    "temperature": {"current": 72}, "power_cycle_count": 12, "power_on_time": {"hours": 345},
}


def attribute(number, name, raw):
    return {"id": number, "name": name, "value": 100, "worst": 100, "thresh": 10, "when_failed": "",
            "flags": {"value": 50, "string": "-O--CK ", "prefailure": False}, "raw": {"value": raw, "string": str(raw)}}


SMARTCTL_ATA = {
    "json_format_version": [1, 0], "smartctl": {"version": [7, 3], "exit_status": 64},
    "device": {"name": "/dev/sda", "info_name": "/dev/sda [SAT]", "type": "sat", "protocol": "ATA"},
    "ata_smart_attributes": {"revision": 16, "table": [
        attribute(5, "Reallocated_Sector_Ct", 3), attribute(9, "Power_On_Hours", 4711),
        attribute(187, "Reported_Uncorrect", 1), attribute(194, "Temperature_Celsius", 163209936936),
        attribute(197, "Current_Pending_Sector", 2), attribute(199, "UDMA_CRC_Error_Count", 8)]},
    "power_on_time": {"hours": 4711}, "power_cycle_count": 99, "temperature": {"current": 40},
}
SMARTCTL_SCSI = {
    "smartctl": {"version": [7, 3], "exit_status": 0},
    "device": {"name": "/dev/sda", "type": "scsi", "protocol": "SCSI"},
    "temperature": {"current": 33, "drive_trip": 65}, "scsi_grown_defect_list": 4,
    "power_on_time": {"hours": 20, "minutes": 3},
    "scsi_error_counter_log": {"read": {"errors_corrected_by_eccfast": 9, "total_uncorrected_errors": 2},
                               "write": {"total_uncorrected_errors": 0}},
}


def test_both_programs_tell_the_same_of_an_nvme_drive():
    told, also = from_nvme_cli(NVME_CLI), from_smartctl(SMARTCTL_NVME)
    assert told["temperature_c"] == 72 and told["data_units_written"] == 987654321
    assert thermal_transitions(told) == 5
    assert {name: told[name] for name in also} == also
    assert set(told) - set(also) == {"thermal_1_transitions", "thermal_2_transitions", "thermal_1_time",
                                     "thermal_2_time"}
    assert set(told) <= set(UNITS)
    assert thermal_transitions(also) is None


@pytest.mark.parametrize("text", ["123456789", '"123456789"', '"123,456,789"', "1.23456789e8"])
def test_counters_come_in_several_notations(text):
    document = json.loads(json.dumps(NVME_CLI).replace('"data_units_read": 123456789', f'"data_units_read": {text}'))
    assert from_nvme_cli(document)["data_units_read"] == 123456789


@pytest.mark.parametrize("document", [
    {"Physical media units written": {"hi": 0, "lo": 123456}, "Physical media units read": {"hi": 0, "lo": 9}},
    {"physical_media_units_written": {"hi": 0, "lo": 123456}}, {"physical_media_units_written": "123,456"}])
def test_media_writes_come_in_the_notation_of_each_version(document):
    assert from_ocp(document) == {"media_bytes_written": 123456}
    assert from_ocp({"Physical media units written": {"hi": 2, "lo": 0}}) == {"media_bytes_written": 2**65}


@pytest.mark.parametrize("document", [{}, {"Physical media units written": None}, {"error": "no such log"},
                                      {"Physical media units written": {"hi": "x", "lo": 1}}])
def test_other_documents_have_no_media_writes(document):
    with pytest.raises(ValueError, match="no media units"):
        from_ocp(document)


def test_log_pages_are_read_from_the_list_of_nvme_cli():
    pages = [{"lid_0x2 ": 1}, {"lid_0xc0 ": 1}, {"lid_0xC3": 65537}, 7]
    assert listed_logs({"supported_logs": pages}) == {2, 0xC0, 0xC3}
    assert listed_logs({"supported_logs": None}) == listed_logs({}) == set()


def test_pages_of_an_ata_drive_are_known_by_the_name_that_smartctl_gives_them():
    table = [attribute(247, "Host_Program_Page_Count", 70), attribute(248, "FTL_Program_Page_Count", 30),
             attribute(241, "Total_LBAs_Written", 5)]
    assert from_smartctl({"ata_smart_attributes": {"table": table}}) == {
        "host_program_pages": 70, "ftl_program_pages": 30}
    unnamed = [attribute(247, "Unknown_Attribute", 70), attribute(194, "Temperature_Celsius", 40)]
    with pytest.raises(ValueError, match="no SMART data"):
        from_smartctl({"ata_smart_attributes": {"table": unnamed}})


def test_ata_and_scsi_drives():
    assert from_smartctl(SMARTCTL_ATA) == {
        "reallocated_sectors": 3, "reported_uncorrectable": 1, "pending_sectors": 2, "crc_errors": 8,
        "temperature_c": 40, "power_on_hours": 4711, "power_cycles": 99}
    assert from_smartctl(SMARTCTL_SCSI) == {"temperature_c": 33, "power_on_hours": 20, "grown_defects": 4,
                                            "uncorrected_reads": 2, "uncorrected_writes": 0}
    assert set(from_smartctl(SMARTCTL_ATA)) | set(from_smartctl(SMARTCTL_SCSI)) <= set(UNITS)


def test_what_smartctl_could_not_do_it_says_itself():
    document = {"smartctl": {"exit_status": 2, "messages": [
        {"string": "Smartctl open device: /dev/sda failed: Permission denied", "severity": "error"}]}}
    with pytest.raises(ValueError, match="Permission denied"):
        from_smartctl(document)
    for empty in ({}, {"smartctl": None}, {"nvme_smart_health_information_log": {}}):
        with pytest.raises(ValueError, match="no SMART data"):
            from_smartctl(empty)
    with pytest.raises(ValueError, match="no SMART log"):
        from_nvme_cli({"error": "no such device"})


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """programs(nvme=script, smartctl=script): these and no others are installed."""
    monkeypatch.setattr("blkreel.common.system.ROOT_DIRECTORIES", (f"{tmp_path}/bin",))
    monkeypatch.setattr("blkreel.common.system._SYSTEM_PROGRAMS", ())
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    (tmp_path / "bin").mkdir()

    def install(**scripts):
        for name, script in scripts.items():
            path = tmp_path / "bin" / name
            path.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
            path.chmod(0o755)

    return install


def prints(document):
    return f"echo \"$0 $*\" >> ${{0%/*}}/../asked\ncat <<'END'\n{json.dumps(document)}\nEND"


def test_nvme_drives_are_asked_by_nvme_cli_and_others_by_smartctl(programs, tmp_path):
    programs(nvme=prints(NVME_CLI), smartctl=prints(SMARTCTL_ATA) + "\nexit 64")
    of_nvme, of_sata = smart(NVME), smart(SATA, ".sda")
    assert of_nvme.is_live and not of_sata.is_live
    assert of_nvme.query()["thermal_1_transitions"] == 4
    assert of_sata.by_sensor(of_sata.query())["smart.sda.crc_errors"] == 8
    assert of_nvme.longest_ns > 0 and of_nvme.sensors[0].source == "nvme smart-log"
    asked = (tmp_path / "asked").read_text()
    assert "nvme smart-log -o json /dev/nvme0n1\n" in asked
    assert "smartctl -j -a -n standby /dev/sda\n" in asked


def nvme_program(*, lists_logs=True, logs=(0x02, 0xC0, 0xC3), media=True):
    """A drive whose nvme-cli answers each of these commands, and fails for any other, which the drive would count."""
    pages = [{f"lid_0x{number:x} ": 1} for number in logs]
    answers = {"smart-log": NVME_CLI, "id-ctrl": {"lpa": 0x3E if lists_logs else 0x1E},
               "supported-log-pages": {"supported_logs": pages},
               "latency-monitor-log": {"Feature Status": 1, "Bucket Counter": [1, 2]}}
    if media:
        answers["smart-add-log"] = {"Physical media units written": {"hi": 0, "lo": 4096}}
    cases = "\n".join(f"*\\ {name}\\ *) echo '{json.dumps(answer)}';;" for name, answer in answers.items())
    return f'echo "$*" >> ${{0%/*}}/../asked\ncase " $* " in\n{cases}\n*) echo failed >&2; exit 1;;\nesac'


@pytest.mark.parametrize("drive", [{"lists_logs": False}, {"logs": (0x02,)}])
def test_a_drive_that_does_not_list_the_ocp_log_is_asked_for_it_only_on_request(programs, tmp_path, drive):
    """Such a drive counts the query as an error of its own, which monitoring reports."""
    programs(nvme=nvme_program(**drive))
    of_nvme = smart(NVME)
    assert "--ocp-log queries it" in of_nvme.find_ocp_logs(asked=False)
    assert "media_bytes_written" not in of_nvme.query() and of_nvme.latency_log() is None
    assert " ocp " not in f" {(tmp_path / 'asked').read_text()}"
    assert of_nvme.find_ocp_logs(asked=True) == "" and of_nvme.query()["media_bytes_written"] == 4096


def test_a_drive_without_the_ocp_log_has_a_reason(programs):
    programs(nvme=nvme_program(media=False))
    of_nvme = smart(NVME)
    assert "nvme printed no JSON: failed" in of_nvme.find_ocp_logs(asked=True)
    assert "temperature_c" in of_nvme.query()


def test_smartctl_stands_in_for_nvme_cli(programs):
    programs(smartctl=prints(SMARTCTL_NVME) + "\nexit 4")
    assert smart(NVME).query()["temperature_c"] == 72


def test_what_is_not_installed_is_missing_with_its_package(programs):
    for drive, package in ((NVME, "nvme-cli"), (SATA, "smartmontools")):
        assert f"apt-get install {package}" in smart(drive)[0].reason
    assert "loop0 is not an NVMe" in smart(LOOP)[0].reason


@pytest.mark.parametrize(("script", "words"), [
    ("echo 'Failed to open /dev/nvme0n1: Permission denied' >&2; exit 13", "Permission denied"),
    ("exit 3", "exited with 3"), ("echo '{'", "no JSON"), ("echo '[]'", "no JSON"),
    ("echo '{\"error\": 1}'", "no SMART log"), ("kill -9 $$", "exited with -9")])
def test_what_goes_wrong_is_an_error_in_its_own_words(programs, script, words):
    programs(nvme=script)
    with pytest.raises(ValueError, match=words) as raised:
        smart(NVME).query()
    assert ("sudo" in str(raised.value)) == (os.geteuid() != 0)


def test_a_program_that_hangs_is_ended(programs, monkeypatch):
    monkeypatch.setattr("blkreel.replay.telemetry.sensors.smart._TIMEOUT_S", 0.3)
    programs(nvme="exec sleep 100")
    with pytest.raises(ValueError, match="did not answer"):
        smart(NVME).query()
