"""Exports are read back by other programs, or by a parser written from the format's own documentation."""

import json
import re
import struct
import subprocess
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from documents import valid_document
from small_trace import new_trace, write_trace
from tree import APP_START, GAME_DOWNLOAD, PACKAGE_INSTALL

from blkreel.common.errors import BlkreelError, TraceError
from blkreel.traces.exporters import FORMATS, export_trace
from blkreel.traces.exporters.export_format import device_names
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES
from blkreel.traces.importers import ImportOptions, import_recording


@pytest.mark.parametrize("source", ["own", APP_START])
def test_csv_has_all_values(source, trace, exported):
    opened = trace if source == "own" else open_trace(source)
    path, account = exported(opened, "csv")
    table, frame = pd.read_csv(path, keep_default_na=False), opened.table().to_pandas()
    for name in set(frame) - {"op", "flags", "device"}:
        assert table[name].tolist() == frame[name].tolist(), name
    assert table.op.tolist() == [OP_NAMES[code] for code in frame.op]
    assert [sum(FLAGS[name] for name in text.split("+") if name) for text in table["flags"]] == frame["flags"].tolist()
    assert account.records == opened.rows and not account.omitted and not account.not_expressed
    if source == "own":
        assert table.device.tolist()[:2] == ["nvme0n1", "disk_two"]
        assert table.thread_name.tolist()[:3] == ['qu"ote, comma', "writer", ""]


def test_iolog_lines(trace, exported):
    path, account = exported(trace, "iolog3")
    lines = path.read_text().splitlines()
    assert lines[0] == "fio version 3 iolog"
    assert lines[1:5] == ["1 nvme0n1 add", "1 disk_two add", "1 nvme0n1 open", "1 disk_two open"]
    # Times begin at 1: fio ignores the delay after time 0. The length of a record has 32 bits.
    assert lines[5:-2] == ["2 nvme0n1 read 4096 4096", "3 disk_two write 8192 512", "3000001 disk_two sync 0 0",
                           f"3000001 nvme0n1 trim {1 << 30} {2 << 30}", f"3000001 nvme0n1 trim {3 << 30} {2 << 30}",
                           f"3000001 nvme0n1 trim {5 << 30} {1 << 30}", "4000001 nvme0n1 write 4096 8192",
                           "4000002 nvme0n1 read 4096 4096"]
    assert lines[-2:] == ["4000002 nvme0n1 close", "4000002 disk_two close"]
    assert account.records == 8 and account.omitted == {"write_zeroes": 1}
    assert account.not_expressed | {"flags.fua": 1, "flags.read_ahead": 1, "latency_ns": 6, "tid": 5, "status": 1,
                                    "submit_ns below 1 µs": 2} == account.not_expressed
    assert account.not_expressed["length_bytes above 2 GiB, as several records"] == 1


def test_fio_replays_as_many_operations_and_bytes(exported, program, tmp_path):
    fio = program("fio")
    opened = open_trace(APP_START)
    path, account = exported(opened, "iolog3")
    disk = tmp_path / "disk"
    disk.touch()
    disk.open("r+").truncate(opened.metadata["devices"][0]["size_bytes"])
    words = ["--name=replay", f"--read_iolog={path}", f"--replay_redirect={disk}", "--replay_no_stall=1",
             "--ioengine=sync", "--output-format=json"]
    result = subprocess.run([fio, *words], capture_output=True, text=True, check=True)
    job = json.loads(result.stdout[result.stdout.index("{"):])["jobs"][0]
    frame = opened.table().to_pandas()
    for name, code in (("read", 0), ("write", 1)):
        rows = frame[frame.op == code]
        assert (job[name]["total_ios"], job[name]["io_bytes"]) == (len(rows), rows.length_bytes.sum())
    assert job["sync"]["total_ios"] == (frame.op == 2).sum()
    assert job["error"] == 0 and not account.omitted


@pytest.mark.parametrize("trace", [APP_START, "sample:game-download", PACKAGE_INSTALL])
def test_blktrace_events_give_back_the_rows(trace, exported, tmp_path):
    opened = open_trace(trace)
    path, account = exported(opened, "blktrace")
    result = import_recording([path], tmp_path / "back.parquet")
    rows, back = opened.table().to_pandas(), open_trace(result.path).table().to_pandas()
    assert not account.omitted and not result.missing
    assert (rows.submit_ns - rows.submit_ns[0]).tolist() == (back.submit_ns - back.submit_ns[0]).tolist()
    for column in ("latency_ns", "offset_bytes", "length_bytes", "op", "cpu", "status", "tid"):
        assert rows[column].tolist() == back[column].tolist(), column
    flush = rows.op == 2
    assert rows.queue_ns[~flush].tolist() == back.queue_ns[~flush].tolist()
    assert account.not_expressed.get("queue_ns of a flush", 0) == (rows.queue_ns[flush] >= 0).sum()
    for flag in ("sync", "metadata", "read_ahead", "fua", "preflush"):
        assert (rows["flags"] & FLAGS[flag])[~flush].tolist() == (back["flags"] & FLAGS[flag])[~flush].tolist(), flag


@pytest.mark.parametrize("format_", ["blktrace", "blkparse"])
@pytest.mark.parametrize("op", [0, 2])
def test_an_unseen_completion_does_not_shift_the_latencies_of_later_ios(exported, tmp_path, op, format_):
    """Readers pair events in order: each flush after one without a completion took that of the next."""
    path = new_trace(tmp_path / "t.parquet", {}, submit_ns=np.arange(6) * 10**6, op=op, length_bytes=0 if op else 4096,
                     latency_ns=np.array([700, -1, 800, 900, -1, -1]), offset_bytes=0)
    exported_path, account = exported(open_trace(path), format_)
    assert list(account.omitted.values()) == [1 if op else 2]
    back = open_trace(import_recording([exported_path], tmp_path / "back.parquet").path).table().to_pandas()
    assert back.latency_ns.tolist() == [700, 800, 900, *([-1, -1] if op else [-1])]


def test_lines_of_blkparse_have_whole_sectors(tmp_path, exported):
    opened = open_trace(new_trace(tmp_path / "t.parquet", {}, length_bytes=np.array([100, 512, 700]), latency_ns=5))
    path, account = exported(opened, "blkparse")
    assert account.omitted == {"length_bytes below 512": 1}
    assert account.not_expressed == {"length_bytes below 512": 1}
    back = open_trace(import_recording([path], tmp_path / "back.parquet").path).table().to_pandas()
    assert back.length_bytes.tolist() == [512, 512] and back.offset_bytes.tolist() == [4096, 8192]
    assert not exported(opened, "blktrace")[1].not_expressed


def test_blktrace_events_by_hand(trace, exported):
    path, account = exported(trace, "blktrace")
    data, events = path.read_bytes(), []
    while data:
        magic, sequence, time_ns, sector, count, action, pid, device, cpu, status, payload = \
            struct.unpack("<IIQQIIIIIhH", data[:48])
        assert magic == 0x65617407
        events.append((action & 0xffff, action >> 16, sequence, time_ns - 10**12, sector, count, pid, device, cpu,
                       status, data[48:48 + payload]))
        data = data[48 + payload:]
    nvme, other = 259 << 20, 240 << 20 | 1
    read, write, sync, queue, issue, complete, fs, notify, ahead, meta, fua = (
        1 << bit for bit in (0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 15))
    names = [b"qu\"ote, comma".ljust(16, b"\0"), b"writer".ljust(16, b"\0")]
    assert events[:9] == [
        (0, notify, 0, 1_400, 0, 0, 41, 0, 0, 0, names[0]), (0, notify, 0, 1_400, 0, 0, 42, 0, 0, 0, names[1]),
        (1, read | queue | ahead | fs, 1, 1_400, 8, 4096, 41, nvme, 0, 0, b""),
        (7, read | issue | ahead | fs, 2, 1_500, 8, 4096, 41, nvme, 0, 0, b""),
        (8, read | complete | ahead | fs, 3, 1_990, 8, 4096, 41, nvme, 0, 0, b""),
        (7, write | issue | sync | fua | fs, 1, 2_000, 16, 512, 42, other, 3, 0, b""),
        (8, write | complete | sync | fua | fs, 2, 72_000, 16, 512, 42, other, 3, 0, b""),
        (7, read | 1 << 2 | issue | fs, 1, 3_000_000_000, 0, 0, 0, other, 0, 0, b""),
        (7, write | issue | fs, 1, 3_000_000_999, 1, 1 << 20, 41, nvme, 1, 0, b"")]
    assert (8, write | complete | meta | fs, 5, 4_000_000_600, 8, 8192, 41, nvme, 0, -5, b"") in events
    assert account.omitted == {"length_bytes of 4 GiB and more": 1}
    assert account.not_expressed | {"op write_zeroes, as a write": 1, "queue_ns of a flush": 1} == account.not_expressed


@pytest.mark.parametrize("source", ["own", APP_START, GAME_DOWNLOAD])
def test_blkparse_prints_the_same_lines(source, trace, exported, program):
    blkparse = program("blkparse", "blktrace")
    opened = trace if source == "own" else open_trace(source)
    binary, of_binary = exported(opened, "blktrace")
    path, account = exported(opened, "blkparse")
    result = subprocess.run([blkparse, "-i", "-"], stdin=binary.open("rb"), capture_output=True, text=True, check=True)
    events = [line for line in result.stdout.splitlines() if re.match(r" *\d+,\d+ +\d+ +\d+ ", line)]
    assert path.read_text().splitlines() == events
    assert len(events) == account.records and "Skips: 0 forward" in result.stdout
    assert account == of_binary


def test_btt_and_iowatcher_read_the_events(exported, program, tmp_path):
    btt, iowatcher = program("btt", "blktrace"), program("iowatcher")
    opened = open_trace(APP_START)
    path, _ = exported(opened, "blktrace")
    path = path.rename(tmp_path / "sample.dump")
    rows = opened.table().to_pandas()
    rows = rows[rows.op < 2]
    # btt writes files to its directory.
    text = subprocess.run([btt, "-i", path], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    least, mean, most, count = re.search(r"^D2C +(\S+) +(\S+) +(\S+) +(\d+)$", text, re.MULTILINE).groups()
    assert int(count) == len(rows)
    assert [round(float(value) * 10**9) for value in (least, mean, most)] == [
        rows.latency_ns.min(), pytest.approx(rows.latency_ns.mean(), abs=1), rows.latency_ns.max()]
    picture = tmp_path / "picture.svg"
    subprocess.run([iowatcher, "-t", path, "-o", picture], capture_output=True, check=True, cwd=tmp_path)
    assert "<svg" in picture.read_text()[:1000]


def test_events_are_in_order_of_time_across_batches(exported, tmp_path, monkeypatch):
    """Queue times reach back, and completions forward, over several batches."""
    monkeypatch.setattr("blkreel.traces.format.writer.ROWS_PER_GROUP", 100)
    generator, count = np.random.default_rng(2), 2000
    new_trace(tmp_path / "many.parquet", {"devices": [{"name": "sda", "major": 8, "minor": 0}], "epoch_ns": 10**9},
              submit_ns=np.sort(generator.integers(0, 10**6, count)), op=generator.integers(0, 2, count),
              latency_ns=generator.integers(-1, 300_000, count), cpu=generator.integers(0, 4, count),
              queue_ns=generator.integers(-1, 300_000, count), tid=generator.integers(1, 9, count))
    opened = open_trace(tmp_path / "many.parquet")
    monkeypatch.setattr("blkreel.traces.exporters.export_format.BATCH_ROWS", 100)
    path, account = exported(opened, "blktrace")
    times = [struct.unpack_from("<Q", path.read_bytes(), at + 8)[0] for at in range(0, 48 * account.records, 48)]
    assert times == sorted(times)
    monkeypatch.undo()
    result = import_recording([path], tmp_path / "back.parquet")
    rows, back = opened.table().to_pandas(), open_trace(result.path).table().to_pandas()
    rows, back = rows.sort_values("offset_bytes"), back.sort_values("offset_bytes")
    for column in ("latency_ns", "queue_ns", "op", "cpu", "tid", "length_bytes"):
        assert rows[column].tolist() == back[column].tolist(), column


@pytest.mark.parametrize("source", ["own", APP_START, "several row groups"])
def test_oracle_general_names_the_next_request_of_an_object(source, trace, exported, tmp_path, monkeypatch):
    if source == "several row groups":
        monkeypatch.setattr("blkreel.traces.format.writer.ROWS_PER_GROUP", 100)
        count = 1000
        generator = np.random.default_rng(4)
        new_trace(tmp_path / "many.parquet", {"devices": [{"name": "a"}, {"name": "b"}]},
                  submit_ns=np.arange(count) * 10**8, op=generator.integers(0, 3, count),
                  offset_bytes=generator.integers(0, 50, count) * 4096, latency_ns=9,
                  device=generator.integers(0, 2, count))
        trace = open_trace(tmp_path / "many.parquet")
        assert len(trace.group_rows) > 5
    opened = open_trace(APP_START) if source == APP_START else trace
    path, account = exported(opened, "oracle-general")
    rows = opened.table().to_pandas()
    rows = rows[rows.op.isin([0, 1])]
    requests = list(struct.iter_unpack("<IQIq", path.read_bytes()))
    assert len(requests) == len(rows) == account.records
    following, last = [], {}
    for number, row in reversed(list(enumerate(rows.itertuples(), 1))):
        key = row.device << 48 | row.offset_bytes // 512
        following.append(last.get(key, -1))
        last[key] = number
    assert [request[3] for request in requests] == following[::-1]
    assert source == APP_START or max(following) > 0
    assert [request[:3] for request in requests] == [
        (row.submit_ns // 10**9, row.device << 48 | row.offset_bytes // 512, row.length_bytes)
        for row in rows.itertuples()]
    others = Counter(OP_NAMES[code] for code in opened.table()["op"].to_pylist() if code > 1)
    assert account.omitted == others
    for column in ("cpu", "tid", "latency_ns"):
        assert account.not_expressed.get(column, 0) == (rows[column] >= 0).sum(), column


@pytest.mark.parametrize("name, options, shared", [
    ("csv", {"columns": "time=submit_ns:ns,op=op,offset=offset_bytes:bytes,length=length_bytes:bytes,"
                        "latency=latency_ns:ns,device=device,process=thread_name,tid=tid,cpu=cpu"},
     ["latency_ns", "tid", "cpu"]),
    ("blkparse", {}, ["latency_ns", "tid", "cpu"]),
    ("iolog3", {}, []),
    ("oracle-general", {"block_bytes": 512}, [])])
def test_an_import_gives_back_the_columns_that_the_format_has(name, options, shared, exported, tmp_path):
    opened = open_trace(APP_START)
    path, account = exported(opened, name)
    result = import_recording([path], tmp_path / "back.parquet", format_name="columns" if name == "csv" else name,
                              options=ImportOptions(**options))
    rows, back = opened.table().to_pandas(), open_trace(result.path).table().to_pandas()
    if name == "oracle-general":
        rows = rows[rows.op < 2].reset_index()
        rows["submit_ns"] = rows.submit_ns // 10**9 * 10**9
        back["op"] = rows.op
    if name == "iolog3":
        rows["submit_ns"] = rows.submit_ns // 1000 * 1000
    assert (rows.submit_ns - rows.submit_ns[0]).tolist() == (back.submit_ns - back.submit_ns[0]).tolist()
    for column in ("offset_bytes", "length_bytes", "op", *shared):
        assert rows[column].tolist() == back[column].tolist(), column
    assert not result.missing


def test_a_full_disk_leaves_no_file(trace, tmp_path):
    def fail(*arguments):
        FORMATS["csv"].write(*arguments)
        raise OSError(28, "No space left on device")

    with pytest.raises(BlkreelError, match="no space left"):
        export_trace(trace, tmp_path / "out", replace(FORMATS["csv"], write=fail))
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_trace_of_flushes(name, tmp_path, exported):
    """A format may have no record for any row."""
    new_trace(tmp_path / "f.parquet", {}, submit_ns=[5, 6], op=[2, 2], latency_ns=[3, 3], offset_bytes=0,
              length_bytes=0)
    _, account = exported(open_trace(tmp_path / "f.parquet"), name)
    assert account.records or account.omitted == {"flush": 2}


@pytest.mark.parametrize("name", ["csv", "oracle-general"])
def test_the_command(name, tmp_path, blkreel):
    """A format that has all, and one that omits rows."""
    output = tmp_path / "out"
    write_trace(tmp_path / "t.parquet")
    result = blkreel("export", tmp_path / "t.parquet", "--format", name, "-o", output, "--json", check=False)
    document = valid_document("export", result.stdout)
    assert result.returncode == (3 if document["omitted"] else 0)
    assert document["file_bytes"] == output.stat().st_size and document["rows"] == 7
    for reason in [*document["omitted"], *document["not_expressed"]]:
        assert reason in result.stderr
    assert output.stat().st_mode & 0o777 == 0o600
    before = output.read_bytes()
    assert blkreel("export", APP_START, "--format", name, "-o", output, check=False).returncode == 1
    assert output.read_bytes() == before
    quiet = blkreel("export", tmp_path / "t.parquet", "--format", name, "-o", output, "--force", "--public", "-q",
                    check=False)
    assert quiet.stdout == quiet.stderr == "" and output.stat().st_mode & 0o044
    assert output.read_bytes() == before


def test_refusals(tmp_path, blkreel):
    result = blkreel("export", APP_START, "--format", "fio-iolgo", "-o", tmp_path / "out", check=False)
    assert result.returncode == 2 and "fio-iolgo: no such format; use one of: csv, iolog3" in result.stderr
    new_trace(tmp_path / "empty.parquet", submit_ns=[])
    result = blkreel("export", tmp_path / "empty.parquet", "--format", "csv", "-o", tmp_path / "out", check=False)
    assert result.returncode == 1 and "has no I/O to export" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["empty.parquet"]


@pytest.mark.parametrize("name, keys", [
    ("blktrace", "I/Os in flight or CPUs"), ("blkparse", "I/Os in flight or CPUs"),
    ("perfetto", "threads or I/Os in flight")])
def test_what_an_export_stores_is_limited(trace, exported, monkeypatch, tmp_path, name, keys):
    """A million I/Os without an end are 57 KB, and their tracks took 1.5 GB."""
    monkeypatch.setattr("blkreel.traces.exporters.export_format._BATCH_BYTES", 145 << 20)
    with pytest.raises(TraceError, match=f"the I/Os have too many {keys}"):
        exported(trace, name)
    assert not (tmp_path / f"out.{name}").exists()


def test_objects_of_oracle_general_are_limited(trace, exported, monkeypatch):
    monkeypatch.setattr("blkreel.traces.exporters.oracle_general._GROUP_BYTES", 145 << 20)
    with pytest.raises(TraceError, match="the I/Os have too many objects"):
        exported(trace, "oracle-general")
    monkeypatch.setattr("blkreel.traces.exporters.oracle_general._MOST_GROUP_ROWS", 6)
    with pytest.raises(TraceError, match=r"a row group of 7 rows \(limit 6\)"):
        exported(trace, "oracle-general")


def test_an_endless_io_is_not_split(tmp_path, exported):
    """One row of 2^62 bytes was 2 billion lines."""
    opened = open_trace(write_trace(tmp_path / "t.parquet", length_bytes=[4096, 512, 0, 1 << 62, 1, 64 << 30, 4096]))
    path, account = exported(opened, "iolog3")
    assert account.omitted == {"length_bytes above 64 GiB": 1, "write_zeroes": 1}
    lines = [line.split() for line in path.read_text().splitlines() if " write " in line]
    assert sum(int(line[4]) for line in lines) == 512 + (64 << 30) and len(lines) == 33
    assert account.records == 1 + len(lines) + 2


def test_names_of_devices_are_unique(trace):
    trace.metadata["devices"] = [{"name": name} for name in ("a.2", "a", "a", "a")]
    assert device_names(trace, 4) == ["a.2", "a", "a.2.2", "a.3", "device4"]
