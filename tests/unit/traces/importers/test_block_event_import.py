"""Events of the Linux block layer as text: blkparse, ftrace, trace-cmd and perf."""

import gzip
import re
from io import BytesIO
from types import SimpleNamespace

import pytest
from tool_traces import blkparse, expected_rows, ftrace, rows_of
from tree import TREE

from blkreel.common.errors import TraceError
from blkreel.traces.exporters.block_events import device_numbers
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.importers import import_recording
from blkreel.traces.importers.tools.ftrace import _TraceOfPage

EVENT = re.compile(r" (\d+)\.(\d{6}): +(?:block:)?(block_rq_issue|block_rq_complete): (\S+) (\w+) .*?(\d+) \+ (\d+) ")
GOLDEN = TREE / "tests" / "golden" / "foreign"
IOS = [(number, 5_000_000 + 1000 * number, 40 + 900 * (number % 5), 8 * number, 8 * (1 + number), number % 3 == 0)
       for number in range(200)]
def assert_ios(frame, ios):
    assert rows_of(frame) == expected_rows(ios)
    assert frame["flags"].tolist() == [FLAGS["sync"] if io[5] else 0 for io in ios]


def test_blkparse_issues_are_rows_of_the_thread_that_entered_the_block_layer(run):
    frame, result = run(blkparse(IOS))
    assert result.metadata["source_format"] == "blkparse"
    assert_ios(frame, IOS)
    assert set(frame.queue_ns) == {20_000}
    assert frame.tid.tolist() == [4000 + io[0] % 2 for io in IOS]
    assert [result.metadata["devices"][number]["name"] for number in frame.device] \
        == [f"8:{16 * (io[0] % 2)}" for io in IOS]
    assert result.metadata["threads"]["4000"]["comm"] == "my app"
    ledger = result.metadata["ledger"]
    assert ledger["records"] == 800 and ledger["rows"] == 200
    assert {reason: tally["count"] for reason, tally in ledger["ignored"].items()} \
        == {"queue events": 200, "get request events": 200, "completion events": 200}


def test_blkparse_summaries_of_processes_are_no_records(run):
    """As `blkparse -s -t` prints them behind the events."""
    summary = b""" my app (4000)
 Reads Queued:           0,        0KiB\t Writes Queued:           5,       24KiB
 Allocation wait:        0        \t Allocation wait:        18
 Dispatch wait:          0        \t Dispatch wait:          18
 Completion wait:        0        \t Completion wait:       387
kworker/0:1 (26820, ...)
"""
    _, result = run(blkparse(IOS) + summary, max_rejected=0)
    assert result.metadata["ledger"]["records"] == 800


@pytest.mark.parametrize("priority", ["", "none,0,0 "])
def test_ftrace_pairs_issue_and_completion_with_and_without_priority(run, priority):
    frame, result = run(ftrace(IOS, priority))
    assert result.metadata["source_format"] == "ftrace"
    assert_ios(frame, IOS)
    assert frame.tid.tolist() == [4000 + io[0] % 2 for io in IOS]
    assert frame.cpu.tolist() == [io[0] % 4 for io in IOS]
    assert result.metadata["threads"]["4001"]["comm"] == "my app"


def test_perf_and_trace_cmd_print_the_same_events_otherwise(run):
    plain, _ = run(ftrace(IOS))
    perf, cmd = [], []
    for line in ftrace(IOS).decode().splitlines()[1:]:
        task, rest = line.strip().split(" [", 1)
        name, _, pid = task.strip().rpartition("-")
        cpu, rest = rest.split("] ", 1)
        _, time, event, fields = rest.split(None, 3)
        perf.append(f"{name:>16s} {pid:>5s} [{cpu}] {time:>14s} {'block:' + event:>28s} {fields}")
        cmd.append(f"{name:>16s}-{pid:<5s} [{cpu}] {time:>14s} {event:<21s} {fields}")
    for lines in (perf, ["CPU 1 is empty", "cpus=4", *cmd]):
        frame, _ = run("\n".join(lines) + "\n")
        assert frame.equals(plain)


def test_the_number_of_the_thread_group_may_stand_before_the_cpu(run):
    plain, _ = run(ftrace(IOS))
    for group in ("(   4000)", "(-------)", "(4000)"):
        frame, _ = run(ftrace(IOS).replace(b"   [", f" {group} [".encode()))
        assert frame.equals(plain)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_text_in_a_page_of_android_systrace_is_read(run, chunk):
    plain, _ = run(ftrace(IOS))
    page = (b"<!DOCTYPE html>\n<html><head><title>Android System Trace</title>\n<script>/* trace-viewer */\n"
            + b"var a;" * 1_000_000 + b"\n" + b"<p>\n" * 20_000
            + b'<script class="trace-data" type="application/text">\n'
            b"PROCESS DUMP\nUSER PID\n</script>\n<script class=\"trace-data\">\n# tracer: nop\n#\n"
            + b"\n".join(line for line in ftrace(IOS).splitlines() if not line.startswith(b"#"))
            + b"\n  </script>\n</body></html>\n")
    frame, result = run(page)
    assert result.metadata["source_format"] == "ftrace" and frame.equals(plain)
    assert result.metadata["ledger"]["rejected"] == {}
    example = result.metadata["ledger"]["ignored"]["completion events"]["example"]
    number = int(re.search(r"line ([\d,]+)", example)[1].replace(",", ""))
    assert b"block_rq_complete" in page.split(b"\n")[number - 1]
    # Marks that reads cut.
    data, text = b"a\n# tracer: x\n<idle>\n</script>\nb\n# tracer: y\n", b""
    source = _TraceOfPage(SimpleNamespace(path=None, read=BytesIO(data).read))
    while part := source.read(chunk):
        text += part
    assert text == b"\n# tracer: x\n<idle>\n\n\n# tracer: y\n"
    with pytest.raises(TraceError, match="HTML page without text of ftrace"):
        run(b"<html>systrace</html>\n")


def test_the_string_in_a_first_page_of_systrace_is_read(run):
    plain, _ = run(ftrace(IOS))
    lines = [b"# tracer: nop", b"#", *(line for line in ftrace(IOS).splitlines() if not line.startswith(b"#")), b""]
    page = (b'<!DOCTYPE HTML>\n<html><head><title>Android System Trace</title>\n<script>systrace</script></head>\n'
            b'<script>\n  var linuxPerfData = "\\\n' + b"".join(line + b"\\n\\\n" for line in lines)
            + b'";\n</script>\n</html>\n')
    frame, result = run(page)
    assert frame.equals(plain) and result.metadata["ledger"]["rejected"] == {}


def test_block_events_that_come_late_and_lines_before_the_first_event_are_no_hindrance(run):
    plain, _ = run(ftrace(IOS))
    other = b"  kworker/0:1-17    [000] d..1.  1.000001: sched_switch: prev_comm=a ==> next_comm=b\n"
    frame, result = run(other * 20_000 + ftrace(IOS))
    assert result.metadata["source_format"] == "ftrace" and frame.equals(plain)
    assert result.metadata["ledger"]["ignored"]["events of other subsystems"]["count"] == 20_000
    frame, result = run(b"capturing\n" * 30 + ftrace(IOS), max_rejected=1.0)
    assert result.metadata["source_format"] == "ftrace" and frame.equals(plain)


def test_call_chains_and_other_events_are_no_rows(run):
    lines = ftrace(IOS).decode().splitlines()
    other = "     fio-812     [001] d..1.     5.000001: sched_switch: prev_comm=fio prev_pid=812"
    chain = "\tffffffff8153ad10 blk_mq_start_request+0x1 ([kernel.kallsyms])"
    task = "  swapper     0 [000]     0.000000: PERF_RECORD_FORK(2:2):(0:0)"  # of perf script --show-task-events
    lines = [*[task] * 30, *lines[:9], chain, "", *lines[9:], *[other] * 3]
    frame, result = run("\n".join(lines) + "\n", max_rejected=0)
    assert_ios(frame, IOS)
    assert result.metadata["ledger"]["ignored"]["events of other subsystems"]["count"] == 3


def event(time, name, fields, task="fio-812"):
    return f"     {task}     [001] d..1.  {time:.6f}: {name}: {fields}\n"


def test_flushes_have_no_sector_and_errors_and_requeues_are_kept(run):
    frame, result = run(
        event(1, "block_rq_issue", "8,0 FF 0 () 18446744073709551615 + 0 none,0,0 [fio]")
        + event(1.001, "block_rq_complete", "8,0 FF () 18446744073709551615 + 0 none,0,0 [0]")
        + event(2, "block_rq_issue", "8,0 R 4096 () 80 + 8 none,0,0 [fio]")
        + event(2.001, "block_rq_requeue", "8,0 R () 80 + 8 none,0,0 [0]")
        + event(2.002, "block_rq_issue", "8,0 R 4096 () 80 + 8 none,0,0 [fio]")
        + event(2.003, "block_rq_complete", "8,0 R () 80 + 8 none,0,0 [-5]")
        + event(3, "block_rq_issue", "8,0 DS 65536 () 800 + 128 none,0,0 [fio]")
        + event(3.5, "block_rq_complete", "8,0 DS () 800 + 128 none,0,0 [0]")
        + event(4, "block_rq_issue", "8,0 N 36 (12 00 00 00 24 00 ) 0 + 0 none,0,0 [smartd]"))
    assert frame[["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op", "status"]].to_numpy().tolist() == [
        [0, 1_000_000, 0, 0, OPS["flush"], 0],
        [1_002_000_000, 1_000_000, 80 * 512, 4096, OPS["read"], -5],
        [2_000_000_000, 500_000_000, 800 * 512, 65536, OPS["discard"], 0]]
    ledger = result.metadata["ledger"]
    assert ledger["ignored"]["issues that were repeated after a requeue, or are no I/O"]["count"] == 2


def test_write_zeroes_of_kernels_without_a_letter_for_them(run):
    """As ext4lazyinit on Linux 6.18: N with sectors, which commands that are passed through do not have."""
    frame, result = run(
        event(1, "block_bio_queue", "7,2 NS 696 + 3832 [ext4lazyinit]", "ext4lazyinit-30")
        + event(1.001, "block_rq_issue", "7,2 NS 1961984 () 696 + 3832 be,0,4 [kworker/1:2H]")
        + event(1.004, "block_rq_complete", "7,2 NS () 696 + 3832 be,0,4 [0]")
        + event(2, "block_rq_issue", "7,2 N 512 () 0 + 0 none,0,0 [smartd]"))
    assert frame[["op", "offset_bytes", "length_bytes", "latency_ns", "tid"]].to_numpy().tolist() \
        == [[OPS["write_zeroes"], 696 * 512, 3832 * 512, 3_000_000, 30]]
    assert frame["flags"].tolist() == [FLAGS["sync"]]


def test_both_parts_of_a_split_are_queued_at_the_entry(run):
    """As dd on Linux 6.18: the second part has a request of its own, but no entry."""
    frame, _ = run(
        event(1, "block_bio_queue", "8,0 WS 96 + 4096 [fio]")
        + event(1.001, "block_split", "8,0 WS 96 / 2144 [fio]")
        + event(1.002, "block_getrq", "8,0 WS 2144 + 2048 [fio]")
        + event(1.003, "block_rq_issue", "8,0 WS 1048576 () 2144 + 2048 none,0,0 [kworker]", "kworker-9")
        + event(1.004, "block_rq_issue", "8,0 WS 1048576 () 96 + 2048 none,0,0 [kworker]", "kworker-9")
        + event(1.005, "block_rq_complete", "8,0 WS () 2144 + 2048 none,0,0 [0]")
        + event(1.006, "block_rq_complete", "8,0 WS () 96 + 2048 none,0,0 [0]"))
    assert frame[["offset_bytes", "queue_ns", "latency_ns", "tid"]].to_numpy().tolist() \
        == [[2144 * 512, 3_000_000, 2_000_000, 812], [96 * 512, 4_000_000, 2_000_000, 812]]


def test_events_that_a_full_buffer_overwrote_are_lost(run):
    text = "# tracer: nop\n#\n# entries-in-buffer/entries-written: {}   #P:2\n#\n" + ftrace(IOS).decode()
    _, whole = run(text.format("800/800"))
    _, cut = run(text.format("800/15360"))
    assert "lost" not in whole.metadata and cut.metadata["lost"]["total"] == 14560


@pytest.mark.parametrize("loss", ["CPU:1 [LOST 5 EVENTS]",
                                  "    kworker/u8:0  7582 [001]     1.761828: PERF_RECORD_LOST lost 5"])
def test_an_io_after_a_loss_does_not_complete_the_one_before(run, loss):
    frame, result = run(
        event(1, "block_rq_issue", "8,0 R 4096 () 80 + 8 [fio]")
        + f"{loss}\n"
        + event(3, "block_rq_issue", "8,0 R 4096 () 80 + 8 [fio]")
        + event(3.001, "block_rq_complete", "8,0 R () 80 + 8 [0]"))
    assert frame[["submit_ns", "latency_ns"]].to_numpy().tolist() == [[0, -1], [2_000_000_000, 1_000_000]]
    assert "no latency for 1 I/O: no completion in the same file" in result.metadata["import_warnings"]
    assert result.metadata["lost"]["total"] == 5 and not result.metadata["ledger"]["rejected"]


def test_equal_requests_in_flight_together_are_rows_if_each_completes(run):
    issue, completion = "8,0 R 4096 () 640 + 8 [fio]", "8,0 R () 640 + 8 [0]"
    frame, result = run(
        event(1, "block_rq_issue", issue) + event(1.001, "block_rq_issue", issue)
        + event(1.003, "block_rq_complete", completion) + event(1.004, "block_rq_complete", completion)
        + event(2, "block_rq_issue", issue) + event(2.001, "block_rq_issue", issue)
        + event(2.003, "block_rq_complete", completion))
    assert frame.latency_ns.tolist() == [3_000_000, 3_000_000, 3_000_000, -1]
    assert "no latency for 1 I/O: no completion in the same file" in result.metadata["import_warnings"]


def test_entries_by_partition_do_not_become_rows(run):
    """Newer kernels name the partition in block_bio_queue, and the drive in events of requests."""
    frame, result = run(event(1, "block_bio_queue", "8,1 R 80 + 16 [fio]")
                        + event(1.1, "block_rq_issue", "8,0 R 8192 () 80 + 16 [fio]")
                        + event(1.5, "block_rq_complete", "8,0 R () 80 + 16 [0]"))
    assert len(frame) == 1 and [device["name"] for device in result.metadata["devices"]] == ["8:0"]


def test_missing_events_are_named(run, tmp_path):
    with pytest.raises(TraceError, match="no block_rq_issue events") as caught:
        run(event(1, "block_rq_complete", "8,0 R () 80 + 16 [0]") * 3)
    assert "block:block_rq_issue" in caught.value.remedy and not (tmp_path / "t.parquet").exists()
    frame, result = run(event(1, "block_rq_issue", "8,0 R 8192 () 80 + 16 [fio]"))
    assert frame.latency_ns.tolist() == [-1]
    assert any("no block_rq_complete" in text for text in result.metadata["import_warnings"])
    # Without -a, perf records no CPU.
    with pytest.raises(TraceError) as caught:
        run("dd 812 10.5: block:block_rq_issue: 8,0 R 4096 () 80 + 8 [dd]\n" * 3)
    assert "closest: ftrace with other fields than those of perf record -a" in caught.value.remedy


@pytest.mark.parametrize(("text", "count"), [
    (b"CPU:1 [LOST 17 EVENTS]\n" + ftrace(IOS), 17), (b"CPU:1 [1,017 EVENTS DROPPED]\n" + ftrace(IOS), 1_017),
    (blkparse(IOS) + b"Skips: 2,345 forward (67,890 -  12.3%)\n", 67_890),
    (blkparse(IOS) + "Skips: 2\u202f345 forward (67\u202f890 -  12,3%)\n".encode(), 67_890),
    (blkparse(IOS) + b"Skips: 2 forward (9 -  12.3%)\n", 9)])
def test_lost_events_are_counted_with_separators_of_thousands(run, text, count):
    _, result = run(text)
    assert result.metadata["lost"]["total"] == count
    assert result.missing == [f"{count:,} events lost during the recording"]


def test_differences_of_times_are_refused(run):
    """Of perf script --deltatime: all I/Os would be within the longest pause."""
    lines, last = ftrace(IOS).decode().splitlines(), None
    for index, line in enumerate(lines):
        if match := EVENT.search(line):
            time_us = int(match[1]) * 10**6 + int(match[2])
            text = f" {(time_us - (last or time_us)) / 1e6:.6f}:"
            lines[index], last = line.replace(f" {match[1]}.{match[2]}:", text), time_us
    with pytest.raises(TraceError, match="times are earlier than the one before, so they are differences"):
        run("\n".join([*lines, ""]).encode(), "ftrace")


def test_ticks_of_a_clock_are_no_times(run):
    """The kernel prints times of its clocks in ns as seconds, and others as they are. They were taken for ns."""
    text = re.sub(rb" (\d+)\.(\d{6}):", rb" \1\2:", ftrace(IOS))
    assert text.startswith(b"# tracer: ")
    with pytest.raises(TraceError, match="ticks of the trace_clock"):
        run(text, "ftrace")
    # trace-cmd prints some clocks in ns, without a header.
    rows, result = run(re.sub(rb"#.*\n", b"", text), "ftrace")
    assert len(rows) == len(IOS) and any("whole numbers without a unit, read as ns" in note for note in result.warnings)
    assert not any("without a unit" in note for note in run(ftrace(IOS), "ftrace")[1].warnings)


def test_recordings_that_follow_one_another_are_refused_with_the_line(run):
    with pytest.raises(TraceError, match=r"line 801: time steps back by 7.203 s"):
        run(blkparse([(*io[:1], io[1] + 2_000_000, *io[2:]) for io in IOS]) + blkparse([(0, 20, 5, 0, 8, False)]))


def test_device_numbers_of_a_text_are_those_of_its_export(run, tmp_path):
    _, result = run(blkparse(IOS).replace(b"8,16", b"259,3"))
    assert [(device["major"], device["minor"]) for device in result.metadata["devices"]] == [(8, 0), (259, 3)]
    assert device_numbers(open_trace(result.path)).tolist() == [8 << 20, 259 << 20 | 3]


def test_a_custom_format_of_blkparse_is_refused_with_the_command(run):
    custom = "".join(f"8,0 {action} {1000 * at} R 80 16 fio\n" for at in range(30) for action in "QDC")
    with pytest.raises(TraceError, match="unknown format"):
        run(custom)
    with pytest.raises(TraceError, match="not in the default format of blkparse") as caught:
        run(custom, "blkparse")
    assert "without -f" in caught.value.remedy


@pytest.mark.parametrize("name", ["ftrace-6.18.txt.gz", "perf-6.18.txt.gz"])
def test_recorded_events_agree_with_plain_pairing(tmp_path, name):
    """Reads, writes, flushes, discards and merges of fio on a loop device of Linux 6.18."""
    result = import_recording([GOLDEN / name], tmp_path / "t.parquet")
    assert result.metadata["source_format"] == "ftrace" and not result.metadata["ledger"]["rejected"]
    frame = open_trace(result.path).table().to_pandas()
    issued, expected = {}, []
    for line in gzip.open(GOLDEN / name, "rt"):
        match = EVENT.search(line)
        if not match:
            continue
        time_ns = int(match[1]) * 10**9 + int(match[2]) * 1000
        sectors = int(match[7])
        op = "flush" if match[5][0] == "F" and not sectors else \
            {"R": "read", "W": "write", "D": "discard", "F": "write"}[match[5][0]]
        key = match[4], int(match[6]) if sectors else 0, op
        if match[3] == "block_rq_issue":
            issued.setdefault(key, []).append((time_ns, key[1] * 512, sectors * 512, OPS[op]))
        elif issued.get(key):
            begin_ns, *extent = issued[key].pop(0)
            expected.append([begin_ns, time_ns - begin_ns, *extent])
    expected += [[begin_ns, -1, *extent] for left in issued.values() for begin_ns, *extent in left]
    first_ns = min(row[0] for row in expected)
    rows = frame[["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op"]].to_numpy().tolist()
    assert sorted(rows) == sorted([row[0] - first_ns, *row[1:]] for row in expected)
    assert {OPS["read"], OPS["write"], OPS["flush"]} <= set(frame.op)
