"""Format numbers for reports: three significant digits, and one unit for each column."""

from collections.abc import Iterable

_TIME_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (10**9, "s"))
MISSING = "–"


def digits(value: float | None) -> str:
    """Three significant digits: 0.0123, 1.23, 12.3, 123, 12,345."""
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


def time_unit(values_ns: Iterable[float | None]) -> tuple[int, str]:
    """The unit of a column as (ns in the unit, its name).

    The unit of the largest value, or a smaller one if the median would be below 0.01 of it.
    """
    known = sorted(abs(value) for value in values_ns if value is not None)
    if not known:
        return _TIME_UNITS[2]
    unit = max((candidate for candidate in _TIME_UNITS if known[-1] >= candidate[0]), default=_TIME_UNITS[0])
    middle = known[(len(known) - 1) // 2]
    while unit[0] > 1 and 0 < middle < unit[0] / 100:
        unit = _TIME_UNITS[_TIME_UNITS.index(unit) - 1]
    return unit


def duration(value_ns: float | None) -> str:
    """A duration in its own unit."""
    if value_ns is None:
        return MISSING
    scale, unit = time_unit([value_ns])
    return f"{digits(value_ns / scale)} {unit}"


def setting(value_ns: int) -> str:
    """A duration from an option, without trailing zeros: 25 ms."""
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
    """An I/O size in binary units: 4K, 512, 1M."""
    for scale, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if count_bytes >= scale and count_bytes % scale == 0:
            return f"{count_bytes // scale}{letter}"
    return f"{count_bytes:,}" if count_bytes >= 10_000 else str(count_bytes)
