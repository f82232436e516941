"""Numbers and fields of text lines, compared with Python's own parsing."""

import re

import numpy as np
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


@cases(33)
@given(FIELDS)
def test_hexadecimals_agree_with_python(texts):
    lines, starts, ends = columns(texts)
    values, valid = lines.hexadecimals(starts, ends)
    for text, value, is_valid in zip(texts, values.tolist(), valid.tolist(), strict=True):
        right = re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) is not None
        assert is_valid == right and value == (int(text, 16) if right else 0)


@cases(33)
@given(FIELDS)
def test_decimals_agree_with_python(texts):
    lines, starts, ends = columns(texts)
    values, valid = lines.scaled_decimals(starts, ends, 9)
    for text, value, is_valid in zip(texts, values.tolist(), valid.tolist(), strict=True):
        match = re.fullmatch(r"([0-9]{1,20})(?:\.([0-9]{0,9}))?", text)
        right = match is not None and int(match[1]) < (1 << 62) // 10**9
        assert is_valid == right
        if right:
            assert value == int(match[1]) * 10**9 + int((match[2] or "").ljust(9, "0"))


@cases(33)
@given(FIELDS)
def test_groups_of_thousands_agree_with_python(texts):
    lines, starts, ends = columns(texts)
    values, valid = lines.grouped_decimals(starts, ends, b",", 6)
    for text, value, is_valid in zip(texts, values.tolist(), valid.tolist(), strict=True):
        match = re.fullmatch(r"([0-9]{1,3}(?:[.' ][0-9]{3}){0,4}|[0-9]{1,15})(?:,([0-9]{0,6}))?", text)
        if match and int(re.sub(r"\D", "", match[1])) < (1 << 62) // 10**6:
            assert is_valid
            assert value == int(re.sub(r"\D", "", match[1])) * 10**6 + int((match[2] or "").ljust(6, "0"))


@cases(33)
@given(FIELDS)
@example(["18.446.744.073.709.551.615", "18.446.744.073.709.551.616", "1.000.000.000.000.000.000.000"])
def test_grouped_integers_agree_with_python(texts):
    lines, starts, ends = columns(texts)
    values, valid = lines.grouped_integers(starts, ends)
    assert values.dtype == np.uint64
    for text, value, is_valid in zip(texts, values.tolist(), valid.tolist(), strict=True):
        number = re.sub(r"\D", "", text) if re.fullmatch(r"[0-9]{1,18}([.,' ][0-9]{3}){0,6}", text) else ""
        right = bool(number) and int(number) < 1 << 64
        assert is_valid == right and value == (int(number) if right else 0)


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
