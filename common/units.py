"""Parse and format sizes and times.

MB and GB are powers of ten, KiB, MiB and GiB powers of two (docs/method.md). A bare K, M, G or T is
binary, as in fio.
"""

import re
from collections.abc import Callable, Mapping

from .errors import UsageError
from .numbers import digits

_SIZE_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _SIZE_UNITS[_letter] = _SIZE_UNITS[f"{_letter}IB"] = 1024**_power
    _SIZE_UNITS[f"{_letter}B"] = 1000**_power
_TIME_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9,
                  "min": 60 * 10**9, "h": 3600 * 10**9}
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([^\d\s.]*)\s*")


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


def _three_digits(value: float) -> str:
    return digits(value).replace(",", "")
