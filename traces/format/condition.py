"""The condition of a run: every input of its result. Two runs with the same condition on one drive are repetitions.

The only definition of what makes results comparable. Repetitions, sections of a comparison, the catalog and its history
use it (docs/method.md, "Condition of a run"). Its values are texts, so that a difference can be printed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Self

from blkreel.common.units import format_bytes, format_ns

UNKNOWN = "unknown"  # of a run of an earlier version
NO_COMPUTING = "none"  # instead of the divisor of computing times: they are left out


class Role(Enum):
    """What a difference in an input means for two results."""

    APART = "not compared with each other"
    SAID = "no repetitions of each other; a comparison of them states the difference"


def _input(role: Role) -> Any:
    return field(default="", metadata={"role": role})


@dataclass(frozen=True)
class Condition:
    """The inputs of a run as texts; empty: the usual one. workload: checksum of the trace, else its path.

    A captured trace has its own path as workload, and no other input.
    """

    workload: str = _input(Role.APART)
    kind: str = _input(Role.APART)
    device: str = _input(Role.APART)
    pace: str = _input(Role.APART)
    idle: str = _input(Role.APART)
    without: str = _input(Role.APART)
    background: str = _input(Role.APART)
    map: str = _input(Role.SAID)
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
            workload=str(source.get("sha256") or source.get("path") or ""), kind="replayed",
            device=_joined(_text(drive.get("source_device")) for drive in drives),
            pace=_pace(pace), idle=_idle(run), without=_joined(map(str, run.get("without") or [])),
            background="; ".join(_background(own) for own in run.get("background") or [] if isinstance(own, Mapping)),
            map=_joined(_arguments(_entry(drive, "map")) for drive in drives),
            state=_joined(_state(_entry(drive, "state")) for drive in drives),
            payload=payload_words(_entry(run, "payload")), prefill=_joined(map(_prefill, drives)),
            threads=str(_entry(pace, "threads").get("count") or 1), polling="polled" if run.get("polled") else "")

    def of_role(self, role: Role) -> tuple[str, ...]:
        """The values of the inputs of a role."""
        return tuple(getattr(self, each.name) for each in fields(self) if each.metadata["role"] is role)

    def differing(self, other: Self, role: Role | None = None) -> Iterator[str]:
        """Names of the inputs that differ."""
        for each in fields(self):
            if role in (None, each.metadata["role"]) and getattr(self, each.name) != getattr(other, each.name):
                yield each.name

    def words(self) -> str:
        """Inputs beside workload, kind, pace and state, for a table: `device 0; map compact; 2 threads`."""
        texts = {"device": f"device {self.device}", "idle": f"idle {self.idle}", "without": f"without {self.without}",
                 "background": f"beside {self.background}",
                 "map": f"map {self.map}", "payload": self.payload, "prefill": f"prefill {self.prefill}",
                 "threads": f"{self.threads} thread{'' if self.threads == '1' else 's'}", "polling": self.polling}
        return "; ".join(text for name, text in texts.items() if getattr(self, name))


def input_names(role: Role) -> tuple[str, ...]:
    return tuple(each.name for each in fields(Condition) if each.metadata["role"] is role)


def differences(conditions: Mapping[str, Condition]) -> Iterator[str]:
    """What differs between conditions that are compared: `map is not the same: compact [A], identity [B]`.

    conditions: by the name of the drive or label.
    """
    for each in fields(Condition):
        values: dict[str, list[str]] = {}
        for name, condition in conditions.items():
            values.setdefault(getattr(condition, each.name) or "none", []).append(name)
        if each.metadata["role"] is Role.SAID and len(values) > 1:
            texts = ", ".join(f"{value} [{', '.join(names)}]" for value, names in values.items())
            yield f"{each.name} is not the same: {texts}"


def _joined(texts: Sequence[str] | Iterator[str]) -> str:
    """Of several drives; equal texts once."""
    return " and ".join(dict.fromkeys(text for text in texts if text))


def _entry(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object of a document; empty if it is missing or of another type, as in a document made by others."""
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return UNKNOWN if value is None else str(value)


def _pace(pace: Mapping[str, Any]) -> str:
    name = pace.get("name") or UNKNOWN
    words = {"depth": f"depth={pace.get('depth')}", "scaled": f"x{pace.get('factor') or 0:g}"}.get(name, name)
    if compute := pace.get("compute"):
        words += ", without computing" if compute == NO_COMPUTING else f", computing divided by {compute:g}"
    if pace.get("dependencies") == "inferred":
        words += ", inferred dependencies"
    streams = [f"stream {number}: {_pace(own)}" for number, own in sorted(_entry(pace, "streams").items())
               if isinstance(own, Mapping)]
    return "; ".join([words, *streams])


def compute_words(pace: Mapping[str, Any]) -> str:
    """`, compute x4` or `, no computing` behind the name of a pace; empty at the captured computing times."""
    compute = pace.get("compute")
    if not compute:
        return ""
    return ", no computing" if compute == NO_COMPUTING else f", compute x{compute:g}"


def _idle(run: Mapping[str, Any]) -> str:
    """A pace without times has no idle time to remove."""
    idle, pace = _entry(run, "idle"), _entry(run, "pace")
    saturating = pace.get("name") in ("asap", "depth") and not pace.get("streams")
    if saturating or idle.get("name") in (None, "original"):
        return ""
    return f"capped at {format_ns(idle['cap_ns'])}" if idle.get("cap_ns") else "removed"


def _background(background: Mapping[str, Any]) -> str:
    """As given to --background, with the checksum of its trace. Its phase is no input: repetitions have others."""
    words = [_text(background.get("spec")), f"after {format_ns(background.get('lead_ns') or 0)}"]
    return ", ".join([*words, str(background["sha256"])[:12]] if background.get("sha256") else words)


def _arguments(entry: Mapping[str, Any]) -> str:
    """`tile, copies 8`: a name and its arguments."""
    if not entry:
        return UNKNOWN
    numbers = {key: value for key, value in entry.items() if key != "name"}
    return ", ".join([str(entry.get("name")), *(
        f"{key.removesuffix('_bytes').replace('_', ' ')} {format_bytes(value) if key.endswith('_bytes') else value}"
        for key, value in numbers.items())])


def _state(state: Mapping[str, Any]) -> str:
    """Name and arguments; not the drive's size, which the map and the state's name cover."""
    if not state.get("name"):
        return "not prepared"
    words = [str(state["name"])]
    if state.get("scale") not in (None, 1, 1.0):
        words.append("scaled")
    if state.get("span_bytes"):
        words.append(f"{format_bytes(state['span_bytes'])} written")
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
