"""Numbers for people: three significant digits, and one unit down a column so that rows can be compared."""

import re

_TIME_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (10**9, "s"))
MISSING = "–"
# Control characters, those that turn the direction of what stands behind them, halves of surrogate pairs, and the two
# that no XML may hold.
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")


def one_line(text: str) -> str:
    """Text of an input as it can be shown anywhere: a terminal must not obey it, a picture can't hold it otherwise."""
    return _NOT_TEXT.sub(" ", text).strip()


def digits(value: float | None) -> str:
    """Three significant digits, thousands apart: 0.0123, 1.23, 12.3, 123, 12,345."""
    if value is None:
        return MISSING
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude == 0:
        return "0"
    decimals = 1 if magnitude >= 9.995 else 2
    while magnitude < 0.9995 and decimals < 9:
        magnitude *= 10
        decimals += 1
    return f"{value:.{decimals}f}"


def time_unit(values_ns) -> tuple[int, str]:
    """(ns in a unit, its name) that reads best for a column: the largest value decides, down to 0.1 of a unit for
    the median, so that a lone outlier does not turn the others into 0.000."""
    known = sorted(abs(value) for value in values_ns if value is not None)
    if not known:
        return _TIME_UNITS[2]
    chosen = max((unit for unit in _TIME_UNITS if known[-1] >= unit[0]), default=_TIME_UNITS[0])
    middle = known[(len(known) - 1) // 2]
    while chosen[0] > 1 and 0 < middle < chosen[0] / 100:
        chosen = _TIME_UNITS[_TIME_UNITS.index(chosen) - 1]
    return chosen


def duration(value_ns: float | None) -> str:
    """A duration by itself, in the unit that suits it."""
    if value_ns is None:
        return MISSING
    scale, unit = time_unit([value_ns])
    return f"{digits(value_ns / scale)} {unit}"


def setting(value_ns: int) -> str:
    """A duration that somebody chose, without the digits that a measured one has: 25 ms."""
    scale, unit = time_unit([value_ns])
    return f"{value_ns / scale:g} {unit}"


def size(count_bytes: float | None) -> str:
    """Bytes in powers of ten."""
    if count_bytes is None:
        return MISSING
    for scale, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (1000, "KB")):
        if abs(count_bytes) >= scale:
            return f"{digits(count_bytes / scale)} {unit}"
    return f"{count_bytes:,.0f} bytes"


def binary_size(count_bytes: int) -> str:
    """An I/O size as the field writes it: 4K, 512, 1M."""
    for scale, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if count_bytes >= scale and count_bytes % scale == 0:
            return f"{count_bytes // scale}{letter}"
    return f"{count_bytes:,}" if count_bytes >= 10_000 else str(count_bytes)
