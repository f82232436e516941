"""The benches are not run by the tests, but must start, and must read what the tools they compare with write."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from tree import TREE

BENCH = TREE / "bench"
sys.path.insert(0, str(BENCH))

import capture_peers  # noqa: E402
import load  # noqa: E402
import peer_output  # noqa: E402

ISSUE, COMPLETE, QUEUE = 0x0040_0007, 0x0080_0008, 0x0001_0001

PERF_STATS = """
Aggregated stats:
           TOTAL events:     475652
            LOST events:          1  ( 0.0%)
          SAMPLE events:     473531  (99.6%)
    LOST_SAMPLES events:         11
block:block_rq_issue stats:
          SAMPLE events:     236765
    LOST_SAMPLES events:         11
block:block_rq_complete stats:
          SAMPLE events:     236766
"""

BIOSNOOP = """Attaching 4 probes...
TIME(us)     COMM             PID     RWBS SECTOR       BYTES      LAT(us)
2306597      fio              23284   R    31616        4096            60
2306612      jbd2/vda-8       412     WS   8814         8192           112

"""


def blktrace(action, size=4096, payload=b""):
    return struct.pack("<IIQQIIIIIHH", 0x65617407, 1, 2, 3, size, action, 4, 5, 6, 0, len(payload)) + payload


@pytest.mark.parametrize("script", ["analysis_speed.py", "capture_peers.py", "replay_asap.py", "replay_dependent.py",
                                    "replay_pacing.py"])
def test_a_bench_shows_its_help(script):
    result = subprocess.run([sys.executable, BENCH / script, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "usage:" in result.stdout


def test_a_tool_that_is_not_known_is_refused_with_the_names_that_are(capsys):
    with pytest.raises(SystemExit) as ended:
        capture_peers.arguments(["--peers", "blkreel", "dtrace"])
    assert ended.value.code == 2
    assert "no such tool: dtrace; there are: blkreel" in capsys.readouterr().err


def test_blktrace_records_are_found_behind_texts_of_any_length():
    data = (b"CPU:0 [LOST 17 EVENTS]\n" + blktrace(QUEUE) + blktrace(ISSUE, payload=b"abc") + blktrace(ISSUE)
            + b"CPU:1 [LOST 5 EVENTS]\n" + blktrace(COMPLETE) + blktrace(COMPLETE, size=0))
    assert peer_output.count_blktrace(data) == (2, 1, 22)


def test_a_blktrace_file_that_is_cut_in_a_record_counts_the_whole_ones():
    data = blktrace(ISSUE) + blktrace(COMPLETE)
    for length in range(len(data)):
        issues, completions, _ = peer_output.count_blktrace(data[:length])
        assert (issues, completions) <= (1, 1)
    assert peer_output.count_blktrace(data[:48]) == (1, 0, 0)
    assert peer_output.count_blktrace(b"") == (0, 0, 0)


def perf_sample(event, device, pid=1):
    """The end of a sample record: the length of the raw data, then the tracepoint's own."""
    raw = struct.pack("<HBBiIIQI", event, 1, 0, pid, device, 0, 0x1234, 8)
    raw += bytes(-(len(raw) + 4) % 8)
    return struct.pack("<IHHQQI", 9, 1, 0, 0x5678, 0x9ABC, len(raw))[:28] + raw


def test_perf_samples_are_counted_by_event_and_drive():
    loop0, loop1 = 7 << 20, 7 << 20 | 1
    data = b"".join((perf_sample(1200, loop0), perf_sample(1201, loop0), perf_sample(1200, loop1),
                     perf_sample(1200, loop0, pid=1200), perf_sample(1201, loop1)))
    words = np.frombuffer(data, "<u4")
    assert [peer_output.count_perf(words, event, loop0) for event in (1200, 1201, 1202)] == [2, 1, 0]
    assert peer_output.count_perf(words[:1], 1200, loop0) == 0


def test_what_perf_says_of_its_losses_is_heard():
    assert peer_output.perf_says_lost(PERF_STATS)
    assert peer_output.perf_says_lost("Check IO/CPU overload!")
    assert not peer_output.perf_says_lost("[ perf record: Captured and wrote 54.369 MB p2 (473531 samples) ]")


def test_lines_of_biosnoop_are_ios_and_its_headings_are_not():
    assert peer_output.count_bpftrace(BIOSNOOP.splitlines(), "Lost 12 events\nLost 3 events\n") == (2, 15)


def test_a_summary_that_never_came_is_told_from_one_without_rows():
    assert peer_output.blkreel_summary("") is None
    assert peer_output.blkreel_summary('{"rows": 0, "lost": 0, "ledger": {"reused": 0}}') == (0, 0, 0)


def test_a_ratio_compares_with_the_slots_on_both_sides():
    before, during, after = load.Window(100, 1.0, 1000), load.Window(90, 1.0, 1080), load.Window(80, 1.0, 800)
    idle = load.Window(0, 1.0, 0)
    assert capture_peers.throughput_ratios([(before, during, after), (idle, during, after)]) == [1.0]
    assert capture_peers.cpu_differences([(before, during, after), (before, idle, after)]) == [2.0]
    assert capture_peers.cpu_ratios([(before, during, after)]) == [10 / 12]


def test_the_table_holds_a_row_of_each_tool_and_says_what_is_not_known():
    run = {"iops": 9.0, "ios": 1000, "kept": 990, "missing": 10, "reported_lost": None, "bytes_per_io": 7.5,
           "cpu_ns_per_io": 60.0, "finish_ns_per_io": 300.0, "user_share": 0.5, "memory_bytes": 3 << 20}
    result = {"throughput": {32: [0.9, 0.95, 1.0]}, "cpu_ratio": {32: [0.94]}, "cpu_more_ns": {32: [400.0]},
              "runs": {32: [run]}, "bpf": {32: []}, "at_rate_more_ns": [500.0]}
    lines = list(capture_peers.table({"blkreel": result}, [32]))
    assert "| blkreel | 0.950 [0.900 .. 1.000] | 0.940 [0.940 .. 0.940] |" in lines
    assert "| blkreel | 10 of 1,000 (1.00%) | nothing | 7.5 [7.5 .. 7.5] | 3 |" in lines
    assert any(line.startswith("| blkreel | – | 60 ") for line in lines)
    headings = [i for i, line in enumerate(lines) if line.startswith("|---")]
    for i in headings:
        assert lines[i].count("|") == lines[i - 1].count("|") == lines[i + 1].count("|")
