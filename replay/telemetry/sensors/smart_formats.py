"""Parsers of the SMART JSON of nvme-cli and smartctl, with one set of names and units."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_KELVIN = 273  # the offset that nvme-cli itself uses

# field -> unit. Names of the SMART log of NVMe drives (NVMe base specification 2.0, figure 207).
UNITS = {
    "temperature_c": "C", "critical_warning": "bits", "available_spare": "%", "percentage_used": "%",
    "data_units_read": "512000 B", "data_units_written": "512000 B", "host_reads": "count", "host_writes": "count",
    "controller_busy_time": "min", "power_cycles": "count", "power_on_hours": "h", "unsafe_shutdowns": "count",
    "media_errors": "count", "error_log_entries": "count", "warning_temperature_time": "min",
    "critical_temperature_time": "min", "thermal_1_transitions": "count", "thermal_2_transitions": "count",
    "thermal_1_time": "s", "thermal_2_time": "s",
    "reallocated_sectors": "count", "pending_sectors": "count", "offline_uncorrectable": "count",
    "reported_uncorrectable": "count", "crc_errors": "count", "grown_defects": "count",
    "uncorrected_reads": "count", "uncorrected_writes": "count",
    "media_bytes_written": "B", "host_program_pages": "pages", "ftl_program_pages": "pages",
}
DATA_UNIT_BYTES = 512_000  # of data_units_read and data_units_written
OCP_SMART_LOG, OCP_LATENCY_LOG = 0xC0, 0xC3  # log pages of the OCP Datacenter NVMe SSD specification
_LISTS_LOGS = 1 << 5  # of `lpa`: the drive lists its log pages (NVMe base specification 2.0, figure 275)
# The drive throttled itself: it entered a thermal management state, or was in one all the time.
TRANSITIONS = ("thermal_1_transitions", "thermal_2_transitions")
THROTTLED_TIMES = ("thermal_1_time", "thermal_2_time")
TEMPERATURE_WARNING = 1 << 1  # of critical_warning

_NVME_CLI = {
    "critical_warning": "critical_warning", "avail_spare": "available_spare", "percent_used": "percentage_used",
    "data_units_read": "data_units_read", "data_units_written": "data_units_written",
    "host_read_commands": "host_reads", "host_write_commands": "host_writes",
    "controller_busy_time": "controller_busy_time", "power_cycles": "power_cycles",
    "power_on_hours": "power_on_hours", "unsafe_shutdowns": "unsafe_shutdowns", "media_errors": "media_errors",
    "num_err_log_entries": "error_log_entries", "warning_temp_time": "warning_temperature_time",
    "critical_comp_time": "critical_temperature_time", "thm_temp1_trans_count": "thermal_1_transitions",
    "thm_temp2_trans_count": "thermal_2_transitions", "thm_temp1_total_time": "thermal_1_time",
    "thm_temp2_total_time": "thermal_2_time",
}
_SMARTCTL_NVME = {
    **_NVME_CLI, "temperature": "temperature_c", "available_spare": "available_spare",
    "percentage_used": "percentage_used", "host_reads": "host_reads", "host_writes": "host_writes",
}
# Attributes of ATA drives whose raw value is a plain count on all drives that have them.
_ATA = {5: "reallocated_sectors", 187: "reported_uncorrectable", 197: "pending_sectors",
        198: "offline_uncorrectable", 199: "crc_errors"}


# Attributes that smartctl names so on Crucial and Micron drives alone: pages that the host and that the drive wrote.
_ATA_NAMED = {"Host_Program_Page_Count": "host_program_pages", "FTL_Program_Page_Count": "ftl_program_pages",
              "Bckgnd_Program_Page_Cnt": "ftl_program_pages"}
_SMARTCTL_PATHS = {
    "temperature_c": ("temperature", "current"), "power_on_hours": ("power_on_time", "hours"),
    "power_cycles": ("power_cycle_count",), "grown_defects": ("scsi_grown_defect_list",),
    "uncorrected_reads": ("scsi_error_counter_log", "read", "total_uncorrected_errors"),
    "uncorrected_writes": ("scsi_error_counter_log", "write", "total_uncorrected_errors"),
}


def from_nvme_cli(document: Mapping[str, Any]) -> dict[str, float]:
    """Fields of `nvme smart-log -o json`, whose temperature is in kelvin. Raises ValueError for another document."""
    fields = _fields(document, _NVME_CLI)
    kelvin = _number(document.get("temperature"))
    if kelvin is not None:
        fields["temperature_c"] = kelvin - _KELVIN
    if "critical_warning" not in fields or "temperature_c" not in fields:
        raise ValueError("no SMART log in its JSON")
    return fields


def from_smartctl(document: Mapping[str, Any]) -> dict[str, float]:
    """Fields of `smartctl -j -a`, for NVMe, ATA and SCSI drives. Raises ValueError, with smartctl's message.

    The exit status is a set of bits: the lowest two mean that smartctl failed, the others are the drive's health.
    """
    smartctl = document.get("smartctl") or {}
    status = _number(smartctl.get("exit_status")) or 0
    if int(status) & 0b11:
        raise ValueError(_message(smartctl) or f"smartctl exited with {int(status)}")
    fields = _fields(document.get("nvme_smart_health_information_log") or {}, _SMARTCTL_NVME)
    for attribute in (document.get("ata_smart_attributes") or {}).get("table") or []:
        name = _ATA.get(attribute.get("id")) or _ATA_NAMED.get(attribute.get("name"))
        raw = _number((attribute.get("raw") or {}).get("value"))
        if name and raw is not None:
            fields[name] = raw
    for name, path in _SMARTCTL_PATHS.items():
        value = _value_at(document, path)
        if value is not None:
            fields.setdefault(name, value)
    if not fields:
        raise ValueError(_message(smartctl) or "no SMART data in its JSON")
    return fields


def from_ocp(document: Mapping[str, Any]) -> dict[str, float]:
    """Fields of `nvme ocp smart-add-log -o json`, in both versions of its output. Raises ValueError for another one."""
    for key in ("Physical media units written", "physical_media_units_written"):
        value = document.get(key)
        if isinstance(value, Mapping):
            high, low = _number(value.get("hi")), _number(value.get("lo"))
            if high is not None and low is not None:
                return {"media_bytes_written": high * 2**64 + low}
        elif (number := _number(value)) is not None:
            return {"media_bytes_written": number}
    raise ValueError("no media units written in its JSON")


def lists_logs(id_ctrl: Mapping[str, Any]) -> bool:
    """Whether the drive of this `nvme id-ctrl -o json` lists its log pages. Others log a query of an unknown page as an
    error of their own."""
    return bool(int(_number(id_ctrl.get("lpa")) or 0) & _LISTS_LOGS)


def listed_logs(document: Mapping[str, Any]) -> set[int]:
    """The log pages of `nvme supported-log-pages -o json`, whose keys are such as `lid_0xc0 `."""
    logs = document.get("supported_logs")
    keys = [key for entry in logs if isinstance(entry, Mapping) for key in entry] if isinstance(logs, list) else []
    matches = (re.fullmatch(r"lid_0x([0-9a-f]{1,2})\s*", str(key), re.IGNORECASE) for key in keys)
    return {int(match[1], 16) for match in matches if match}


def _fields(document: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    values = {field: _number(document.get(key)) for key, field in names.items()}
    return {field: value for field, value in values.items() if value is not None}


def _value_at(document: Any, path: Sequence[str]) -> float | None:
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return _number(document)


def _number(value: Any) -> float | None:
    """128-bit counters are numbers, text, or text with separators, depending on the version."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, Mapping):  # `critical_warning` of nvme-cli 2.10 and later with --verbose
        return _number(value.get("value"))
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return None


def _message(smartctl: Mapping[str, Any]) -> str:
    for entry in smartctl.get("messages") or []:
        if entry.get("string"):
            return str(entry["string"])
    return ""
