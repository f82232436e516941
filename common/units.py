"""Parse and format sizes, times and numbers: three significant digits, and one unit for each column.

MB and GB are powers of ten, KiB, MiB and GiB powers of two (docs/method.md). A bare K, M, G or T is
binary, as in fio.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from .errors import UsageError

_SIZE_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _SIZE_UNITS[_letter] = _SIZE_UNITS[f"{_letter}IB"] = 1024**_power
    _SIZE_UNITS[f"{_letter}B"] = 1000**_power
_TIME_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9,
                  "min": 60 * 10**9, "h": 3600 * 10**9}
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([^\d\s.]*)\s*")
_TIME_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (10**9, "s"))
MISSING = "–"


def counted(count: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def parse_size_bytes(text: str) -> int:
    """`64K`, `8GiB`, `1.5 MB`, `4096` to bytes. Raises UsageError for an unknown unit."""
    return _parse(text, _SIZE_UNITS, str.upper, "size", "4096, 64K, 8GiB or 1.5GB")


def parse_time_ns(text: str) -> int:
    """`25ms`, `60s`, `1.5h` to nanoseconds. Raises UsageError for an unknown or missing unit."""
    return _parse(text, _TIME_UNITS_NS, str.lower, "time", "500us, 25ms, 60s, 5min or 1h")


def _parse(text: str, units: Mapping[str, int], fold: Callable[[str], str], what: str, examples: str) -> int:
    match = _NUMBER.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is not a {what}", f"write it as {examples}")
    number, unit = match[1], fold(match[2])
    if unit not in units:
        problem = f"unknown unit {match[2]!r} in {text!r}" if unit else f"no unit in {text!r}"
        raise UsageError(problem, f"write the {what} as {examples}")
    whole, _, fraction = number.partition(".")
    # In integers: with floats, 8.1GiB would be off by one byte.
    denominator: int = 10 ** len(fraction)
    return int(whole + fraction) * units[unit] // denominator


def format_bytes(count: float) -> str:
    """Bytes in powers of ten, three significant digits: `4.10 KB`, `1.20 GB`."""
    if abs(count) < 999.5:
        return f"{count:.0f} B"
    for unit in ("KB", "MB", "GB", "TB"):
        count /= 1000.0
        if abs(count) < 999.5:
            return f"{_three_digits(count)} {unit}"
    return f"{_three_digits(count / 1000.0)} PB"


def format_ns(duration_ns: float) -> str:
    """A duration in its own unit: `870 ns`, `12.3 µs`, `4.56 ms`, `61.0 s`, `5 min 3 s`."""
    magnitude = abs(duration_ns)
    if magnitude < 1000:
        return f"{duration_ns:.0f} ns"
    for limit, unit, scale in ((1e6, "µs", 1e3), (1e9, "ms", 1e6), (120e9, "s", 1e9)):
        if magnitude < limit:
            return f"{_three_digits(duration_ns / scale)} {unit}"
    seconds = round(duration_ns / 1e9)
    if abs(seconds) < 7200:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def format_count(count: int) -> str:
    """`12,345`."""
    return f"{count:,}"


def format_share(share: float) -> str:
    """`0.0612 %`, `45.7 %`."""
    return f"{digits(share * 100)} %"


def format_change(share: float) -> str:
    """`+6.3 %`."""
    return f"{share * 100:+.1f} %"


def _three_digits(value: float) -> str:
    return digits(value).replace(",", "")


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
    magnitudes_ns = sorted(abs(value) for value in values_ns if value is not None)
    if not magnitudes_ns:
        return _TIME_UNITS[2]
    unit = max((candidate for candidate in _TIME_UNITS if magnitudes_ns[-1] >= candidate[0]), default=_TIME_UNITS[0])
    middle = magnitudes_ns[(len(magnitudes_ns) - 1) // 2]
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
