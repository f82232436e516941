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


def invalid(telemetry: dict | None, links: dict[str, dict | None]) -> Iterator[str]:
    """telemetry: the key of a run's account, None where there is none.

    links: as they were before the run, by drive; of the first, or only, drive by "".
    """
    for name, told in _drives(telemetry):
        drive, link, least = _called(name), links.get(name) or {}, told.get("link") or {}
        for key, now, unit in (("speed_gts", "least_speed_gts", " GT/s"), ("width", "least_width", " lanes")):
            if link.get(key) and now in least and least[now] < link[key]:
                yield f"{drive}'s link fell from {link[key]:g}{unit} to {least[now]:g}{unit} meanwhile"
        for field, words in _LOST.items():
            if _changed(told).get(field, 0) > 0:
                yield (f"{drive} counted {_changed(told)[field]:,.0f} {words} more than before: a unit that loses data "
                       "stands for no other")


def qualified(telemetry: dict | None, wall_ns: int) -> Iterator[str]:
    for name, told in _drives(telemetry):
        drive, changed = _called(name), _changed(told)
        for field, words in _MENDED.items():
            if changed.get(field, 0) > 0:
                yield f"{drive}: {changed[field]:,.0f} {words} meanwhile"
        hot = [(field, words) for field, words in _HOT.items() if changed.get(field, 0) > 0]
        if told.get("throttled"):
            yield f"{drive} slowed itself down because of its heat, {_times(told['throttled'])}"
        elif hot:
            for field, words in hot:
                yield f"{drive} was above {words} for {changed[field]:,.0f} min"
        elif (told.get("smart") or {}).get("critical_warning", 0) & TEMPERATURE_WARNING:
            yield f"{drive} warned of its temperature"
    yield from _power(telemetry or {}, wall_ns)


def _drives(telemetry) -> Iterator[tuple[str, dict]]:
    """What is told of each drive; of the first by ""."""
    if telemetry:
        yield "", telemetry
        yield from (telemetry.get("drives") or {}).items()


def _called(name):
    return name or "the drive"


def _power(told, wall_ns):
    power = told.get("power")
    if not power:
        notes = (told.get("notes") or {}).get("power_w") or []
        why = (told.get("missing") or {}).get("power_w") or "; ".join(notes)
        asked_for = why and not why.startswith(NO_METER)
        yield f"power was not measured{f': {why}' if asked_for else ''}"
        return
    missed_ns = wall_ns - power["covered_ns"]
    if missed_ns > UNMEASURED_SHARE * wall_ns:
        yield (f"power was not measured for {format_ns(missed_ns)} of the run, {missed_ns / wall_ns:.0%}; "
               f"gaps in its samples: {power['gaps']:,}")


def _changed(told) -> dict:
    return (told.get("smart") or {}).get("changed") or {}


def _times(count):
    return "once" if count == 1 else f"{count:,} times"
