"""A program that renders at 100 frames a second, as its trace and its frame logs: stutters by I/O and by computing."""

import json
import os
from datetime import datetime
from pathlib import Path

import numpy as np

from blkreel.traces.format.schema import FLAGS, TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter

MS = 1_000_000
FRAME_NS = 10 * MS
STALL_NS = 150 * MS
EPOCH_NS = 5_000 * 10**9  # monotonic time at the start of the trace
WALL_NS = 1_795_000_000_250_000_000  # realtime there
RENDERER, LOADER, STREAMER = 100, 101, 102
INODE = 77
PATH = "/games/kart/data/level.pak"
BY_IO = (200, 500, 800, 1100, 1400, 1700)
BY_COMPUTING = (350, 650, 950, 1250, 1550, 1850)


def frame_ends(stalls, seconds=20, start_ns=500 * MS):
    """(end of each frame in time of the trace, its duration). stalls: frame -> how much longer it takes."""
    time_ns = np.full(seconds * 100, FRAME_NS)
    for frame, longer_ns in stalls.items():
        time_ns[frame] += longer_ns
    return start_ns + np.cumsum(time_ns), time_ns


class Rows:
    """Rows of a trace in any order."""

    def __init__(self):
        self.rows = []
        self.blocked = {}
        self.last = {}

    def read(self, tid, begin_ns, latency_ns, *, blocked_ns=None, offset=0):
        """A read that its thread waited for, right after its last one had been waited for."""
        before = self.last.get(tid)
        blocked = self.blocked.get(tid, 0)
        self.rows.append({"key": len(self.rows), "tid": tid, "submit_ns": begin_ns, "latency_ns": latency_ns,
                          "cause": None if before is None else before["key"], "blocked_ns": blocked,
                          "think_ns": 0 if before is None else begin_ns - before["submit_ns"] - before["latency_ns"],
                          "offset_bytes": offset})
        self.last[tid] = self.rows[-1]
        self.blocked[tid] = blocked + (latency_ns if blocked_ns is None else blocked_ns)

    def write(self, path, seconds=30, has_waits=True, **metadata):
        rows = sorted(self.rows, key=lambda row: row["submit_ns"])
        number = {row["key"]: index for index, row in enumerate(rows)}
        count = len(rows)
        columns = {name: np.array([row[name] for row in rows], np.int64)
                   for name in ("tid", "submit_ns", "latency_ns", "think_ns", "blocked_ns", "offset_bytes")}
        columns |= {"queue_ns": np.zeros(count), "length_bytes": np.full(count, 65_536), "op": np.zeros(count),
                    "flags": np.full(count, FLAGS["own"]), "device": np.zeros(count), "cpu": np.zeros(count),
                    "status": np.zeros(count), "inode": np.full(count, INODE), "cgroup": np.full(count, 1),
                    "waited_on": np.array([-1 if row["cause"] is None else number[row["cause"]] for row in rows])}
        if not has_waits:
            columns["waited_on"][:], columns["think_ns"][:] = -1, 0
            del columns["blocked_ns"]
        optional = [name for name in ("blocked_ns", "inode", "cgroup") if name in columns]
        schema = TRACE_SCHEMA
        for name in optional:
            schema = schema.append(schema.field("offset_bytes").with_name(name))
        with TraceWriter(path, schema) as out:
            out.write({name: np.asarray(columns[name], str(schema.field(name).type))
                       for name in schema.names})
            out.close({
                "source_format": "test", "clock": "monotonic", "epoch_ns": EPOCH_NS, "duration_ns": seconds * 10**9,
                "clock_pairs": [{"monotonic_ns": EPOCH_NS + at, "realtime_ns": WALL_NS + at}
                                for at in (0, seconds * 10**9)],
                "devices": [{"name": "loop0", "path": "/dev/loop0"}],
                "files": [{"inode": INODE, "filesystem": "7:0", "path": PATH}],
                "threads": {str(tid): {"pid": RENDERER, "comm": comm, "process": "kart"}
                            for tid, comm in ((RENDERER, "kart"), (LOADER, "loader"), (STREAMER, "streamer"))},
                **metadata})
        return path


def mangohud(path, ends_ns, time_ns, *, zero_ns=400 * MS, unit=MS, versioned=False, keep_time=True):
    """A log as MangoHud writes it row by row, named after the start of logging; zero_ns: that, in the trace. With times
    in µs, as by version 0.6.8: written 3 ms after the last frame, and named then."""
    written_ns = int(ends_ns[-1]) + (3 * MS if unit == 1000 else 0)
    named_ns = WALL_NS + (written_ns if unit == 1000 else zero_ns)
    named = datetime.fromtimestamp(named_ns // 10**9).strftime("%Y-%m-%d_%H-%M-%S")
    path = Path(path) / f"kart_{named}.csv"
    lines = ["v1", "0.8.2", "---------------------SYSTEM INFO---------------------"] if versioned else []
    lines += ["os,cpu,gpu,ram,kernel,driver,cpuscheduler", "Linux, 6,CPU,GPU,16 GB,6.12,Mesa,schedutil"]
    lines += ["--------------------FRAME METRICS--------------------"] if versioned else []
    lines.append("fps,frametime,cpu_load,cpu_power,gpu_load,elapsed")
    lines += [f"{1e9 / time:.3f},{time / unit:.6g},20,0,90,{end - zero_ns}"
              for end, time in zip(ends_ns.tolist(), time_ns.tolist(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    if keep_time:
        os.utime(path, ns=(WALL_NS + written_ns, WALL_NS + written_ns))
    return path


def presentmon(path, starts_ns, time_ns, *, others=0):
    """A log of version 2 with dates, and frames of another process between."""
    lines = ["Application,ProcessID,SwapChainAddress,PresentRuntime,CPUStartDateTime,FrameTime,MsCPUBusy"]
    for start, time in zip(starts_ns.tolist(), time_ns.tolist(), strict=True):
        seconds, rest = divmod(WALL_NS + start, 10**9)
        date = datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
        lines.append(f"kart.exe,{RENDERER},0x1,DXGI,{date}.{rest:09d},{time / MS:.6f},3.1")
        if others:
            others -= 1
            lines.append(f"dwm.exe,9,0x2,DXGI,{date}.{rest:09d},{time / MS:.6f},NA")
    path.write_text("\n".join(lines))
    return path


def capframex(path, ends_ns, time_ns):
    capture = {"TimeInSeconds": (ends_ns / 1e9).tolist(), "MsBetweenPresents": (time_ns / MS).tolist()}
    path.write_text(json.dumps({"Info": {"ProcessName": "kart"}, "Runs": [{"CaptureData": capture}]}))
    return path


def rendered(tid=RENDERER, stream=True, by_io=BY_IO, by_computing=BY_COMPUTING):
    """(rows, ends and times of frames): one thread reads for 150 ms in frames `by_io`, and another one streams all the
    time, in reads of 3 ms and of 150 ms, which no frame waits for."""
    ends, time_ns = frame_ends(dict.fromkeys([*by_io, *by_computing], STALL_NS))
    rows = Rows()
    for frame in range(0, len(ends), 10):  # a short read in every tenth frame
        if frame not in by_io:
            rows.read(tid, int(ends[frame]) - 6 * MS, 2 * MS)
    for frame in by_io:
        rows.read(tid, int(ends[frame]) - STALL_NS - 5 * MS, STALL_NS, offset=frame << 20)
    rows.rows.sort(key=lambda row: row["submit_ns"])
    ordered = Rows()
    for row in rows.rows:
        ordered.read(tid, row["submit_ns"], row["latency_ns"], offset=row["offset_bytes"])
    at, count = 100 * MS, 0
    while stream and at < int(ends[-1]):
        count += 1
        latency = 150 * MS if count % 40 == 0 else 3 * MS
        ordered.read(STREAMER, at, latency)
        at += latency + MS
    return ordered, ends, time_ns


def loading(stalls, by_computing):
    """(rows, ends and times of frames) of a loading screen: one thread renders, and reads for 200 to 420 ms between two
    pictures; in the frames `stalls` it reads for 1,400 ms, in `by_computing` it computes for 1,500 ms. Another thread
    streams."""
    rows, ends, time_ns = Rows(), [], []
    at = 500 * MS
    for frame in range(160):
        begin = at
        for _ in range(140 if frame in stalls else 20 + frame * 37 % 23):
            rows.read(RENDERER, at, 10 * MS, offset=frame << 20)
            at += 10 * MS + 10_000
        at += 1_500 * MS if frame in by_computing else 60 * MS
        ends.append(at)
        time_ns.append(at - begin)
        at += 2 * MS  # until it reads again
    until, at = at, 0
    while at < until:
        rows.read(STREAMER, at, 40 * MS)
        at += 50 * MS
    return rows, np.array(ends), np.array(time_ns)
