"""Documents of others in JSON and TOML: whether they have the types that the code relies on."""

import json
import tomllib
import types
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from .storage_url import Location

T = TypeVar("T")

_INTEGERS = range(-(1 << 63), 1 << 64)
_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", dict: "an object",
          list: "a list", type(None): "null"}


def parse_json(text: str | bytes) -> Any:
    """Raises ValueError for every text that is not JSON: also for too deep nesting and too long integers."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Location, kind: type[T]) -> T:
    """The document of a file. kind: as of mismatch(). Raises OSError, and ValueError `PATH: KEY is not an integer`."""
    try:
        document = parse_json(path.read_text())
        wrong = mismatch(document, kind)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if wrong:
        raise ValueError(f"{path}: {wrong}")
    return cast(T, document)


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Raises ValueError for every text that is not TOML in UTF-8, and for integers of more than 64 bits."""
    try:
        document = tomllib.loads(text if isinstance(text, str) else text.decode())
    except UnicodeDecodeError:
        raise ValueError("not a text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # int() refuses more digits than it can convert in a short time
        raise ValueError("an integer has too many digits") from None
    if wrong := _too_long(document):
        raise ValueError(f"{wrong} is out of range")
    return document


def _too_long(value: Any, where: str = "") -> str | None:
    """The first integer of more than 64 bits."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, int) and value not in _INTEGERS:
        return where
    return next((wrong for key, part in parts if (wrong := _too_long(part, _joined(where, str(key))))), None)


def mismatch(value: Any, kind: Any, where: str = "") -> str | None:
    """The first part of a document that has not the type: `devices[0].size_bytes is not an integer`; None if all match.

    kind: int, float, str, bool, Any, a TypedDict, a Literal of strings, list[...], dict[str, ...] or a union. Integers
    have up to 64 bits, an integer is also a float. Unknown keys of a TypedDict are accepted: a later version may have
    added them.
    """
    if kind is Any:
        return None
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return None if value in choices else f"{where} is not one of {', '.join(map(repr, choices))}"
    if get_origin(kind) in (Union, types.UnionType):
        found = [mismatch(value, choice, where) for choice in get_args(kind)]
        if None in found:
            return None
        # The mismatch inside a part, instead of that of the other choices.
        return next((text for choice, text in zip(get_args(kind), found, strict=True)
                     if isinstance(value, _class_of(choice))), found[0])
    if is_typeddict(kind):
        return _typed_dict_mismatch(value, kind, where)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if not _is_instance(value, origin):
        return f"{where or 'the document'} is not {_NAMES[origin]}"
    if origin is int and value not in _INTEGERS:
        return f"{where} is out of range"
    if origin is list and arguments:
        return next((text for index, element in enumerate(value)
                     if (text := mismatch(element, arguments[0], f"{where}[{index}]"))), None)
    if origin is dict and arguments:
        return next((text for key, element in value.items()
                     if (text := mismatch(element, arguments[1], _joined(where, key)))), None)
    return None


def _typed_dict_mismatch(value: Any, kind: Any, where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where or 'the document'} is not an object"
    for key, key_kind in _types_of(kind).items():
        if key in value:
            if text := mismatch(value[key], key_kind, _joined(where, key)):
                return text
        elif key in kind.__required_keys__:
            return f"{_joined(where, key)} is missing"
    return None


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def field_mismatch(values: dict[str, Any], dataclass: Any) -> str | None:
    """As mismatch(), for the fields of a dataclass; a missing one is accepted."""
    return next((text for key, kind in _types_of(dataclass).items()
                 if key in values and (text := mismatch(values[key], kind, key))), None)


def _class_of(kind: Any) -> type:
    if is_typeddict(kind):
        return dict
    origin = get_origin(kind)
    return str if origin is Literal else origin or kind


def _is_instance(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
