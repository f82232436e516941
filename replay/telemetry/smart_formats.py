"""SMART as nvme-cli and smartctl print it in JSON, under one set of names with units."""

from collections.abc import Mapping

_KELVIN = 273  # what nvme-cli itself takes off

# field -> unit. Those of an NVMe drive have the names of its specification's SMART log (NVMe base 2.0, figure 207).
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
}
# What tells that the drive throttled itself: it entered a state of thermal management, or was in one all the time.
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
    "temperature": "temperature_c", "critical_warning": "critical_warning", "available_spare": "available_spare",
    "percentage_used": "percentage_used", "data_units_read": "data_units_read",
    "data_units_written": "data_units_written", "host_reads": "host_reads", "host_writes": "host_writes",
    "controller_busy_time": "controller_busy_time", "power_cycles": "power_cycles",
    "power_on_hours": "power_on_hours", "unsafe_shutdowns": "unsafe_shutdowns", "media_errors": "media_errors",
    "num_err_log_entries": "error_log_entries", "warning_temp_time": "warning_temperature_time",
    "critical_comp_time": "critical_temperature_time", "thm_temp1_trans_count": "thermal_1_transitions",
    "thm_temp2_trans_count": "thermal_2_transitions", "thm_temp1_total_time": "thermal_1_time",
    "thm_temp2_total_time": "thermal_2_time",
}
# Attributes of ATA drives whose raw value is a plain count with all makers that have them.
_ATA = {5: "reallocated_sectors", 187: "reported_uncorrectable", 197: "pending_sectors",
        198: "offline_uncorrectable", 199: "crc_errors"}


def from_nvme_cli(document: Mapping) -> dict[str, float]:
    """Of `nvme smart-log -o json`, whose temperature is in kelvin. Raises ValueError where it is something else."""
    found = _named(document, _NVME_CLI)
    kelvin = _number(document.get("temperature"))
    if kelvin is not None:
        found["temperature_c"] = kelvin - _KELVIN
    if "critical_warning" not in found or "temperature_c" not in found:
        raise ValueError("it printed JSON, but no SMART log")
    return found


def from_smartctl(document: Mapping) -> dict[str, float]:
    """Of `smartctl -j -a`, for NVMe, ATA and SCSI drives. Raises ValueError, with its own message, where it failed.

    Its exit status is a set of bits: the lowest two say that it could not do it, others tell of the drive's health.
    """
    told = document.get("smartctl") or {}
    status = _number(told.get("exit_status")) or 0
    if int(status) & 0b11:
        raise ValueError(_message(told) or f"smartctl ended with {int(status)}")
    found = _named(document.get("nvme_smart_health_information_log") or {}, _SMARTCTL_NVME)
    for attribute in (document.get("ata_smart_attributes") or {}).get("table") or []:
        name, raw = _ATA.get(attribute.get("id")), _number((attribute.get("raw") or {}).get("value"))
        if name and raw is not None:
            found[name] = raw
    for name, way in (("temperature_c", ("temperature", "current")), ("power_on_hours", ("power_on_time", "hours")),
                      ("power_cycles", ("power_cycle_count",)), ("grown_defects", ("scsi_grown_defect_list",)),
                      ("uncorrected_reads", ("scsi_error_counter_log", "read", "total_uncorrected_errors")),
                      ("uncorrected_writes", ("scsi_error_counter_log", "write", "total_uncorrected_errors"))):
        value = _at(document, way)
        if value is not None:
            found.setdefault(name, value)
    if not found:
        raise ValueError(_message(told) or "it printed JSON, but nothing of SMART")
    return found


def _named(document, names):
    values = {ours: _number(document.get(theirs)) for theirs, ours in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def _at(document, way):
    for step in way:
        document = document.get(step) if isinstance(document, Mapping) else None
    return _number(document)


def _number(value) -> float | None:
    """Counters of 128 bits come as numbers, as text, or as text with separators, by version."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, Mapping):  # `critical_warning` of nvme-cli 2.10 and later, asked for verbosely
        return _number(value.get("value"))
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return None


def _message(told) -> str:
    for entry in told.get("messages") or []:
        if entry.get("string"):
            return str(entry["string"])
    return ""


