"""Numbers and fields of text lines, compared with Python's own parsing."""

import re

import numpy as np
import pytest
from cases import cases
from hypothesis import example, given
from hypothesis import strategies as st

from blkreel.traces.importers.tools.text_lines import Lines

NUMBERS = st.one_of(st.integers(0, 1 << 66).map(str), st.from_regex(r"0{0,30}[0-9]{0,21}", fullmatch=True),
                    st.text("0123456789+-.,_eEx ab\x00\x7fé\U0001f600", max_size=24), st.floats(0, 1e12).map(str),
                    st.from_regex(r"0x[0-9a-fA-F]{0,18}", fullmatch=True),
                    st.from_regex(r"[0-9]{1,3}([.,' ][0-9]{3}){0,5}([.,][0-9]{1,10})?", fullmatch=True))
FIELDS = st.lists(NUMBERS.map(lambda text: re.sub(r"[\x00-\x20;\"]", "", text)), min_size=1, max_size=30)


def columns(texts):
    lines = Lines("".join(f"a;{text};b\n" for text in texts).encode(), 1, b";")
    return lines, *lines.field(1)


def decimal(pattern, places):
    """The value of a decimal number times 10^places; 0 if it is none, or too large."""
    def value(text):
        match = re.fullmatch(pattern, text)
        whole = int(re.sub(r"\D", "", match[1])) if match else 1 << 62
        too_large = whole >= (1 << 62) // 10**places
        return None if too_large else whole * 10**places + int((match[2] or "").ljust(places, "0"))

    return value


def integer(pattern, base, limit):
    def value(text):
        number = int(re.sub(r"[.,' ]", "", text), base) if re.fullmatch(pattern, text) else limit
        return number if number < limit else None

    return value


# What reads numbers, and the value that it has by Python; None of what is no number.
READERS = {
    "hexadecimals": ((), integer(r"0x[0-9a-fA-F]{1,16}", 16, 1 << 64)),
    "scaled_decimals": ((9,), decimal(r"([0-9]{1,20})(?:\.([0-9]{0,9}))?", 9)),
    "grouped_decimals": ((b",", 6), decimal(r"([0-9]{1,3}(?:[.' ][0-9]{3}){0,4}|[0-9]{1,15})(?:,([0-9]{0,6}))?", 6)),
    "grouped_integers": ((), integer(r"[0-9]{1,18}(([.,' ][0-9]{3}){0,6}|([.,' ][0-9]{2}){1,5}[.,' ][0-9]{3})", 10,
                                     1 << 64))}


@pytest.mark.parametrize("name", READERS)
@cases(33)
@given(FIELDS)
@example(["18.446.744.073.709.551.615", "18.446.744.073.709.551.616", "1.000.000.000.000.000.000.000",
          "12,34,56,789", "1,2,345", "12,345,67"])
def test_numbers_agree_with_python(name, texts):
    """Of decimals with groups more are read than those of the pattern."""
    options, expected = READERS[name]
    lines, starts, ends = columns(texts)
    values, valid = getattr(lines, name)(starts, ends, *options)
    assert values.dtype == (np.int64 if name.endswith("ed_decimals") else np.uint64)
    for text, value, is_valid in zip(texts, values.tolist(), valid.tolist(), strict=True):
        right = expected(text)
        if right is not None or name != "grouped_decimals":
            assert (is_valid, value) == (right is not None, right or 0), text


def test_quotes_end_with_their_line():
    lines = Lines(b'"a;b\nc;"d;e";f\n', 1, b";")
    assert lines.count.tolist() == [1, 3]
    assert [lines.slice(*each) for each in zip(*lines.field(1), strict=True)] == [b"", b"d;e"]


@cases(33)
@given(st.lists(st.lists(st.text("abc []é=\t", max_size=40), max_size=5), max_size=12))
def test_fields_are_those_of_str_split(rows):
    texts = [" ".join(row) for row in rows]
    lines = Lines("".join(f"{text}\n" for text in texts).encode(), 7)
    assert lines.count.tolist() == [len(text.split()) for text in texts]
    for index in (0, 1, 3, -1, -2):
        fields = [lines.slice(start, end).decode() for start, end in zip(*lines.field(index), strict=True)]
        assert fields == [text.split()[index] if -len(text.split()) <= index < len(text.split()) else ""
                          for text in texts]
    assert lines.numbers.tolist() == list(range(7, 7 + len(texts)))


@cases(33)
@given(st.lists(st.lists(st.text("ab 1.", max_size=300), min_size=1, max_size=4), min_size=1, max_size=12))
@example([[" ", "1"]])
def test_table_fields_are_without_blanks_and_quotes(rows):
    rows = [row if any(text.strip() for text in row) else ["a"] for row in rows]
    for quote in ("", '"'):
        block = "".join(";".join(f" {quote}{text};{quote} " if quote else text for text in row) + "\r\n"
                        for row in rows)
        lines = Lines(block.encode(), 1, b";")
        assert lines.count.tolist() == [len(row) for row in rows]
        starts, ends = lines.field(0)
        expected = [f"{row[0]};" if quote else row[0] for row in rows]
        assert [lines.slice(start, end).decode().strip() for start, end in zip(starts, ends, strict=True)] \
            == [text.strip() for text in expected]
        codes: dict[bytes, int] = {}
        mapped = lines.mapped(starts, ends, lambda text, codes=codes: codes.setdefault(text, len(codes)))
        assert np.array_equal(mapped, [codes[lines.slice(start, end)] for start, end in zip(starts, ends, strict=True)])
