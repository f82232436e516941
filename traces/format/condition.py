"""The condition of a run: every input of its result. Two runs with the same condition on one drive are repetitions.

The only definition of what makes results comparable. Repetitions, sections of a comparison, the catalog and its history
use it (docs/method.md, "Condition of a run"). Its values are texts, so that a difference can be printed; numbers in
them have all digits, or two inputs could be one text.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import Enum
from typing import Any, Self

from blkreel.common.binning import grouped

from .metadata_types import ComputeSpeed

UNKNOWN = "unknown"  # of a run of an earlier version
_TIMES = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}
_EXTENT = {"start_bytes": "from", "span_bytes": "span", "volume_bytes": "volume"}  # of a generated stream
USUAL_REST_NS = {"client": 300 * 10**9}  # after a preparation at full scale, without --rest
NO_COMPUTING = "none"  # instead of the divisor of computing times: they are left out


class Role(Enum):
    """What a difference in an input means for two results."""

    APART = "not compared with each other"
    SAID = "no repetitions of each other; a comparison of them states the difference"


def _input(role: Role) -> Any:
    return field(default="", metadata={"role": role})


@dataclass(frozen=True)
class Condition:
    """The inputs of a run as texts; empty: the usual one.

    workload: checksum of the trace, or of one without a local file its name and length; of a benchmark's step the
    streams. extent: the parts of the drive that generated streams use, and how much, which follow its size. A captured
    trace has its own path as workload, and no other input.
    """

    workload: str = _input(Role.APART)
    kind: str = _input(Role.APART)
    device: str = _input(Role.APART)
    pace: str = _input(Role.APART)
    idle: str = _input(Role.APART)
    without: str = _input(Role.APART)
    background: str = _input(Role.APART)
    map: str = _input(Role.SAID)
    extent: str = _input(Role.SAID)
    state: str = _input(Role.SAID)
    payload: str = _input(Role.SAID)
    prefill: str = _input(Role.SAID)
    threads: str = _input(Role.SAID)
    polling: str = _input(Role.SAID)

    @classmethod
    def of(cls, metadata: Mapping[str, Any], path: object = "") -> Self:
        """metadata: of a run or a captured trace. path: of the latter."""
        run = _entry(metadata, "run")
        if not run:
            return cls(workload=str(path), kind="captured")
        source, pace = _entry(run, "source"), _entry(run, "pace")
        drives = run.get("drives") or [{**run, "source_device": source.get("device")}]
        drives = [drive for drive in drives if isinstance(drive, Mapping)]
        return cls(
            workload=_workload(source), kind="replayed",
            device="" if _streams(source) else _joined(_text(drive.get("source_device")) for drive in drives),
            pace=_pace(pace), idle=_idle(run), without=_joined(map(str, run.get("without") or [])),
            background="; ".join(_background(own) for own in run.get("background") or [] if isinstance(own, Mapping)),
            map=_joined(_arguments(_entry(drive, "map")) for drive in drives), extent=_extent(source),
            state=_joined(_state(_entry(drive, "state")) for drive in drives),
            payload=payload_words(_entry(run, "payload")), prefill=_joined(map(_prefill, drives)),
            threads=str(_entry(pace, "threads").get("count") or 1), polling=_path(run))

    def of_role(self, role: Role) -> tuple[str, ...]:
        """The values of the inputs of a role."""
        return tuple(getattr(self, name) for name in input_names(role))

    def differing(self, other: Self, role: Role | None = None) -> Iterator[str]:
        """Names of the inputs that differ."""
        for input_field in fields(self):
            name = input_field.name
            if role in (None, input_field.metadata["role"]) and getattr(self, name) != getattr(other, name):
                yield name

    def words(self) -> str:
        """Inputs beside workload, kind and pace, for a table: `device 0; map compact; full; 2 threads`."""
        texts = {"device": f"device {self.device}", "idle": f"idle {self.idle}", "without": f"without {self.without}",
                 "background": f"beside {self.background}",
                 "map": f"map {self.map}", "extent": self.extent, "state": self.state, "payload": self.payload,
                 "prefill": f"prefill {self.prefill}",
                 "threads": f"{self.threads} thread{'' if self.threads == '1' else 's'}", "polling": self.polling}
        return "; ".join(text for name, text in texts.items() if getattr(self, name))


def _path(run: Mapping[str, Any]) -> str:
    """How I/Os get to the drive, where it is not by the block layer with interrupts."""
    return next((name for name in ("polled", "passthrough") if run.get(name)), "")


def input_names(role: Role) -> tuple[str, ...]:
    return tuple(input_field.name for input_field in fields(Condition) if input_field.metadata["role"] is role)


def said_inputs(results: Mapping[str, Any]) -> dict[str, str]:
    """Of the inputs in the results of a benchmark those that a comparison states."""
    return {name: str(text) for name, text in _entry(results, "inputs").items() if name in input_names(Role.SAID)}


def differences(conditions: Mapping[str, Condition]) -> Iterator[str]:
    """What differs between conditions that are compared: `map is not the same: compact [A], identity [B]`.

    conditions: by the name of the drive or label.
    """
    for input_field in fields(Condition):
        values = grouped((getattr(condition, input_field.name) or "none", name)
                         for name, condition in conditions.items())
        if input_field.metadata["role"] is Role.SAID and len(values) > 1:
            texts = ", ".join(f"{value} [{', '.join(names)}]" for value, names in values.items())
            yield f"{input_field.name} is not the same: {texts}"


def _joined(texts: Sequence[str] | Iterator[str]) -> str:
    """Of several drives; equal texts once."""
    return " and ".join(dict.fromkeys(text for text in texts if text))


def _entry(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object of a document; empty if it is missing or of another type, as in a document made by others."""
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return UNKNOWN if value is None else str(value)


def workload_words(source: Mapping[str, Any]) -> str:
    """`qd1: random read 4 KiB` of generated streams; of a trace its name."""
    streams = " beside ".join(map(_stream, _streams(source)))
    return f"{source.get('path') or ''}{': ' if streams else ''}{streams}"


def workload_checksum(source: Mapping[str, Any]) -> str:
    """Of the trace, or of generated streams without their extents and seeds; empty of a trace without one."""
    if not (streams := _streams(source)):
        return str(source.get("sha256") or "")
    inputs = [{key: value for key, value in stream.items() if key not in {*_EXTENT, "number", "name", "seed"}}
              for stream in streams]
    return hashlib.sha256(json.dumps([source.get("path"), inputs], sort_keys=True).encode()).hexdigest()


def _workload(source: Mapping[str, Any]) -> str:
    """The checksum, or of a trace that has none its name and length."""
    length = [] if source.get("rows") is None else [f"{source['rows']} I/Os in {source.get('duration_ns')} ns"]
    return workload_checksum(source) or ", ".join([workload_words(source), *length])


def _streams(source: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [stream for stream in source.get("streams") or [] if isinstance(stream, Mapping)]


def _stream(stream: Mapping[str, Any]) -> str:
    reads = stream.get("read_percent")
    op = stream.get("op") if reads in (None, 0, 100) else f"{reads} % read"
    return f"{stream.get('access')} {op} {_exact(_SIZES, stream.get('block_bytes') or 0)}"


def _extent(source: Mapping[str, Any]) -> str:
    """`span 7 MiB, time 1 s` of generated streams, which have no trace."""
    sizes = [f"{word} {_exact(_SIZES, stream[key])}"
             for stream in _streams(source) for key, word in _EXTENT.items() if stream.get(key)]
    is_timed = sizes and source.get("duration_ns")
    return ", ".join([*sizes, f"time {_exact(_TIMES, source['duration_ns'])}"] if is_timed else sizes)


def _pace(pace: Mapping[str, Any]) -> str:
    name = pace.get("name") or UNKNOWN
    words = {"depth": f"depth={pace.get('depth')}", "scaled": f"x{_number(pace.get('factor') or 0)}"}.get(name, name)
    if compute := pace.get("compute"):
        words += ", without computing" if compute == NO_COMPUTING else f", computing divided by {_number(compute)}"
    if pace.get("dependencies") == "inferred":
        words += ", inferred dependencies"
    streams = [f"stream {number}: {_pace(own)}" for number, own in sorted(_entry(pace, "streams").items())
               if isinstance(own, Mapping)]
    return "; ".join([words, *streams])


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _exact(units: Mapping[str, int], value: float) -> str:
    """The shortest text with all digits: `25.01 ms`, `40 MB`, `64 KiB`."""
    return min((f"{Decimal(value) / scale:f} {unit}" for unit, scale in units.items()), key=len)


def compute_words(compute: ComputeSpeed) -> str:
    """`, compute x4` or `, no computing` behind the name of a pace; empty at the captured computing times."""
    if not compute:
        return ""
    return f", compute x{compute:g}" if isinstance(compute, int | float) else ", no computing"


def _idle(run: Mapping[str, Any]) -> str:
    """A pace without times has no idle time to remove."""
    idle, pace = _entry(run, "idle"), _entry(run, "pace")
    saturating = pace.get("name") in ("asap", "depth") and not pace.get("streams")
    if saturating or idle.get("name") in (None, "original"):
        return ""
    return f"capped at {_exact(_TIMES, idle['cap_ns'])}" if idle.get("cap_ns") else "removed"


def _background(background: Mapping[str, Any]) -> str:
    """As given to --background, with the checksum of its trace. Its phase is no input: repetitions have others."""
    words = [_text(background.get("spec")), f"after {_exact(_TIMES, background.get('lead_ns') or 0)}"]
    return ", ".join([*words, str(background["sha256"])[:12]] if background.get("sha256") else words)


def _arguments(entry: Mapping[str, Any]) -> str:
    """`tile, copies 8`: a name and its arguments."""
    if not entry:
        return UNKNOWN
    numbers = ((key.removesuffix("_bytes").replace("_", " "), _exact(_SIZES, value)
                if key.endswith("_bytes") and isinstance(value, int) else value)
               for key, value in entry.items() if key != "name")
    return ", ".join([str(entry.get("name")), *(f"{key} {value}" for key, value in numbers)])


def _state(state: Mapping[str, Any]) -> str:
    """Name and arguments; not the drive's size, which the map and the state's name cover."""
    if not state.get("name"):
        return "not prepared"
    words = [str(state["name"])]
    if state.get("scale") not in (None, 1, 1.0):
        words.append("scaled")
    spans = [span for span in state.get("spans") or [] if len(span) == 2]
    if any(start for start, _ in spans):
        words += [f"{_exact(_SIZES, start)} to {_exact(_SIZES, end)} written" for start, end in spans]
    elif state.get("span_bytes"):
        words.append(f"{_exact(_SIZES, state['span_bytes'])} written")
    if trace := _entry(state, "trace"):
        words.append(f"for {_text(trace.get('sha256'))[:12]}, device {_text(trace.get('device'))}, "
                     f"map {_arguments(_entry(trace, 'map'))}")
    rest_ns, usual_ns = state.get("rest_ns"), USUAL_REST_NS.get(str(state["name"]).partition("+")[0], 0)
    if rest_ns not in (None, int(usual_ns * (state.get("scale") or 1))):
        words.append(f"rested {_exact(_TIMES, rest_ns)}")
    if state.get("permuted"):
        words.append("each block once")
    if state.get("erased_by"):
        words.append(f"erased by {state['erased_by']}")
    return ", ".join(filter(None, [*words, payload_words(_entry(state, "payload"))]))


def payload_words(payload: Mapping[str, Any] | None) -> str:
    """Compressibility and duplicates of the written data; empty for the usual, incompressible data."""
    kinds = (("compressible_percent", "compressible"), ("duplicates_percent", "duplicates"))
    return ", ".join(f"{payload[key]} % {word}" for key, word in kinds if payload and payload.get(key))


def _prefill(drive: Mapping[str, Any]) -> str:
    """Whether blocks that are read first were left unwritten; it does not matter who wrote them."""
    return "declined" if drive.get("unwritten_bytes") and not drive.get("prefill") else ""
