"""What was measured beside a run, and speaks against it: its drive's errors, its heat, its link, gaps of its meter."""

from collections.abc import Iterator

from blkreel.traces.units import format_ns

from .telemetry.meters import NO_METER
from .telemetry.smart_formats import TEMPERATURE_WARNING

# Of a run, that its power meter may have missed (D): more, and the average may be one of other work than was done.
UNMEASURED_SHARE = 0.05

# Data that the drive lost, whether or not this run asked for it.
_LOST = {"media_errors": "media errors", "reported_uncorrectable": "uncorrectable errors",
         "offline_uncorrectable": "uncorrectable sectors", "uncorrected_reads": "uncorrected reads",
         "uncorrected_writes": "uncorrected writes"}
# Trouble that it overcame, at the cost of time.
_MENDED = {"reallocated_sectors": "sectors were replaced by spare ones", "grown_defects": "defects were found",
           "pending_sectors": "sectors became doubtful", "crc_errors": "transfers failed on the cable"}
_HOT = {"warning_temperature_time": "its warning temperature", "critical_temperature_time": "its critical temperature"}


def invalid(telemetry: dict | None, link: dict | None) -> Iterator[str]:
    """telemetry: the key of a run's account, None where there is none. link: as it was before the run."""
    least = (telemetry or {}).get("link") or {}
    for key, name, unit in (("speed_gts", "least_speed_gts", " GT/s"), ("width", "least_width", " lanes")):
        before = (link or {}).get(key)
        if before and name in least and least[name] < before:
            yield f"the drive's link fell from {before:g}{unit} to {least[name]:g}{unit} meanwhile"
    changed = _changed(telemetry)
    for field, words in _LOST.items():
        if changed.get(field, 0) > 0:
            yield (f"the drive counted {changed[field]:,.0f} {words} more than before: a unit that loses data stands "
                   "for no other")


def qualified(telemetry: dict | None, wall_ns: int) -> Iterator[str]:
    changed = _changed(telemetry)
    told = telemetry or {}
    for field, words in _MENDED.items():
        if changed.get(field, 0) > 0:
            yield f"{changed[field]:,.0f} {words} meanwhile"
    hot = [(field, words) for field, words in _HOT.items() if changed.get(field, 0) > 0]
    if told.get("throttled"):
        yield f"the drive slowed itself down because of its heat, {_times(told['throttled'])}"
    elif hot:
        for field, words in hot:
            yield f"the drive was above {words} for {changed[field]:,.0f} min"
    elif (told.get("smart") or {}).get("critical_warning", 0) & TEMPERATURE_WARNING:
        yield "the drive warned of its temperature"
    yield from _power(told, wall_ns)


def _power(told, wall_ns):
    power = told.get("power")
    if not power:
        why = (told.get("missing") or {}).get("power_w") or ""
        asked_for = why and not why.startswith(NO_METER)
        yield f"power was not measured{f': {why}' if asked_for else ''}"
        return
    missed_ns = wall_ns - power["covered_ns"]
    if missed_ns > UNMEASURED_SHARE * wall_ns:
        yield (f"power was not measured for {format_ns(missed_ns)} of the run, {missed_ns / wall_ns:.0%}; "
               f"gaps in its samples: {power['gaps']:,}")


def _changed(telemetry) -> dict:
    return ((telemetry or {}).get("smart") or {}).get("changed") or {}


def _times(count):
    return "once" if count == 1 else f"{count:,} times"
