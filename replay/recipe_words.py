"""The words of a recipe's values: sizes, times, shares of a drive, and sums over its parameters."""

import ast
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from blkreel.traces.errors import UsageError
from blkreel.traces.units import format_bytes, format_ns, parse_size_bytes, parse_time_ns

_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
              ast.Mod: operator.mod}
_FUNCTIONS = {"min": min, "max": max, "len": len, "sum": sum}


@dataclass(frozen=True)
class Share:
    """A part of what is usable of the drive, in whole MiB: so parts that make up a drive fit it. ppm: millionths."""

    ppm: int

    def of(self, capacity_bytes: int) -> int:
        return capacity_bytes * self.ppm // 1_000_000 >> 20 << 20

    def __str__(self) -> str:
        return f"{self.ppm / 10_000:g}%"


class Size(int):
    """Bytes that a title names as the field does: 4K, 1M, 8G."""

    def __str__(self) -> str:
        for power, letter in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
            if self and self % (1 << power) == 0:
                return f"{self >> power}{letter}"
        return int.__repr__(self)

    def __format__(self, how) -> str:
        return format(str(self), how)


def parse_size(text) -> int | Share:
    """`64GB`, or `25%` of what is usable of the drive."""
    if isinstance(text, str) and (match := _SHARE.fullmatch(text)):
        return Share(round(float(match[1]) * 10_000))
    return Size(parse_size_bytes(str(text)))


def parse_whole(text) -> int:
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return int(text)
    if isinstance(text, bool) or not re.fullmatch(r"\s*\d+\s*", str(text)):
        raise UsageError(f"{text!r} is not a whole number", "write it like 32")
    return int(text)


def parse_percent(text) -> int:
    value = parse_whole(str(text).removesuffix("%"))
    if value > 100:
        raise UsageError(f"{text!r} is more than 100 percent", "use 0 to 100")
    return value


def parse_number(text) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{text!r} is not a number above 0", "write it like 1000 or 0.5")
    return value


def _plain(text) -> str:
    return str(text)


def _size_words(value) -> str:
    """In the units of powers of two where that is exact and short, as most of them were written."""
    if isinstance(value, Share):
        return str(value)
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value and value % (1 << power) == 0 and value >> power < 1024:
            return f"{value >> power} {unit}"
    return format_bytes(int(value))


def _number_words(value) -> str:
    return f"{value:g}"


# kind: how one value of it is read, and how it is shown
KINDS = {
    "size": (parse_size, _size_words),
    "time": (lambda text: parse_time_ns(str(text)), format_ns),
    "count": (parse_whole, lambda value: f"{value:,}"),
    "percent": (parse_percent, lambda value: f"{value} %"),
    "number": (parse_number, _number_words),
    "text": (_plain, _plain),
    "state": (_plain, _plain),
    "trace": (_plain, _plain),
}


def is_list(kind: str) -> bool:
    return kind not in KINDS


def read_value(kind: str, text):
    """What a user or a recipe wrote, as a value of that kind; lists as TOML's, or with commas."""
    if not is_list(kind):
        return KINDS[kind][0](text)
    words = text.split(",") if isinstance(text, str) else text if isinstance(text, list) else [text]
    read = KINDS[kind.removesuffix("s")][0]
    return [read(word.strip() if isinstance(word, str) else word) for word in words]


def shown(kind: str, value) -> str:
    if not is_list(kind):
        return KINDS[kind][1](value)
    return ", ".join(KINDS[kind.removesuffix("s")][1](one) for one in value)


def evaluate(expression: str, names: Mapping):
    """A sum over names, in whole numbers: `reads * burst`, `capacity // 2`, `max(sizes)`. Raises UsageError."""
    try:
        return _value(_parsed(expression.strip()), names)
    except (SyntaxError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UsageError(f"the recipe's {expression.strip()!r} cannot be worked out: {error}",
                         "use parameters, whole numbers, + - * // % min max len sum") from None


@lru_cache(maxsize=256)
def _parsed(expression):
    return ast.parse(expression, mode="eval").body


def _value(node, names):
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ValueError(f"there is no {node.id}")
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and not node.keywords and getattr(node.func, "id", None) in _FUNCTIONS:
        return _FUNCTIONS[node.func.id](*(_value(one, names) for one in node.args))
    raise ValueError("that is no sum")
