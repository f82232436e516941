"""Paces, lanes and several drives as the records of real drives show them."""

import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from empty_image import digest
from loop_device import ext4
from small_trace import new_trace

from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import run_engine
from blkreel.replay.run import turnaround
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS, RUN_SCHEMA, TRACE_SCHEMA

pytestmark = pytest.mark.kernel

MIB = 1 << 20
MS = 1_000_000
DRIVE_BYTES = 32 * MIB
READ, WRITE = OPS["read"], OPS["write"]
TRUSTED_OR_LATE = (0, 3)  # other work on this machine may make I/Os late, which the verdict then says


@pytest.fixture
def make_trace(tmp_path):
    def make(threads=None, **columns):
        default = {"latency_ns": MS, "offset_bytes": np.arange(len(columns["submit_ns"])) % 64 * 4096}
        return new_trace(tmp_path / "t.parquet", {"devices": [{"name": "a"}, {"name": "b"}], "threads": threads or {}},
                         schema=RUN_SCHEMA if "stream" in columns else TRACE_SCHEMA, **default | columns)

    return make


@pytest.fixture
def replay(blkreel, tmp_path):
    """replay(trace, *words) is the account of the run, and its rows by row of the trace."""
    def run(trace, *words):
        blkreel("replay", trace, "-o", tmp_path / "run", "--force", *words, code=TRUSTED_OR_LATE)
        opened = open_trace(tmp_path / "run")
        account = opened.metadata["run"]
        assert account["as_planned"]
        assert account["error_ops"] == 0
        return account, opened.table().to_pandas().sort_values("source_row").reset_index(drop=True)

    return run


def complete_ns(rows):
    return rows["submit_ns"] + rows["latency_ns"]


def test_a_synchronous_reader_is_as_fast_as_its_drive_and_its_thoughts(make_trace, replay, loop_drive):
    """Captured on a drive of 48 ms: the original pace takes as long here, of the dependent its thoughts stay."""
    count, think_ns = 40, 2 * MS
    trace = make_trace(submit_ns=np.arange(count) * 50 * MS, latency_ns=48 * MS, tid=7,
                       waited_on=np.arange(count) - 1, think_ns=np.where(np.arange(count) > 0, think_ns, 0))
    drive = loop_drive(DRIVE_BYTES)
    account, rows = replay(trace, "--on", drive, "--pace", "dependent")
    own_ns = account["pace"]["turnaround_ns"] or 0
    after_ns = rows["due_ns"].to_numpy()[1:] - complete_ns(rows).to_numpy()[:-1]
    # A read that is shorter than the turnaround counts as complete when it was submitted. Shares of processors are no
    # whole numbers, so that an end of computing may be rounded to the next nanosecond.
    off_ns = after_ns - (think_ns - np.minimum(own_ns, rows["latency_ns"].to_numpy()[:-1]))
    assert (abs(off_ns) <= 1).all(), (off_ns[off_ns != 0], own_ns, rows.drop(index=0)[off_ns != 0].to_dict("records"))
    assert (rows["submit_ns"] >= rows["due_ns"]).all()
    assert ((rows["flags"][1:] & FLAGS["anchored"]) != 0).all()
    pure_ns = after_ns.sum() + rows["latency_ns"].sum()
    late_ns = (rows["submit_ns"] - rows["due_ns"]).sum()
    assert account["wall_ns"] == pure_ns + late_ns - max(0, rows["submit_ns"][0] - rows["due_ns"][0])
    assert account["pace"]["dependencies"] == "observed"
    assert account["pace"]["anchored"] == {"waited": count - 1, "followed": 0, "caused": 0, "absolute": 1,
                                           "reanchored": 0, "truncated": 0, "windowed": 0, "woken": 0, "used": 0}
    original, _ = replay(trace, "--on", drive)
    assert original["wall_ns"] >= (count - 2) * 50 * MS
    assert account["wall_ns"] < original["wall_ns"]


def between_ns(rows):
    """The first decile of the times from the end of a read to the next one, of reads one after the other."""
    times_ns = rows["submit_ns"].to_numpy()[1:] - complete_ns(rows).to_numpy()[:-1]
    return np.sort(times_ns[rows["latency_ns"].to_numpy()[:-1] >= 0])[len(times_ns) // 10]


def test_the_turnaround_is_what_a_capture_sees(started, loop_drive, tmp_path):
    """What is between the reads at the drive, without what is between them for the engine."""
    drive, batches = loop_drive(DRIVE_BYTES), []

    def engine(options, plan, on_rows, on_note):
        return run_engine(options, plan, lambda rows: (batches.append(pd.DataFrame(rows)), on_rows(rows)), on_note)

    capturing = started(drive)
    own_ns = turnaround.turnaround_ns([find_target(drive)], False, engine)
    capturing.send_signal(signal.SIGINT)
    assert capturing.wait(60) in TRUSTED_OR_LATE
    if own_ns is None:
        pytest.skip("the kernel loads no raw_tp program, or half a second was too short for 32 reads")
    seen = open_trace(tmp_path / "t.parquet").table().to_pandas().sort_values("submit_ns")
    issued = pd.concat(batches).sort_values("submit_ns")
    issued["latency_ns"] = issued.complete_ns - issued.submit_ns
    assert len(seen) == len(issued) and (seen.length_bytes == 4096).all()
    # Both programs note the same events; without the engine's part it would be 20 us more.
    assert own_ns == pytest.approx(between_ns(seen) - between_ns(issued), abs=5000)


@pytest.mark.parametrize("script", ["exit 1", "echo ready; read end; echo damaged", "echo ready; exec sleep 60"])
def test_a_turnaround_that_cannot_be_measured_is_unknown(loop_drive, tmp_path, monkeypatch, script):
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\n{script}\n")
    helper.chmod(0o755)
    monkeypatch.setattr(turnaround, "HELPER", helper)
    monkeypatch.setattr(turnaround, "_TIMEOUT_S", 0.1)
    assert turnaround.turnaround_ns([find_target(loop_drive(DRIVE_BYTES))], False, run_engine) is None


def test_nothing_is_written_to_one_drive_where_the_other_is_refused(make_trace, blkreel, loop_drive, tmp_path):
    trace = make_trace(submit_ns=np.arange(4) * MS, device=np.arange(4) % 2, op=WRITE)
    one, other = loop_drive(DRIVE_BYTES), loop_drive(DRIVE_BYTES, read_only=True)
    before = digest(loop_drive.image_of(one))

    def refused(*words, code):
        result = blkreel("replay", trace, "-o", tmp_path / "run", *words, code=code)
        assert not (tmp_path / "run").exists()
        assert digest(loop_drive.image_of(one)) == before
        return result.stderr

    assert "is read-only" in refused("--on", f"0={one}", "--on", f"1={other}", code=5)
    assert "are one drive" in refused("--on", f"0={one}", "--on", f"1={one}", code=2)
    assert "--device 0" in refused("--on", one, code=2)
    assert "no I/O of device 7" in refused("--on", f"0={one}", "--on", f"7={other}", code=2)
    assert "with and without" in refused("--on", one, "--on", f"1={other}", code=2)
    assert "twice for device 0" in refused("--on", f"0={one}", "--on", f"0={other}", code=2)
    assert "1 to 64" in refused("--on", f"0={one}", "--threads", "many", code=2)
    assert "no stream 1" in refused("--on", f"0={one}", "--pace", "1:asap", code=2)


def flush_requests(drive):
    return int(Path(f"/sys/class/block/{Path(drive).name}/stat").read_text().split()[15])


def test_a_drive_is_flushed_as_often_as_the_captured_one(blkreel, loop_drive, replay, tmp_path):
    """A journal's commit is a flush, the commit block, and on a drive without FUA a flush: three rows of the trace.

    The row of the block has the flags of both flushes.
    """
    source, trace = loop_drive(64 * MIB), tmp_path / "commits.parquet"
    with ext4(source, tmp_path / "fs") as mount:
        blkreel("capture", source, "-o", trace, "--", "sh", "-c",
                f"for i in 1 2 3; do echo x > {mount}/f$i; sync {mount}/f$i; done")
    captured = open_trace(trace)
    rows = captured.table().to_pandas()
    both = FLAGS["preflush"] | FLAGS["fua"]
    assert (rows["flags"] & both == both).sum() >= 3
    assert captured.metadata["devices"][0]["fua"] is False
    drive = loop_drive(64 * MIB)
    before = flush_requests(drive)
    # Each flush waits for the I/O before it: two at once would become one request.
    replay(trace, "--on", drive, "--pace", "dependent")
    assert flush_requests(drive) - before == (rows.op == OPS["flush"]).sum()
