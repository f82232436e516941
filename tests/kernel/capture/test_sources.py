"""Every source sees the same I/O: one fio job through each, held against fio's counts and against the BPF programs.

A source that cannot run on this machine is skipped with its reason: the blktrace command on a locked-down kernel.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from capture_sources import probe, skip_unless_it_runs
from loop_device import ext4
from spooled import rows_on_disk
from waiting import wait_until

from blkreel.capture.sources import SOURCES
from blkreel.capture.sources import tracefs as ftrace_settings
from blkreel.common.errors import BlkreelError
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

OTHERS = [name for name in SOURCES if name != "bpf"]
UNSEEN_SHARE = {"bpftrace": 0.25, "bpf": 0.25}  # completions that the kernel keeps from BPF where it nests
SETTINGS = ["current_tracer", "trace_clock", "tracing_on", "options/bin", "options/context-info", "options/markers"]


@pytest.fixture
def drive(loop_drive):
    return loop_drive(64 << 20)


def capture(blkreel, name, drive, trace, *command, check=True, options=()):
    result = blkreel("capture", drive, "--source", name, *options, "-o", trace, "--json", "--", *command, check=False)
    if check and result.returncode not in (0, 3):
        raise AssertionError(result.stderr)
    return json.loads(result.stdout), open_trace(trace).table().to_pandas()


def skip_where_told(name, summary):
    """The kernel leaves out a bpftrace program that comes while another runs, and its event with it."""
    if name == "bpftrace" and summary["missing"]:
        pytest.skip(f"the kernel kept events from bpftrace, and the capture said so: {summary['missing']}")


def assert_unseen_is_told(name, summary, rows):
    """Each I/O without a latency is one whose completion the kernel kept from the source, and counted as such.

    How many these are, is the machine's affair; where it is all of some parts, nothing is tested any more.
    """
    unseen = int((rows.latency_ns < 0).sum())
    assert unseen == summary["ledger"]["reused"] + summary["in_flight_at_end"]
    assert unseen <= UNSEEN_SHARE.get(name, 0) * len(rows)


def fio(program, drive, *options):
    """The same I/O each time: two threads, each reading and writing its own half in an order that its seed sets."""
    job = [program("fio"), "--direct=1", "--rw=randrw", "--bsrange=4k-64k", "--bs_unaligned=0", "--randseed=7",
           "--ioengine=psync", "--thread", "--size=16m", "--output=/dev/null", f"--filename={drive}", *options]
    return [*job, "--name=first", "--offset=0", "--name=second", "--offset=32m"]


def orders(rows):
    """What each thread did, in order; threads by the first place they touch, because their numbers differ."""
    found = []
    for _, mine in rows.groupby("tid"):
        mine = mine.sort_values("submit_ns")
        found.append(list(zip(mine.offset_bytes, mine.length_bytes, mine.op, strict=True)))
    return sorted(found, key=lambda one: min(one))


@pytest.mark.parametrize("source", OTHERS)
def test_the_same_job_gives_the_same_rows(blkreel, tracer, drive, program, tmp_path, source):
    skip_unless_it_runs(source, drive)
    skip_unless_it_runs("bpf", drive)
    job = fio(program, drive)
    _, wanted = capture(blkreel, "bpf", drive, tmp_path / "bpf.parquet", *job)
    summary, rows = capture(blkreel, source, drive, tmp_path / "other.parquet", *job)
    skip_where_told(source, summary)
    assert orders(rows) == orders(wanted)
    assert len(rows) > 500
    seen = rows[rows.latency_ns >= 0]
    assert_unseen_is_told(source, summary, rows)
    assert summary["lost"] == 0 and summary["in_flight_at_start"] == 0
    # One I/O at a time and thread: its parts follow each other, and none lasts longer than the job.
    for _, mine in seen.groupby("tid"):
        mine = mine.sort_values("submit_ns")
        done_ns = mine.submit_ns + mine.latency_ns
        assert (mine.submit_ns.to_numpy()[1:] >= done_ns.to_numpy()[:-1]).all()
    assert (rows.queue_ns >= 0).mean() > 0.99
    threads = open_trace(tmp_path / "other.parquet").metadata["threads"]
    assert {threads[str(tid)]["comm"] for tid in set(rows.tid)} == {"fio"}


@pytest.mark.parametrize("name", SOURCES)
def test_every_io_of_fio_is_a_row_and_agrees_with_the_drive(blkreel, tracer, drive, program, tmp_path, name):
    skip_unless_it_runs(name, drive)
    report = tmp_path / "fio.json"
    summary, rows = capture(
        blkreel, name, drive, tmp_path / "t.parquet", program("fio"), "--name=j", f"--filename={drive}", "--direct=1",
        "--rw=randrw", "--bs=4k", "--number_ios=4000", "--ioengine=libaio", "--iodepth=16", "--size=100%",
        "--output-format=json", f"--output={report}")
    skip_where_told(name, summary)
    job = json.loads(report.read_text())["jobs"][0]
    assert summary["ios"]["read"] == job["read"]["total_ios"]
    assert summary["ios"]["write"] == job["write"]["total_ios"]
    issued = sum(sum(one["diskstats"].values()) for one in summary["diskstats"]["drives"])
    assert issued == len(rows)
    assert name == "bpftrace" or abs(summary["diskstats"]["difference"]) <= 1


@pytest.mark.parametrize("name", SOURCES)
def test_many_at_once_on_few_places_lose_nothing(blkreel, tracer, drive, program, tmp_path, name):
    skip_unless_it_runs(name, drive)
    summary, rows = capture(
        blkreel, name, drive, tmp_path / "t.parquet", program("fio"), "--name=j", f"--filename={drive}", "--direct=1",
        "--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=32", "--size=64k", "--io_size=12m",
        "--norandommap", "--output=/dev/null")
    skip_where_told(name, summary)
    assert len(rows) == 3072
    assert rows.offset_bytes.nunique() <= 16
    assert_unseen_is_told(name, summary, rows)


@pytest.mark.parametrize("source", SOURCES)
def test_the_counters_agree_on_a_drive_that_is_in_use_when_the_capture_begins(blkreel, tracer, busy, tmp_path, source):
    """blktrace records for a while before the capture begins: that part has no place among the counters."""
    skip_unless_it_runs(source, busy)
    summary, rows = capture(blkreel, source, busy, tmp_path / "t.parquet", "dd", f"if={busy}", "iflag=direct",
                            "of=/dev/null", "bs=4k", "count=50", "status=none")
    counters = summary["diskstats"]
    assert counters["difference"] >= -1 - counters["uncertain"], "the capture has what is not of it"
    skip_where_told(source, summary)
    assert summary["missing"] == [] and len(rows) >= 50


@pytest.mark.parametrize(("name", "options"), [*((name, ()) for name in SOURCES), ("bpf", ("--without-io-start",))])
def test_flushes_discards_and_merges_add_up_with_the_counters(blkreel, tracer, drive, tmp_path, name, options):
    skip_unless_it_runs(name, drive)
    script = ("for i in 1 2 3 4; do dd if=/dev/zero of=f$i bs=64k count=16 conv=fsync status=none; done; "
              "rm f1; sync; fstrim .")
    with ext4(drive, tmp_path / "fs") as mount:
        summary, rows = capture(blkreel, name, drive, tmp_path / "t.parquet", "sh", "-c", f"cd {mount}; {script}",
                                options=options)
    skip_where_told(name, summary)
    counts = summary["diskstats"]["drives"][0]["diskstats"]
    assert summary["ios"]["flush"] == counts["flush"] > 0
    assert summary["ios"]["discard"] == counts["discard"] > 0
    # What the kernel kept from the BPF programs, their ledger explains; bpftrace cannot.
    unexplained = len(rows) * UNSEEN_SHARE[name] if name == "bpftrace" else 0
    assert abs(summary["diskstats"]["difference"]) <= 1 + unexplained
    assert summary["bytes"]["write"] >= 4 << 20


def settings():
    root = ftrace_settings.mounted_at()
    return {name: ftrace_settings.chosen(root / name) for name in SETTINGS}


def test_ftrace_leaves_its_settings_as_they_were(blkreel, tracer, drive, tmp_path):
    skip_unless_it_runs("ftrace", drive)
    before = settings()
    capture(blkreel, "ftrace", drive, tmp_path / "t.parquet", "true", check=False)
    assert settings() == before
    assert Path(f"/sys/block/{Path(drive).name}/trace/enable").read_text().strip() == "0"


def test_a_killed_ftrace_capture_is_cleaned_up_by_the_next_and_its_rows_are_kept(blkreel, tracer, drive, tmp_path):
    skip_unless_it_runs("ftrace", drive)
    before, trace = settings(), tmp_path / "t.parquet"
    words = [blkreel.command, "capture", drive, "--source", "ftrace", "-o", trace]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    enabled = Path(f"/sys/block/{Path(drive).name}/trace/enable")
    metadata = tmp_path / ".t.parquet.spool/metadata.json"
    wait_until(lambda: metadata.exists() and "epoch_ns" in metadata.read_text(), process)
    assert enabled.read_text().strip() == "1"
    subprocess.run(["dd", f"if={drive}", "of=/dev/null", "bs=64k", "count=64", "iflag=direct", "status=none"],
                   check=True)
    wait_until(lambda: sum(rows_on_disk(trace, "length_bytes")) == 4 << 20, process)
    process.kill()
    process.communicate()
    assert settings() != before
    blkreel("recover", trace)
    rows = open_trace(trace).table().to_pandas()
    assert rows.length_bytes.sum() == 4 << 20
    capture(blkreel, "ftrace", drive, tmp_path / "next.parquet", "true")
    assert settings() == before and enabled.read_text().strip() == "0"


def test_ftrace_in_other_hands_is_refused(blkreel, tracer, drive, tmp_path):
    skip_unless_it_runs("ftrace", drive)
    tracer_file = ftrace_settings.mounted_at() / "current_tracer"
    tracer_file.write_text("blk")
    try:
        result = blkreel("capture", drive, "--source", "ftrace", "-o", tmp_path / "t.parquet", "--for", "1s",
                         check=False)
        assert tracer_file.read_text().strip() == "blk"
    finally:
        tracer_file.write_text("nop")
    assert result.returncode == 1
    assert "ftrace is in use: its tracer is blk" in result.stderr and "--source bpf" in result.stderr
    assert not list(tmp_path.iterdir())


def test_auto_takes_another_source_where_bpf_cannot_run(blkreel, tracer, drive, tmp_path):
    skip_unless_it_runs("ftrace", drive)
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\necho start >>{tmp_path}/starts\n"
                      "echo 'no BPF here; boot another kernel' >&2\nexit 1\n")
    broken.chmod(0o755)
    code = ("import sys; from pathlib import Path; from blkreel.capture import helper; "
            f"helper.HELPER = Path({str(broken)!r}); from blkreel.cli.main import main; "
            f"sys.argv[1:] = ['capture', {drive!r}, '-o', {str(tmp_path / 't.parquet')!r}, '--for', '200ms']; main()")
    python = blkreel.command.with_name("python")
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, env=blkreel.environment)
    assert result.returncode == 0, result.stderr
    assert "the source is ftrace: bpf cannot run: no BPF here" in result.stderr
    assert (tmp_path / "starts").read_text() == "start\n", "programs that load are loaded once"
    assert open_trace(tmp_path / "t.parquet").metadata["source_format"] == "ftrace:blk"


@pytest.mark.parametrize("name, command, package", [("blktrace", "blktrace", "blktrace"),
                                                    ("bpftrace", "bpftrace", "bpftrace")])
def test_a_program_that_is_missing_is_named_with_its_package(monkeypatch, require_root, drive, name, command, package):
    monkeypatch.setattr("shutil.which", lambda *words, **more: None)
    with pytest.raises(BlkreelError, match=f"{command} is not installed; apt-get install {package}"):
        probe(name, drive)


def test_a_drive_without_requests_goes_from_entry_to_completion(blkreel, tracer, zram_drive, tmp_path):
    skip_unless_it_runs("ftrace", str(zram_drive))
    summary, rows = capture(
        blkreel, "ftrace", zram_drive, tmp_path / "t.parquet", "dd", "if=/dev/zero", f"of={zram_drive}", "bs=64k",
        "count=32", "oflag=direct", "status=none")
    writes = rows[rows.op == 1]
    assert writes.length_bytes.sum() == 2 << 20 and (writes.latency_ns > 0).all()
    assert np.all(writes.tid > 0) and os.getpid() not in set(writes.tid)
