"""Reasons against a run from its telemetry: errors of the drive, heat, link, gaps of the power meter."""

from collections.abc import Iterator, Mapping

from blkreel.common.units import counted, format_ns, format_share
from blkreel.common.verdict import Note, Reason, note, reason
from blkreel.replay.telemetry.sensors.smart_formats import TEMPERATURE_WARNING
from blkreel.traces.format.metadata_types import DriveTelemetry, PcieLink, Telemetry

from .certificate import times

# Share of a run that its power meter may miss (D). With more, the average may be that of other work.
UNMEASURED_SHARE = 0.05

# Data that the drive lost, whether or not this run read it.
_LOST = {"media_errors": "media errors", "reported_uncorrectable": "uncorrectable errors",
         "offline_uncorrectable": "uncorrectable sectors", "uncorrected_reads": "uncorrected reads",
         "uncorrected_writes": "uncorrected writes"}
# Errors that the drive corrected, at the cost of time.
_CORRECTED = {"reallocated_sectors": "reallocated sectors", "grown_defects": "grown defects",
              "pending_sectors": "pending sectors", "crc_errors": "failed transfers on the cable"}
_NO_POWER = "power_not_measured"
_HOT = {"warning_temperature_time": "warning", "critical_temperature_time": "critical"}


def invalid(telemetry: Telemetry, links: Mapping[str, PcieLink | None]) -> Iterator[Reason]:
    """links: before the run, by drive; of the first drive by ""."""
    for name, drive in _drives(telemetry):
        title, before, during = name or "drive", links.get(name), drive.link
        if before and during:
            for start, least, unit in ((before.get("speed_gts"), during.get("least_speed_gts"), "GT/s"),
                                       (before.get("width"), during.get("least_width"), "lanes")):
                if start and least is not None and least < start:
                    yield reason("slow_link", "invalid",
                                 f"{title} link fell from {start:g} {unit} to {least:g} {unit} during the run", None,
                                 least, start)
        for field, words in _LOST.items():
            if (count := drive.smart.changed.get(field, 0)) > 0:
                yield reason("drive_errors", "invalid", f"{count:,.0f} new {words} of {name or 'the drive'}: a "
                             "defective unit does not represent others", None, count, 0)


def qualified(telemetry: Telemetry) -> Iterator[Reason]:
    for name, drive in _drives(telemetry):
        title, changes = name or "the drive", drive.smart.changed
        for field, words in _CORRECTED.items():
            if (count := changes.get(field, 0)) > 0:
                yield reason("drive_corrected_errors", "qualified", f"{count:,.0f} new {words} of {title}", None, count,
                             0)
        hot = {level: changes[field] for field, level in _HOT.items() if changes.get(field, 0) > 0}
        if drive.throttled:
            yield reason("drive_throttled", "qualified", f"thermal throttling of {title}: {times(drive.throttled)}",
                         None, drive.throttled, 0)
        elif hot:
            for level, minutes in hot.items():
                yield reason("drive_hot", "qualified", f"{minutes:,.0f} min of {title} above its {level} temperature",
                             None, minutes, 0)
        elif drive.smart.critical_warning & TEMPERATURE_WARNING:
            yield reason("drive_hot", "qualified", f"temperature warning of {title}")


def power(telemetry: Telemetry, wall_ns: int) -> tuple[list[Reason], list[Note]]:
    """Missing power is a reason if a meter was given, otherwise a note."""
    account = telemetry.power
    if not account:
        if not telemetry.meter_given:
            return [], [note(_NO_POWER, "power not measured")]
        missing = (telemetry.missing.get("power_w") or "; ".join(telemetry.notes.get("power_w") or [])
                   or "; ".join(telemetry.missing.values()))
        return [reason(_NO_POWER, "qualified", f"power not measured: {missing or 'no sample'}")], []
    missed = (wall_ns - account.covered_ns) / wall_ns if wall_ns else 0.0
    if missed <= UNMEASURED_SHARE:
        return [], []
    return [reason(_NO_POWER, "qualified",
                   f"power not measured for {format_ns(wall_ns - account.covered_ns)} of the run, "
                   f"{format_share(missed)} (limit {UNMEASURED_SHARE * 100:g} %), in {counted(account.gaps, 'gap')}",
                   None, missed, UNMEASURED_SHARE)], []


def _drives(telemetry: Telemetry) -> Iterator[tuple[str, DriveTelemetry]]:
    """By name; the first drive by ""."""
    yield "", telemetry
    yield from telemetry.drives.items()
