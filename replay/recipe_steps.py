"""The steps of a recipe on one drive: loops gone through, sums worked out, places given to regions."""

import re
import zlib
from dataclasses import dataclass, field

from blkreel.traces.errors import UsageError
from blkreel.traces.schema import OPS
from blkreel.traces.units import format_bytes, parse_time_ns

from . import generate
from .engine import MAX_DEPTH
from .recipe import Recipe
from .recipe_words import Share, evaluate, parse_number, parse_percent, parse_size, parse_whole
from .stream_spec import ACCESSES, Bursts, StreamSpec

AS_ACTIVE = "as-active"
DOES = ("state", "rest", "measure", "replay")
_REGION_ALIGN_BYTES = 1 << 20
_MOST_STEPS = 10_000
_STEP_KEYS = {
    "state": {"state", "regions", "idle"},
    "rest": {"time"},
    "measure": {"role", "time", "streams", "again", "until_steady"},
    "replay": {"role", "trace", "idle", "pace", "map", "again"},
}
_COMMON_KEYS = {"do", "name", "each", "if", "steps"}
_STREAM_KEYS = {"name", "op", "read_percent", "access", "block", "region", "part", "depth", "volume", "bursts", "rate",
                "lengths", "every", "first", "background"}
_BURST_KEYS = {"bytes", "every", "first", "count"}


@dataclass(frozen=True)
class TestStep:
    """One thing that a test does. Which fields are used is told by `do`, of DOES.

    labels: the values of the loops that it stands in. time_ns: of a rest, its length, None for as long as the last
    measuring step took; of a measuring step, when it ends at the latest. spans: of the state `data`, what is written.
    again: what an interrupted step does before it is repeated: `step` nothing, `state` goes back to its state.
    until_steady: the loop of which the turns that are left are skipped once the rates of those done are steady.
    """

    __test__ = False  # for pytest: this is no test class

    id: str
    do: str
    title: str
    role: str = ""
    labels: dict = field(default_factory=dict)
    state: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    time_ns: int | None = None
    streams: tuple[StreamSpec, ...] = ()
    trace: str = ""
    idle: str = "original"
    pace: str = "original"
    map: str | None = None
    again: str = "step"
    until_steady: str = ""

    @property
    def measures(self) -> bool:
        return self.do in ("measure", "replay")


def steps_of(recipe: Recipe, settled: dict, *, size_bytes: int, block_bytes: int, seed: int) -> list[TestStep]:
    """What the recipe does on a drive of that size. settled: of Recipe.settle().

    Raises UsageError where the recipe is wrong, or does not fit the drive.
    """
    expansion = _Expansion(recipe, settled, size_bytes, block_bytes, seed)
    expansion.take(recipe.steps, {})
    expansion.check_distinct()
    return expansion.steps


class _Expansion:
    def __init__(self, recipe, settled, size_bytes, block_bytes, seed):
        self.steps: list[TestStep] = []
        self._recipe, self._settled, self._size_bytes = recipe, settled, size_bytes
        self._block_bytes, self._seed = block_bytes, seed
        self._settled_whole, self._whole_of_bytes = {}, None
        self._capacity_bytes = _down(size_bytes, _REGION_ALIGN_BYTES)

    def take(self, told: list, labels: dict) -> None:
        for one in told:
            for values in self._loops(list(one.get("each", {}).items()), labels):
                if not self._word(one.get("if", 1), values):
                    continue
                if "steps" in one:
                    self._allow(one, {"each", "if", "steps"}, "a group of steps")
                    self.take(one["steps"], values)
                else:
                    self._add(one, values)

    def check_distinct(self) -> None:
        """Raise where a result could not tell two steps apart, and would show one of them, or both as repeats."""
        seen = {}
        for step in self.steps:
            if not step.measures:
                continue
            key = (step.role, tuple(sorted((name, str(value)) for name, value in step.labels.items())))
            if key in seen:
                words = ", ".join(f"{name} {value}" for name, value in step.labels.items()) or "no labels"
                raise self._wrong(f"the steps {seen[key]} and {step.id} are the same to a result ({words})",
                                  "set values that differ; to do all of it again: --set repeats=N")
            seen[key] = step.id

    def _loops(self, loops, labels):
        """The labels for each turn of nested loops, the first the outermost."""
        if not loops:
            yield labels
            return
        (name, words), *inner = loops
        values = self._word(words, labels)
        if isinstance(values, int):
            values = list(range(1, min(values, _MOST_STEPS + 1) + 1))
        if not isinstance(values, list) or not values:
            raise self._wrong(f"the loop over {name} has no values", "give it a list, or how often: { repeat = 3 }")
        for value in values:
            yield from self._loops(inner, {**labels, name: self._word(value, labels)})

    def _add(self, told, labels):
        do = told.get("do")
        if do not in DOES:
            raise self._wrong(f"a step does {do!r}", f"use one of: {', '.join(DOES)}")
        self._allow(told, _STEP_KEYS[do] | _COMMON_KEYS, f"a step that does {do}")
        step = getattr(self, f"_{do}")(told, labels)
        title = self._text(told.get("name", step.pop("default_name")), labels)
        number = len(self.steps) + 1
        slug = re.sub(r"[^A-Za-z0-9.+-]+", "-", title).strip("-").lower() or do
        id_ = f"{number:02}-{slug}"
        if number > _MOST_STEPS:
            raise self._wrong(f"it has more than {_MOST_STEPS:,} steps", "set shorter lists, or fewer repeats")
        if "streams" in step:
            step["streams"] = tuple(self._stream(index, words, labels, id_)
                                    for index, words in enumerate(step["streams"]))
            self._check_streams(step, title)
        self.steps.append(TestStep(id_, do, title, labels=self._labels(labels), **step))

    def _state(self, told, labels):
        name = self._text(self._need(told, "state", "a state"), labels)
        self._capacity_bytes = _down(_usable(name, self._size_bytes), _REGION_ALIGN_BYTES)
        regions = self._regions(labels) if "regions" in told else {}
        spans = tuple(self._region(regions, one) for one in told.get("regions", []))
        return {"default_name": f"state {name}", "state": name, "spans": spans,
                "time_ns": self._time(told["idle"], labels) if "idle" in told else None}

    def _rest(self, told, labels):
        words = self._need(told, "time", "a rest")
        active = words == AS_ACTIVE or self._word(words, labels) == AS_ACTIVE
        if active and not any(step.measures for step in self.steps):
            raise self._wrong("a rest is as long as what is not there",
                              "put a measuring step before it, or give a time")
        return {"default_name": "rest", "time_ns": None if active else self._time(words, labels)}

    def _measure(self, told, labels):
        role = self._text(self._need(told, "role", "a measuring step"), labels)
        return {"default_name": role, "role": role, "streams": self._need(told, "streams", "a measuring step"),
                "time_ns": self._time(told["time"], labels) if "time" in told else None,
                "again": self._again(told), "until_steady": self._round(told, labels)}

    def _again(self, told) -> str:
        if told.get("again", "step") not in ("step", "state"):
            raise self._wrong(f"a step is done again from {told['again']!r}", "use step or state")
        return told.get("again", "step")

    def _round(self, told, labels) -> str:
        name = told.get("until_steady", "")
        if name and name not in labels:
            raise self._wrong(f"a step goes on until {name!r} is steady, and stands in no such loop",
                              'name one of its loops, as in each = { round = "= rounds" }')
        return name

    def _replay(self, told, labels):
        role = self._text(told.get("role", "trace"), labels)
        return {"default_name": role, "role": role, "again": self._again(told),
                "trace": self._text(self._need(told, "trace", "a replay"), labels),
                **{key: self._text(told[key], labels) for key in ("idle", "pace", "map") if key in told}}

    def _stream(self, number, told, labels, step_id) -> StreamSpec:
        name = self._text(told.get("name", f"stream {number}"), labels)
        where = f"the stream {name!r} of {step_id}"
        self._allow(told, _STREAM_KEYS, where)
        op, access = self._text(told.get("op", "read"), labels), self._text(told.get("access", "random"), labels)
        if op not in OPS or access not in ACCESSES:
            raise self._wrong(f"{where} has {op!r} and {access!r}",
                              f"use op of {', '.join(OPS)}, and access of {', '.join(ACCESSES)}")
        lengths = tuple(self._size(one, labels) for one in self._list(told.get("lengths", []), labels))
        block_bytes = self._size(told["block"], labels) if "block" in told else self._block_bytes
        if block_bytes % self._block_bytes or not block_bytes:
            raise self._wrong(f"{where} has blocks of {format_bytes(block_bytes)}, and the drive's are of "
                              f"{self._block_bytes} bytes", "set a multiple of that")
        start, end = self._part(self._region(self._regions(labels), self._text(told.get("region", "all"), labels)),
                                told.get("part"))
        start, end = _up(start, block_bytes), _down(end, block_bytes)
        if end - start < block_bytes or sum(lengths) > end - start:
            raise self._wrong(f"{where} has no room in its region of {format_bytes(max(0, end - start))}",
                              "set a larger one, or smaller blocks")
        volume = self._size(told["volume"], labels) if "volume" in told else None
        return StreamSpec(
            number=number, name=name, op=op, access=access, block_bytes=block_bytes, start_bytes=start,
            span_bytes=end - start, depth=self._depth(told.get("depth", 1), labels, where),
            seed=zlib.crc32(f"{self._seed}/{step_id}/{number}".encode()),
            read_percent=100 if op == "read" else parse_percent(self._word(told.get("read_percent", 0), labels)),
            volume_bytes=volume, bursts=self._bursts(told.get("bursts"), labels, where),
            rate_iops=parse_number(self._word(told["rate"], labels)) if "rate" in told else None,
            first_ns=self._time(told["first"], labels) if "first" in told else 0,
            every_ns=self._time(told["every"], labels) if "every" in told else None,
            lengths_bytes=lengths, background=bool(told.get("background", False)))

    def _bursts(self, told, labels, where):
        if told is None:
            return None
        self._allow(told, _BURST_KEYS, f"the bursts of {where}")
        return Bursts(self._size(self._need(told, "bytes", "bursts"), labels),
                      self._time(self._need(told, "every", "bursts"), labels),
                      self._time(told["first"], labels) if "first" in told else 0,
                      parse_whole(self._word(told["count"], labels)) if "count" in told else None)

    def _check_streams(self, step, title):
        streams = step["streams"]
        ends = [s for s in streams if not s.background and
                (s.volume_bytes is not None or s.access == "extents" or (s.bursts and s.bursts.count is not None))]
        endless = [s for s in streams if not s.background and s not in ends]
        if step["time_ns"] is None and (endless or not ends):
            raise self._wrong(f"{title!r} would never end", "give it a time, or its streams a volume")
        for stream in streams:
            generate.check(stream)
            if not stream.background and generate.row_count(stream, step["time_ns"]) == 0 or step["time_ns"] == 0:
                raise self._wrong(f"the stream {stream.name!r} of {title!r} has nothing to do",
                                  "set a longer time, or more of it")
        if sum(stream.depth for stream in streams) > MAX_DEPTH:
            raise self._wrong(f"{title!r} has more than {MAX_DEPTH:,} I/Os outstanding", "set a smaller depth")

    def _regions(self, labels) -> dict[str, tuple[int, int]]:
        """Where each lies: one behind the other, from 0 on."""
        placed, at = {"all": (0, self._capacity_bytes)}, 0
        for name, words in self._recipe.regions.items():
            length = _up(self._size(words, labels), _REGION_ALIGN_BYTES)
            placed[name] = (at, at + length)
            at += length
        if at > self._capacity_bytes:
            raise UsageError(f"{self._recipe.name} needs {format_bytes(at)}, and the drive has "
                             f"{format_bytes(self._capacity_bytes)} to use",
                             "shrink the test to the drive with --fit, name a larger drive, or set its sizes: "
                             f"blkreel test {self._recipe.name} --explain")
        return placed

    def _region(self, regions, name) -> tuple[int, int]:
        if name not in regions:
            raise self._wrong(f"there is no region {name!r}", f"use one of: {', '.join(regions)}")
        return regions[name]

    def _part(self, span, part):
        start, end = span
        middle = _down((start + end) // 2, _REGION_ALIGN_BYTES) or (start + end) // 2
        if part not in (None, "lower", "upper"):
            raise self._wrong(f"there is no part {part!r} of a region", "use lower or upper")
        return {None: (start, end), "lower": (start, middle), "upper": (middle, end)}[part]

    def _names(self, labels) -> dict:
        if self._whole_of_bytes != self._capacity_bytes:  # for each word of thousands of steps it is the same
            self._settled_whole = {name: self._whole(value) for name, value in self._settled.items()}
            self._whole_of_bytes = self._capacity_bytes
        return {**self._settled_whole, **{name: self._whole(value) for name, value in labels.items()},
                "capacity": self._capacity_bytes, "block_size": self._block_bytes}

    def _whole(self, value):
        if isinstance(value, list):
            return [self._whole(one) for one in value]
        return value.of(self._capacity_bytes) if isinstance(value, Share) else value

    def _word(self, words, labels):
        """A sum worked out; anything else as it is."""
        if isinstance(words, str) and words.lstrip().startswith("="):
            return evaluate(words.lstrip()[1:], self._names(labels))
        return words

    def _text(self, words, labels) -> str:
        value = self._word(words, labels)
        if not isinstance(value, str):
            return str(value)
        try:
            return value.format_map(labels)
        except (KeyError, ValueError, IndexError):
            raise self._wrong(f"the name {value!r} holds what no loop has", "use the names of its loops") from None

    def _size(self, words, labels) -> int:
        value = self._word(words, labels)
        return int(value if isinstance(value, int) else self._whole(parse_size(value)))

    def _time(self, words, labels) -> int:
        value = self._word(words, labels)
        return value if isinstance(value, int) else parse_time_ns(str(value))

    def _list(self, words, labels) -> list:
        value = self._word(words, labels)
        return value if isinstance(value, list) else [value]

    def _depth(self, words, labels, where) -> int:
        depth = parse_whole(self._word(words, labels))
        if not 1 <= depth <= MAX_DEPTH:
            raise self._wrong(f"{where} has a depth of {depth}", f"use 1 to {MAX_DEPTH}")
        return depth

    @staticmethod
    def _labels(labels) -> dict:
        return {name: str(value) if isinstance(value, Share) else value for name, value in labels.items()}

    def _need(self, told, key, what):
        if key not in told:
            raise self._wrong(f"{what} lacks {key}", "docs/tests.md tells how a recipe is written")
        return told[key]

    def _allow(self, told, keys, where):
        if unknown := sorted(set(told) - keys):
            raise self._wrong(f"{where} has a key that means nothing: {unknown[0]}", f"use: {', '.join(sorted(keys))}")

    def _wrong(self, message, remedy) -> UsageError:
        return UsageError(f"{self._recipe.name}: {message}", remedy)


def _usable(state, size_bytes) -> int:
    """What a state leaves to be used of a drive (states.py)."""
    return size_bytes * 3 // 4 if "op25" in state else size_bytes


def _down(value, unit) -> int:
    return value // unit * unit


def _up(value, unit) -> int:
    return -(-value // unit) * unit
