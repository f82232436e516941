"""Types of JSON documents, and texts that are not JSON."""

from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict

import pytest

from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import (
    OrEmpty,
    Unsigned,
    field_mismatch,
    mismatch,
    parse_json,
    parse_toml,
    read_json,
    record,
)
from blkreel.common.units import parse_size_bytes, parse_time_ns

LONG = "9" * 5000


class Part(TypedDict):
    name: str
    size: int | None


class Whole(TypedDict, total=False):
    version: Required[int]
    parts: list[Part]
    of: dict[str, float]
    part: Part | None
    color: Literal["red", "blue"] | None
    anything: Any
    inode: Unsigned


@pytest.mark.parametrize("document, expected", [
    ({"version": 1}, None),
    ({"version": 1, "parts": [{"name": "a", "size": None}], "of": {"x": 1}, "part": None, "later": []}, None),
    ({}, "version is missing"),
    ([], "the document is not an object"),
    ({"version": True}, "version is not an integer"),
    ({"version": "1"}, "version is not an integer"),
    ({"version": 1 << 63}, "version is out of range"),
    ({"version": -1 << 63, "inode": (1 << 64) - 1}, None),
    ({"version": 1, "inode": 1 << 64}, "inode is out of range"),
    ({"version": 1, "inode": -1}, "inode is out of range"),
    ({"version": 1, "inode": True}, "inode is not an integer"),
    ({"version": 1, "parts": {}}, "parts is not a list"),
    ({"version": 1, "parts": [{"name": "a", "size": 1}, {"name": None, "size": 1}]}, "parts[1].name is not a string"),
    ({"version": 1, "parts": [{"name": "a"}]}, "parts[0].size is missing"),
    ({"version": 1, "of": {"x": "y"}}, "of.x is not a number"),
    ({"version": 1, "of": {"x": 10**400}}, "of.x is out of range"),
    ({"version": 1, "of": {"x": float("nan")}}, "of.x is out of range"),
    ({"version": 1, "part": {"name": "a", "size": "b"}}, "part.size is not an integer"),
    ({"version": 1, "part": 5}, "part is not an object"),
    ({"version": 1, "color": "blue"}, None),
    ({"version": 1, "color": "x"}, "color is not one of 'red', 'blue'"),
    ({"version": 1, "color": []}, "color is not one of 'red', 'blue'"),
    ({"version": 1, "anything": {"a": [None]}}, None)])
def test_the_first_mismatch_is_named(document, expected):
    assert mismatch(document, Whole) == expected


class Postponed(TypedDict, total=False):
    name: "Required[str]"
    size: "int"


def test_required_keys_of_postponed_annotations():
    assert mismatch({"size": 1}, Postponed) == "name is missing"
    assert mismatch({"name": "a"}, Postponed) is None


@dataclass
class Record:
    name: str | None
    parts: list[Part]


@dataclass(frozen=True, kw_only=True)
class Node:
    name: str | None
    size: int = 1
    next: OrEmpty["Node | None"] = None
    nodes: OrEmpty[list["Node"]] = field(default_factory=list)
    named: dict[str, "Node"] = field(default_factory=dict)


@pytest.mark.parametrize("document, expected", [
    ({"name": "a", "later": 1}, None),
    ({"name": "a", "nodes": None, "next": None}, None),
    ({"name": "a", "nodes": [{"name": "b", "named": {"c": {"name": "c"}}}]}, None),
    ({}, "name is missing"),
    ({"name": "a", "size": None}, "size is not an integer"),
    ({"name": "a", "named": None}, "named is not an object"),
    ({"name": "a", "nodes": [{"name": 5}]}, "nodes[0].name is not a string"),
    ({"name": "a", "next": 5}, "next is not an object")])
def test_a_dataclass_is_a_type_whose_defaults_may_be_missing(document, expected):
    assert mismatch(document, Node) == expected


def test_a_record_has_defaults_for_what_is_missing_or_null():
    leaf = {"name": "c"}
    read = record(Node, {"name": "a", "next": leaf, "nodes": [leaf], "named": {"x": leaf}, "later": 1})
    assert read == Node(name="a", next=Node(name="c"), nodes=[Node(name="c")], named={"x": Node(name="c")})
    assert record(Node, {"name": None, "nodes": None, "size": None}) == Node(name=None)


def test_fields_of_a_dataclass():
    assert field_mismatch({"name": None, "more": 1}, Record) is None
    assert field_mismatch({"name": 3}, Record) == "name is not a string"


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 5000, b"\xff\xfe", '["\\ud800"]', '{"\\uDFFF": 1}',
                                  b'["\xed\xa0\x80"]', '["\udc00"]'])
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize("text", ['"\\ud83d\\ude00"', '"\\udcff"', b'"\xed\xb3\xbf"', b'"\\\\ud800"'])
def test_whole_characters_and_names_that_are_no_utf_8_are_valid(text):
    assert parse_json(text).encode("utf-8", "surrogateescape")


# Documents of others in files and options.

@pytest.mark.parametrize(("text", "says"), [
    ('{"name": 5, "size": 1}', "name is not a string"), ('{"name": "a"}', "size is missing"),
    ("[]", "the document is not an object"), ("{", "not JSON"), ("[" * 100_000, "nested too deeply"),
    (f'{{"name": {LONG}}}', "not JSON")])
def test_a_wrong_document_names_file_and_key(tmp_path, text, says):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ValueError, match=f"file.json.*{says}"):
        read_json(tmp_path / "file.json", Part)


@pytest.mark.parametrize(("text", "says"), [
    (f"a = {LONG}", "too many digits"), ("[a]\nb = [1, 0x1ffffffffffffffff]", r"a\.b\.1 is out of range"),
    (b"a = '\xff'", "UTF-8"), ("a = " + "[" * 20_000, "nested too deeply"), ("a", "Expected")])
def test_text_that_is_no_toml(text, says):
    with pytest.raises(ValueError, match=says):
        parse_toml(text)


@pytest.mark.parametrize(("parse", "unit"), [(parse_size_bytes, "K"), (parse_time_ns, "ms")])
def test_a_number_with_thousands_of_digits_is_none(parse, unit):
    for text in (LONG + unit, f"1.{LONG}{unit}"):
        with pytest.raises(UsageError, match="is not a"):
            parse(text)
