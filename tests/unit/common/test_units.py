import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import UsageError
from blkreel.common.units import format_bytes, format_ns, parse_size_bytes, parse_time_ns


@pytest.mark.parametrize("text, size_bytes", [
    ("4096", 4096), ("4K", 4096), ("64k", 65536), ("8GiB", 8 << 30), ("1.5GB", 1_500_000_000), ("2 MB", 2_000_000),
    ("8.1GiB", 8 * (1 << 30) + (1 << 30) // 10), ("1T", 1 << 40), ("512B", 512)])
def test_sizes_read_as_people_write_them(text, size_bytes):
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text, time_ns", [
    ("25ms", 25_000_000), ("500us", 500_000), ("60s", 60 * 10**9), ("1.5h", 5400 * 10**9), ("0s", 0),
    ("5 min", 300 * 10**9)])
def test_times_read_as_people_write_them(text, time_ns):
    assert parse_time_ns(text) == time_ns


@pytest.mark.parametrize("parse, text", [
    (parse_size_bytes, "4Q"), (parse_size_bytes, "lots"), (parse_size_bytes, "-4K"), (parse_size_bytes, ""),
    (parse_time_ns, "25"), (parse_time_ns, "25 fortnights"), (parse_time_ns, "ms")])
def test_unknown_units_are_refused_with_examples(parse, text):
    with pytest.raises(UsageError, match="write"):
        parse(text)


@given(st.integers(min_value=0, max_value=10**18))
def test_a_printed_size_is_the_size_to_three_digits(count):
    number, unit = format_bytes(count).split()
    factor = 1000 ** ["B", "KB", "MB", "GB", "TB", "PB"].index(unit)
    assert abs(float(number) * factor - count) <= 0.006 * count


@pytest.mark.parametrize("duration_ns, text", [
    (870, "870 ns"), (12_340, "12.3 µs"), (4_560_000, "4.56 ms"), (61_000_000_000, "61.0 s"),
    (303_000_000_000, "5 min 3 s"), (-1500, "-1.50 µs")])
def test_times_are_printed_in_the_unit_that_reads_best(duration_ns, text):
    assert format_ns(duration_ns) == text
