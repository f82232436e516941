"""Disk activity of Windows: exports of the Windows Performance Analyzer in several locales."""

import bz2
import csv
import re

import pytest
from tool_traces import expected_rows, rows_of, wpa, xperf
from tree import foreign

from blkreel.common.errors import TraceError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from blkreel.traces.importers import import_recording

IOS = [(number, 999_000 + 1000 * number, 40 + 900 * (number % 5), 8 * (number * 7919 % 100_000), 8 * (1 + number),
        number % 3 == 0) for number in range(300)]


@pytest.mark.parametrize(("separator", "point", "grouping"), [
    (";", ",", "."), (",", ".", ","), (";", ",", "\u202f"), (";", ".", "’"), (";", ",", "\u00a0"), ("\t", ".", "")])
def test_every_locale_gives_the_same_rows(run, separator, point, grouping):
    frame, result = run(wpa(IOS, separator, point, grouping))
    ios = frame[frame.op != OPS["flush"]]
    assert result.metadata["source_format"] == "wpa" and not result.metadata["ledger"]["rejected"]
    assert rows_of(ios) == expected_rows(IOS)
    assert [result.metadata["devices"][number]["name"] for number in ios.device] == [f"disk{io[0] % 2}" for io in IOS]
    names = {int(tid): entry["process"] for tid, entry in result.metadata["threads"].items()}
    assert [names[tid] for tid in ios.tid] == ["System" if io[0] % 2 else "SearchHost.exe <CortanaUI>" for io in IOS]


def test_groups_of_two_digits_and_single_bytes_are_read(run):
    """Of Indian locales, as in 12,28,800, and of Windows-1252: all I/Os of 100,000 or 1,000 bytes were rejected."""
    indian = re.sub(rb'"(\d),(\d)(\d\d),(\d{3})"', rb'"\1\2,\3,\4"', wpa(IOS, ",", ".", ","))
    indian = re.sub(rb'"(\d)(\d\d),(\d{3})"', rb'"\1,\2,\3"', indian)
    assert b'"12,28,800"' in indian
    for data in (indian, wpa(IOS, ";", ",", "\u00a0").decode().encode("cp1252")):
        frame, result = run(data)
        assert rows_of(frame[frame.op != OPS["flush"]]) == expected_rows(IOS)
        assert not result.metadata["ledger"]["rejected"]


def test_a_flush_has_no_extent(run):
    frame, _ = run(wpa(IOS))
    flush = frame[frame.op == OPS["flush"]]
    assert flush[["offset_bytes", "length_bytes", "latency_ns"]].to_numpy().tolist() == [[0, 0, 1_000_000]]


def test_order_of_columns_unknown_columns_and_the_size_beside_the_extent_do_not_matter(run):
    plain, _ = run(wpa(IOS))
    lines = [line.split(";") for line in wpa(IOS).decode().splitlines()]
    extras = ["IO Init Stack", *["x"] * len(IOS), ""]
    turned = [[*reversed(fields), extra] for fields, extra in zip(lines, extras, strict=True)]
    without_size = [fields[:6] + fields[7:] for fields in lines]
    for table in (turned, without_size):
        frame, _ = run("".join(";".join(fields) + "\n" for fields in table))
        assert frame.equals(plain)


def test_a_line_of_a_grouped_table_is_no_io(run):
    """Its size is the sum of the I/Os below it."""
    titles, *lines = wpa(IOS).decode().splitlines()
    sums = lines[0].split(";")
    text = "\n".join([titles + ";Count", ";".join([*sums, "1.234"]), *(line + ";1" for line in lines), ""])
    plain, _ = run(wpa(IOS))
    frame, result = run(text)
    assert frame.equals(plain)
    assert result.metadata["ledger"]["rejected"]["a sum of several I/Os, of a table with grouping"]["count"] == 1


def test_a_missing_column_is_named(run, tmp_path):
    with pytest.raises(TraceError, match="no column Min Offset") as caught:
        run(wpa(IOS).replace(b"Min Offset", b"Offset"))
    assert "export it again" in caught.value.remedy
    assert not (tmp_path / "t.parquet").exists()


def test_xperf_events_are_stamped_at_completion(run):
    frame, result = run(xperf(IOS))
    assert result.metadata["source_format"] == "xperf"
    ios = frame[frame.op != OPS["flush"]]
    assert rows_of(ios) == expected_rows(IOS)
    assert ios.tid.tolist() == [11844 + io[0] % 2 for io in IOS]
    assert [result.metadata["devices"][number]["name"] for number in ios.device] == [f"disk{io[0] % 2}" for io in IOS]
    assert result.metadata["threads"]["11845"] == {"names": ["my app.exe"], "comm": "my app.exe",
                                                   "process": "my app.exe", "pid": 3985}
    flush = frame[frame.op == OPS["flush"]]
    assert flush[["submit_ns", "latency_ns", "length_bytes"]].to_numpy().tolist() \
        == [[1000 * (99_000_000 - 500 - IOS[0][1]), 500_000, 0]]
    ledger = result.metadata["ledger"]
    assert ledger["records"] == len(IOS) + 2 and ledger["clock_back_steps"] == 0
    assert ledger["ignored"]["other events"]["count"] == 1


def test_xperf_lost_events_and_buffers_are_counted(run):
    text = xperf(IOS)
    lossy = text.replace(b"Trace Size: 1024KB", b"Trace Size: 1024KB, Events Lost: 12, Buffers lost: 3")
    assert lossy != text
    _, result = run(lossy)
    assert result.metadata["lost"]["total"] == 15 and result.metadata["import_warnings"]


def test_xperf_columns_follow_the_header(run):
    """Newer versions add the CPU."""
    plain, _ = run(xperf(IOS))
    added = re.sub(rb"(?m)^((?: *Disk\w+)(?:,[^,\n]*){3}),", rb"\1,  1,", xperf(IOS))
    frame, _ = run(added.replace(b"ThreadID,  1,", b"ThreadID, CPU,"))
    assert added != xperf(IOS) and frame.equals(plain)
    with pytest.raises(TraceError, match="the events of reads have no column ByteOffset"):
        run(xperf(IOS).replace(b"ByteOffset", b"Offset"))
    with pytest.raises(TraceError, match="no header from BeginHeader to EndHeader"):
        run(xperf(IOS).replace(b"EndHeader", b""))


def test_the_sample_of_a_windows_boot_agrees_with_the_csv_module(tmp_path):
    sample = foreign("windows/wpa-disk-usage.csv.bz2")
    result = import_recording([sample], tmp_path / "t.parquet")
    frame = open_trace(result.path).table().to_pandas()
    expected = []
    for row in csv.DictReader(bz2.open(sample, "rt", encoding="utf-8"), delimiter=";"):
        begin_ns, end_ns, size = (int(re.sub(r"\D", "", row[title]))
                                  for title in ("Init Time (s)", "Complete Time (s)", "Size (B)"))
        offset = 0 if row["IO Type"] == "Flush" else int(row["Min Offset"], 16)
        expected.append((begin_ns, end_ns - begin_ns, offset, size, OPS[row["IO Type"].lower()], row["Process (Name)"]))
        assert row["IO Type"] == "Flush" or int(row["Max Offset"], 16) - offset + 1 == size
    names = {int(tid): entry["process"] for tid, entry in result.metadata["threads"].items()}
    first_ns = min(row[0] for row in expected)
    columns = ["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op"]
    rows = [(*values, names[tid]) for *values, tid in frame[[*columns, "tid"]].to_numpy().tolist()]
    assert len(rows) == 172_630 == result.metadata["ledger"]["records"]
    assert sorted(rows) == sorted((row[0] - first_ns, *row[1:]) for row in expected)
    assert result.metadata["clock_resolution_ns"] == 100
