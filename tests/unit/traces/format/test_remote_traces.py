"""Traces on object storage: read like files, by the ranges that are needed, and refused in words."""

import sys

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from range_server import serving
from small_trace import new_trace
from synthetic_runs import write_run, write_trace

from blkreel.common.errors import BlkreelError, TraceError, UsageError
from blkreel.common.files.storage_url import StorageUrl, parse_location
from blkreel.traces.format.reader import open_trace

COLUMNS = ["submit_ns", "latency_ns"]


@pytest.fixture
def memory(request):
    """An empty directory of memory://, by name."""
    root = f"memory://{request.node.name.replace('[', '-').replace(']', '')}"
    yield root
    fsspec.filesystem("memory").store.clear()


def put(url, content):
    with fsspec.open(url, "wb") as file:
        file.write(content)
    return url


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A trace of 600,000 rows whose columns do not compress: 3 row groups as a run's writer makes them."""
    random, count = np.random.default_rng(3), 600_000
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("blkreel.traces.format.writer.ROWS_PER_GROUP", 200_000)
        return new_trace(tmp_path_factory.mktemp("large") / "large.parquet", {},
                         submit_ns=np.sort(random.integers(0, 2**40, count)),
                         latency_ns=random.integers(0, 2**30, count), offset_bytes=random.integers(0, 2**40, count),
                         think_ns=random.integers(0, 2**40, count))


def test_a_trace_in_storage_reads_as_the_file_does(tmp_path, memory):
    local = write_trace(tmp_path / "t.parquet")
    remote = open_trace(put(f"{memory}/t.parquet", local.read_bytes()))
    assert remote.metadata == open_trace(local).metadata
    assert remote.table().equals(open_trace(local).table())
    assert list(map(len, remote.batches(COLUMNS))) == list(map(len, open_trace(local).batches(COLUMNS)))


def test_a_run_in_storage_has_what_became_known_of_it_later(tmp_path, memory):
    run = write_run(tmp_path / "run", seconds=3)
    put(f"{memory}/run/records.parquet", (run / "records.parquet").read_bytes())
    put(f"{memory}/run/amended.json", b'{"version": 1, "epoch_ns": 0, "run": {"label": "renamed"}}')
    opened = open_trace(f"{memory}/run")
    assert opened.is_run and opened.metadata["run"]["label"] == "renamed"


def test_only_the_wanted_columns_are_moved(large):
    with serving(large.parent) as server:
        trace = open_trace(f"{server.url}/large.parquet")
        opened = sum(end - begin for _, begin, end in server.ranges)
        assert opened <= 70_000, "the footer, and the magic at most"
        rows = sum(len(batch) for batch in trace.batches(["latency_ns"]))
        moved = sum(end - begin for _, begin, end in server.ranges) - opened
    assert rows == 600_000
    # 30 random bits in each of the 8 bytes of a latency; the whole file is five times as much.
    assert 600_000 * 30 / 8 < moved < 0.35 * large.stat().st_size
    assert len(server.ranges) < 12, "one range a row group, not one a page"


def test_row_groups_read_alone_are_the_rows_of_these_groups(large):
    with serving(large.parent) as server:
        for trace in (open_trace(f"{server.url}/large.parquet"), open_trace(large)):
            assert trace.group_rows == [200_000] * 3
            middle = pa.Table.from_batches(trace.batches(["submit_ns"], groups=range(1, 2)))
            assert middle.equals(pq.read_table(large, columns=["submit_ns"])[200_000:400_000].cast(middle.schema))


def test_an_object_that_was_cut_off(large, memory):
    with pytest.raises(TraceError, match="memory://.*/t.parquet.*truncated"):
        open_trace(put(f"{memory}/t.parquet", large.read_bytes()[:1000]))


def test_an_object_that_is_not_there(memory, tmp_path):
    with pytest.raises(TraceError, match=r"none\.parquet does not exist"):
        open_trace(f"{memory}/none.parquet")
    with serving(tmp_path) as server, pytest.raises(TraceError, match=r"none\.parquet does not exist"):
        open_trace(f"{server.url}/none.parquet")


@pytest.mark.parametrize(("url", "error", "message"), [
    ("http://127.0.0.1:9/t.parquet", TraceError, r"cannot read .*127\.0\.0\.1:9/t\.parquet: .*check the address"),
    ("floppy://a/t.parquet", UsageError, "unknown protocol floppy://")])
def test_a_url_that_leads_nowhere(url, error, message):
    with pytest.raises(error, match=message):
        open_trace(url)


def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(BlkreelError, match="cannot open s3://bucket/t.parquet.*; pip install s3fs"):
        open_trace("s3://bucket/t.parquet")


def test_file_urls_are_paths(tmp_path):
    local = write_trace(tmp_path / "with space.parquet", seconds=3)
    assert parse_location(f"file://{local}") == local
    assert open_trace(local.as_uri()).path == local
    assert parse_location("sample:download").name == "sample:download", "no URL"


@pytest.mark.parametrize(("text", "shown", "hidden", "neighbor"), [
    ("s3://bucket/a/t.parquet", "s3://bucket/a/t.parquet", None, "s3://bucket/a/n"),
    ("https://me:secret@host/a/t.parquet?sig=abc", "https://host/a/t.parquet", "secret|abc",
     "https://me:secret@host/a/n?sig=abc")])
def test_what_signs_a_url_is_not_shown(text, shown, hidden, neighbor):
    url = StorageUrl(text)
    assert str(url) == shown and (url.name, url.stem, url.suffix) == ("t.parquet", "t", ".parquet")
    assert url.with_name("n").text == neighbor
    if hidden:
        with pytest.raises(BlkreelError) as told:
            StorageUrl(text.replace("https", "floppy")).filesystem()
        assert "secret" not in str(told.value)
