"""`--columns`: any CSV or Parquet file, with units, epochs and values of the operation; and its refusals."""

import io
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_traces import RECORDINGS

from blkreel.common.errors import TraceError, UsageError
from blkreel.traces.format.schema import FLAGS

FRAME = pd.DataFrame({
    "ts": [1_700_000_000_000_001 + 10 * number for number in range(50)],
    "type": ["w" if number % 3 else "r" for number in range(50)],
    "lba": [8 * number for number in range(50)],
    "pages": [1 + number % 4 for number in range(50)],
    "rt": [20 + number for number in range(50)],
    "vol": [f"vol {number % 2}" for number in range(50)],
    "app": ['say "hi", twice' if number % 2 else "db" for number in range(50)],
})
SPEC = "time=ts:us@unix,op=type,offset=lba:sectors,length=pages:pages,latency=rt:100ns,device=vol,process=app"


def content_of(frame, kind):
    """The bytes of a file of that kind."""
    with io.BytesIO() as file:
        if kind == "parquet":
            frame.to_parquet(file)
        else:
            frame.to_csv(file, sep={"comma": ",", "semicolon": ";", "tab": "\t"}[kind], index=False)
        return file.getvalue()


@pytest.mark.parametrize("kind", ["comma", "semicolon", "tab", "parquet"])
def test_each_column_is_read_with_its_unit(run, kind):
    rows, result = run(content_of(FRAME, kind), columns=SPEC)
    assert result.metadata["epoch_ns"] == int(FRAME.ts[0]) * 1000 and result.metadata["clock"] == "realtime"
    assert rows.submit_ns.tolist() == [10_000 * number for number in range(50)]
    assert rows.op.tolist() == [1 if kind == "w" else 0 for kind in FRAME.type]
    assert rows.offset_bytes.tolist() == (FRAME.lba * 512).tolist()
    assert rows.length_bytes.tolist() == (FRAME.pages * 4096).tolist()
    assert rows.latency_ns.tolist() == (FRAME.rt * 100).tolist()
    assert [result.metadata["devices"][number]["name"] for number in rows.device] == FRAME.vol.tolist()
    names = {tid: entry["comm"] for tid, entry in result.metadata["threads"].items()}
    assert [names[str(tid)] for tid in rows.tid] == FRAME.app.tolist()
    assert result.missing == []


@pytest.mark.parametrize("kind", ["comma", "parquet"])
def test_threads_with_numbers_beyond_those_of_a_trace_are_counted(run, kind):
    """As of pthread_self(): all I/O was of an unknown thread, without a word."""
    frame = FRAME.assign(tid=[2**31 - 1, -1, 2**47, 7, 2**31] * 10)
    rows, result = run(content_of(frame, kind), columns=SPEC.replace("process=app", "tid=tid"))
    assert rows.tid.tolist() == [2**31 - 1, -1, -1, 7, -1] * 10
    assert "tid of 20 records is unknown: no number from 0 to 2,147,483,647; to number the threads: process=tid" in \
        result.metadata["import_warnings"][0]


@pytest.mark.parametrize(("numbers", "lacks"), [([5, -1], []), ([-1, -1], ["thread"])])
def test_a_process_without_a_thread_has_its_name(run, numbers, lacks):
    """Its I/O was of an unknown program, beside that of others or in a column without any number."""
    rows, result = run(content_of(FRAME.assign(tid=numbers * 25), "comma"), columns=SPEC + ",tid=tid")
    names = [result.metadata["threads"][str(tid)]["comm"] for tid in rows.tid]
    assert names == FRAME.app.tolist() and (rows.tid[::2] == 5).all() == (not lacks)
    assert [what for what in result.metadata["source_lacks"] if what != "dependencies"] == lacks


@pytest.mark.parametrize("kind", ["comma", "parquet"])
def test_a_flush_has_no_extent(run, kind):
    """Not the sector 2^64-1 of the kernel, which was out of range, and no bytes."""
    frame = pd.DataFrame({"ts": [1, 2, 3, 4], "type": ["r", "FF", "F", "flush"], "lba": [8, 2**64 - 1, 16, 0],
                          "pages": pd.array([1, 0, 2, None], "Int64")})
    columns = "time=ts:us,op=type,offset=lba:sectors,length=pages:pages"
    rows, result = run(content_of(frame.astype({"lba": "uint64"}), kind), columns=columns)
    assert result.missing == [] and rows.op.tolist() == [0, 2, 2, 2]
    assert rows[["offset_bytes", "length_bytes"]].to_numpy().tolist() == [[4096, 4096], *[[0, 0]] * 3]
    with pytest.raises(TraceError, match="length is empty|length is negative or out of range"):
        run(content_of(frame.assign(type="r"), kind), columns=columns)


def test_numbered_columns_need_no_header_and_values_of_the_operation_are_declared(run):
    expected, plain = run(RECORDINGS["msr"])
    rows, result = run(RECORDINGS["msr"], columns="time=1:100ns@1601,op=4:Read=read/Write=write,offset=5:bytes,"
                                                  "length=6:bytes,latency=7:100ns,device=3")
    columns = ["submit_ns", "op", "offset_bytes", "length_bytes", "latency_ns", "device"]
    assert rows[columns].equals(expected[columns])
    assert result.metadata["epoch_ns"] == plain.metadata["epoch_ns"]
    swapped, _ = run(RECORDINGS["msr"],
                     columns="time=1:100ns@1601,op=4:Read=discard/Write=read,offset=5:bytes,length=6:bytes")
    assert set(swapped.op[expected.op == 0]) == {3} and set(swapped.op[expected.op == 1]) == {0}


@pytest.mark.parametrize("kind", ["comma", "parquet"])
def test_fractions_dates_and_missing_latencies(run, kind):
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-05-01 10:00:00.25", "2024-05-01 10:00:01.5"]),
                          "o": ["read", "write"], "b": [0, 512], "n": [512, 1024], "ms": [1.25, np.nan]})
    rows, result = run(content_of(frame, kind),
                       columns="time=t:datetime@unix,op=o,offset=b:bytes,length=n:bytes,latency=ms:ms")
    assert rows.submit_ns.tolist() == [0, 1_250_000_000] and rows.latency_ns.tolist() == [1_250_000, -1]
    assert result.metadata["epoch_ns"] == 1714557600_250_000_000


@pytest.mark.parametrize("kind", ["comma", "parquet"])
@pytest.mark.parametrize("epoch", ["", "@unix", "@1601"])
def test_a_time_of_completion_gives_the_time_of_issue(run, kind, epoch):
    """The order of the records is no step back of the clock; without a latency, the time of issue is unknown."""
    begin_us = {"": 0, "@unix": 1_700_000_000_000_000, "@1601": 13_300_000_000_000_000}[epoch]
    ends_us = begin_us + np.array([0, 100, 110, 400])
    frame = pd.DataFrame({"end": ends_us, "o": "R", "b": np.arange(4), "n": 512, "us": [10, 20, 80, -1]})
    rows, result = run(content_of(frame, kind), max_rejected=0.5,
                       columns=f"completion=end:us{epoch},op=o,offset=b:sectors,length=n:bytes,latency=us:us")
    assert rows.submit_ns.tolist() == [0, 40_000, 90_000] and rows.latency_ns.tolist() == [10_000, 80_000, 20_000]
    assert rows.offset_bytes.tolist() == [0, 1024, 512]
    since_1970_us = begin_us - (11_644_473_600_000_000 if epoch == "@1601" else 0)
    assert result.metadata["epoch_ns"] == (since_1970_us - 10) * 1000
    ledger = result.metadata["ledger"]
    assert ledger["clock_back_steps"] == 0
    assert ledger["rejected"]["the latency is negative or out of range"]["count"] == 1


COLUMNS = "time=t:s@unix,op=o,offset=b:sectors,length=n:bytes,latency=l:us"


@pytest.mark.parametrize("records", [200, 2])
def test_a_line_with_more_fields_than_titles_is_rejected(run, records):
    """A decimal comma between commas: the latency would be the 0 before it. A line may lack fields that are not read.
    """
    with pytest.raises(TraceError, match=f"100 % of {records} records.* not 6 fields .first: .*line 2"):
        run("t,o,b,n,l,x\n" + "1,R,8,512,5,0,5\n" * records, columns=COLUMNS)
    with pytest.raises(TraceError, match="50.0 % of 400 records.* not 6 fields .first: .*line 202"):
        run("t,o,b,n,l,x\n" + "1,R,8,512,7,0\n" * 200 + "1,R,8,512,0,5,1\n" * 200, columns=COLUMNS)
    rows, _ = run("t,o,b,n,l,x\n" + "1,R,8,512,7,0\n" * 200 + "1,R,8,512,9\n" * 200, columns=COLUMNS)
    assert rows.latency_ns.tolist() == [7000] * 200 + [9000] * 200
    rows, _ = run("t,o,b,n,l\n" + "1,R,8,512,7, ,\n" * 200 + "1,R,8,512,9\n", columns=COLUMNS)
    assert rows.latency_ns.tolist() == [7000] * 200 + [9000], "empty ones are a habit of some programs"


def test_blank_lines_before_a_header_or_the_first_record_are_none(run):
    table = b"t,o,b,n,l\n0,R,0,512,1\n1,W,8,512,1\n"
    numbers = "time=1:s@unix,op=2,offset=3:sectors,length=4:bytes,latency=5:us"
    for text, columns in ((table, COLUMNS), (table.partition(b"\n")[2], numbers)):
        plain, _ = run(text, columns=columns)
        rows, result = run(b"\n\n" + text, columns=columns)
        assert rows.equals(plain) and result.metadata["ledger"]["records"] == 2


def parquet_of(**columns):
    """A file of two records; columns that are not given are whole numbers."""
    with io.BytesIO() as file:
        pq.write_table(pa.table({"t": [0, 1], "o": ["R", "W"], "b": [0, 8], "n": [512, 512], "l": [1, 1], **columns}),
                       file)
        return file.getvalue()


def test_fractions_in_parquet_are_exact(run):
    """A float64 of seconds since 1970 has steps of 238 ns."""
    times = pa.array([Decimal("1700000000.000000001"), Decimal("1700000000.000000124")], pa.decimal128(38, 9))
    rows, result = run(parquet_of(t=times, b=pa.array([0.0, 8.0]), l=pa.array([float("nan"), 0.25])), columns=COLUMNS)
    assert rows.submit_ns.tolist() == [0, 123] and result.metadata["epoch_ns"] == 1_700_000_000_000_000_001
    assert rows.latency_ns.tolist() == [-1, 250] and rows.offset_bytes.tolist() == [0, 4096]
    rows, result = run(parquet_of(t=pa.array([133e15, 133e15 + 96])), columns=COLUMNS.replace("s@unix", "100ns@1601"))
    assert rows.submit_ns.tolist() == [0, 9600]
    with pytest.raises(TraceError, match="50.0 % of 2 records.*offset is negative or out of range"):
        run(parquet_of(b=pa.array([0.0, 8.5])), columns=COLUMNS)


@pytest.mark.parametrize("device", [pa.array([None, 7]), pa.array([None, 7.0]), ["", "7"], pa.array([None, "7"])])
def test_a_missing_device_in_parquet_has_no_name_and_no_number_is_a_fraction(run, device):
    rows, result = run(parquet_of(d=device), columns=f"{COLUMNS},device=d")
    assert [entry["name"] for entry in result.metadata["devices"]] == ["", "7"]


def test_letters_of_the_kernel_give_the_flags(run):
    rows, _ = run(parquet_of(o=["FWFS", "F"], n=[512, 0]), columns=COLUMNS)
    assert rows["flags"].tolist() == [FLAGS["sync"] | FLAGS["preflush"] | FLAGS["fua"], 0]


def test_text_in_parquet_is_read_as_in_a_text_table(run):
    """Programs that read a CSV file without converting it write all columns as text."""
    dates = pa.array(["2024-03-31T01:59:59.5+01:00", "2024-03-31 01:00:00Z"])
    rows, result = run(parquet_of(t=dates, b=["0", "8.0"], l=pa.array(["", "0.25"]).dictionary_encode()),
                       columns=COLUMNS.replace("s@unix", "datetime"))
    assert rows.submit_ns.tolist() == [0, 500_000_000] and result.metadata["clock"] == "realtime"
    assert rows.latency_ns.tolist() == [-1, 250] and rows.offset_bytes.tolist() == [0, 4096]
    with pytest.raises(TraceError, match="50.0 % of 2 records.*the time is out of range .first: .*row 2"):
        run(parquet_of(t=["1", "soon"]), columns=COLUMNS)
    with pytest.raises(UsageError, match="the type int64, not dates"):
        run(parquet_of(), columns=COLUMNS.replace("s@unix", "datetime"))


@pytest.mark.parametrize("spec, message", [
    ("time=ts:us", "does not say which column is op and offset and length"),
    ("tim=ts:us", "did you mean 'time'"),
    (SPEC.replace(":us", ":hours"), "unknown unit 'hours'"),
    (SPEC.replace(":us@unix", ""), "time has no unit"),
    (SPEC.replace("@unix", "@1900"), "unknown epoch '1900'"),
    (SPEC.replace("op=type", "op=type:w=wrote"), "unknown operation 'wrote'"),
    (SPEC.replace("=vol", "=volume"), "no column 'volume'"),
    (SPEC + ",time=rt:us", "names time twice"),
    (SPEC + ",completion=rt:us", "names time twice"),
    (SPEC.replace("time=", "completion=").replace(",latency=rt:100ns", ""), "does not say which column is latency"),
    (SPEC.replace("time=", "completion=").replace(":us", ":hours"), "completion has the unknown unit 'hours'"),
    ("time=1:us,op=2,offset=3:bytes,length=90:bytes", "has 7 columns, so that length cannot be column 90"),
])
def test_a_mapping_that_does_not_fit_is_refused(run, tmp_path, spec, message):
    with pytest.raises(UsageError, match=message):
        run(content_of(FRAME, "comma"), columns=spec)
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


@pytest.mark.parametrize("kind", ["comma", "parquet"])
def test_a_name_of_two_columns_is_refused(run, kind):
    names = [*FRAME.columns, "lba"]
    with io.BytesIO() as file:
        pq.write_table(pa.table([*(FRAME[name] for name in names)], names=names), file)
        content = file.getvalue()
    with pytest.raises(UsageError, match="has several columns 'lba'"):
        run(content if kind == "parquet" else content_of(FRAME[names], kind), columns=SPEC)


@pytest.mark.parametrize(("content", "message"), [
    (content_of(FRAME.assign(type="x"), "parquet"),
     "100 % of 50 records.*the operation is unknown .first: .*row 1"),
    (content_of(FRAME, "parquet")[:-100], "is truncated")], ids=["no operation", "cut"])
def test_a_parquet_file_that_cannot_be_imported(run, content, message):
    with pytest.raises(TraceError, match=message) as caught:
        run(content, columns=SPEC)
    assert "--format" not in (caught.value.remedy or ""), "which --columns excludes"
