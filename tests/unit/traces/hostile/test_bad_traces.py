"""A file that is not a whole, sound trace: each kind gets its own words, and the remedy."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace

from blkreel.analysis.metrics.measure import measure
from blkreel.common.errors import TraceError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    count = 20_000
    random = np.random.default_rng(7)
    return new_trace(tmp_path_factory.mktemp("good") / "t.parquet",
                     {"devices": [{"name": "x", "size_bytes": 2**28 * 512 + 512}]},
                     submit_ns=np.cumsum(random.integers(0, 1000, count)), latency_ns=random.integers(0, 10**6, count),
                     offset_bytes=random.integers(0, 2**28, count) * 512, length_bytes=512,
                     op=random.integers(0, 2, count))


@pytest.mark.parametrize(("make", "message"), [
    (lambda path: None, "does not exist; record one with `blkreel capture"), (lambda path: path.touch(), "empty"),
    (lambda path: pq.write_table(pa.table({"a": [1, 2]}), path), "not a trace"),
    (lambda path: path.write_bytes(b"PAR1"), r"t\.parquet is truncated"),
    (lambda path: path.write_bytes(b"hello, this is no trace at all"), r"t\.parquet is not a Parquet file"),
    (lambda path: path.mkdir(), "records.parquet")], ids=["missing", "empty", "foreign", "magic", "text", "no run"])
def test_what_is_no_trace_at_all(tmp_path, make, message):
    make(tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=message):
        open_trace(tmp_path / "t.parquet")


@pytest.mark.parametrize("keep", [0.999, 0.5, 0.01])
def test_a_truncated_file(good, tmp_path, keep):
    data = good.read_bytes()
    (tmp_path / "t.parquet").write_bytes(data[:int(len(data) * keep)])
    with pytest.raises(TraceError, match="truncated"):
        open_trace(tmp_path / "t.parquet")


def with_column_as(table, name, kind):
    index = table.schema.get_field_index(name)
    return table.set_column(index, pa.field(name, kind, nullable=False), table[name].cast(kind))


@pytest.mark.parametrize(("change", "version", "message"), [
    (None, "2", "version 2.*update"),
    *((None, version, "invalid trace version") for version in ("-1", "0", "true", "1.5", '"1"')),
    (lambda table: table.drop_columns(["latency_ns"]), "1", "lacks the column latency_ns"),
    (lambda table: table.append_column(table.schema.field("submit_ns"), table["submit_ns"]), "1",
     "has the column submit_ns several times"),
    (lambda table: with_column_as(table, "submit_ns", pa.float64()), "1", "submit_ns as double, not int64")])
def test_columns_and_versions_that_no_writer_makes(good, tmp_path, change, version, message):
    table = pq.read_table(good)
    table = change(table) if change else table
    pq.write_table(table.replace_schema_metadata({"blkreel.schema_version": version}), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=message):
        open_trace(tmp_path / "t.parquet")


@cases(20)
@given(st.data())
def test_no_flipped_bit_in_the_rows_goes_unnoticed(good, tmp_path_factory, data):
    """Page checksums: a damaged trace must never yield wrong I/O for a replay."""
    original = good.read_bytes()
    footer_bytes = int.from_bytes(original[-8:-4], "little")
    # The footer and the page index before it hold no rows; between them and the head lie the pages.
    group = pq.ParquetFile(good).metadata.row_group(0)
    starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset)
              for c in (group.column(i) for i in range(group.num_columns))]
    column = data.draw(st.integers(0, group.num_columns - 1))
    size = group.column(column).total_compressed_size
    at = starts[column] + data.draw(st.integers(0, size - 1))
    assert at < len(original) - footer_bytes
    damaged = bytearray(original)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flip") / "t.parquet"
    path.write_bytes(damaged)
    try:
        table = open_trace(path).table()
    except TraceError as error:
        assert "damaged" in str(error)
    else:
        # A bit of a page header that no reader needs (a statistic, a spare field).
        assert table.equals(open_trace(good).table())


def test_lost_events_are_shown_and_not_an_error(tmp_path, blkreel):
    new_trace(tmp_path / "t.parquet", {"lost": {"total": 17, "per_cpu": {"0": 17}, "intervals": []}}, submit_ns=[1])
    assert "17 events lost" in blkreel("check", tmp_path / "t.parquet", code=3).stderr
    assert "17 events" in blkreel("info", tmp_path / "t.parquet").stdout


def test_what_is_missing_is_shown(tmp_path, blkreel):
    new_trace(tmp_path / "t.parquet", {"import_warnings": ["loop2 is gone"]}, submit_ns=[1])
    assert "loop2 is gone" in blkreel("info", tmp_path / "t.parquet").stdout


def _errors(path, metadata=None, **columns):
    """What check() finds in a trace of two rows with the given values."""
    values = {"submit_ns": [0, 10], "latency_ns": 5, "op": [0, 1], **columns}
    return check(open_trace(new_trace(path, metadata or {}, **values), verify=False)).errors


_MAX = 2**63 - 1


@pytest.mark.parametrize("columns, problem", [
    (dict(offset_bytes=[0, _MAX - 100]), "offset_bytes + length_bytes above 2^62"),
    (dict(offset_bytes=[0, 2**62 - 4095]), "offset_bytes + length_bytes above 2^62"),
    (dict(length_bytes=[4096, 2**50]), "length_bytes of 2^50 or more"),
    (dict(latency_ns=[5, _MAX]), "completion at 2^61 ns or later"),
    (dict(submit_ns=[0, 2**61]), "completion at 2^61 ns or later"),
    (dict(submit_ns=[-1, 10]), "submit_ns is negative"),
    (dict(think_ns=[0, 7]), "think_ns without waited_on"),
    (dict(think_ns=[0, -7], waited_on=[-1, 0]), "think_ns is negative"),
    (dict(status=[0, 5]), "status is positive: it must be 0 or -errno"),
    (dict(flags=[0, 1 << 30]), "unknown flags"),
    (dict(flags=[1 << 25, 1 << 26 | 1 << 29]), "more than one write hint"),
    (dict(latency_ns=[5, -2]), "latency_ns below -1"),
    (dict(op=[0, 99]), "unknown op"),
    (dict(waited_on=[-1, 1]), "waited_on is not an earlier row"),
    (dict(device=[0, 1]), "device is not in the device table"),
    (dict(device=[0, -1]), "device is not in the device table"),
    (dict(queue_ns=[0, _MAX]), "queue_ns of 2^61 or more"),
    (dict(think_ns=[0, _MAX], waited_on=[-1, 0]), "think_ns of 2^61 or more"),
    (dict(think_ns=[0, 7], waited_on=[-1, 0]), "think_ns is not submit_ns - the completion of waited_on"),
    (dict(think_ns=[0, 5], waited_on=[-1, 0], latency_ns=[-1, 5]),
     "think_ns is not submit_ns - the completion of waited_on"),
    (dict(tid=[-1, -2]), "tid below -1"),
    (dict(cpu=[0, -2]), "cpu below -1"),
    (dict(length_bytes=[4096, 0]), "length_bytes of 0 and no flush"),
    (dict(length_bytes=[4096, -512]), "negative offset or length"),
])
def test_a_row_that_cannot_be_is_named(tmp_path, columns, problem):
    first = 0 if "submit_ns" in columns and columns["submit_ns"][0] < 0 else 1
    devices = {"devices": [{}]} if "device" in columns else {}
    assert _errors(tmp_path / "t.parquet", devices, **columns) == [
        f"1 row: {problem} (first at row {first})"]


@pytest.mark.parametrize("columns", [
    dict(offset_bytes=[0, 2**62 - 4096]), dict(latency_ns=[5, 2**61 - 11]), dict(latency_ns=[5, -1]),
    dict(think_ns=[0, 5], waited_on=[-1, 0]),
    dict(status=[0, -5]), dict(flags=[0, 1])])
def test_a_row_at_the_limit_is_valid(tmp_path, columns):
    """And measured: reports refused offsets from 2^62 on and latencies from 2^60 ns on."""
    assert _errors(tmp_path / "t.parquet", **columns) == []
    assert measure(tmp_path / "t.parquet").partial


@pytest.mark.parametrize("op", [99, -5])
def test_an_operation_that_is_not_one_of_the_format_is_refused_by_every_command(blkreel, tmp_path, op):
    """Reports called it valid, `slice` wrote it to another trace, and `export` failed with an internal error."""
    path = new_trace(tmp_path / "t.parquet", op=[0, op, 1])
    assert "invalid: 1 row: unknown op (first at row 1)" in blkreel("check", path, check=False).stderr
    for words in (["report"], ["info"], ["slice", "--to", "1s", "-o", tmp_path / "s.parquet"],
                  ["export", "--format", "iolog3", "-o", tmp_path / "t.iolog"], ["model", "-o", tmp_path / "m.json"],
                  ["replay", "--on", "nil:nvme-mid", "-o", tmp_path / "run"]):
        refused = blkreel(words[0], path, *words[1:], check=False)
        assert refused.returncode == 1 and f"holds unknown operations: {op}; find the damage" in refused.stderr


def test_an_extent_past_the_end_of_its_device_is_named_without_a_sum_that_wraps(tmp_path):
    metadata = {"devices": [{"name": "x", "size_bytes": 8192}]}
    errors = _errors(tmp_path / "t.parquet", metadata, offset_bytes=[0, 2**62 - 4096])
    assert errors == ["1 row: reaches past the end of its device (first at row 1)"]


@pytest.mark.parametrize(("metadata", "latency_ns", "warning"), [
    ({"lost": {"total": None, "per_cpu": {}, "intervals": []}}, 1, "the number of lost events is unknown: the source "
     "does not count them"),
    ({}, -1, "1 of 1 I/O without a completion"),
    ({"source_lacks": ["latency"]}, -1, "1 of 1 I/O without a completion (its source records none)"),
    ({"ledger": {"missing": ["the helper was ended"]}, "import_warnings": ["the helper was ended"]}, 1,
     "the helper was ended"),
    ({"ledger": {"reused": 1}, "import_warnings": ["no latency for 1 I/O"]}, -1, "no latency for 1 I/O"),
])
def test_a_recording_that_is_not_whole_has_a_warning(tmp_path, metadata, latency_ns, warning):
    path = new_trace(tmp_path / "t.parquet", metadata, submit_ns=[0], latency_ns=[latency_ns])
    assert check(open_trace(path)).warnings == [warning]
