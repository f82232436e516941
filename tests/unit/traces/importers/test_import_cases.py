"""Inputs as other tools wrote them, with the rows that a reader would expect: tests/golden/foreign/cases."""

import csv

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from tree import TREE

from blkreel.common.errors import UsageError
from blkreel.traces.format.schema import OP_NAMES
from blkreel.traces.importers import ImportOptions
from blkreel.traces.importers.column_mapping import ColumnMapping
from blkreel.traces.importers.pipeline import Records

CASES = TREE / "tests" / "golden" / "foreign" / "cases"
SIZES = "offset=lba:sectors,length=size:bytes"
COLUMNS = {"csv-quoted.csv": f"time=ts:ns,op=type,{SIZES}",
           "csv-bad-cell.csv": f"time=ts:ns@unix,op=op,{SIZES}",
           "csv-decimal-comma.csv": f"time=ts:s,op=op,{SIZES},latency=rt:ms",
           "csv-iso-zones.csv": f"time=ts:datetime,op=op,{SIZES}",
           "csv-rwbs.csv": f"time=ts:s,op=op,{SIZES}"}
US, MS, S = 1000, 10**6, 10**9
# Submit, latency, operation, offset, length.
ROWS = {
    "perf-bytes-zero.txt": [(0, 210 * US, "read", 40960 * 512, 4096),
                            (100 * MS, 1500 * US, "read", 81920 * 512, 131072),
                            (200 * MS, 640 * US, "write", 500000 * 512, 8192), (300 * MS, 90 * US, "flush", 0, 0)],
    "ftrace-rt-flags.txt": [(0, 450 * US, "read", 2048 * 512, 8192), (250 * MS, 800 * US, "write", 9000 * 512, 4096)],
    "trace-cmd-latency.txt": [(0, 70 * MS, "read", 505083904 * 512, 1310720)],
    "trace-cmd-ns.txt": [(0, 20023452, "write", 298927464 * 512, 196608),
                         (30 * MS, 23452, "write", 298927864 * 512, 4096)],
    "biosnoop-no-disk.txt": [(0, 250 * US, "read", 1048576 * 512, 8192),
                             (644250 * US, 6 * MS, "write", 2097152 * 512, 12288)],
    "ftrace-issued-again.txt": [(0, 3 * MS, "read", 640000 * 512, 65536),
                                (500 * MS, 300 * US, "read", 700000 * 512, 4096)],
    "blkparse-skips.txt": [(0, 300 * US, "read", 4096 * 512, 4096)],
    "blkparse-unordered.txt": [(0, 100 * US, "read", 2056 * 512, 4096),
                               (499993 * US, 250 * US, "write", 4096 * 512, 8192),
                               (699993 * US, 300 * US, "read", 5000 * 512, 4096)],
    "csv-quoted.csv": [(0, -1, "read", 0, 4096), (50 * US, -1, "read", 4096, 4096)],
    "csv-bad-cell.csv": [(0, -1, "read", 8192, 4096), (2006, -1, "read", 16384, 4096)],
    "csv-decimal-comma.csv": [(0, 250 * US, "read", 4096, 4096), (2 * MS, 1500 * US, "write", 8192, 4096),
                              (4 * MS, 12125 * US, "read", 12288, 8192)],
    "csv-iso-zones.csv": [(0, -1, "read", 4096, 4096), (750 * MS, -1, "write", 8192, 4096),
                          (1750001 * US, -1, "read", 12288, 4096)],
    "csv-rwbs.csv": [(at * S, -1, op, sector * 512, size) for at, (op, sector, size) in enumerate([
        ("read", 8, 4096), ("read", 16, 4096), ("write", 24, 4096), ("write", 32, 4096), ("flush", 0, 0),
        ("discard", 40, 4096)])],
    "disksim-tabs.trace": [(0, -1, "read", 0, 2560), (4638150, -1, "read", 576560 * 512, 3072),
                           (11123644, -1, "write", 0, 12288)],
    # As fio replays it: by the difference to the record before.
    "iolog3-clock-back.log": [(0, -1, "write", 4096, 4096), (1 * US, -1, "read", 65536, 8192),
                              (999981 * US, -1, "read", 131072, 4096), (999981 * US, -1, "read", 200704, 4096),
                              (1999979 * US, -1, "write", 204800, 4096)],
    "reads-and-flush.log": [(0, -1, "read", 0, 4096), (1037 * US, -1, "flush", 0, 0),
                            (2041 * US, -1, "read", 8192, 4096)],
}
LEDGER = {
    "perf-bytes-zero.txt": {"issues that were repeated after a requeue, or are no I/O": 1, "completion events": 5},
    "biosnoop-no-disk.txt": {"requests without data whose operation is not recorded": 2, "requests without a drive": 1},
    "ftrace-issued-again.txt": {"issues of I/Os in flight, issued again without a requeue event": 1,
                                "completion events": 2},
}


def rows_of(frame):
    return list(zip(frame.submit_ns, frame.latency_ns, frame.op.map(OP_NAMES), frame.offset_bytes, frame.length_bytes,
                    strict=True))


def test_each_case_has_its_rows():
    assert {path.name for path in CASES.iterdir()} == set(ROWS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_rows_are_those_of_a_reader(run, name):
    frame, result = run((CASES / name).read_bytes(), name=name, columns=COLUMNS.get(name),
                        max_rejected=0.5 if name == "csv-bad-cell.csv" else 0.01)
    assert rows_of(frame) == ROWS[name]
    ledger = result.metadata["ledger"]
    if name in LEDGER:
        assert {reason: tally["count"] for reason, tally in ledger["ignored"].items()} == LEDGER[name]
    assert {reason: tally["count"] for reason, tally in ledger["rejected"].items()} \
        == ({"length is empty": 1} if name == "csv-bad-cell.csv" else {})
    assert not any("in flight" in line for line in result.warnings if name != "ftrace-issued-again.txt")
    assert result.metadata.get("lost", {}).get("total", 0) == (67890 if name == "blkparse-skips.txt" else 0)
    assert (result.metadata["clock"] == "realtime") == (name in ("csv-bad-cell.csv", "csv-iso-zones.csv"))
    if name == "iolog3-clock-back.log":
        assert ledger["clock_back_steps"] == 1
    if name == "blkparse-unordered.txt":
        assert (ledger["clock_back_steps"], ledger["clock_back_largest_ns"]) == (2, 300 * US)
    if name == "csv-decimal-comma.csv":
        assert any("decimal comma" in line for line in result.warnings)


def test_lines_before_a_header_are_left_out_when_their_number_is_given(run):
    data, columns = b'tool 2, "v\n\n' + (CASES / "csv-rwbs.csv").read_bytes(), COLUMNS["csv-rwbs.csv"]
    with pytest.raises(UsageError, match="2 lines before its header") as refused:
        run(data, columns=columns)
    assert "--skip-lines 2" in refused.value.remedy
    frame, result = run(data, columns=columns, skip_lines=2)
    assert rows_of(frame) == ROWS["csv-rwbs.csv"] and result.metadata["ledger"]["records"] == 6


def test_one_bad_cell_in_many_rows_rejects_one_row(run, tmp_path):
    lines = [f"{at},R,{8 * at},4096" for at in range(100_000)]
    lines[75_000] = "75000,R,,4096"
    frame, result = run("ts,op,lba,size\n" + "\n".join(lines) + "\n", columns=f"time=ts:ns@unix,op=op,{SIZES}")
    assert len(frame) == 99_999
    assert result.metadata["ledger"]["rejected"] == {
        "offset is empty": {"count": 1, "example": f"{tmp_path / 'recording'}: line 75,002: 75000,R,,4096"}}


# What stands in a cell of each column: text, and its value or None if the row is invalid.
TIMES = [("17", 17), ("17.0", 17), ("1e2", 100), ("-5", -5), ("", None), ("x", None), ("9" * 30, None)]
OPERATIONS = [("R", "read"), ("RAM", "read"), ("write", "write"), ("WFS", "write"), ("FF", "flush"), ("DS", "discard"),
              ("?", None)]
NUMBERS = [("4096", 4096), ("512.00", 512), (" 8 ", 8), ("8.5", None), ("", None), ("0x10", None)]
LATENCIES = [("5", 5), ("", -1), ("-1", -1), ("-1.0", -1), ("nan", -1), ("-7", None)]
NAMES = ["db", "", "pack{0} part 1", 'say "hi"', "Größe", '"', "a{0}{0}b"]
GOOD = [(("17", 17), ("R", "read"), ("4096", 4096), ("512", 512), ("5", 5), "db")]
LINES = st.lists(st.one_of(
    st.sampled_from(GOOD),
    st.tuples(*(st.sampled_from(cells) for cells in (TIMES, OPERATIONS, NUMBERS, NUMBERS, LATENCIES, NAMES)))),
    min_size=1, max_size=30)


def expected_row(line):
    """The values of a line, or None if one is invalid; a flush has no extent, whatever stands there."""
    values = [value for _, value in line[:5]]
    if values[1] == "flush":
        values[2:4] = 0, 0
    if None in values or values[1] != "flush" and values[3] == 0:
        return None
    return (*values, line[5])


@cases(60)
@given(LINES, st.sampled_from(",;|\t"), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.permutations(range(6)),
       st.sampled_from(["\n", "\r\n"]), st.integers(0, 120), st.integers(0, 40))
def test_tables_in_any_form_give_the_rows_of_an_independent_reader(tmp_path, lines, delimiter, quoting, order, line_end,
                                                                   good_lines, cut):
    """Order of columns, delimiters, quotes, line ends, places of bad cells, and a cut at the end."""
    titles = ["ts", "op", "lba", "size", "rt", "app"]
    table = [[*(text for text, _ in line[:5]), line[5].format(delimiter)] for line in GOOD * good_lines + lines]
    path = tmp_path / "in"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=line_end)
        writer.writerow([titles[at] for at in order])
        writer.writerows([cells[at] for at in order] for cells in table)
    expected = [expected_row((*line[:5], line[5].format(delimiter))) for line in GOOD * good_lines + lines]
    # Cut inside the last record, where too few fields are left.
    last_cells = [table[-1][at] for at in order]
    has_cut = cut % 2 == 0 and not any(delimiter in cell or '"' in cell for cell in last_cells)
    if has_cut:
        data = path.read_bytes()
        at = data.rindex(delimiter.encode())
        path.write_bytes(data[:at])
        expected[-1] = None
    spec = "time=ts:ns,op=op,offset=lba:bytes,length=size:bytes,latency=rt:ns,process=app"
    records = Records(ColumnMapping(spec), [path], ImportOptions(columns=spec, max_rejected=1.0))
    parts = list(records.columns())
    names = {int(tid): entry["comm"] for tid, entry in records.threads.items()}
    found = [(*row[:1], OP_NAMES[row[1]], *row[2:5], names.get(row[5], "")) for part in parts for row in zip(
        *(part[name].tolist() for name in ("submit_ns", "op", "offset_bytes", "length_bytes", "latency_ns", "tid")),
        strict=True)]
    assert found == [row for row in expected if row is not None]
    account = records.account
    assert account.records == len(expected) and account.rejected_records == expected.count(None)
