"""Synthetic runs in the format of a replay: a background writer, bursts of reads, two different drives."""

import numpy as np
from made_once import made_once

from blkreel.traces.format.schema import FLAGS, RUN_SCHEMA, TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter

MS = 1_000_000
SECOND = 1000 * MS


CERTIFICATE = {
    "arrivals": {"gaps": 999, "planned": {"mean_ns": 100_000, "p50_ns": 69_000, "p99_ns": 460_000},
                 "issued": {"mean_ns": 100_000, "p50_ns": 69_000, "p99_ns": 470_000}, "ks": 0.0123,
                 "mean_shift_ns": 220, "changed": {"p50_ns": 300, "p99_ns": 4_000, "max_ns": 800_000}},
    "in_flight": {"captured": {"mean": 3.25, "p50": 3, "p99": 9, "max": 12, "busy_ns": 10**9},
                  "replayed": {"mean": 1.5, "p50": 1, "p99": 4, "max": 7, "busy_ns": 10**9}, "ks": 0.4},
    "misplaced_ops": 0,
    "host": {"ran_ns": 10**9, "waited_ns": 2_000_000, "preemptions": 3, "major_faults": 0, "stops": 0,
             "suspended_ns": 0, "steal_ns": 0, "throttled": None, "stalls": [],
             "causes": {"preempted": {"count": 12, "total_ns": 2_000_000, "longest_ns": 800_000, "late_ops": 20,
                                      "max_late_ns": 800_000, "words": "preempted by another process"}}},
}


def plan(seconds=12, seed=1):
    """Due times, offsets, lengths, ops: a download that writes without pause, a start-up that reads in bursts."""
    random = np.random.default_rng(seed)
    due = [np.arange(0, seconds * SECOND, 4 * MS) + random.integers(0, 2 * MS, seconds * 250)]
    op = [np.ones(len(due[0]), np.int8)]
    length = [np.full(len(due[0]), 131_072)]
    for start in np.arange(1.5, seconds - 1, 2.4):
        count = int(random.integers(500, 1200))
        due.append(int(start * SECOND) + np.cumsum(random.exponential(0.45 * MS, count)).astype(np.int64))
        op.append(np.zeros(count, np.int8))
        length.append(random.choice([4096, 4096, 16_384, 65_536, 131_072], count))
    due, op, length = (np.concatenate(column) for column in (due, op, length))
    order = np.argsort(due, kind="stable")
    offset = np.where(op == 1, 6 << 30, 0) + random.integers(0, 1 << 19, len(due)) * 4096
    return {"due_ns": due[order], "op": op[order], "length_bytes": length[order], "offset_bytes": offset[order]}


def capped(columns, cap_ns):
    """The plan with each pause between due times cut to cap_ns, and the time this removes."""
    pauses = np.diff(columns["due_ns"], prepend=columns["due_ns"][0])
    due = np.cumsum(np.minimum(pauses, cap_ns))
    return {**columns, "due_ns": due}, int(columns["due_ns"][-1] - columns["due_ns"][0] - due[-1])


def served(columns, read_us, write_us, seed):
    """What a drive with these times makes of the plan: one server, so that I/Os wait for each other."""
    random = np.random.default_rng(seed)
    due, op, length = columns["due_ns"], columns["op"], columns["length_bytes"]
    cost_us = np.where(op == 0, read_us, write_us) * (0.4 + length / 131_072) * random.lognormal(0, 0.45, len(due))
    cost = np.maximum(2000, cost_us * 1000).astype(np.int64)
    stalls = random.random(len(due)) < 0.002
    cost[stalls] *= 40
    submit = np.maximum.accumulate(due + np.minimum(random.exponential(700, len(due)), 60_000).astype(np.int64))
    work = np.cumsum(cost)
    complete = work + np.maximum.accumulate(submit - (work - cost))
    flags = np.where(random.random(len(due)) < 0.01, FLAGS["queue_full"], 0)
    return {"submit_ns": submit, "latency_ns": complete - submit, "due_ns": due, "op": op, "length_bytes": length,
            "offset_bytes": columns["offset_bytes"], "flags": flags,
            "tid": np.where(op == 1, 4242, 4243 + np.arange(len(due)) % 3), "source_row": np.arange(len(due))}


@made_once
def write_run(directory, label="fast drive", read_us=90, write_us=220, cap_ns=None, seed=1, seconds=12,
              verdict="valid", reasons=(), withheld=(), simulated=False, state="client", model="Example 980 500GB",
              emulated=(), serial=None, block_bytes=512, firmware="1B4Q"):
    """A run directory of one drive and pace; returns its path."""
    columns, removed_ns = plan(seconds), 0
    if cap_ns is not None:
        columns, removed_ns = capped(columns, cap_ns)
    rows = served(columns, read_us, write_us, seed)
    directory.mkdir(parents=True)
    drive = {"name": "loop3", "path": "/dev/loop3", "major": 7, "minor": 3, "size_bytes": 8 << 30, "model": model,
             "firmware": firmware, "kind": "disk", "logical_block_bytes": block_bytes,
             "serial_hash": serial or f"hash of {label}"}
    count = len(rows["submit_ns"])
    with TraceWriter(directory / "records.parquet", RUN_SCHEMA) as writer:
        writer.write(rows)
        writer.close({
            "devices": [drive], "clock": "monotonic", "epoch_ns": 0,
            "threads": {"4242": {"pid": 4242, "comm": "aria2c"},
                        **{str(tid): {"pid": 4243, "comm": "start-game"} for tid in (4243, 4244, 4245)}},
            "run": {
                "label": label, "drive": drive, "simulated": simulated, "emulated": list(emulated),
                "source": {"path": "game.parquet", "sha256": "5e" * 32, "rows": count, "duration_ns": seconds * SECOND,
                           "lost": {"total": 0}, "devices": [], "command": ["./start-game", "--level", "1"],
                           "programs": ["aria2c", "start-game"]},
                "pace": {"name": "original", "depth": None},
                "idle": {"name": "original" if cap_ns is None else "cap", "cap_ns": cap_ns,
                         "removed_ns": removed_ns},
                "map": {"name": "identity"},
                "state": {"name": state, "prepared_at": "2025-01-01T00:00:00Z", "written_since_bytes": 0,
                          "scale": 0.01},
                "prefill": {"extents": 10, "bytes": 1 << 26}, "planned_ops": count, "issued_ops": count,
                "completed_ops": count, "error_ops": 0, "altered": {"fua": 0}, "dropped": {"write_zeroes": 0},
                "plan_ns": seconds * SECOND, "wall_ns": seconds * SECOND, "drift_ns": 0, "lateness": None,
                "underruns": 0, "record_stalls": 0, "foreign_ios": 0, "certificate": CERTIFICATE,
                "verdict": {"level": verdict, "reasons": list(reasons), "notes": [], "withheld": list(withheld)},
                "partial": None, "environment": {},
                "seed": seed,
            }})
    return directory


def write_four_runs(root):
    """Two drives, each with the original timing and with idle capped at 3 ms."""
    runs = []
    for label, read_us, write_us, seed in (("In memory", 60, 160, 5), ("On disk", 260, 700, 6)):
        for cap_ns in (None, 3 * MS):
            name = f"{label.lower().replace(' ', '-')}-{'capped' if cap_ns else 'original'}"
            late = label == "On disk" and cap_ns is not None
            runs.append(write_run(root / name, label, read_us, write_us, cap_ns, seed,
                                  verdict="invalid" if late else "valid", model=f"Example {label}",
                                  reasons=[{"level": "invalid", "text": "host-limited lateness: p99 is 180 µs"}] if late
                                  else []))
    return runs


@made_once
def write_trace(path, seconds=6, lost=0):
    """A captured trace of the same workload."""
    rows = served(plan(seconds), 90, 220, 3)
    for name in ("due_ns", "source_row"):
        del rows[name]
    rows["flags"] = np.zeros(len(rows["submit_ns"]), np.int32)
    with TraceWriter(path, TRACE_SCHEMA) as writer:
        writer.write(rows)
        writer.close({"devices": [{"name": "sda", "model": "Source drive", "size_bytes": 8 << 30, "kind": "disk"}],
                      "command": ["./start-game"], "lost": {"total": lost},
                      "threads": {"4242": {"pid": 4242, "comm": "aria2c"}}})
    return path
