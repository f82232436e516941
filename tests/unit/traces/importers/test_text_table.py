"""How lines of text reach pyarrow's CSV reader."""

import pyarrow as pa

from blkreel.traces.importers import text_table


def test_threads_of_arrow_hold_no_object_of_python(monkeypatch):
    """A thread that released one while the interpreter exited ended the process by SIGABRT, 4 times in 1,500."""
    read_csv, addresses = text_table.pacsv.read_csv, []

    def parse(source, **options):
        addresses.append(source.read_buffer().address)
        source.seek(0)
        return read_csv(source, **options)

    monkeypatch.setattr(text_table.pacsv, "read_csv", parse)
    block = b"1,2\n3,4\n"
    columns = [text_table.Column("a", "int"), text_table.Column("b", "int")]
    assert text_table.TextTable(columns, b",")._read(block, 2)["b"].tolist() == [2, 4]
    assert addresses and pa.py_buffer(block).address not in addresses


class Taken:
    """The number of lines, and the reasons of those that were rejected by line number."""

    def __init__(self):
        self.lines, self.rejected = 0, {}

    def read(self, count):
        self.lines += count

    def reject(self, reason, number, line):
        self.rejected[number] = reason


def numbers(*lines, places=3, **layout):
    """The decimals of lines of an integer and a decimal, and the reasons of those that were rejected."""
    columns = [text_table.Column("a", "int"), text_table.Column("b", "decimal", places, empty=-1)]
    table, account = text_table.TextTable(columns, **layout), Taken()
    # Lines that were checked one by one show how those of later blocks are written.
    rows = [row for line in lines for row in table._parsed(line + b"\n", 1, 1, account)]
    return [value for row in rows for value in row["b"].tolist()], account.rejected


def test_decimals_with_and_without_fractions_have_one_unit():
    assert numbers(b"1,2", b"2,", b"1,2.5", b"2,-7", b"1,2.0006", b"2,3") == ([2000, -1, 2500, -7000, 2001, 3000], {})
    assert numbers(b"1,2.5", b"1,7", b"1,.25", b"1,8.", b"1,1.2345e2", b"1,2e-3", b"1,0.00049999999999999999999") \
        == ([2500, 7000, 250, 8000, 123450, 2, 0], {})


def test_a_decimal_comma_is_read_where_another_character_delimits():
    assert numbers(b"1;2,5", b"1;0,125", b"1; 7", b"1;2.5", delimiter=b";") == ([2500, 125, 7000, 2500], {})
    values, rejected = numbers(b"1;1,234,567", delimiter=b";")
    assert values == [] and rejected == {1: "b is not a number"}


def test_integers_may_be_written_as_decimals_and_missing_numbers_as_words():
    columns = [text_table.Column("a", "int"), text_table.Column("tid", "int", empty=-1)]
    account = Taken()
    [rows] = text_table.TextTable(columns)._parsed(b"8.0,nan\n8.5,1\n9,7.00\n10,\\N\n,1\n", 5, 1, account)
    assert rows["a"].tolist() == [8, 9, 10] and rows["tid"].tolist() == [-1, 7, -1]
    assert account.rejected == {2: "a is not a whole number", 5: "a is empty"}


def test_decimals_that_are_no_decimal_or_too_large_are_rejected():
    for text, reason in ((b"0x10", "not a number"), (b"0X10", "not a number"), (b"9223372036854775807", "out of range"),
                         (b"-9223372036854776", "out of range"), (b"9" * 40, "out of range"), (b"1e3x", "not a number"),
                         (b"1e400", "out of range"), (b"1e30", "out of range"), (b"--1", "not a number")):
        assert numbers(b"1," + text) == ([], {1: f"b is {reason}"}), text
    assert numbers(b"1,-9223372036854775") == ([-9223372036854775000], {})


def test_times_have_zones_or_none_and_exist():
    columns, account = [text_table.Column("t", "datetime")], Taken()
    times = [b"2024-02-29 00:00:00", b"2024-02-28T23:30:00.5-00:30", b"2024-02-29T00:00:01Z", b"2024-02-29T02:00:02+02",
             b"2024-02-29T00:00:03,25", b"2023-02-29 00:00:00", b"2024-01-01 25:00:00", b"2024-04-31 00:00:00",
             b"1600-01-01 00:00:00", b"1709164800"]
    [rows] = text_table.TextTable(columns, b";")._parsed(b"\n".join(times) + b"\n", len(times), 1, account)
    assert [value - 1709164800 * 10**9 for value in rows["t"].tolist()] == [0, 5 * 10**8, 10**9, 2 * 10**9, 325 * 10**7]
    assert account.rejected == dict.fromkeys(range(6, 11), "t is not a date and time")


def test_a_hexadecimal_number_is_rejected_and_a_text_like_one_is_not():
    """Arrow reads 0x10 in a column of integers as 16."""
    columns = [text_table.Column("a", "int"), text_table.Column("name", "text")]
    reader, account = text_table.TextTable(columns), Taken()
    rows = list(reader._parsed(b"1,x\n0x10,y\n3,0x10\n0X1f,z\n5,\n", 5, 1, account))
    assert [value for part in rows for value in part["a"].tolist()] == [1, 3, 5]
    assert [value for part in rows for value in part["name"].to_pylist()] == [b"x", b"0x10", b""]
    assert account.lines == 5 and account.rejected == {2: "a is not a number", 4: "a is not a number"}
    assert reader._read(b"1,0x10\n", 1)["a"].tolist() == [1]
