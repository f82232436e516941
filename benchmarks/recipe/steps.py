"""The steps of a recipe on one drive: loops unrolled, expressions evaluated, regions mapped to offsets."""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from blkreel.benchmarks.step import BenchmarkStep, Span
from blkreel.common.errors import UsageError
from blkreel.common.units import format_bytes, parse_time_ns
from blkreel.replay.engine.engine import MAX_DEPTH
from blkreel.replay.streams import generate
from blkreel.replay.streams.spec import ACCESSES, Bursts, StreamSpec
from blkreel.traces.format.schema import OPS

from .recipe import Recipe, Table, check_keys
from .values import Share, Value, evaluate, parse_count, parse_number, parse_percent, parse_size

AS_ACTIVE = "as-active"
_REGION_ALIGN_BYTES = 1 << 20
_MAX_STEPS = 10_000
_MAX_SLUG = 100  # a title may have the path of a trace, a name of a directory at most 255 bytes
_STEP_KEYS = {
    "state": {"state", "regions", "idle"},
    "rest": {"time"},
    "measure": {"role", "time", "streams", "resume_from", "until_steady"},
    "replay": {"role", "trace", "idle", "pace", "map", "baseline", "resume_from"},
}
_COMMON_KEYS = {"do", "name", "each", "if", "steps"}
_STREAM_KEYS = {"name", "op", "read_percent", "access", "block", "region", "part", "depth", "volume", "bursts", "rate",
                "lengths", "every", "first", "background"}
_BURST_KEYS = {"bytes", "every", "first", "count"}

Labels = dict[str, Value]


def steps_of(recipe: Recipe, parameters: Mapping[str, Value], *, size_bytes: int, block_bytes: int,
             seed: int) -> list[BenchmarkStep]:
    """The steps of the recipe on a drive of that size, with parameters of Recipe.resolve().

    Raises UsageError if the recipe is wrong or does not fit the drive.
    """
    expansion = _Expansion(recipe, parameters, size_bytes, block_bytes, seed)
    expansion.expand(recipe.steps, {})
    expansion.check_distinct()
    return [_with_data(step, expansion.steps[number:]) for number, step in enumerate(expansion.steps, 1)]


def _with_data(step: BenchmarkStep, later: list[BenchmarkStep]) -> BenchmarkStep:
    """A state `data` whose recipe names no regions, with what the steps up to the next state use."""
    if step.state.partition("+")[0] != "data" or step.spans:
        return step
    users = list(takewhile(lambda user: user.do != "state", later))
    return replace(step, replays=tuple(user for user in users if user.do == "replay"), spans=tuple(dict.fromkeys(
        (stream.start_bytes, stream.start_bytes + stream.span_bytes) for user in users for stream in user.streams)))


class _Expansion:
    def __init__(self, recipe: Recipe, parameters: Mapping[str, Value], size_bytes: int, block_bytes: int, seed: int):
        self.steps: list[BenchmarkStep] = []
        self._recipe, self._parameters, self._size_bytes = recipe, parameters, size_bytes
        self._block_bytes, self._seed = block_bytes, seed
        self._capacity_bytes = _round_down(size_bytes, _REGION_ALIGN_BYTES)
        self._absolute: tuple[int, dict[str, Value]] = -1, {}  # (capacity, parameters with shares in bytes)

    def expand(self, tables: list[Table], labels: Labels) -> None:
        for table in tables:
            for inner in self._loops(list(table.get("each", {}).items()), labels):
                if not self._evaluated(table.get("if", 1), inner):
                    continue
                if "steps" in table:
                    self._check_keys("a group of steps", table, {"each", "if", "steps"})
                    self.expand(table["steps"], inner)
                else:
                    self._add(table, inner)

    def check_distinct(self) -> None:
        """Raises UsageError for two measuring steps that the results would merge or take for repeats."""
        step_ids: dict[object, str] = {}
        for step in self.steps:
            if not step.measures:
                continue
            key = (step.role, tuple(sorted((name, str(value)) for name, value in step.labels.items())))
            if key in step_ids:
                labels = ", ".join(f"{name} {value}" for name, value in step.labels.items()) or "no labels"
                raise self._error(f"steps {step_ids[key]} and {step.id} have the same role and labels ({labels})",
                                  "use distinct values; to repeat the test: --set repeats=N")
            step_ids[key] = step.id

    def _loops(self, loops: list[tuple[str, Any]], labels: Labels) -> Iterator[Labels]:
        """The labels of each turn of nested loops, the first the outermost."""
        if not loops:
            yield labels
            return
        (name, text), *inner = loops
        values = self._evaluated(text, labels)
        if isinstance(values, int):
            values = list(range(1, min(values, _MAX_STEPS + 1) + 1))
        if not isinstance(values, list) or not values:
            raise self._error(f"the loop over {name} has no values", "set a list or a count: { repeat = 3 }")
        for value in values:
            yield from self._loops(inner, {**labels, name: self._evaluated(value, labels)})

    def _add(self, table: Table, labels: Labels) -> None:
        do = table.get("do")
        if not isinstance(do, str) or do not in _STEP_KEYS:
            raise self._error(f"invalid do = {do!r} of a step", f"use one of: {', '.join(_STEP_KEYS)}")
        required = {"state": {"state"}, "rest": {"time"}, "measure": {"role", "streams"}, "replay": {"trace"}}
        self._check_keys(f"a {do} step", table, _STEP_KEYS[do] | _COMMON_KEYS, required[do])
        if do == "state":
            default_name, settings = self._state(table, labels)
        elif do == "rest":
            default_name, settings = "rest", {"time_ns": self._rest_ns(table["time"], labels)}
        else:
            default_name, settings = self._measuring(table, labels)
        title = self._text(table.get("name", default_name), labels)
        number = len(self.steps) + 1
        if number > _MAX_STEPS:
            raise self._error(f"more than {_MAX_STEPS:,} steps", "set shorter lists or fewer repeats")
        slug = re.sub(r"[^A-Za-z0-9.+-]+", "-", title).strip("-").lower()[:_MAX_SLUG] or do
        step_id = f"{number:02}-{slug}"
        if do == "measure":
            settings["streams"] = tuple(self._stream(index, stream, labels, step_id)
                                        for index, stream in enumerate(table["streams"]))
            self._check_streams(settings["streams"], settings["time_ns"], title)
        self.steps.append(BenchmarkStep(
            step_id, do, title, directory=f"steps/{step_id}" if do in ("measure", "replay") else None, labels={
                name: str(value) if isinstance(value, Share) else value for name, value in labels.items()}, **settings))

    def _state(self, table: Table, labels: Labels) -> tuple[str, dict[str, Any]]:
        name = self._text(table["state"], labels)
        # What states.py leaves usable of a drive.
        usable_bytes = self._size_bytes * 3 // 4 if "op25" in name else self._size_bytes
        self._capacity_bytes = _round_down(usable_bytes, _REGION_ALIGN_BYTES)
        spans = tuple(self._region(region, labels) for region in table.get("regions", []))
        return f"state {name}", {"state": name, "spans": spans, "time_ns": self._optional_time(table, "idle", labels)}

    def _rest_ns(self, text: Value, labels: Labels) -> int | None:
        if self._evaluated(text, labels) != AS_ACTIVE:
            return self._time(text, labels)
        if not any(step.measures for step in self.steps):
            raise self._error(f"no measuring step before the rest with time = {AS_ACTIVE!r}",
                              "put a measuring step before it, or set a time")
        return None

    def _measuring(self, table: Table, labels: Labels) -> tuple[str, dict[str, Any]]:
        role = self._text(table.get("role", "trace"), labels)
        resume_from = table.get("resume_from", "step")
        if resume_from not in ("step", "state"):
            raise self._error(f"invalid resume_from = {resume_from!r}", "use step or state")
        settings = {"role": role, "resume_from": resume_from}
        if table["do"] == "replay":
            keys = ("trace", "idle", "pace", "map", "baseline")
            return role, settings | {key: self._text(table[key], labels) for key in keys if key in table}
        loop = table.get("until_steady", "")
        if loop and loop not in labels:
            raise self._error(f"until_steady = {loop!r} is not a loop around the step",
                              'use one of its loops, as in each = { round = "= rounds" }')
        return role, settings | {"time_ns": self._optional_time(table, "time", labels), "until_steady": loop}

    def _stream(self, number: int, table: Table, labels: Labels, step_id: str) -> StreamSpec:
        name = self._text(table.get("name", f"stream {number}"), labels)
        where = f"stream {name!r} of {step_id}"
        self._check_keys(where, table, _STREAM_KEYS)
        op, access = self._text(table.get("op", "read"), labels), self._text(table.get("access", "random"), labels)
        if op not in OPS or access not in ACCESSES:
            raise self._error(f"{where}: invalid op {op!r} or access {access!r}",
                              f"use op of {', '.join(OPS)}, and access of {', '.join(ACCESSES)}")
        lengths = self._evaluated(table.get("lengths", []), labels)
        lengths_bytes = [self._size(length, labels) for length in (lengths if isinstance(lengths, list) else [lengths])]
        block_bytes = self._size(table["block"], labels) if "block" in table else self._block_bytes
        if block_bytes % self._block_bytes or not block_bytes:
            raise self._error(f"{where}: block size {format_bytes(block_bytes)} is not a multiple of the drive's "
                              f"{self._block_bytes} bytes", "set a multiple of that")
        start, end = self._part(self._region(self._text(table.get("region", "all"), labels), labels), table.get("part"))
        start, end = _round_up(start, block_bytes), _round_down(end, block_bytes)
        needed_bytes = max(lengths_bytes, default=0) if access == "random-sizes" else sum(lengths_bytes)
        if end - start < max(block_bytes, needed_bytes):
            raise self._error(f"{where}: region of {format_bytes(max(0, end - start))} is too small",
                              "set a larger region or smaller blocks")
        depth = parse_count(self._evaluated(table.get("depth", 1), labels))
        if not 1 <= depth <= MAX_DEPTH:
            raise self._error(f"{where}: invalid depth {depth}", f"use 1 to {MAX_DEPTH}")
        return StreamSpec(
            number=number, name=name, op=op, access=access, block_bytes=block_bytes, start_bytes=start,
            span_bytes=end - start, depth=depth, seed=zlib.crc32(f"{self._seed}/{step_id}/{number}".encode()),
            read_percent=100 if op == "read" else parse_percent(self._evaluated(table.get("read_percent", 0), labels)),
            volume_bytes=self._size(table["volume"], labels) if "volume" in table else None,
            bursts=self._bursts(table["bursts"], labels, where) if "bursts" in table else None,
            rate_iops=parse_number(self._evaluated(table["rate"], labels)) if "rate" in table else None,
            first_ns=self._optional_time(table, "first", labels) or 0,
            every_ns=self._optional_time(table, "every", labels),
            lengths_bytes=tuple(lengths_bytes), background=table.get("background", False))

    def _bursts(self, table: Table, labels: Labels, where: str) -> Bursts:
        self._check_keys(f"bursts of {where}", table, _BURST_KEYS, {"bytes", "every"})
        return Bursts(self._size(table["bytes"], labels), self._time(table["every"], labels),
                      self._optional_time(table, "first", labels) or 0,
                      parse_count(self._evaluated(table["count"], labels)) if "count" in table else None)

    def _check_streams(self, streams: tuple[StreamSpec, ...], time_ns: int | None, title: str) -> None:
        foreground = [stream for stream in streams if not stream.background]
        is_bounded = [s.volume_bytes is not None or s.access == "extents"
                      or (s.bursts is not None and s.bursts.count is not None) for s in foreground]
        if time_ns is None and not (is_bounded and all(is_bounded)):
            raise self._error(f"{title!r} would never end", "set a time, or a volume of its streams")
        for stream in streams:
            generate.check(stream)
            if time_ns == 0 or (not stream.background and generate.row_count(stream, time_ns) == 0):
                raise self._error(f"stream {stream.name!r} of {title!r} has no I/Os",
                                  "set a longer time or a larger volume")
        if sum(stream.depth for stream in streams) > MAX_DEPTH:
            raise self._error(f"depth of {title!r} is above {MAX_DEPTH:,}", "set a smaller depth")

    def _region(self, name: str, labels: Labels) -> Span:
        """Regions follow each other from offset 0, each rounded up to whole MiB."""
        regions, end = {"all": (0, self._capacity_bytes)}, 0
        for region, text in self._recipe.regions.items():
            start, end = end, end + _round_up(self._size(text, labels), _REGION_ALIGN_BYTES)
            regions[region] = (start, end)
        if end > self._capacity_bytes:
            raise self._error(f"the test needs {format_bytes(end)}, the drive has {format_bytes(self._capacity_bytes)} "
                              "usable", "shrink the test with --fit, use a larger drive, or set its sizes: "
                                        f"blkreel test {self._recipe.name} --explain")
        if name not in regions:
            raise self._error(f"unknown region {name!r}", f"use one of: {', '.join(regions)}")
        return regions[name]

    def _part(self, span: Span, part: str | None) -> Span:
        start, end = span
        middle = _round_down((start + end) // 2, _REGION_ALIGN_BYTES) or (start + end) // 2
        if part not in (None, "lower", "upper"):
            raise self._error(f"unknown part {part!r} of a region", "use lower or upper")
        return {None: (start, end), "lower": (start, middle), "upper": (middle, end)}[part]

    def _variables(self, labels: Labels) -> dict[str, Value]:
        if self._absolute[0] != self._capacity_bytes:  # cached: the same for each value of thousands of steps
            self._absolute = self._capacity_bytes, {name: self._in_bytes(value)
                                                    for name, value in self._parameters.items()}
        return {**self._absolute[1], **{name: self._in_bytes(value) for name, value in labels.items()},
                "capacity": self._capacity_bytes, "block_size": self._block_bytes}

    def _in_bytes(self, value: Value) -> Value:
        """Shares of the usable capacity as bytes; other values unchanged."""
        if isinstance(value, list):
            return [self._in_bytes(item) for item in value]
        return value.of(self._capacity_bytes) if isinstance(value, Share) else value

    def _evaluated(self, text: Value, labels: Labels) -> Value:
        """The value of an expression, which starts with `=`; other values unchanged."""
        if isinstance(text, str) and text.lstrip().startswith("="):
            return evaluate(text.lstrip()[1:], self._variables(labels))
        return text

    def _text(self, text: Value, labels: Labels) -> str:
        value = self._evaluated(text, labels)
        if not isinstance(value, str):
            return str(value)
        try:
            return value.format_map(labels)
        except (KeyError, ValueError, IndexError):
            raise self._error(f"unknown loop variable in {value!r}", "use the names of its loops") from None

    def _size(self, text: Value, labels: Labels) -> int:
        value = self._evaluated(text, labels)
        return int(value if isinstance(value, int) else self._in_bytes(parse_size(value)))

    def _time(self, text: Value, labels: Labels) -> int:
        value = self._evaluated(text, labels)
        return value if isinstance(value, int) else parse_time_ns(str(value))

    def _optional_time(self, table: Table, key: str, labels: Labels) -> int | None:
        return self._time(table[key], labels) if key in table else None

    def _check_keys(self, where: str, table: Table, keys: Iterable[str], required: Iterable[str] = ()) -> None:
        check_keys(f"{self._recipe.name}: {where}", table, set(keys), set(required))

    def _error(self, message: str, remedy: str) -> UsageError:
        return UsageError(f"{self._recipe.name}: {message}", remedy)


def _round_down(value: int, unit: int) -> int:
    return value // unit * unit


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
