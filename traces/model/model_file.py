"""The TOML file of a workload model. docs/model.md lists its keys."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from blkreel import __version__
from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import mismatch, parse_toml, record
from blkreel.traces.format.schema import OPS

from .measurement import LENGTH_CLASSES
from .properties import PROPERTIES
from .workload_model import (
    CLOCK_KEYS,
    GAP_CLASSES,
    NO_OFFSET,
    RATE_CLASSES,
    RUN_CLASSES,
    RUN_IOS_CLASSES,
    OpModel,
    State,
    WorkloadModel,
)

SUFFIX = ".toml"
VERSION = 1
_REFIT = "fit it again: blkreel model TRACE -o MODEL.toml"
_LARGEST = 1 << 62
_MOST_IOS = 1 << 40


class _Chain(TypedDict):
    first: int
    states: list[list[Any]]
    transitions: list[list[int]]
    last_exits: list[int]


class _Document(TypedDict):
    blkreel_model: int
    ios: int
    capacity_bytes: int
    alignment_bytes: int
    clock_resolution_ns: NotRequired[int]
    times_step_ns: NotRequired[int]
    gaps_ns: list[list[int]]
    chain: _Chain
    op: dict[str, OpModel]
    properties: dict[str, float]


def model_text(model: WorkloadModel) -> str:
    """The model as TOML."""
    states = [[state.op, state.sequential, state.gap_class, state.rate_class] for state in model.states]
    lines = [f"# A workload model, fitted by blkreel {__version__}. Make a trace of it:",
             "# blkreel model THIS_FILE.toml --make-trace OUT.parquet --seed 1",
             f"blkreel_model = {VERSION}", f"ios = {model.ios}", f"capacity_bytes = {model.capacity_bytes}",
             f"alignment_bytes = {model.alignment_bytes}",
             *(f"{key} = {value}" for key, value in model.clock.items()), "",
             "# Gaps between submissions: of each class, equally likely values.",
             _array("gaps_ns", model.gaps_ns, 1), "",
             "# Markov chain. states: operation, sequential, class of the gap before, class of the rate.",
             "[chain]", f"first = {model.first}", _array("states", states), _array("transitions", model.transitions),
             _array("last_exits", model.last_exits)]
    for name, op in model.ops.items():
        lines += ["", f"[op.{name}]", *(
            _array(key, value, 1 if key == "latencies_ns" else 8) if isinstance(value, list) else f"{key} = {value}"
            for key, value in vars(op).items())]
    lines += ["", "# Measured on the trace; a trace made of the model is compared with them.", "[properties]",
              *(f"{key} = {value}" for key, value in model.properties.items())]
    return "\n".join(lines) + "\n"


def read_model(path: Path) -> WorkloadModel:
    """Raises UsageError for a file that is not a workload model, or has a value that cannot be played."""
    try:
        document = parse_toml(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", _REFIT) from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}", _REFIT) from None
    if "blkreel_model" not in document:
        raise UsageError(f"{path} is not a workload model: no key blkreel_model", _REFIT)
    if document["blkreel_model"] != VERSION:
        raise UsageError(f"{path} has model version {document['blkreel_model']}; this blkreel reads {VERSION}",
                         "update blkreel")
    wrong = mismatch(document, _Document) or next(
        (f"op.{name}.{key.name} is missing" for name, op in document["op"].items() for key in fields(OpModel)
         if key.name not in op), None)
    if not wrong:
        chain = document["chain"]
        model = WorkloadModel(
            document["ios"], document["capacity_bytes"], document["alignment_bytes"], document["gaps_ns"],
            [_state(state) for state in chain["states"]], chain["transitions"], chain["last_exits"], chain["first"],
            {name: record(OpModel, op) for name, op in document["op"].items()},
            {key: value for key, value in document["properties"].items() if key in PROPERTIES},
            {key: document[key] for key in CLOCK_KEYS if key in document})
        wrong = _invalid(model)
    if wrong:
        raise UsageError(f"{path} is not a valid workload model: {wrong}", _REFIT)
    return model


def _state(values: list[Any]) -> State:
    kinds = (str, bool, int, int)
    valid = len(values) == len(kinds) and all(type(value) is kind for value, kind in zip(values, kinds, strict=True))
    return State(*values) if valid else State("", False, 0, 0)


def _invalid(model: WorkloadModel) -> str | None:
    """The first value that cannot be played."""
    states = range(len(model.states))
    sizes = [pair for op in model.ops.values() for pair in [*op.sizes_random, *op.sizes_sequential]]
    regions = [(region, op.region_bytes) for op in model.ops.values() for region in op.regions]
    shares = [share for op in model.ops.values()
              for share in (op.reuse_share, op.reuse_share_continued, op.sequential_again_share, op.reused_again_share)]
    numbers = [*(value for table in [*model.gaps_ns, *(table for op in model.ops.values() for table in op.latencies_ns)]
                 for value in table),
               *(value for pair in sizes for value in pair), *(value for region, _ in regions for value in region),
               *(value for op in model.ops.values() for counts in [op.open_ends, op.reuse_distances, *op.continued_runs]
                 for value in counts)]
    used = {state.op for state in model.states}
    checks = {
        "ios": 0 < model.ios <= _MOST_IOS,
        "capacity_bytes": 0 < model.capacity_bytes < _LARGEST,
        "alignment_bytes": 0 < model.alignment_bytes <= 1 << 20 and _power_of_two(model.alignment_bytes),
        "clock_resolution_ns, times_step_ns": all(0 < step_ns < _LARGEST for step_ns in model.clock.values()),
        "gaps_ns": len(model.gaps_ns) == GAP_CLASSES,
        "chain.states": bool(states) and all(_valid_state(state) for state in model.states),
        "chain.first": model.first in states,
        "chain.transitions": all(len(edge) == 3 and edge[0] in states and edge[1] in states and edge[2] > 0
                                 for edge in model.transitions) and bool(model.transitions),
        "chain.last_exits": len(model.last_exits) == len(model.states)
                            and _valid_exits(model),
        "op": used <= set(model.ops) <= set(OPS),
        "op.*.sizes_*": all(len(pair) == 2 for pair in sizes),
        "op.*.continued_runs": all(not op.continued_runs or [len(counts) for counts in op.continued_runs]
                                   == [RUN_CLASSES] * (RUN_CLASSES // RUN_IOS_CLASSES) for op in model.ops.values()),
        "op.*.regions": all(len(region) == 3 and region[0] * size < model.capacity_bytes and region[2] <= region[1]
                            for region, size in regions),
        "op.*.region_bytes": all(0 < op.region_bytes < _LARGEST and _power_of_two(op.region_bytes)
                                 for op in model.ops.values()),
        "op.*.reuse_share, op.*.*_again_share": all(math.isfinite(share) and 0 <= share <= 1 for share in shares),
        "op.*.latencies_ns": all(len(op.latencies_ns) in (0, LENGTH_CLASSES) for op in model.ops.values()),
        "properties": all(math.isfinite(value) for value in model.properties.values()),
        "a count or time": all(0 <= value < _LARGEST for value in numbers)}
    return next((f"{key} has a value out of range" for key, valid in checks.items() if not valid), None)


def _valid_exits(model: WorkloadModel) -> bool:
    """Whether each last exit is one of the transitions, or −1."""
    transitions = {tuple(edge[:2]) for edge in model.transitions if len(edge) == 3}
    return all(end == -1 or (begin, end) in transitions for begin, end in enumerate(model.last_exits))


def _valid_state(state: State) -> bool:
    return (state.op in OPS and 0 <= state.gap_class < GAP_CLASSES and 0 <= state.rate_class < RATE_CLASSES
            and not (state.sequential and state.op in NO_OFFSET))


def _power_of_two(value: int) -> bool:
    return value & (value - 1) == 0


def _array(key: str, values: list[Any], a_line: int = 8) -> str:
    """An array of TOML with some elements in a line."""
    texts = [str(value).replace("'", '"').replace("True", "true").replace("False", "false") for value in values]
    if sum(map(len, texts)) < 100:
        return f"{key} = [{', '.join(texts)}]"
    return "\n".join([f"{key} = [", *(f"  {', '.join(texts[begin:begin + a_line])},"
                                     for begin in range(0, len(texts), a_line)), "]"])
