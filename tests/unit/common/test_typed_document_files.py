"""Documents of others in TOML and JSON, and numbers in options: an error names the file and the key."""

from typing import TypedDict

import pytest

from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import parse_toml, read_json
from blkreel.common.units import parse_size_bytes, parse_time_ns

LONG = "9" * 5000


class Document(TypedDict):
    name: str
    sizes: list[int]


@pytest.mark.parametrize(("text", "says"), [
    ('{"name": 5, "sizes": []}', "name is not a string"), ('{"name": "a"}', "sizes is missing"),
    ('{"name": "a", "sizes": [1, null]}', r"sizes\[1\] is not an integer"), ("[]", "the document is not an object"),
    ("{", "not JSON"), ("[" * 100_000, "nested too deeply"), (f'{{"name": {LONG}}}', "not JSON")])
def test_a_wrong_document_names_file_and_key(tmp_path, text, says):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ValueError, match=f"file.json.*{says}"):
        read_json(tmp_path / "file.json", Document)


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
