"""Synthetic traces of a busy drive for speed.py, deterministic for a given length.

    .venv/bin/python -m measurements.analysis.data trace PATH ROWS [DAYS]
    .venv/bin/python -m measurements.analysis.data blktrace PATH ROWS TRACE      prints the expected figures as JSON
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.writer import TraceWriter

CHUNK_ROWS = 1_000_000
DAY_NS = 86_400 * 10**9
DRIVE_BYTES = 1 << 40
SIZES = np.array([512, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 524_288, 1_048_576])
SHARES = np.array([0.01, 0.47, 0.08, 0.12, 0.06, 0.08, 0.12, 0.04, 0.02])
SECTOR = 512
_BLKTRACE_V7 = np.dtype([("magic", "<u4"), ("sequence", "<u4"), ("time", "<u8"), ("sector", "<u8"), ("bytes", "<u4"),
                         ("action", "<u4"), ("pid", "<u4"), ("device", "<u4"), ("cpu", "<u4"), ("error", "<u2"),
                         ("pdu_len", "<u2")])
_MAGIC = 0x65617407
_READ, _WRITE, _QUEUE, _ISSUE, _COMPLETE = 1, 2, 1 << 4, 1 << 6, 1 << 7
_DEVICE = 8 << 20  # sda


def make_trace(path: Path, rows: int, days: int = 0) -> Path:
    """A trace with that many rows, in blkreel's format. It is made only if missing.

    days: spread the I/Os evenly over this many days instead of bursts."""
    if path.exists() and open_trace(path).rows == rows:
        return path
    random, state = np.random.default_rng(rows), {"now_ns": 0, "heads": np.arange(8) * (DRIVE_BYTES // 8)}
    with TraceWriter(path, force=True) as out:
        for low in range(0, rows, CHUNK_ROWS):
            out.write(_chunk(random, state, min(CHUNK_ROWS, rows - low), days * DAY_NS / rows))
        out.close({"devices": [{"name": "synthetic", "size_bytes": DRIVE_BYTES}], "source_format": "synthetic",
                   "threads": {str(1000 + i): {"pid": 1000 + i // 4, "comm": f"worker{i // 4}"} for i in range(24)}})
    return path


def _chunk(random, state, count, mean_gap_ns):
    """Bursts of about a thousand I/Os with pauses of up to seconds, in small batches; with mean_gap_ns, single
    I/Os at that mean interval. Reads take about 80 µs, writes about 30 µs, one in 500 fifty times as long; 40 % are
    sequential in their stream."""
    op = random.choice(np.array([0, 1, 2, 3], np.int8), count, p=[0.62, 0.36, 0.015, 0.005])
    # Threads issue several I/Os in a row: adjacent rows of a trace are mostly of one thread.
    op = op[np.maximum.accumulate(np.where(random.random(count) < 0.4, np.arange(count), 0))]
    gap_ns = np.where(random.random(count) < 0.5, random.integers(900, 4000, count),
                      random.exponential(45_000, count).astype(np.int64))
    pauses = random.random(count) < 1 / 4000
    gap_ns[pauses] = random.exponential(4e8, int(pauses.sum())).astype(np.int64)
    if mean_gap_ns:
        gap_ns = random.exponential(mean_gap_ns, count).astype(np.int64)
    submit_ns = state["now_ns"] + np.cumsum(gap_ns)
    state["now_ns"] = int(submit_ns[-1])
    latency_ns = (np.where(op == 0, 80_000, 30_000) * random.lognormal(0, 0.5, count)).astype(np.int64)
    latency_ns[random.random(count) < 0.002] *= 50
    latency_ns[random.random(count) < 1e-6] = -1
    length_bytes = np.where(op == 2, 0, random.choice(SIZES, count, p=SHARES))
    offset_bytes = random.integers(0, DRIVE_BYTES // 4096, count) // 16 * 4096
    _make_sequential(random, state, offset_bytes, length_bytes)
    offset_bytes[op == 2] = 0
    return {"submit_ns": submit_ns, "latency_ns": latency_ns, "queue_ns": random.integers(400, 3000, count),
            "offset_bytes": offset_bytes, "length_bytes": length_bytes, "op": op,
            "flags": np.where(op == 1, 1, 0) | np.where(random.random(count) < 0.02, 2, 0),
            "cpu": random.integers(0, 8, count), "tid": 1000 + (op.astype(np.int64) * 8 + np.arange(count) // 40 % 8)}


def _make_sequential(random, state, offset_bytes, length_bytes):
    """Eight streams with sequential runs of 16 rows."""
    heads = state["heads"]
    starts = np.flatnonzero(random.random(len(offset_bytes) // 16) < 0.4) * 16
    rows = starts[:, None] + np.arange(16)
    ends = np.cumsum(length_bytes[rows], axis=1)
    stream = np.arange(len(starts)) % len(heads)
    for number in range(len(heads)):
        mine = np.flatnonzero(stream == number)
        if len(mine):
            before = np.concatenate([[0], np.cumsum(ends[mine, -1])[:-1]])
            offset_bytes[rows[mine]] = (heads[number] + before[:, None] + ends[mine] - length_bytes[rows[mine]]) % (
                DRIVE_BYTES - (1 << 21)) // SECTOR * SECTOR
            heads[number] = (heads[number] + before[-1] + ends[mine[-1], -1]) % (DRIVE_BYTES // 2)


def write_blktrace(trace_path: Path, path: Path, rows: int) -> dict:
    """Write completed reads and writes of a trace as blktrace events of version 7: queue, issue and completion of
    each I/O in the order of time. Returns the expected figures."""
    events, reads, service_ns, count = [], 0, 0, 0
    for batch in open_trace(trace_path).batches(["submit_ns", "latency_ns", "queue_ns", "offset_bytes", "length_bytes",
                                                 "op", "tid"]):
        columns = {name: batch[name].to_numpy() for name in batch.schema.names}
        usable = np.flatnonzero((columns["op"] < 2) & (columns["latency_ns"] >= 0))[:rows - count]
        columns = {name: column[usable] for name, column in columns.items()}
        count += len(usable)
        reads += int((columns["op"] == 0).sum())
        service_ns += int(columns["latency_ns"].sum())
        submit_ns = columns["submit_ns"] + 10_000_000
        for category, action, time_ns in (
                (_QUEUE, 1, submit_ns - columns["queue_ns"]), (_ISSUE, 7, submit_ns),
                (_COMPLETE, 8, submit_ns + columns["latency_ns"])):
            of_action = np.zeros(len(usable), _BLKTRACE_V7)
            of_action["magic"], of_action["time"], of_action["device"] = _MAGIC, time_ns, _DEVICE
            of_action["sector"] = columns["offset_bytes"] // SECTOR
            of_action["bytes"], of_action["pid"] = columns["length_bytes"], columns["tid"]
            of_action["action"] = (np.where(columns["op"] == 0, _READ, _WRITE) | category) << 16 | action
            events.append(of_action)
        if count >= rows:
            break
    events = np.concatenate(events)
    events = events[np.argsort(events["time"], kind="stable")]
    events["sequence"] = np.arange(1, len(events) + 1)
    with open(path, "wb") as file:
        # The notice with the wall-clock time of time 0, required by blkparse.
        file.write(struct.pack("<IIQQIIIIIHH", _MAGIC, 0, 0, 0, 0, 1 << 26 | 1, 0, _DEVICE, 0, 0, 8))
        file.write(struct.pack("<II", 1_700_000_000, 0))
        events.tofile(file)
    return {"ios": count, "reads": reads, "service_ns": service_ns}


if __name__ == "__main__":
    if sys.argv[1] == "trace":
        make_trace(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        print(json.dumps(write_blktrace(Path(sys.argv[4]), Path(sys.argv[2]), int(sys.argv[3]))))
