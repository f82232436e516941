"""A simulated drive as a user describes it: `nil:64GiB,cache=8GiB,write_bandwidth=500MB/s,clock=virtual`.

docs/replay.md, "Simulated drive", says what the model makes of each key; KEYS has their kinds and defaults.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.errors import UsageError
from blkreel.traces.units import parse_size_bytes, parse_time_ns

PREFIX = "nil:"
MODEL = "simulated drive"
MAX_GRANULES = 65_536  # DRIVE_MAX_GRANULES of the helper
_SECTOR_BYTES = 512
_MIN_GRANULE_BYTES = 4096
_NEVER_C = 1e9  # a temperature that no drive has
_THROTTLE_SPAN_C = 5.0
_CLOCKS = ("real", "virtual")


def _rate(text):
    """`500MB/s` in bytes a second."""
    if not text.lower().endswith("/s"):
        raise UsageError(f"{text!r} is not a rate", "write it like 500MB/s or 3.5GB/s")
    return parse_size_bytes(text[:-2])


def _unit(*suffixes) -> Callable[[str], float]:
    """A number that may end with one of these."""
    def parse(text):
        bare = next((text[:-len(one)] for one in suffixes if text.endswith(one)), text)
        try:
            return float(bare)
        except ValueError:
            raise UsageError(f"{text!r} is not a number", f"write it like 5{suffixes[0] if suffixes else ''}") from None
    return parse


def _share(text):
    """`30%` or `0.3`."""
    return _unit()(text[:-1]) / 100 if text.endswith("%") else _unit()(text)


def _whole(text):
    if not text.isdigit():
        raise UsageError(f"{text!r} is not a whole number", "write it like 32")
    return int(text)


@dataclass(frozen=True)
class Key:
    """parse: of what the user writes, into the base unit. default: as it would be written; None where another key or
    nothing stands for it. parameter: its name in the helper. least, most: bounds in the base unit, inclusive."""

    parse: Callable[[str], float]
    default: str | None
    parameter: str
    least: float
    most: float = float(1 << 53)


KEYS = {
    "read_latency": Key(parse_time_ns, "80us", "read_latency_ns", 100),
    "write_latency": Key(parse_time_ns, "20us", "write_latency_ns", 100),
    "flush_latency": Key(parse_time_ns, "100us", "flush_latency_ns", 100),
    "discard_latency": Key(parse_time_ns, "50us", "discard_latency_ns", 100),
    "discard_per_gb": Key(parse_time_ns, "1ms", "discard_ns_per_gb", 0),
    "read_bandwidth": Key(_rate, "3.5GB/s", "read_bandwidth", 1),
    "write_bandwidth": Key(_rate, "1.5GB/s", "write_bandwidth", 1),
    "channels": Key(_whole, "32", "channels", 1, 1024),
    "cache": Key(parse_size_bytes, "0", "cache_bytes", 0),
    "cache_bandwidth": Key(_rate, "3GB/s", "cache_bandwidth", 1),
    "cache_drain": Key(_rate, None, "cache_drain", 0),
    "random_write_bandwidth": Key(_rate, None, "random_write_bandwidth", 1),
    "random_write_decline": Key(parse_size_bytes, None, "random_write_decline_bytes", 1),
    "read_slowdown": Key(_unit(), "1", "read_slowdown", 1, 1e6),
    "stall_every": Key(parse_time_ns, None, "stall_every_ns", 1),
    "stall_for": Key(parse_time_ns, None, "stall_for_ns", 1),
    "ambient": Key(_unit("C"), "25C", "ambient_c", -273, 1000),
    "heating": Key(_unit("C/W"), "6C/W", "heating_c_per_w", 0, 1e6),
    "thermal_time": Key(parse_time_ns, "60s", "thermal_time_ns", 1),
    "throttle_at": Key(_unit("C"), None, "throttle_at_c", -273, 1000),
    "throttle_until": Key(_unit("C"), None, "throttle_until_c", -273, 1000),
    "throttle_factor": Key(_share, "50%", "throttle_factor", 0.001, 1),
    "idle_power": Key(_unit("W"), "0.5W", "idle_w", 0, 1e6),
    "read_power": Key(_unit("W"), "4W", "read_w", 0, 1e6),
    "write_power": Key(_unit("W"), "6W", "write_w", 0, 1e6),
    "jitter": Key(_share, "0", "jitter", 0, 0.9),
    "seed": Key(_whole, "0", "seed", 0),
}


@dataclass(frozen=True)
class SimulatedDrive:
    """words: the keys that were given, as they were written. parameters: what the helper takes, in base units.

    clock: `real`, or `virtual` where the drive's time does not wait. name: tells drives of one kind apart.
    """

    size_bytes: int
    words: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, float], ...]
    clock: str = "real"
    name: str = ""

    @property
    def is_virtual(self) -> bool:
        return self.clock == "virtual"

    @property
    def spec(self) -> str:
        """The whole drive in one word, which find_target takes."""
        return ",".join([f"{PREFIX}{self.size_bytes}", *(f"{key}={word}" for key, word in self.words)])

    @property
    def identity(self) -> str:
        """The same for two descriptions of one drive."""
        told = [self.size_bytes, self.clock, self.name, sorted(self.parameters)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]

    @property
    def granule_bytes(self) -> int:
        """In pieces of this size it is known what is mapped."""
        wanted = -(-self.size_bytes // MAX_GRANULES)
        return max(_MIN_GRANULE_BYTES, 1 << (wanted - 1).bit_length())

    def __getitem__(self, parameter: str) -> float:
        return dict(self.parameters)[parameter]


def parse(name: str) -> SimulatedDrive:
    """`nil:SIZE,key=value,...` or `nil:FILE.toml`. Raises UsageError for a key or a value that makes no sense."""
    if name.endswith(".toml"):
        size, given = _from_file(name.removeprefix(PREFIX))
    else:
        size, _, rest = name.removeprefix(PREFIX).partition(",")
        given = _from_words(name, rest)
    size_bytes = parse_size_bytes(size) // _SECTOR_BYTES * _SECTOR_BYTES
    if not size_bytes:
        raise UsageError(f"{name} has no size", "give it one: nil:64GiB,clock=virtual")
    unknown = sorted(given.keys() - KEYS.keys() - {"clock", "name"})
    if unknown:
        raise UsageError(f"a simulated drive has no {unknown[0]!r}", f"its keys are: clock, name, {', '.join(KEYS)}")
    clock = given.get("clock", "real")
    if clock not in _CLOCKS:
        raise UsageError(f"no such clock: {clock!r}", "clock=virtual, or clock=real")
    values = {key: _value(key, given) for key in KEYS}
    return SimulatedDrive(size_bytes, tuple(sorted(given.items())), _parameters(size_bytes, values), clock,
                          given.get("name", ""))


def _from_words(name, text) -> dict[str, str]:
    given = {}
    for word in text.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"{word!r} of {name} is no key=value", f"its keys are: clock, name, {', '.join(KEYS)}")
        if key in given:
            raise UsageError(f"{key} is given twice in {name}", "leave one of them out")
        given[key] = value
    return given


def _from_file(path) -> tuple[str, dict[str, str]]:
    try:
        given = {key: str(value) for key, value in tomllib.loads(Path(path).read_text()).items()}
    except OSError as error:
        raise UsageError(f"no such file: {path} ({error.strerror})", "nil:FILE.toml, or nil:SIZE,key=value") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}", 'write lines like: size = "64GiB"') from None
    if "size" not in given:
        raise UsageError(f"{path} has no size", 'add a line: size = "64GiB"')
    return given.pop("size"), given


def _value(key, given) -> float | None:
    of, text = KEYS[key], given.get(key, KEYS[key].default)
    if text is None:
        return None
    try:
        value = of.parse(text)
    except UsageError as error:
        raise UsageError(f"{key} of a simulated drive: {error.message}", error.remedy) from None
    # Written so that a NaN is refused too.
    if not of.least <= value <= of.most:
        raise UsageError(f"{key}={text} of a simulated drive is out of bounds",
                         f"give it at least {of.least:g} and at most {of.most:g} {_base_unit(of)}".rstrip())
    return value


def _base_unit(of) -> str:
    return {parse_time_ns: "ns", parse_size_bytes: "bytes", _rate: "bytes/s"}.get(of.parse, "")


def _parameters(size_bytes, values) -> tuple[tuple[str, float], ...]:
    if (values["stall_every"] is None) != (values["stall_for"] is None):
        raise UsageError("stall_every and stall_for go together", "give both: stall_every=10s,stall_for=200ms")
    if values["stall_every"] is not None and values["stall_for"] >= values["stall_every"]:
        raise UsageError("stall_for is not shorter than stall_every: it would stall all the time",
                         "give both: stall_every=10s,stall_for=200ms")
    if values["throttle_at"] is None and values["throttle_until"] is not None:
        raise UsageError("throttle_until goes with throttle_at", "give both: throttle_at=80C,throttle_until=75C")
    if values["throttle_until"] is not None and values["throttle_until"] > values["throttle_at"]:
        raise UsageError("throttle_until lies above throttle_at", "give both: throttle_at=80C,throttle_until=75C")
    steady = values["random_write_bandwidth"]
    if steady is not None and steady > values["write_bandwidth"]:
        raise UsageError("random_write_bandwidth is above write_bandwidth, from which it declines",
                         "give both: write_bandwidth=1GB/s,random_write_bandwidth=200MB/s")
    throttle_at = values["throttle_at"]
    otherwise = {
        "cache_drain": values["write_bandwidth"], "random_write_bandwidth": values["write_bandwidth"],
        "random_write_decline": size_bytes, "stall_every": 0, "stall_for": 0, "throttle_at": _NEVER_C,
        "throttle_until": _NEVER_C if throttle_at is None else throttle_at - _THROTTLE_SPAN_C}
    whole = {key: otherwise[key] if value is None else value for key, value in values.items()}
    return (("capacity_bytes", float(size_bytes)),
            *((KEYS[key].parameter, float(value)) for key, value in whole.items()))
