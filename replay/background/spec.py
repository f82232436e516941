"""The option --background of a replay: a trace, or generated writes."""

import re
from dataclasses import dataclass, replace
from typing import Any

from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.units import parse_size_bytes, parse_time_ns

_BURST_BLOCK_BYTES, _BURST_DEPTH = 16 << 10, 2  # as the writer of the mixed burst
_RATE_BLOCK_BYTES, _RATE_DEPTH = 1 << 20, 1
_MOST_DEPTH = 256
_TRACE_KEYS = ("rate", "device")
_WRITES_KEYS = ("block", "depth", "span")
_ACCESSES = ("sequential", "random")
_EXAMPLES = ("use a trace (download.parquet, sample:download,rate=1Gbit), writes=110MB/s, writes=40MB/2s, or "
             "writes=200MB/s,block=128KiB,sequential")


@dataclass(frozen=True)
class BackgroundSpec:
    """text: as given. Either trace or written_bytes.

    trace: its name; device: of several in it. rate_bytes_s: mean rate of its writes, None for that of the recording.
    written_bytes, every_ns: generated writes, so many bytes are due at once each time; with every_ns None so many each
    second, evenly. block_bytes, access, depth, span_bytes: of generated writes; span None for what the drive allows.
    """

    text: str
    trace: str | None = None
    device: int | None = None
    rate_bytes_s: float | None = None
    written_bytes: int = 0
    every_ns: int | None = None
    block_bytes: int = 0
    access: str = ""
    depth: int = 0
    span_bytes: int | None = None


def parse_background(text: str) -> BackgroundSpec:
    """`TRACE[,rate=RATE][,device=N]` or `writes=SIZE/TIME[,block=SIZE][,sequential|random][,depth=N][,span=SIZE]`.

    Raises UsageError.
    """
    if text.startswith("writes="):
        return _parse_writes(text)
    trace: str = text
    options: dict[str, str] = {}
    while match := re.fullmatch(r"(.+),(\w+)=([^,]*)", trace):
        if match[2] not in _TRACE_KEYS:
            raise _invalid(text, f"unknown key {match[2]}", did_you_mean(match[2], _TRACE_KEYS, _EXAMPLES))
        trace = match[1]
        options.setdefault(match[2], match[3])
    if trace[:1] in ("", ","):
        raise _invalid(text, "no trace", _EXAMPLES)
    device = options.get("device")
    if device is not None and not re.fullmatch(r"\d{1,4}", device):
        raise _invalid(text, f"device {device!r} is no number", "give the number of a device of the trace: device=0")
    return BackgroundSpec(text, trace, device=None if device is None else int(device),
                          rate_bytes_s=parse_rate(options["rate"]) if "rate" in options else None)


def parse_rate(text: str) -> float:
    """Bytes/s of `110MB/s`, `1Gbit`, `300Mbit/s`. Raises UsageError."""
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMG]?)bit(?:/s|ps)?", text):
        rate = float(match[1]) * float(1000 ** " KMG".index(match[2].upper() or " ")) / 8
    elif match := re.fullmatch(r"(.+)/s", text):
        rate = float(parse_size_bytes(match[1]))
    else:
        raise UsageError(f"invalid rate: {text!r}", "give bytes or bits a second: 110MB/s, 1Gbit")
    if rate < 1:
        raise UsageError(f"the rate {text!r} writes nothing", "give bytes or bits a second: 110MB/s, 1Gbit")
    return rate


def _parse_writes(text: str) -> BackgroundSpec:
    first, *options = text.removeprefix("writes=").split(",")
    spec = BackgroundSpec(text)
    burst = re.fullmatch(r"(.+)/(\d.*)", first)
    if burst:
        spec = replace(spec, written_bytes=parse_size_bytes(burst[1]), every_ns=parse_time_ns(burst[2]),
                       block_bytes=_BURST_BLOCK_BYTES, access="random", depth=_BURST_DEPTH)
    else:
        spec = replace(spec, written_bytes=round(parse_rate(first)), block_bytes=_RATE_BLOCK_BYTES,
                       access="sequential", depth=_RATE_DEPTH)
    for option in options:
        spec = replace(spec, **_option_of_writes(text, option))
    if not spec.written_bytes or spec.every_ns == 0:
        raise _invalid(text, "it writes nothing", _EXAMPLES)
    return spec


def _option_of_writes(text: str, option: str) -> dict[str, Any]:
    key, _, value = option.partition("=")
    if option in _ACCESSES:
        return {"access": option}
    if key not in _WRITES_KEYS:
        raise _invalid(text, f"unknown key {key}", did_you_mean(key, (*_WRITES_KEYS, *_ACCESSES), _EXAMPLES))
    if key == "depth":
        if not re.fullmatch(r"\d{1,4}", value) or not 1 <= int(value) <= _MOST_DEPTH:
            raise _invalid(text, f"depth {value!r} is out of range", f"use depth=1 to depth={_MOST_DEPTH}")
        return {"depth": int(value)}
    size_bytes = parse_size_bytes(value)
    if not size_bytes:
        raise _invalid(text, f"{key} {value!r} is zero", _EXAMPLES)
    return {f"{key}_bytes": size_bytes}


def _invalid(text: str, why: str, remedy: str) -> UsageError:
    return UsageError(f"invalid --background {text}: {why}", remedy)
