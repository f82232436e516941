"""A simulated drive as a user describes it: `nil:64GiB,cache=8GiB,clock=virtual`, or `nil:sata-tlc`.

docs/replay.md, "Simulated drive", describes the effect of each key; KEYS has the types and defaults.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from blkreel.common.emulated import FittedFacts
from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.files.typed_document import parse_toml
from blkreel.common.units import parse_size_bytes, parse_time_ns

from .fitted import FITTED, fitted_facts

PREFIX = "nil:"
_MODEL = "simulated drive"
_TYPICAL = Path(__file__).with_name("typical_drives.toml")
MAX_GRANULES = 65_536  # DRIVE_MAX_GRANULES of the helper
_SECTOR_BYTES = 512
_MIN_GRANULE_BYTES = 4096
_NEVER_C = 1e9  # never reached
_UNLIMITED = 1e27  # bytes/s: any transfer takes less than half a nanosecond
_THROTTLE_SPAN_C = 5.0
_LIMITS = ("iops_limit", "iops_credit", "rate_limit", "rate_credit_bytes")
_CLOCKS = ("real", "virtual")
STATES = ("fresh", "keep")


def _rate(text: str) -> float:
    """`500MB/s` in bytes/s."""
    if not text.lower().endswith("/s"):
        raise UsageError(f"invalid rate: {text!r}", "write it like 500MB/s or 3.5GB/s")
    return parse_size_bytes(text[:-2])


def _unit(*units: str) -> Callable[[str], float]:
    """A parser of numbers, with or without one of the units."""
    def parse(text: str) -> float:
        bare = next((text[:-len(unit)] for unit in units if text.endswith(unit)), text)
        try:
            return float(bare)
        except ValueError:
            raise UsageError(f"invalid number: {text!r}", f"write it like 5{units[0] if units else ''}") from None
    return parse


def _share(text: str) -> float:
    """`30%` or `0.3`."""
    return _unit()(text[:-1]) / 100 if text.endswith("%") else _unit()(text)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise UsageError(f"invalid whole number: {text!r}", "write it like 32")
    return int(text)


def _yes_or_no(text: str) -> int:
    if text not in ("yes", "no"):
        raise UsageError(f"neither yes nor no: {text!r}", "write yes or no")
    return int(text == "yes")


@dataclass(frozen=True)
class Key:
    """parse: converts the text to the base unit. default: as text; None if it depends on another key, or is off.
    parameter: its name in the helper. least, most: bounds in the base unit, inclusive."""

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
    "link": Key(_rate, None, "link_bandwidth", 1),
    "commands": Key(_whole, None, "commands", 1, 1024),
    "iops_limit": Key(_unit("IOPS"), None, "iops_limit", 1, 1e9),
    "iops_credit": Key(_whole, "0", "iops_credit", 0, 1e12),
    "rate_limit": Key(_rate, None, "rate_limit", 1e6),
    "rate_credit": Key(parse_size_bytes, "0", "rate_credit_bytes", 0),
    "flush_blocks": Key(_yes_or_no, "no", "flush_blocks", 0, 1),
    "program": Key(parse_time_ns, None, "program_ns", 1, 10e9),
    "cache_program": Key(parse_time_ns, None, "cache_program_ns", 1, 10e9),
    "cache_fold": Key(_rate, "0/s", "cache_fold", 0),
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


# Shares of the I/Os that the factors of a spread belong to.
SPREAD_SHARES = (0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0)
_SPREADS = ("read_spread", "write_spread")
MAX_FACTOR = 1e6
OTHER_KEYS = ("clock", "name", "state", *_SPREADS)

_KEY_LIST = f"the keys are: {', '.join([*OTHER_KEYS, *KEYS])}"


@dataclass(frozen=True)
class SimulatedDrive:
    """words: the given keys and their text. parameters: for the helper, in base units.

    clock: `real`, or `virtual`, whose time passes without waiting. name: distinguishes drives of one description.
    state: `fresh`: each command starts with a drive that was never used; `keep`: with the state that the last command
    left; `none`: each run of the engine starts fresh, and nothing is saved. typical: name of the typical drive whose
    keys the words replace, or empty. fitted: of the file that `blkreel model-drive` wrote.
    """

    size_bytes: int
    words: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, float], ...]
    clock: str = "real"
    name: str = ""
    state: str = "fresh"
    typical: str = ""
    fitted: FittedFacts | None = None

    @property
    def is_virtual(self) -> bool:
        return self.clock == "virtual"

    @property
    def spec(self) -> str:
        """The description in one word, as find_target() takes it."""
        return ",".join([f"{PREFIX}{self.typical or self.size_bytes}", *(f"{key}={word}" for key, word in self.words)])

    @property
    def model(self) -> str:
        return f"{typical_drives()[self.typical]['title']} (typical)" if self.typical else _MODEL

    @property
    def identity(self) -> str:
        """A hash of the effective description."""
        # A drive without limits keeps the identity that it had before there were any.
        parameters = sorted(parameter for parameter in self.parameters if parameter[0] not in _LIMITS or parameter[1])
        description = [self.size_bytes, self.clock, self.name, parameters]
        if self.state != "keep":
            description.append(self.state)  # a fresh drive leaves the kept state of its twin alone
        return hashlib.sha256(json.dumps(description).encode()).hexdigest()[:24]

    @property
    def granule_bytes(self) -> int:
        """The unit in which mapped blocks are recorded: a power of two."""
        least = -(-self.size_bytes // MAX_GRANULES)
        return max(_MIN_GRANULE_BYTES, 1 << (least - 1).bit_length())

    def __getitem__(self, parameter: str) -> float:
        return dict(self.parameters)[parameter]


def parse(name: str) -> SimulatedDrive:
    """`nil:SIZE,key=value,...`, `nil:NAME,key=value,...` or `nil:FILE.toml`. Raises UsageError for an invalid value.

    NAME: one of typical_drives(), of which the given keys replace values; `size` may be one of them.
    """
    if name.endswith(".toml"):
        path = name.removeprefix(PREFIX)
        size, words, fitted = _from_file(path)
        try:
            return replace(_drive(name, size, words), fitted=fitted)
        except UsageError as error:
            raise UsageError(error.message if path in error.message else f"{path}: {error.message}",
                             error.remedy) from None
    size, comma, text = name.removeprefix(PREFIX).partition(",")
    words = _from_words(name, text) if comma else {}
    if not is_typical(name):
        return _drive(name, size, words)
    return _drive(name, words.get("size") or typical_drives()[size]["size"], words, typical=size)


@cache
def typical_drives() -> dict[str, dict[str, str]]:
    """The keys and values of each typical drive by its name, with `title` and `size`."""
    return parse_toml(_TYPICAL.read_text())


def is_typical(name: str) -> bool:
    """Whether `nil:NAME` or `nil:NAME,key=value` names a typical drive. Raises UsageError for an unknown NAME."""
    word = name.removeprefix(PREFIX).partition(",")[0].strip()
    if "=" in word:
        raise UsageError(f"{name}: no size before {word}", f"begin with one, as in nil:64GiB,{word}, or with the name "
                         "of a typical drive")
    if word[:1].isalpha() and word not in typical_drives():
        raise UsageError(f"{name}: no typical drive {word!r}",
                         did_you_mean(word, typical_drives(), f"use one of: {', '.join(typical_drives())}"))
    return word in typical_drives()


def _drive(name: str, size: str, words: dict[str, str], typical: str = "") -> SimulatedDrive:
    base = {"clock": "virtual", **typical_drives()[typical]} if typical else {}
    settings = {key: word for key, word in {**base, **words}.items() if not typical or key not in ("size", "title")}
    size_bytes = parse_size_bytes(size) // _SECTOR_BYTES * _SECTOR_BYTES
    if not size_bytes:
        raise UsageError(f"{name}: no size", "give one: nil:64GiB,clock=virtual")
    unknown = sorted(settings.keys() - KEYS.keys() - set(OTHER_KEYS))
    if unknown:
        raise UsageError(f"{name}: unknown key {unknown[0]!r}",
                         did_you_mean(unknown[0], [*OTHER_KEYS, *KEYS], _KEY_LIST))
    clock = settings.get("clock", "real")
    if clock not in _CLOCKS:
        raise UsageError(f"invalid clock: {clock!r}", "use clock=virtual or clock=real")
    state = settings.get("state", "fresh")
    if state not in STATES:
        raise UsageError(f"invalid state: {state!r}", "use state=fresh or state=keep")
    values = {key: _value(key, settings) for key in KEYS}
    spreads = {key: _spread(key, settings[key]) for key in _SPREADS if key in settings}
    return SimulatedDrive(size_bytes, tuple(sorted(words.items())), _parameters(size_bytes, values, spreads), clock,
                          settings.get("name", ""), state, typical)


def _spread(key: str, text: str) -> tuple[float, ...]:
    """`0.8/0.9/1/1.1/1.5/4/20`."""
    try:
        factors = tuple(map(float, text.split("/")))
    except ValueError:
        factors = ()
    # NaN is refused too.
    if (len(factors) != len(SPREAD_SHARES) or not all(0 <= factor <= MAX_FACTOR for factor in factors)
            or list(factors) != sorted(factors)):
        shares = ", ".join(f"{share * 100:g} %" for share in SPREAD_SHARES)
        raise UsageError(f"invalid {key}: {text!r}",
                         f"write the factors of the latency at {shares} of the I/Os, rising: 0.8/0.9/1/1.1/1.5/4/20")
    return factors


def _from_words(name: str, text: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for word in text.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"{name}: {word!r} is not key=value", _KEY_LIST)
        if key in words:
            raise UsageError(f"{name}: {key} given twice", "remove one of them")
        words[key] = value
    return words


def _from_file(path: str) -> tuple[str, dict[str, str], FittedFacts | None]:
    try:
        document = parse_toml(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "use nil:FILE.toml or nil:SIZE,key=value") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}", 'write lines like: size = "64GiB"') from None
    words = {key: str(value) for key, value in document.items() if key != FITTED}
    if "size" not in words:
        raise UsageError(f"{path}: no size", 'add a line: size = "64GiB"')
    return words.pop("size"), words, fitted_facts(path, document)


def _value(key: str, settings: Mapping[str, str]) -> float | None:
    spec = KEYS[key]
    text = settings.get(key, spec.default)
    if text is None:
        return None
    try:
        value = spec.parse(text)
    except UsageError as error:
        raise UsageError(f"{key}: {error.message}", error.remedy) from None
    # NaN is refused too.
    if not spec.least <= value <= spec.most:
        raise UsageError(f"{key}={text} is out of range",
                         f"use {spec.least:g} to {spec.most:g} {_base_unit(spec)}".rstrip())
    return value


def _base_unit(spec: Key) -> str:
    units: dict[Callable[[str], float], str] = {parse_time_ns: "ns", parse_size_bytes: "bytes", _rate: "bytes/s"}
    return units.get(spec.parse, "")


def _parameters(size_bytes: int, values: Mapping[str, float | None],
                spreads: Mapping[str, tuple[float, ...]] = MappingProxyType({})) -> tuple[tuple[str, float], ...]:
    stall_every, stall_for = values["stall_every"], values["stall_for"]
    if (stall_every is None) != (stall_for is None):
        raise UsageError("stall_every and stall_for need each other", "give both: stall_every=10s,stall_for=200ms")
    if stall_every is not None and stall_for is not None and stall_for >= stall_every:
        raise UsageError("stall_for is not shorter than stall_every", "give both: stall_every=10s,stall_for=200ms")
    throttle_at, throttle_until = values["throttle_at"], values["throttle_until"]
    if throttle_until is not None and (throttle_at is None or throttle_until > throttle_at):
        raise UsageError("throttle_until needs a throttle_at that is not below it",
                         "give both: throttle_at=80C,throttle_until=75C")
    random, sequential = values["random_write_bandwidth"], values["write_bandwidth"]
    if random is not None and sequential is not None and random > sequential:
        raise UsageError("random_write_bandwidth is above write_bandwidth",
                         "give both: write_bandwidth=1GB/s,random_write_bandwidth=200MB/s")
    defaults = {
        "cache_drain": sequential, "random_write_bandwidth": sequential, "random_write_decline": size_bytes,
        "link": 0, "commands": 0, "iops_limit": 0, "rate_limit": 0, "program": 0, "cache_program": 0,
        "stall_every": 0, "stall_for": 0, "throttle_at": _NEVER_C,
        "throttle_until": _NEVER_C if throttle_at is None else throttle_at - _THROTTLE_SPAN_C}
    whole = {key: defaults[key] if value is None else value for key, value in values.items()}
    return (("capacity_bytes", float(size_bytes)),
            *((KEYS[key].parameter, float(value)) for key, value in whole.items() if value is not None),
            *((f"{key}_{index}", factor) for key in _SPREADS
              for index, factor in enumerate(spreads.get(key, (1.0,) * len(SPREAD_SHARES)))))


def _zero_latency() -> SimulatedDrive:
    values = {key: _value(key, {}) for key in KEYS}
    values |= {key: 0.0 for key in KEYS if key.endswith("_latency")} | {"discard_per_gb": 0.0, "channels": 1.0}
    values |= {key: _UNLIMITED for key in ("read_bandwidth", "write_bandwidth", "cache_bandwidth")}
    return SimulatedDrive(_SECTOR_BYTES, (), _parameters(_SECTOR_BYTES, values), "virtual", state="none")


# Each I/O completes the moment it is submitted. One channel suffices, since none is ever occupied.
ZERO_LATENCY = _zero_latency()
