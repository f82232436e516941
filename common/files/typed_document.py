"""Documents of others in JSON and TOML: whether they have the types that the code relies on."""

import json
import math
import re
import tomllib
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from .storage_url import Location

T = TypeVar("T")
OrEmpty = Annotated[T, None]  # of a field of a dataclass: null is accepted, and gives the default

# An integer that may exceed int64, such as the number of an inode.
Unsigned = NewType("Unsigned", int)
_INTEGERS, _UNSIGNED = range(-(1 << 63), 1 << 63), range(1 << 64)
# Where a text may have halves of characters (surrogates), which json accepts; those that no byte stands for.
_HALVES = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_HALF_BYTES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", dict: "an object",
          list: "a list", type(None): "null"}


def parse_json(text: str | bytes) -> Any:
    """Raises ValueError for every text that is not JSON: also for too deep nesting, too long integers, and halves of
    characters. Those that stand for a byte which is no UTF-8 (os.fsdecode()) are valid."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    has_halves = _HALVES.search(text) if isinstance(text, str) else _HALF_BYTES.search(text)
    if has_halves and not _is_encodable(document):
        raise ValueError("a text has half of a character")
    return document


def _is_encodable(part: Any) -> bool:
    if isinstance(part, str):
        return not _NO_BYTE.search(part)
    if isinstance(part, dict):
        return all(_is_encodable(key) and _is_encodable(value) for key, value in part.items())
    return not isinstance(part, list) or all(map(_is_encodable, part))


def parse_typed(text: str | bytes, kind: type[T]) -> T:
    """The document of a text. kind: as of mismatch(). Raises ValueError `KEY is not an integer`."""
    try:
        document = parse_json(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if wrong := mismatch(document, kind):
        raise ValueError(wrong)
    return cast(T, document)


def read_json(path: Location, kind: type[T]) -> T:
    """The document of a file. kind: as of mismatch(). Raises OSError, and ValueError `PATH: KEY is not an integer`."""
    try:
        return parse_typed(path.read_bytes(), kind)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


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
    if isinstance(value, int) and value not in _INTEGERS and value not in _UNSIGNED:
        return where
    return next((wrong for key, part in parts
                 if (wrong := _too_long(part, f"{where}.{key}" if where else str(key)))), None)


def mismatch(value: Any, kind: Any, where: str = "") -> str | None:
    """The first part of a document that has not the type: `devices[0].size_bytes is not an integer`; None if all match.

    kind: int, Unsigned, float, str, bool, Any, a TypedDict, a dataclass, a Literal of strings, list[...], dict[str,
    ...] or a union. An int is that of 64 bits with a sign, an integer is also a float, and a float is finite. Unknown
    keys are accepted: a later version may have added them. A field of a dataclass that has a default may be missing.
    """
    wrong = _check_of(kind)(value)
    if wrong is None:
        return None
    path, text = wrong
    place = f"{where}{path}" if where else path.removeprefix(".")
    return f"{place or 'the document'} {text}"


# Returns None, or (the path of the part that does not match, such as `[0].size_bytes`; why).
_Check = Callable[[Any], tuple[str, str] | None]


@cache
def _check_of(kind: Any) -> _Check:
    """As a function, because a catalog has 300 values in each of thousands of documents."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return lambda value: None
    if origin is Literal:
        choices = ", ".join(map(repr, arguments))
        return lambda value: None if value in arguments else ("", f"is not one of {choices}")
    if origin in (Union, types.UnionType):
        return _check_of_union(arguments)
    if origin is Annotated:
        return _check_of_union((arguments[0], type(None)))
    if is_typeddict(kind) or is_dataclass(kind):
        return lambda value: _object_mismatch(value, kind)
    element = _check_of(arguments[-1]) if arguments else None
    integers = _UNSIGNED if kind is Unsigned else _INTEGERS
    origin = int if kind is Unsigned else origin

    def check(value: Any) -> tuple[str, str] | None:
        if not _is_instance(value, origin):
            return "", f"is not {_NAMES[origin]}"
        if type(value) is int and value not in integers or type(value) is float and not math.isfinite(value):
            return "", "is out of range"
        if element is not None:
            for key, part in value.items() if origin is dict else enumerate(value):
                if wrong := element(part):
                    return f".{key}{wrong[0]}" if origin is dict else f"[{key}]{wrong[0]}", wrong[1]
        return None

    return check


def _check_of_union(choices: tuple[Any, ...]) -> _Check:
    checks = [(_class_of(choice), _check_of(choice)) for choice in choices]

    def check(value: Any) -> tuple[str, str] | None:
        # The mismatch inside a part, instead of that of the other choices.
        first = inside = None
        for class_, check_choice in checks:
            wrong = check_choice(value)
            if wrong is None:
                return None
            first = first or wrong
            inside = inside or (wrong if isinstance(value, class_) else None)
        return inside or first

    return check


def _object_mismatch(value: Any, kind: Any) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return "", "is not an object"
    required = _required_keys(kind)
    for key, check in _checks_of(kind).items():
        if key in value:
            if wrong := check(value[key]):
                return f".{key}{wrong[0]}", wrong[1]
        elif key in required:
            return f".{key}", "is missing"
    return None


@cache
def _checks_of(kind: Any) -> dict[str, _Check]:
    kinds = get_type_hints(kind, include_extras=True) if is_dataclass(kind) else _types_of(kind)
    return {key: _check_of(key_kind) for key, key_kind in kinds.items()}


@cache
def _required_keys(kind: Any) -> set[str]:
    """__required_keys__ does not know Required and NotRequired where annotations are texts (PEP 563)."""
    if is_dataclass(kind):
        return {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    marks = {key: get_origin(hint) for key, hint in get_type_hints(kind, include_extras=True).items()}
    return {key for key, mark in marks.items()
            if mark is Required or mark is not NotRequired and key in kind.__required_keys__}


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def field_mismatch(values: dict[str, Any], dataclass: Any) -> str | None:
    """As mismatch(), for the fields of a dataclass; a missing one is accepted."""
    return next((text for key, kind in _types_of(dataclass).items()
                 if key in values and (text := mismatch(values[key], kind, key))), None)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record_type(kind: type[T]) -> type[T]:
    """A dataclass that is made from a JSON object and not changed. Types are checked as frozen ones; at run time that
    would double the time to import them."""
    return dataclass(kw_only=True, repr=False, unsafe_hash=True)(kind)


def record(kind: type[T], document: Mapping[str, Any] | None) -> T:
    """A dataclass of an object that mismatch() accepts. A key that is missing or null has the default of its field, if
    it has one; unknown keys are left out."""
    return cast(T, _record_of(cast(Any, kind))(document or {}))


@cache
def _record_of(kind: Any) -> Callable[[Any], Any]:
    converters = {name: _converter_of(field_kind) for name, field_kind in _types_of(kind).items()}
    required = _required_keys(kind)
    return lambda document: kind(**{
        name: None if value is None else convert(value) for name, convert in converters.items()
        if (value := document.get(name)) is not None or name in required})


def _converter_of(kind: Any) -> Callable[[Any], Any]:
    """From JSON to the type of a field. Dataclasses are looked up late: a type may hold itself."""
    part: Any = next(filter(is_dataclass, (kind, *get_args(kind))), None)
    if part is None:
        return lambda value: value
    origin = get_origin(kind)
    if origin is list:
        return lambda values: [_record_of(part)(value) for value in values]
    if origin is dict:
        return lambda values: {key: _record_of(part)(value) for key, value in values.items()}
    return lambda value: _record_of(part)(value)


def document_of(part: Any) -> dict[str, Any]:
    """The JSON object of a record. Of a field that may be null (OrEmpty), null is what it has by default."""
    document = {}
    for entry in fields(part):
        value = getattr(part, entry.name)
        is_empty = get_origin(entry.type) is Annotated and (not value or value is entry.default)
        document[entry.name] = None if is_empty else _json_of(value)
    return document


def _json_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_of(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_json_of, value))
    return document_of(value) if is_dataclass(value) else value


def _class_of(kind: Any) -> type:
    if is_typeddict(kind) or is_dataclass(kind):
        return dict
    origin = get_origin(kind)
    return str if origin is Literal else int if kind is Unsigned else origin or kind


def _is_instance(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)
