"""A small file cannot make a command take much memory: at most 256 MiB with libraries, and 20 times the file."""

import json
import shutil
import subprocess
import sys
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from range_server import serving
from small_trace import new_trace
from synthetic_runs import write_trace

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.common.errors import BlkreelError, TraceError
from blkreel.traces.blocksets.block_set import BlockSet, FirstTouch, max_memory_bytes
from blkreel.traces.format import reader
from blkreel.traces.format.pages import Chunk, PageError, PageSizes
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import COLUMN_TYPES, KEY_PREFIX, TRACE_SCHEMA
from blkreel.traces.format.trace_survey import COLUMNS, SurveyScan
from blkreel.traces.format.writer import table_of
from blkreel.traces.model import read_model
from blkreel.traces.telemetry.file import SCHEMA, read_file

ROWS = 6_000_000


# Besides the pages of libraries, of which the kernel maps 50 to 90 MB, as they lie in its cache.
LIMIT_BYTES = 192 << 20
# A process counts the memory of the one that it was forked from, so the command is started by a small one.
MEASURE = """
import resource, subprocess, sys, tempfile, time
with tempfile.TemporaryFile("w+") as output:
    process, mapped_kib = subprocess.Popen(sys.argv[1:], stdout=output, stderr=subprocess.STDOUT), 0
    while process.poll() is None:
        with open(f"/proc/{process.pid}/status") as status:
            mapped_kib = max([mapped_kib, *(int(line.split()[1]) for line in status if line.startswith("RssFile:"))])
        time.sleep(0.005)
    output.seek(0)
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - mapped_kib
    print(process.returncode, peak_kib << 10, " ".join(output.read().split()))
"""


def run_within_limit(blkreel, path, *arguments, code=0):
    """The output in one line of a command, which takes no more memory, without pages of files, than that file may."""
    done = subprocess.run([sys.executable, "-I", "-c", MEASURE, blkreel.command, *map(str, arguments)],
                          capture_output=True, text=True, env=blkreel.environment, check=True)
    returned, peak_bytes, output = done.stdout.split(" ", 2)
    assert int(returned) == code, output
    assert int(peak_bytes) < LIMIT_BYTES + 20 * path.stat().st_size
    return output


@pytest.fixture(scope="module")
def page_bomb(tmp_path_factory):
    """A trace with one page per column: 480 MB of zeros in less than 100 KB."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.parquet"
    table = table_of({"submit_ns": np.zeros(ROWS, "i8"), "latency_ns": np.zeros(ROWS, "i8"),
                      "offset_bytes": np.zeros(ROWS, "i8"), "length_bytes": np.full(ROWS, 4096),
                      "op": np.zeros(ROWS, "i1")}, TRACE_SCHEMA)
    pq.write_table(table.replace_schema_metadata({f"{KEY_PREFIX}schema_version": "1"}), path, row_group_size=ROWS,
                   use_dictionary=False, data_page_size=1 << 30, max_rows_per_page=ROWS, compression="zstd")
    assert path.stat().st_size < 100_000
    shutil.copy(path, f"{path}.copy")
    return path


def test_pages_that_expand_are_refused(blkreel, page_bomb):
    output = run_within_limit(blkreel, page_bomb, "compare", page_bomb, f"{page_bomb}.copy", code=1)
    assert "has pages that take more than" in output and str(page_bomb) in output


def test_pages_of_a_remote_file_are_refused(page_bomb):
    with serving(page_bomb.parent) as server, pytest.raises(TraceError, match="has pages that take more than"):
        list(open_trace(f"{server.url}/{page_bomb.name}").batches())


def test_a_page_counts_whatever_the_footer_says(tmp_path):
    """The header of each page is read: its size is the second field."""
    path = write_trace(tmp_path / "t.parquet")
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    pages = bytearray(path.read_bytes()[begin:begin + chunk.total_compressed_size])
    sizes = PageSizes(path.stat().st_size)
    sizes.add(Chunk(0, 0, len(pages)), memoryview(bytes(pages)))
    assert pages[2] == 0x15  # an i32 follows
    end = 3
    while pages[end] & 128:
        end += 1
    pages[3:end + 1] = b"\xfe\xff\xff\xff\x0f"  # 2^31 - 1
    with pytest.raises(PageError, match="has pages that take more than"):
        sizes.add(Chunk(0, 0, len(pages)), memoryview(bytes(pages)))


@cases(100)
@given(st.binary(max_size=300))
def test_any_bytes_of_pages_are_refused_or_measured(content):
    try:
        PageSizes(1000).add(Chunk(0, 0, len(content)), memoryview(content))
    except PageError as error:
        assert str(error)


def test_telemetry_that_expands_is_refused(tmp_path):
    path = tmp_path / "telemetry.parquet"
    zeros = np.zeros(5_000_000, np.int64)
    table = pa.table({"time_ns": zeros, "sensor": pa.DictionaryArray.from_arrays(zeros.astype("i4"), pa.array(["a"])),
                      "value": zeros.astype("f8")}, schema=SCHEMA)
    pq.write_table(table.replace_schema_metadata({f"{KEY_PREFIX}telemetry": "{}"}), path, compression="zstd")
    with pytest.raises(TraceError, match="has 5,000,000 samples"):
        read_file(path)


def test_large_pages_of_a_large_file_are_read(tmp_path):
    """The limit follows the size of the file: what does not compress is no bomb."""
    random, count = np.random.default_rng(1), 400_000
    new_trace(tmp_path / "t.parquet", {}, submit_ns=np.sort(random.integers(0, 2**60, count)),
              latency_ns=random.integers(0, 2**40, count), offset_bytes=random.integers(0, 2**36, count),
              length_bytes=512)
    table = open_trace(tmp_path / "t.parquet").table()
    pq.write_table(table, tmp_path / "u.parquet", data_page_size=1 << 30, max_rows_per_page=count)
    assert sum(len(batch) for batch in open_trace(tmp_path / "u.parquet").batches()) == count


# Bytes of a footer: fields of Thrift's compact encoding.
ROOT, LEAF, SMALLEST_LEAF = b"\x48\x01r\x15\x02\x00", b"\x15\x04\x38\x01a\x00", b"\x48\x00\x00"
SMALLEST_CHUNK, EMPTY_GROUP = b"\x26\x00\x00", b"\x19\x0c\x16\x00\x16\x00\x00"


def structures(count, content):
    """A list of structures."""
    assert count < 1 << 21
    return bytes([0xFC, count & 127 | 128, count >> 7 & 127 | 128, count >> 14]) + content


@pytest.mark.parametrize(("schema", "groups"), [
    (structures(900_000, SMALLEST_LEAF * 900_000), structures(0, b"")),
    (structures(20_000, SMALLEST_LEAF * 20_000), structures(0, b"")),
    (structures(2, ROOT + LEAF), structures(1, b"\x19" + structures(900_000, SMALLEST_CHUNK * 900_000))),
    (structures(2, ROOT + LEAF), structures(900_000, EMPTY_GROUP * 900_000))],
    ids=["schema", "wide schema", "columns", "row groups"])
def test_a_footer_that_expands_is_refused(tmp_path, monkeypatch, schema, groups):
    """Elements of 3 bytes took 1.5 KB each: 2.7 MB became 1.4 GB."""
    monkeypatch.setattr(reader.pq, "ParquetFile", None)  # which would expand it
    footer = b"\x15\x02\x19" + schema + b"\x16\x00\x19" + groups + b"\x00"
    path = tmp_path / "footer.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    for read in (open_trace, read_file):
        with pytest.raises(TraceError, match=r"is damaged \(its (lists have more|schema has 20,000) elements"):
            read(path)


@pytest.fixture(scope="module")
def scattered(tmp_path_factory):
    """A trace of 450,000 reads of 512 bytes, each far from all others: 14 TiB touched, in about 100 KB."""
    path, count = tmp_path_factory.mktemp("scattered") / "scattered.parquet", 450_000
    new_trace(path, {}, latency_ns=1000, offset_bytes=np.arange(count) << 25, length_bytes=512)
    rows = open_trace(path).table()
    metadata = {key: value for key, value in rows.schema.metadata.items() if b"integrity" not in key}
    pq.write_table(rows.replace_schema_metadata(metadata), path, compression="zstd", use_dictionary=False,
                   column_encoding=dict.fromkeys(["submit_ns", "offset_bytes"], "DELTA_BINARY_PACKED"))
    return path


def test_sets_of_scattered_blocks_have_a_limit(blkreel, scattered):
    """Each set took 8 KiB for each of these reads: 7 GB."""
    output = run_within_limit(blkreel, scattered, "replay", "--dry-run", scattered, "--on", "nil:64TiB", code=1)
    assert "the I/Os touch too many separate ranges" in output and "blkreel slice" in output


def test_scattered_blocks_of_a_real_trace_are_within_the_limit():
    """Random reads of 4 KiB on a drive of 16 TB, at 12 bytes of file for each."""
    count = 600_000
    offset_bytes = np.random.default_rng(1).integers(0, 4 << 30, count) * 4096
    touch = FirstTouch(max_memory_bytes(12 * count))
    touch.add(offset_bytes, offset_bytes + 4096, np.ones(count, bool))
    assert touch.touched.bytes == touch.read_first.bytes == len(np.unique(offset_bytes)) * 4096
    assert BlockSet.load(touch.touched.saved()).bytes == touch.touched.bytes
    assert len(touch.touched.saved()) < touch.touched.memory_bytes


def test_devices_of_a_survey_have_a_limit():
    count = 1000
    zeros = {"op": np.zeros(count, "i1"), "flags": np.zeros(count, "i4")}
    columns = {name: np.arange(count) for name in COLUMNS} | zeros
    with pytest.raises(BlkreelError, match="too many separate ranges"):
        SurveyScan(max_memory_bytes=500_000).add(columns)


def write_with_keys(path, count, keys, **columns):
    """A trace of `count` small reads, in about 60 KB. Each has a key of its own in these columns, else in time."""
    schema = reduce(lambda schema, name: schema if name in schema.names else schema.append(
        pa.field(name, COLUMN_TYPES[name], nullable=False)), keys, TRACE_SCHEMA)
    rows = {"submit_ns": np.arange(count) * 1000, "latency_ns": np.full(count, 1000), "op": np.zeros(count, "i1"),
            "offset_bytes": np.zeros(count, "i8"), "length_bytes": np.full(count, 512),
            **{name: np.arange(count) for name in keys}, **columns}
    table = table_of(rows, schema).replace_schema_metadata({f"{KEY_PREFIX}schema_version": "1"})
    packed = [name for name in schema.names if schema.field(name).type in (pa.int32(), pa.int64())]
    pq.write_table(table, path, compression="zstd", use_dictionary=False, data_page_size=1 << 20,
                   column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"))
    assert path.stat().st_size < 100_000
    return path


@pytest.fixture(scope="module")
def many_keys(tmp_path_factory):
    """Traces of 600,000 threads and files, which wait for each other or not, in about 50 KB."""
    directory, count = tmp_path_factory.mktemp("keys"), 600_000
    waits = {"waited_on": np.arange(count) - 1, "think_ns": np.zeros(count, "i8")}
    return {"threads": write_with_keys(directory / "threads.parquet", count, ["tid", "inode"]),
            "waits": write_with_keys(directory / "waits.parquet", count, ["tid"], **waits)}


@pytest.mark.parametrize(("keys", "command"), [
    ("threads", ["info", "{}"]), ("threads", ["report", "{}"]),
    ("waits", ["replay", "--dry-run", "{}", "--on", "nil:1TiB", "--pace", "dependent"])],
    ids=["info", "report", "replay of observed waits"])
def test_a_small_file_cannot_have_many_keys(blkreel, many_keys, keys, command):
    """A million threads in 58 KB took a report 1.3 GB, a dependent plan 1.3 GB, a million files `info` 0.8 GB."""
    path = many_keys[keys]
    output = run_within_limit(blkreel, path, *(part.format(path) for part in command), code=1)
    assert "the I/Os have too many threads" in output and "blkreel slice" in output


def test_rows_of_many_keys_are_copied_within_the_limit(blkreel, many_keys, tmp_path):
    """A million threads and files in 62 KB took `slice` 445 MiB and `anonymize`, which numbers them too, 522 MiB."""
    path = many_keys["threads"]
    run_within_limit(blkreel, path, "anonymize", path, "-o", tmp_path / "copy.parquet")
    assert open_trace(tmp_path / "copy.parquet").rows == 600_000


def test_the_model_of_many_streams_is_within_the_limit(blkreel, tmp_path):
    """A million reads far from each other, in 58 KB, took 338 MiB: 150 bytes for each while their order was sorted."""
    count = 1_000_000
    path = write_with_keys(tmp_path / "t.parquet", count, [], offset_bytes=np.arange(count) << 25)
    # A model of so many I/Os takes ten seconds to play; a short trace of it takes none.
    run_within_limit(blkreel, path, "model", path, "-o", tmp_path / "model.toml", "--make-trace",
                     tmp_path / "made.parquet", "--ios", 1000)
    read = read_model(tmp_path / "model.toml")
    assert read.ios == count and read.properties["reuse_share"] == 0


def test_a_comparison_from_cached_results_is_within_the_limit(blkreel, tmp_path):
    """Two traces of many bursts, each of which is in the cached result."""
    count = 300_000
    path = write_with_keys(tmp_path / "a.parquet", count, [], submit_ns=np.arange(count) * 10**9)
    shutil.copy(path, tmp_path / "b.parquet")
    for _ in range(2):
        run_within_limit(blkreel, path, "compare", path, tmp_path / "b.parquet")


def test_unnamed_threads_are_one_row_of_info(blkreel, tmp_path):
    """Its sums are arrays: 600,000 threads alone are within the limit."""
    path = write_with_keys(tmp_path / "t.parquet", 600_000, ["tid"])
    output = run_within_limit(blkreel, path, "info", "--json", path)
    assert json.loads(output)["threads"] == {"unknown": {"ios": 600_000, "bytes": 600_000 * 512}}


def test_threads_of_a_recorded_trace_are_within_the_limit():
    """The metadata of a trace has at least 60 bytes for each thread."""
    count = 150_000
    metrics, rows = MetricsAccumulator(exact=False, file_bytes=60 * count), np.arange(count)
    names = ("latency_ns", "queue_ns", "offset_bytes", "device", "status", "op")
    zeros = {name: np.zeros(count, "i8") for name in names}
    metrics.feed({**zeros, "submit_ns": rows, "length_bytes": np.full(count, 512), "tid": rows})
    assert len(metrics.finish().threads.keys) == count
