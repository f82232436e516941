"""Counts I/Os in the output files of the compared tools, and the lost events that they report."""

import json
import re

import numpy as np

BLKTRACE_MAGIC = 0x656174 << 8  # the low byte is the version
BLKTRACE_ISSUE, BLKTRACE_COMPLETE = 7, 8
FTRACE_LOST = re.compile(rb"CPU:\d+ \[LOST (\d+) EVENTS\]")
BPFTRACE_LOST = re.compile(r"[Ll]ost (\d+) events")
PERF_LOST = re.compile(r"lost (\d+) (?:chunks|samples)")


def count_blktrace(data):
    """(issues, completions, lost) of a stream of blktrace records, as the tracer `blk` of ftrace writes it.

    Records are found by their magic number with numpy, which scans a gigabyte in a second. Text between the records
    can shift them to any offset.
    """
    data = memoryview(data)
    issues = completions = 0
    for shift in range(4):
        words = np.frombuffer(data[min(shift, len(data)):len(data) - max(0, len(data) - shift) % 4], "<u4")
        # Bytes and action are the 7th and 8th word of a record.
        starts = np.flatnonzero(words & 0xFFFFFF00 == BLKTRACE_MAGIC)
        starts = starts[starts + 7 < len(words)]
        actions = words[starts + 7] & 0xFFFF
        issues += int(np.count_nonzero(actions == BLKTRACE_ISSUE))
        # A flush sequence has two completions for a request, one of them with zero bytes.
        completions += int(np.count_nonzero((actions == BLKTRACE_COMPLETE) & (words[starts + 6] > 0)))
    return issues, completions, sum(int(n) for n in FTRACE_LOST.findall(data))


def count_bpftrace(lines, errors):
    """(I/Os, lost) of biosnoop's lines, without the header and bpftrace messages."""
    rows = sum(1 for line in lines if line[:1].isdigit())
    return rows, sum(int(n) for n in BPFTRACE_LOST.findall(errors))


def count_perf(words, event_id, device):
    """Samples of a block event on one drive in perf.data, as 32-bit words: `perf script` would take minutes.

    Tracepoint data follows its 32-bit length in a record of whole 64-bit words: the event number in the first 32-bit
    word, the process in the second, and for all block events the drive in the third.
    """
    at = words[1:-2:2]
    return int(np.count_nonzero((at & 0xFFFF == event_id) & (words[3::2][:len(at)] == device)))


def perf_says_lost(words):
    """Whether `perf record` or `perf report` reported lost data. perf does not report the number of I/Os."""
    return "overload" in words or "LOST" in words or bool(PERF_LOST.search(words))


def blkreel_summary(text):
    """(rows, lost, rows without a completion) of `blkreel capture --json`, None if it failed before the summary."""
    if not text.strip():
        return None
    summary = json.loads(text)
    return summary["rows"], summary["lost"], summary["ledger"]["reused"]
