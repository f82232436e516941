"""Published traces and simulators: all rows equal those of a parser written here, with Python integers and decimals."""

import bz2
import gzip
import struct
from datetime import UTC, datetime
from decimal import Decimal

import pandas as pd
import pytest
from foreign_traces import RECORDINGS
from tree import foreign

from blkreel.common.errors import UsageError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES
from blkreel.traces.importers import ImportOptions, import_recording

OPS = {"R": 0, "W": 1, "r": 0, "w": 1, "Read": 0, "Write": 1}
READ_IS_1 = {"1": 0, "0": 1}


def ns(seconds):
    return int((Decimal(seconds) * 10 ** 9).to_integral_value())


def csv(text, header=False):
    return [line.split(",") for line in text.splitlines()[header:]]


# Each gives (time, latency, op, offset, length, device, tid, process) of all records, in the order of the source.

def msr(text):
    for time, host, disk, op, offset, size, response in csv(text):
        yield ((int(time) - 116444736000000000) * 100, int(response) * 100, OPS[op], int(offset), int(size),
               f"{host}_{disk}", -1, None)


def tencent(text):
    for time, sector, sectors, op, volume in csv(text):
        yield int(time) * 10 ** 9, -1, int(op), int(sector) * 512, int(sectors) * 512, volume, -1, None


def alibaba(text):
    for device, op, offset, length, time in csv(text):
        yield int(time) * 1000, -1, OPS[op], int(offset), int(length), device, -1, None


def systor17(text):
    for time, response, op, lun, offset, size in csv(text, header=True):
        yield ns(time), ns(response), OPS[op], int(offset), int(size), lun, -1, None


def spc(text):
    for asu, lba, size, op, time in csv(text):
        yield ns(time), -1, OPS[op], int(lba) * 512, int(size), asu, -1, None


def fiu(text):
    for time, pid, process, lba, sectors, op, major, minor, _ in map(str.split, text.splitlines()):
        yield int(time), -1, OPS[op], int(lba) * 512, int(sectors) * 512, f"{major}:{minor}", int(pid), process


def android(text):
    for process, device, op, sector, sectors, time in csv(text, header=True):
        comm, _, tid = process.rpartition("-")
        # Some names are cut before the number of the thread.
        known = tid.isdigit()
        yield (ns(time), -1, OPS[op], int(sector) * 512, int(sectors) * 512,
               f"{int(device) >> 20}:{int(device) % 2**20}", int(tid) if known else -1,
               comm if known and comm != "<...>" else None)


def io_tracer(text):
    for time, _, command, sector, op, size, latency, tid, *_ in csv(text, header=True):
        at = datetime.fromisoformat(time).replace(tzinfo=UTC)
        completed = (int(at.timestamp()) * 10**6 + at.microsecond) * 1000
        latency_ns = int(Decimal(latency) * 10**6)
        yield (completed - latency_ns, latency_ns, ["read", "write"].index(op), int(sector) * 512, int(size), "unknown",
               int(tid), command)


def mqsim(text, unit=1):
    for time, device, lba, sectors, op in map(str.split, text.splitlines()):
        yield int(Decimal(time) * unit), -1, READ_IS_1[op], int(lba) * 512, int(sectors) * 512, device, -1, None


def disksim(text):
    return mqsim(text, 10 ** 6)


def blkreplay(text):
    base, last, headers = 0, 0, 0
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(";")]
        if fields[0] == "start":
            headers += 1
            base = last if headers > 1 else 0
        elif len(fields) == 6:
            last = max(last, base + ns(fields[0]))
            yield (base + ns(fields[0]), -1, OPS[fields[3][0]], int(fields[1]) * 512, int(fields[2]) * 512, None, -1,
                   None)


def hfplayer(text):
    titles, *records = csv(text)
    for record in (dict(zip(titles, fields, strict=True)) for fields in records):
        yield (ns(record["ELAPSED_USECS.D"]) // 10 ** 6, ns(record["LATENCY_USECS.D"]) // 10 ** 6, int(record["OP.I"]),
               int(record["LBA.I"]) * 512, int(record["NBLKS.I"]) * 512, record["LUN_SSID.I"], -1, None)


PARSERS = {parser.__name__.replace("_", "-"): parser for parser in (msr, tencent, alibaba, systor17, spc, fiu, android,
                                                                     io_tracer, mqsim, disksim, blkreplay, hfplayer)}
SAMPLES = {"msr": ["msr/msr-cambridge1-sample.csv"], "tencent": ["tencent/cloud_storage-sample.bz2"],
           "systor17": ["systor/systor17-traces-sample.csv.gz"], "mqsim": ["mqsim/tpcc-small.trace"],
           "android": ["mobile/genshin_impact_exec.csv.gz", "mobile/pubg_exec.csv.gz"],
           "blkreplay": ["blkreplay/linux-mysql.load.gz"], "hfplayer": ["hfplayer/small-tpch.csv"]}
FIELDS = ["time", "latency", "op", "offset", "length", "device", "tid"]


def decompressed(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else bz2.decompress(data) if path.suffix == ".bz2" else data


def assert_same(path, name, output):
    """All rows of the import equal those of the parser; equal times stay in the order of the source."""
    result = import_recording([path], output, options=ImportOptions(block_bytes=512 if name == "spc" else None))
    records = list(PARSERS[name](decompressed(path).decode()))
    expected = pd.DataFrame([record[:7] for record in records], columns=FIELDS).sort_values("time", kind="stable")
    trace = open_trace(result.path)
    rows = trace.table().to_pandas()
    names = [device["name"] for device in result.metadata["devices"]]
    assert (rows.submit_ns + result.metadata["epoch_ns"]).tolist() == expected.time.tolist()
    for column, field in (("latency_ns", "latency"), ("op", "op"), ("offset_bytes", "offset"),
                          ("length_bytes", "length"), ("tid", "tid")):
        assert rows[column].tolist() == expected[field].tolist(), column
    if expected.device.notna().any():
        assert [names[number] for number in rows.device] == expected.device.tolist()
    processes = {}
    for record in records:
        if record[7]:
            processes.setdefault(record[6], set()).add(record[7])
    threads = trace.metadata.get("threads", {})
    assert {int(tid) for tid in threads} == set(processes)
    assert all(set(entry["names"]) == processes[int(tid)] and entry["comm"] in entry["names"]
               for tid, entry in threads.items())
    ledger = result.metadata["ledger"]
    assert ledger["records"] == ledger["rows"] == len(records) and result.warnings == []
    return result


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_all_rows_equal_those_of_a_plain_parser(tmp_path, name):
    (tmp_path / "recording").write_bytes(RECORDINGS[name])
    assert_same(tmp_path / "recording", name, tmp_path / "t.parquet")


@pytest.mark.parametrize("name, path", [(name, path) for name, paths in SAMPLES.items() for path in paths])
def test_a_trace_of_others_gives_all_its_rows(tmp_path, name, path):
    assert_same(foreign(path), name, tmp_path / "t.parquet")


def test_letters_of_the_kernel_are_operations_and_flags(run):
    """A write behind a flush was a flush."""
    frame, _ = run(b"app-7,8388608,FWFS,8,8,1.0\napp-7,8388608,FF,0,0,2.0\napp-7,8388608,RA,16,8,3.0\n", "android")
    assert [OP_NAMES[op] for op in frame.op] == ["write", "flush", "read"]
    assert frame["flags"].tolist() == [FLAGS["preflush"] | FLAGS["fua"] | FLAGS["sync"], 0, FLAGS["read_ahead"]]


def test_a_request_without_a_response_is_ignored_with_a_reason(run):
    _, result = run(RECORDINGS["systor17"] + b"1456095205.5,,,0,4096,512\n")
    (reason, tally), = result.metadata["ledger"]["ignored"].items()
    assert reason.startswith("no response was recorded") and tally["count"] == 1 and "line 62" in tally["example"]
    assert result.missing == []


def test_a_clock_that_restarts_at_a_joined_file_goes_on(tmp_path):
    (tmp_path / "t.load").write_bytes(RECORDINGS["blkreplay"] * 3)
    assert_same(tmp_path / "t.load", "blkreplay", tmp_path / "t.parquet")
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    assert len(rows) == 180 and rows.submit_ns.iloc[-1] == 3 * 59_000_000_059
    assert (rows["flags"] == FLAGS["read_ahead"]).sum() == 27


def test_blocks_of_a_size_that_is_not_stated_need_the_option(run):
    for name in ("spc", "oracle-general"):
        with pytest.raises(UsageError, match="--block-size 512"):
            run(RECORDINGS[name])
    with pytest.raises(UsageError, match="--block-size does not apply to the format mqsim"):
        run(RECORDINGS["mqsim"], block_bytes=4096)
    rows, _ = run(RECORDINGS["spc"], block_bytes=4096)
    expected = [int(line.split(",")[1]) * 4096 for line in RECORDINGS["spc"].decode().splitlines()]
    assert rows.offset_bytes.tolist() == expected


def test_copies_of_tencent_in_bytes_need_a_block_size_of_1(run):
    rows, _ = run("1538323200,8192,4096,0,1058\n", block_bytes=1)
    assert rows[["offset_bytes", "length_bytes"]].to_numpy().tolist() == [[8192, 4096]]


def test_requests_of_a_cache_trace_become_reads(run):
    rows, result = run(RECORDINGS["oracle-general"], block_bytes=512)
    records = list(struct.iter_unpack("<IQIq", RECORDINGS["oracle-general"]))
    assert rows.offset_bytes.tolist() == [512 * record[1] for record in records]
    assert rows.submit_ns.tolist() == [10 ** 9 * record[0] for record in records]
    assert set(rows.op) == {0} and "operation" in result.metadata["source_lacks"]


def test_records_of_io_tracer_that_are_no_io_are_ignored_and_rotated_files_are_one_device(run):
    _, result = run([("ds_1.csv", RECORDINGS["io-tracer"]),
                     ("ds_2.csv", "2024-01-15 10:31:40.5,7,sync,0,flush,0,2.5,7,0,0,1\n"
                                  "2024-01-15 10:31:41.5,7,sync,0,none,0,2.5,7,0,0,1\n")])
    assert result.ios["flush"] == 1 and [device["name"] for device in result.metadata["devices"]] == ["unknown"]
    assert [tally["count"] for tally in result.metadata["ledger"]["ignored"].values()] == [1]
    assert "device" in result.metadata["source_lacks"]
