"""Values in a recipe: sizes, times, shares of a drive, and expressions over its parameters."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from blkreel.common.errors import UsageError
from blkreel.common.units import format_bytes, format_ns, parse_size_bytes, parse_time_ns

_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "len": len, "sum": sum}
_UNITS = ((40, "T"), (30, "G"), (20, "M"), (10, "K"))

# An int, a float, a str, a Share, or a list of them: the kind of a parameter and checks at use say which.
Value = Any


@dataclass(frozen=True)
class Share:
    """A share of the usable capacity, rounded down to MiB so that shares that add up to 100 % fit. ppm: 1e-6."""

    ppm: int

    def of(self, capacity_bytes: int) -> int:
        return capacity_bytes * self.ppm // 1_000_000 >> 20 << 20

    def __str__(self) -> str:
        return f"{self.ppm / 10_000:g}%"


class Size(int):
    """Bytes that are formatted as a block size in titles: 4K, 1M, 8G."""

    def __str__(self) -> str:
        for power, letter in _UNITS:
            if self and self % (1 << power) == 0:
                return f"{self >> power}{letter}"
        return int.__repr__(self)

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)


def parse_size(text: object) -> int | Share:
    """`64GB`, or `25%` of the usable capacity."""
    if isinstance(text, str) and (match := _SHARE.fullmatch(text)):
        return Share(round(float(match[1]) * 10_000))
    return Size(parse_size_bytes(str(text)))


def parse_count(text: object) -> int:
    digits = text if isinstance(text, str) else repr(text)  # not str(): that of a Size has a unit
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", digits):
        raise UsageError(f"{text!r} is not a whole number", "write it like 32")
    return int(digits)


def parse_percent(text: object) -> int:
    value = parse_count(str(text).removesuffix("%"))
    if value > 100:
        raise UsageError(f"{text!r} is more than 100 percent", "use 0 to 100")
    return value


def parse_number(text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        value = -1.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{text!r} is not a number above 0", "write it like 1000 or 0.5")
    return value


def _format_size(value: int | Share) -> str:
    """In binary units if that is exact and short, since most recipes use them."""
    if isinstance(value, Share):
        return str(value)
    for power, letter in _UNITS:
        if value and value % (1 << power) == 0 and value >> power < 1024:
            return f"{value >> power} {letter}iB"
    return format_bytes(int(value))


# kind: (parse one value, format one value)
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], str]]] = {
    "size": (parse_size, _format_size),
    "time": (lambda text: parse_time_ns(str(text)), format_ns),
    "count": (parse_count, lambda value: f"{value:,}"),
    "percent": (parse_percent, lambda value: f"{value} %"),
    "number": (parse_number, lambda value: f"{value:g}"),
    "text": (str, str),
    "state": (str, str),
    "trace": (str, str),
}


def is_list(kind: str) -> bool:
    return kind not in KINDS


def read_value(kind: str, text: Any) -> Value:
    """Parse a value that a user or a recipe wrote. A list is a list of TOML, or text with commas."""
    if not is_list(kind):
        return KINDS[kind][0](text)
    items = text.split(",") if isinstance(text, str) else text if isinstance(text, list) else [text]
    parse = KINDS[kind.removesuffix("s")][0]
    return [parse(item.strip() if isinstance(item, str) else item) for item in items]


def format_value(kind: str, value: Value) -> str:
    if not is_list(kind):
        return KINDS[kind][1](value)
    return ", ".join(KINDS[kind.removesuffix("s")][1](item) for item in value)


def evaluate(expression: str, variables: Mapping[str, Value]) -> Value:
    """An integer expression: `reads * burst`, `capacity // 2`, `max(sizes)`. Raises UsageError."""
    try:
        return _value(_parsed(expression.strip()), variables)
    except (SyntaxError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UsageError(f"cannot evaluate {expression.strip()!r} in the recipe: {error}",
                         "use parameters, whole numbers, + - * // % min max len sum") from None


@lru_cache(maxsize=256)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def _value(node: ast.expr, variables: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in variables:
                raise ValueError(f"there is no {name}")
            return variables[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, variables), _value(right, variables))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, variables) for argument in arguments))
    raise ValueError("unsupported expression")
