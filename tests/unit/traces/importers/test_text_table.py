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
    assert text_table.TextTable(columns, b",", False)._read(block, 2)["b"].tolist() == [2, 4]
    assert addresses and pa.py_buffer(block).address not in addresses


def table(*lines, places=3):
    columns = [text_table.Column("a", "int"), text_table.Column("b", "decimal", places, empty=-1)]
    block = b"".join(line + b"\n" for line in lines)
    return text_table.TextTable(columns, b",", False), block, len(lines)


def test_decimals_of_blocks_with_and_without_fractions_have_one_unit():
    for lines, expected in (((b"1,2", b"2,"), [2000, -1]), ((b"1,2.5", b"2,-7"), [2500, -7000]),
                            ((b"1,2.0006", b"2,3"), [2001, 3000])):
        reader, block, count = table(*lines)
        assert reader._read(block, count)["b"].tolist() == expected
    reader, block, count = table(b"1,2.5")
    assert reader._read(block, count)["b"].tolist() == [2500]
    assert reader._read(b"1,7\n", 1)["b"].tolist() == [7000]  # after a fraction, too


def test_decimals_that_are_no_decimal_or_too_large_are_refused():
    for text in (b"0x10", b"0X10", b"9223372036854775807", b"-9223372036854776", b"1e3x"):
        reader, block, count = table(b"1," + text)
        assert reader._read(block, count) is None, text
    reader, block, count = table(b"1,-9223372036854775")
    assert reader._read(block, count)["b"].tolist() == [-9223372036854775000]


class Taken:
    """Lines by number, and reasons of those that were rejected."""

    def __init__(self):
        self.lines, self.rejected = 0, {}

    def read(self, count):
        self.lines += count

    def reject(self, reason, number, line):
        self.rejected[number] = reason


def test_a_hexadecimal_number_is_rejected_and_a_text_like_one_is_not():
    """Arrow reads 0x10 in a column of integers as 16."""
    columns = [text_table.Column("a", "int"), text_table.Column("name", "text")]
    reader, account = text_table.TextTable(columns, b",", False), Taken()
    rows = list(reader._parsed(b"1,x\n0x10,y\n3,0x10\n0X1f,z\n5,\n", 5, 1, account))
    assert [value for part in rows for value in part["a"].tolist()] == [1, 3, 5]
    assert [value for part in rows for value in part["name"].to_pylist()] == [b"x", b"0x10", b""]
    assert account.lines == 5 and account.rejected == {2: "a is not a number", 4: "a is not a number"}
    assert reader._read(b"1,0x10\n", 1)["a"].tolist() == [1]
