"""Binary files of blktrace become rows: events by hand, and a real recording against blkparse's own count."""

import json
import os
import re
import struct
import subprocess
from pathlib import Path

import blktrace_events as events
import pytest
from blktrace_events import SDA, SDB, Recording, big_endian
from cases import cases
from helpers import lives
from hypothesis import given
from hypothesis import strategies as st
from tree import foreign
from waiting import wait_until

from blkreel.common.errors import TraceError, UsageError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES
from blkreel.traces.importers import import_recording
from blkreel.traces.importers.blktrace import DECODER


@pytest.fixture
def rows_of(tmp_path):
    """Imports recordings, one a CPU: (rows in order of submission, what came out)."""
    def run(*recordings, names=None):
        names = names or [f"sda.blktrace.{recording.cpu}" for recording in recordings]
        files = [recording.write(tmp_path / name) for recording, name in zip(recordings, names, strict=True)]
        result = import_recording(files, tmp_path / "t.parquet", force=True)
        return open_trace(result.path).table().to_pandas(), result

    return run


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("order", ["little", "big"])
def test_each_version_and_byte_order_says_the_same(rows_of, version, order):
    recording = Recording(version, order, cpu=3)
    recording.add("A", 1_000, 800, kind="write", device=SDB, payload=big_endian(SDA << 32 | SDB, 800))
    recording.io(800, 1_000, 2_500, 9_000, sectors=16, kind="write", pid=4711, cgroup=99,
                 category=events.SYNC | events.META)
    recording.io(1 << 33, 10_000, 10_100, 10_400, pid=4712, category=events.AHEAD, error=-5)
    rows, result = rows_of(recording)
    first, second = rows.to_dict("records")
    assert result.metadata["epoch_ns"] == 1_000
    assert first | {"submit_ns": 1_500, "latency_ns": 6_500, "queue_ns": 1_500, "offset_bytes": 800 * 512, "op": 1,
                    "length_bytes": 8192, "tid": 4711, "cpu": 3, "device": 0, "status": 0,
                    "flags": FLAGS["sync"] | FLAGS["metadata"]} == first
    assert second | {"submit_ns": 9_100, "latency_ns": 300, "queue_ns": 100, "offset_bytes": 1 << 42, "op": 0,
                     "length_bytes": 4096, "tid": 4712, "status": -5, "flags": FLAGS["read_ahead"]} == second
    assert result.warnings == [] and result.missing == []
    assert [one["major"] for one in result.metadata["devices"]] == [8]


def test_events_of_many_cpus_meet_in_order_of_time(rows_of):
    """An I/O enters on one CPU, is issued on another and completes on a third."""
    cpus = [Recording(cpu=number) for number in range(3)]
    for number in range(1000):
        time_ns = 1_000 * number
        cpus[0].add("Q", time_ns + 1, sector=8 * number, pid=50)
        cpus[1].add("D", time_ns + 2, sector=8 * number, pid=7)
        cpus[2].add("C", time_ns + 500, sector=8 * number, pid=0)
    rows, result = rows_of(*cpus)
    assert len(rows) == 1000 and set(rows.latency_ns) == {498} and set(rows.queue_ns) == {1} and set(rows.tid) == {50}
    assert result.ios["read"] == 1000 and result.missing == []


def recording_of(text):
    """Events such as `Q10 64+8 W1`: the letter and the time, the sector and the number of sectors, and of whom."""
    recording = Recording()
    for letter, time, sector, sectors, kind, pid in re.findall(r"([A-Z])(\d+) (\d+)(?:\+(\d+))? ?([RW])(\d+)", text):
        recording.add(letter, int(time), int(sector), int(sectors or 8), "write" if kind == "W" else "read", int(pid))
    return recording


@pytest.mark.parametrize(("text", "columns", "metadata"), [
    ("Q10 64 R1, D11 64 R9, Q20 64 R2, D21 64 R9, C100 64 R0, C200 64 R0",
     {"tid": [1, 2], "latency_ns": [89, 179]}, {}),
    # What was merged leaves nothing behind that a later I/O at the same place could take for its own entry.
    ("Q10 108 W1, G11 108 W1, Q12 116 W2, M13 116 W2, Q14 100 W3, F15 100 W3, D20 100+24 W9, C30 100+24 W0, "
     "D40 116 W5, C50 116 W0", {"length_bytes": [12288, 4096], "tid": [1, 5], "queue_ns": [10, -1]}, {"merged": 2}),
    ("Q10 8 R77, D20 8 R9, R30 8 R9, D40 8 R9, C100 8 R0",
     {"submit_ns": [30], "latency_ns": [60], "queue_ns": [30], "tid": [77]}, {"requeued": 1}),
    ("D20 0+16 R1, C50 0 R0, R60 8 R1, D70 8 R1, C90 8 R0", {"length_bytes": [4096] * 2, "latency_ns": [40, 20]}, {}),
    ("D20 0+32 R1, C50 0 R0, C70 8+24 R0", {"length_bytes": [16384], "latency_ns": [50]}, {}),
    ("C5 8 R0, D20 16 R1, C30 16 R0, Q40 24 R1, D41 24 R1", {"latency_ns": [10, -1]},
     {"in_flight_at_start": 1, "in_flight_at_end": 1}),
    # The first event of a dump of `blkparse -d` is at time 0.
    ("D0 8 R1, D0 16 R1, Q0 24 R1, D5 24 R1, C0 16 R1", {"latency_ns": [0, -1, -1], "queue_ns": [-1, -1, 5]},
     {"in_flight_at_end": 2}),
    ("Q10 8 W5, C40 8 W5", {"latency_ns": [30], "tid": [5]}, {"capture_layer": "bio"}),
    # As `blktrace -a issue` records them.
    ("D10 8 W1, D20 8 W1, D30 8 W1", {"latency_ns": [-1] * 3},
     {"issued_again": 0, "source_lacks": ["latency"], "in_flight_at_end": None})],
    ids=["two at one place", "merged, of who made it", "requeued, of its last issue", "the part that a requeue leaves",
         "a completion in parts", "cut by the ends", "at time 0", "a drive without requests", "without completions"])
def test_events_become_the_ios_that_they_are_of(rows_of, text, columns, metadata):
    rows, result = rows_of(recording_of(text))
    assert {name: rows[name].tolist() for name in columns} == columns
    known = result.metadata | result.metadata["ledger"]
    assert {name: known[name] for name in metadata} == metadata


@pytest.mark.parametrize("nbytes", [1, 511])
def test_a_front_merge_of_less_than_a_sector_ends(rows_of, nbytes):
    data = bytearray(recording_of("Q10 8 R1, F20 8 R1, D30 8 R1, C40 8 R0").data)
    data[48 + 24:48 + 28] = struct.pack("<I", nbytes)  # of the second event
    rows, _ = rows_of(Recording().raw(bytes(data)))
    assert len(rows) == 1


def test_both_parts_of_a_split_are_of_who_asked(rows_of):
    recording = Recording()
    recording.add("Q", 10, 0, sectors=2048, pid=77)
    recording.add("X", 11, 0, sectors=1024, pid=77, payload=big_endian(1024))
    for sector, time_ns in ((0, 20), (1024, 30)):
        recording.add("D", time_ns, sector, sectors=1024, pid=9).add("C", time_ns + 100, sector, sectors=1024)
    rows, _ = rows_of(recording)
    assert rows.tid.tolist() == [77, 77] and rows.queue_ns.tolist() == [10, 20]


def test_a_write_with_flushes_around_it(rows_of):
    """The machinery of flushes strips the flags off the request and says twice that the data is written."""
    recording = Recording()
    flags = events.WRITE | events.FLUSH | events.FUA | events.SYNC
    recording.add("Q", 10, 256, kind=flags, pid=42)
    recording.add("D", 20, 0, sectors=0, kind="flush", pid=9).add("C", 30, 0, sectors=0, kind="flush", pid=0)
    stripped = events.WRITE | events.SYNC
    recording.add("D", 31, 256, kind=stripped, pid=9).add("C", 40, 256, kind=stripped, pid=0)
    recording.add("D", 41, 0, sectors=0, kind="flush", pid=9).add("C", 50, 0, sectors=0, kind="flush", pid=0)
    recording.add("C", 51, 256, sectors=0, kind=stripped, pid=0)
    rows, result = rows_of(recording)
    assert rows.op.tolist() == [2, 1, 2] and rows.tid.tolist() == [42, 42, 9]
    assert rows["flags"][1] == FLAGS["sync"] | FLAGS["preflush"] | FLAGS["fua"]
    assert not rows["flags"][[0, 2]].any(), "as of a capture with bpf: it is the operation of a flush"
    assert result.metadata["unmatched"] == 0 and result.metadata["in_flight_at_start"] == 0


def test_operations_and_what_is_no_io(rows_of):
    recording = Recording(version=8)
    recording.io(0, 1, 2, 3, kind="discard", sectors=2048)
    recording.io(0, 4, 5, 6, kind=events.WRITE | events.WRITE_ZEROES, sectors=64)
    recording.add("D", 9, 0, sectors=1, kind="read", category=events.PC).add("C", 10, 0, sectors=1, category=events.PC)
    rows, result = rows_of(recording)
    assert rows.op.tolist() == [3, 4]
    assert result.metadata["ledger"]["other_ops"] == 1
    assert any("not I/O" in line for line in result.warnings)


def test_zone_management_has_no_length(rows_of):
    recording = Recording(version=8)
    for at, name in enumerate(events.ZONE_MANAGEMENT):
        kind = events.WRITE | events.CATEGORIES[name]
        for letter, after_ns in (("Q", 0), ("D", 1), ("C", 5)):
            recording.add(letter, 10 * at + after_ns, 4096 * at, sectors=0, kind=kind)
    rows, result = rows_of(recording)
    assert [OP_NAMES[op] for op in rows.op] == events.ZONE_MANAGEMENT
    assert rows.offset_bytes.tolist() == [4096 * 512 * at for at in range(5)]
    assert rows.length_bytes.tolist() == [0] * 5 and rows.latency_ns.tolist() == [4] * 5
    assert result.metadata["ledger"]["other_ops"] == 0


def test_an_append_completes_where_the_drive_has_put_it(rows_of):
    """Two appends to one zone and one to the next, all at the starts of their zones, complete in another order."""
    recording = Recording(version=8)
    append = events.WRITE | events.CATEGORIES["zone_append"]
    for time_ns, zone, thread in ((20, 4096, 1), (21, 8192, 2), (22, 4096, 3)):
        recording.add("Q", time_ns - 5, zone, kind=append, pid=thread).add("D", time_ns, zone, kind=append)
    for time_ns, sector in ((30, 8200), (31, 4104), (32, 4112)):
        recording.add("C", time_ns, sector, kind=append)
    rows, result = rows_of(recording)
    assert [OP_NAMES[op] for op in rows.op] == ["zone_append"] * 3 and rows.tid.tolist() == [1, 2, 3]
    assert (rows.offset_bytes // 512).tolist() == [4104, 8200, 4112] and rows.latency_ns.tolist() == [11, 9, 10]
    assert result.metadata["ledger"]["unmatched"] == result.metadata["ledger"]["reused"] == 0


def test_what_the_tracer_records_before_and_after_the_capture_has_no_row_and_no_count(tmp_path):
    recording = Recording()
    recording.add("C", 500, sector=1 << 20)  # in flight before the capture
    for begin_ns, end_ns in [(1_000, 1_900), (1_950, 2_050), (2_100, 2_900), (2_950, 3_050), (3_100, 3_200)]:
        recording.io(8 * begin_ns, begin_ns, begin_ns + 10, end_ns)
    recording.add("C", 2_500, sector=1 << 20)  # in flight when it began
    recording.add("C", 3_500, sector=1 << 20)  # bpftrace ends to record issues before completions
    recording.add("D", 3_600, sector=1 << 20)
    file = recording.write(tmp_path / "sda.blktrace.0")
    with open(tmp_path / "rows", "wb") as rows:
        result = subprocess.run([DECODER, "--rows-fd", str(rows.fileno()), "--begun", "2000", "--stopped", "3000",
                                 file], pass_fds=[rows.fileno()], capture_output=True, text=True, check=True)
    end = json.loads(result.stdout.splitlines()[-1])
    assert end["events"] == 3 and end["drives"][0]["seen"]["read"] == 2
    assert end["ledger"]["in_flight_at_start"] == 1 and end["ledger"]["unmatched"] == end["in_flight_at_end"] == 0


def test_missing_numbers_are_lost_events_of_their_cpu(rows_of):
    recording = Recording(cpu=2).io(8, 10, 20, 30).add("D", 40, 16).add("C", 90, 24, skip=5)
    recording.add("D", 100, 16).add("C", 110, 16)
    rows, result = rows_of(recording)
    lost = result.metadata["lost"]
    assert lost["total"] == 5 and lost["per_cpu"] == {"2": 5}
    assert lost["intervals"] == [{"cpu": 2, "first_ns": 30, "last_ns": 80, "count": 5}]
    assert result.metadata["unmatched"] == 1
    # The first issue's completion was among them: it must not take that of the second.
    assert rows.latency_ns.tolist() == [10, -1, 10]
    assert any("5 events lost" in line for line in result.missing)


def test_losses_in_the_words_of_ftrace(rows_of):
    recording = Recording().io(8, 10, 20, 30).raw(b"CPU:0 [LOST 12 EVENTS]\n").io(16, 40, 50, 60)
    rows, result = rows_of(recording)
    assert len(rows) == 2 and result.metadata["lost"]["total"] == 12


def test_notices_name_threads_and_tell_the_time(rows_of):
    recording = Recording().notice(1, 5, struct.pack("<II", 1_700_000_000, 250))
    recording.notice(0, 6, b"worker\0" + bytes(9), pid=100).notice(2, 7, b"fio run begins").io(8, 10, 20, 30)
    _, result = rows_of(recording)
    trace = open_trace(result.path)
    assert trace.metadata["threads"]["100"]["comm"] == "worker"
    assert trace.metadata["clock_pairs"] == [{"monotonic_ns": 5, "realtime_ns": 1_700_000_000_000_000_250}]


def test_a_dump_of_blkparse_has_notices_at_absolute_times(rows_of):
    booted_ns = 377_123_741_307
    recording = Recording().notice(1, booted_ns, struct.pack("<II", 1_700_000_000, 250))
    recording.notice(0, booted_ns, b"worker\0" + bytes(9), pid=100).io(8, 0, 20, 30)
    recording.notice(0, booted_ns + 5, b"writer\0" + bytes(9), pid=101).io(16, 40, 50, 65)
    rows, result = rows_of(recording, names=["ordered.bin"])
    assert rows.submit_ns.tolist() == [20, 50] and rows.latency_ns.tolist() == [10, 15]
    assert result.metadata["epoch_ns"] == 0 and not result.metadata["clock_pairs"]
    assert result.metadata["duration_ns"] == 65
    assert open_trace(result.path).metadata["threads"]["100"]["comm"] == "worker"


def test_what_a_killed_blktrace_leaves_is_taken_up_to_its_end(rows_of):
    half = Recording().io(8, 10, 20, 30).data[:-20]
    rows, result = rows_of(Recording(cpu=0).raw(half), Recording(cpu=1).io(64, 11, 21, 31).raw(bytes(100_000)))
    assert len(rows) == 2
    assert any(re.search(r"100,028 bytes at the end .* killed", line) for line in result.warnings)


@pytest.mark.parametrize("damage, reason", [
    (lambda data: data[:192] + b"garbage" + data[192:], "byte 192: no blktrace event begins here"),
    (lambda data: data[:48] + b"\x06tae" + data[52:], "byte 48: a blktrace event of version 6; 7 and 8 are known"),
    (lambda data: data[:40] + b"\xff\xff\xff\xff" + data[44:], "byte 0: the header of this event contradicts itself"),
    (lambda data: data + Recording().io(8, 10, 20, 30).data, "time steps back by"),
])
def test_garbage_is_refused_with_place_and_reason(tmp_path, damage, reason):
    data = Recording().io(8, 5_000_000_010, 5_000_000_020, 5_000_000_030).data
    path = tmp_path / "sda.blktrace.0"
    path.write_bytes(damage(data))
    with pytest.raises(TraceError, match=re.escape(reason)) as raised:
        import_recording([path], tmp_path / "t.parquet")
    assert str(path) in str(raised.value)
    assert [one.name for one in tmp_path.iterdir()] == ["sda.blktrace.0"]


def test_other_formats_and_empty_files_are_told_apart(tmp_path):
    (tmp_path / "notes.txt").write_text("8,0 1 1 0.0 100 Q R 8 + 8 [dd]\n")
    (tmp_path / "empty").write_bytes(b"")
    trace = tmp_path / "t.parquet"
    with pytest.raises(TraceError, match="closest: blkparse in a format of its option -f.*formats: blktrace"):
        import_recording([tmp_path / "notes.txt"], trace)
    with pytest.raises(TraceError, match="is empty"):
        import_recording([tmp_path / "empty"], trace)
    with pytest.raises(UsageError, match="no such file"):
        import_recording([tmp_path / "sdz"], trace)
    os.mkfifo(tmp_path / "pipe")  # as of <(zcat sda.csv.gz)
    with pytest.raises(UsageError, match="is a pipe or a device"):
        import_recording([tmp_path / "pipe"], trace)
    with pytest.raises(TraceError, match="holds no I/O"):
        import_recording([Recording().add("P", 5).write(tmp_path / "p")], trace)
    assert not trace.exists()


def test_a_part_of_a_recording_says_what_it_leaves_out(tmp_path):
    for cpu in range(2):
        Recording(cpu=cpu).io(8 + 8 * cpu, 10, 20, 30).write(tmp_path / f"sda.blktrace.{cpu}")
    part = import_recording([tmp_path / "sda.blktrace.0"], tmp_path / "t.parquet")
    assert any("not imported" in line and "sda.blktrace.1" in line for line in part.warnings)
    whole = import_recording([tmp_path / "sda"], tmp_path / "whole.parquet")
    assert whole.ios["read"] == 2 and whole.warnings == []


def test_a_cpu_without_events_has_an_empty_file(tmp_path, monkeypatch):
    Recording().io(8, 10, 20, 30).write(tmp_path / "sda.blktrace.0")
    (tmp_path / "sda.blktrace.1").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    for names in (["sda"], ["sda.blktrace.0", "./sda.blktrace.1"], ["sda.blktrace.1", "sda.blktrace.0"],
                  ["./sda.blktrace.0"]):
        result = import_recording([Path(name) for name in names], tmp_path / "t.parquet", force=True)
        assert result.ios["read"] == 1 and result.warnings == []
    with pytest.raises(TraceError, match="is empty"):
        import_recording([Path("sda.blktrace.1")], tmp_path / "t.parquet", force=True, format_name="blktrace")


def test_memory_does_not_grow_with_ios_that_never_complete(rows_of):
    recording = Recording()
    for number in range(300_000):
        recording.add("D", number, 8 * number)
    recording.add("C", 300_000, 8 * (number - 1))
    rows, result = rows_of(recording)
    ledger = result.metadata["ledger"]
    assert len(rows) == 300_000
    assert 1 + ledger["reused"] + result.metadata["in_flight_at_end"] == 300_000 and ledger["reused"] > 0


def test_a_real_recording_agrees_with_blkparse(program, tmp_path):
    """Of kernel 3.10: a drive with partitions and LVM above, written by writeback, a journal and a database."""
    base = foreign("blktrace/sda.blktrace.1").with_name("sda")
    result = import_recording([base], tmp_path / "t.parquet")
    parsed = subprocess.run([program("blkparse", "blktrace"), "-i", base], stdout=subprocess.PIPE, text=True)
    issued = [line.split() for line in parsed.stdout.splitlines()
              if re.match(r" +8,0 +\d+ +\d+ +[\d.]+ +\d+ +D ", line)]
    trace = open_trace(result.path)
    rows = trace.table().to_pandas()
    assert result.ios["write"] == len(rows) == len(issued) == 109
    assert sorted((rows.offset_bytes // 512).tolist()) == sorted(int(words[7]) for words in issued)
    assert rows.length_bytes.sum() == sum(int(words[9]) for words in issued) * 512
    assert (rows.latency_ns > 0).all() and (rows.queue_ns >= 0).all()
    assert "xfsaild/dm-0" in {entry["comm"] for entry in trace.metadata["threads"].values()}
    assert check(trace).errors == []


@pytest.mark.parametrize("issued", [True, False])
def test_every_device_of_a_large_recording_has_its_rows(rows_of, issued):
    """Also of drives without requests."""
    recording = Recording()
    for number in range(300):
        recording.add("Q", 100 * number, 8, device=SDA + number)
        if issued:
            recording.add("D", 100 * number + 10, 8, device=SDA + number)
        recording.add("C", 100 * number + 20, 8, device=SDA + number)
    rows, result = rows_of(recording)
    assert rows.device.tolist() == list(range(300)) and set(rows.latency_ns) == {10 if issued else 20}
    assert [device["minor"] for device in result.metadata["devices"]] == list(range(300))


def test_more_devices_than_a_trace_can_number_are_refused(tmp_path):
    recording = Recording()
    for number in range(2**15 + 1):
        recording.add("D", number, 8, device=number)
    with pytest.raises(TraceError, match="more than 32768 devices"):
        import_recording([recording.write(tmp_path / "sda.blktrace.0")], tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize("sector, rows_left", [(2**53 - 7, 0), (2**64 - 8, 0), (2**53 - 8, 1)])
def test_an_extent_that_would_wrap_is_left_out_and_counted(rows_of, sector, rows_left):
    rows, result = rows_of(Recording().io(8, 10, 20, 30).io(sector, 100, 110, 120))
    assert len(rows) == 1 + rows_left
    assert ("4 events were left out: their extent ends above 2^62 bytes" in result.missing) == (not rows_left)


_EVENTS = st.tuples(
    st.sampled_from("QMFGRDCPUIXA"), st.integers(0, 5), st.sampled_from([0, 1, 8, 16, 2**54 - 9, 2**54, 2**64 - 1]),
    st.sampled_from([0, 1, 511, 512, 4096, 8192, 2**32 - 1]), st.sampled_from(["read", "write", "discard", "flush"]),
    st.sampled_from([SDA, SDB]), st.binary(max_size=9))


@cases(16)
@given(st.lists(_EVENTS, min_size=1, max_size=60))
def test_any_events_are_each_read_once_and_make_a_sound_trace(tmp_path_factory, some):
    """A decoder that reads an event twice, or none, ends in a loop or miscounts."""
    directory = tmp_path_factory.mktemp("events")
    recording, time_ns = Recording(), 0
    for letter, step_ns, sector, nbytes, kind, device, payload in some:
        time_ns += step_ns
        start = len(recording.data)
        recording.add(letter, time_ns, sector, sectors=0, kind=kind, device=device, payload=payload)
        data = bytearray(recording.data)
        data[start + 24:start + 28] = struct.pack("<I", nbytes)
        recording._parts = [bytes(data)]
    path = recording.write(directory / "sda.blktrace.0")
    with open(directory / "rows", "wb") as rows:
        done = subprocess.run([DECODER, "--rows-fd", str(rows.fileno()), "--", path], pass_fds=[rows.fileno()],
                              capture_output=True, timeout=300)
    end = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and end["stream"]["events"] == len(some)
    try:
        result = import_recording([path], directory / "t.parquet")
    except TraceError as error:
        assert "holds no I/O" in str(error)
        return
    assert check(open_trace(result.path)).errors == []


def test_the_decoder_ends_with_a_command_that_was_killed(tmp_path):
    """It would read its files to their end, and write to a trace that nobody finishes."""
    fifo = tmp_path / "sda.blktrace.0"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)
    command = subprocess.Popen(["sh", "-c", f"'{DECODER}' --rows-fd 3 -- '{fifo}' 3>'{tmp_path}/rows' & echo $!; wait"],
                               stdout=subprocess.PIPE, text=True)
    decoder = int(command.stdout.readline())
    wait_until(lambda: Path(f"/proc/{decoder}/exe").readlink().name == "blkreel-blktrace"
               and any(link.readlink() == fifo for link in Path(f"/proc/{decoder}/fd").iterdir()))
    command.kill()
    command.wait()
    wait_until(lambda: not lives(decoder))
    os.close(writer)
