"""Events that are lost are counted, placed in time, stored, shown, and answered with exit code 3."""

import json
import os
import threading
from pathlib import Path

import pytest

from blkreel.capture.helper import Helper
from blkreel.common.units import counted
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.spool.spool import Spool

pytestmark = pytest.mark.kernel

# The command's parent is blkreel; the helper stands beside it.
STOPPED = "helper=$(pgrep -P $PPID -x blkreel-capture); kill -STOP $helper; {fio}; kill -CONT $helper"


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_a_reader_that_stops_costs_counted_events(blkreel, loop_drive, program, tmp_path, kind):
    drive, report, trace = loop_drive(), tmp_path / "fio.json", tmp_path / "t.parquet"
    fio = (f"{program('fio')} --name=r --filename={drive} --direct=1 --rw=randread --bs=4k --size=40m --iodepth=16"
           f" --ioengine=io_uring --output-format=json --output={report}")
    result = blkreel("capture", drive, "--programs", kind, "--ring-size", "64K", "-o", trace, "--json", "--",
                     "sh", "-ec", STOPPED.format(fio=fio), code=3)
    summary = json.loads(result.stdout)
    issued = json.loads(report.read_text())["jobs"][0]["read"]["total_ios"]
    assert issued == 10_240
    assert summary["lost"] > 5_000, "a ring of 64 KiB holds about a thousand records"
    assert summary["rows"] + summary["lost"] == issued
    assert "lost because the ring was full" in result.stderr
    lost = open_trace(trace).metadata["lost"]
    assert lost["total"] == summary["lost"] == sum(lost["per_cpu"].values())
    assert sum(interval["count"] for interval in lost["intervals"]) == lost["total"]
    for interval in lost["intervals"]:
        assert 0 <= interval["first_ns"] <= interval["last_ns"] <= summary["duration_ns"]
    checked = blkreel("check", trace, check=False)
    assert checked.returncode == 3 and "lost" in checked.stdout + checked.stderr
    assert f"{lost['total']:,}" in blkreel("info", trace).stdout
    page = tmp_path / "report.html"
    blkreel("report", trace, "-o", page, check=False)
    assert f"the capture lost {counted(lost['total'], 'event')}" in page.read_text()


def drive_counts(drive):
    """Reads that the kernel has counted: an observer that neither fio nor blkreel is."""
    return int(Path(f"/sys/block/{Path(drive).name}/stat").read_text().split()[0])


def test_a_tiny_ring_that_is_read_loses_and_tells_each(blkreel, loop_drive, tmp_path):
    """Bursts of two threads' reads into a ring of 64 KiB whose reader stands still, and none in between."""
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    before = drive_counts(drive)
    read = f"dd if={drive} of=/dev/null bs=512 count=3000 iflag=direct status=none"
    # A burst is counted, not timed: a fast drive is as far as a slow one when the reader goes on.
    script = f"helper=$(pgrep -P $PPID -x blkreel-capture); for i in 1 2 3; do kill -STOP $helper; {read} & {read} & " \
             "wait; kill -CONT $helper; sleep 0.3; done"
    result = blkreel("capture", drive, "--ring-size", "64K", "-o", trace, "--json", "--", "sh", "-c", script, code=3)
    summary, lost = json.loads(result.stdout), open_trace(trace).metadata["lost"]
    assert 0 < lost["total"] == summary["lost"] == 18_000 - summary["rows"]
    assert drive_counts(drive) - before == 18_000
    assert summary["diskstats"]["difference"] == 0, "what was lost is accounted for"
    assert sum(lost["per_cpu"].values()) == lost["total"]
    for cpu, count in lost["per_cpu"].items():
        assert sum(one["count"] for one in lost["intervals"] if one["cpu"] == int(cpu)) == count
    assert len(lost["intervals"]) >= 3, "the pauses are told apart"


@pytest.fixture
def synthetic(loop_drive, tmp_path):
    """Let the helper make records at a rate: its totals, and the trace."""
    def run(per_second, count, *arguments):
        number = Path(f"/sys/block/{Path(loop_drive()).name}/dev").read_text().strip()
        spool, changed = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {}), threading.Event()
        wanted = ["--synthetic", str(per_second), "--synthetic-count", str(count)]
        helper = Helper(["--device", number, *wanted, *arguments], spool,
                        lambda: changed.set() if helper.end or helper.error else None)
        assert changed.wait(300)
        helper.stop()
        assert helper.end, helper.error
        return helper.end, open_trace(spool.finish({}))

    return run


@pytest.mark.parametrize("arguments", [["--programs", "tp_btf"], ["--programs", "raw_tp"], ["--files"]])
def test_each_record_made_is_a_row_or_lost(synthetic, arguments):
    end, trace = synthetic(200_000, 100_000, *arguments)
    assert end["emitted"] == 100_000 == trace.rows + end["lost"]["total"]
    assert end["events"] == end["ios"][0] == trace.rows and end["bytes"][0] == 4096 * trace.rows


def test_each_record_made_is_a_row_or_lost_where_the_ring_overflows(synthetic):
    end, trace = synthetic(100_000_000, 400_000, "--ring-bytes", "65536")
    assert end["emitted"] == 400_000 == trace.rows + end["lost"]["total"]
    assert end["lost"]["total"] > 0
    offsets = trace.table(["offset_bytes"])["offset_bytes"].to_numpy()
    assert trace.rows and (offsets % 4096 == 0).all()


def stolen_ns():
    """Processor time that other guests of the host had, of all processors."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) * 10**9 // os.sysconf("SC_CLK_TCK")


def test_a_small_ring_that_is_read_loses_nothing(blkreel, loop_drive, program, tmp_path):
    """But where its reader got no processor for the time in which it fills, which the scheduler's account tells."""
    drive, trace, report, account = (loop_drive(), *(tmp_path / name for name in ("t.parquet", "fio", "account")))
    fio = (f"{program('fio')} --name=r --filename={drive} --direct=1 --rw=read --bs=4k --size=64m --loops=4"
           f" --ioengine=io_uring --iodepth=32 --output-format=json --output={report}")
    script = f"helper=$(pgrep -P $PPID -x blkreel-capture); {fio}; cat /proc/$helper/task/*/schedstat > {account}"
    for _ in range(10):
        stolen = stolen_ns()
        result = blkreel("capture", drive, "--ring-size", "1M", "-o", trace, "--force", "--json", "--",
                         "sh", "-ec", script, check=False)
        summary, stolen = json.loads(result.stdout), stolen_ns() - stolen
        assert summary["rows"] + summary["lost"] == 4 * 16_384
        if not summary["lost"]:
            return
        # It holds some 12,000 records of 88 bytes. The second number is what a thread waited while it was ready to run.
        filled_ns = json.loads(report.read_text())["jobs"][0]["job_runtime"] * 10**6 * 12_000 / (4 * 16_384)
        waited_ns = max(int(line.split()[1]) for line in account.read_text().splitlines())
        assert waited_ns + stolen > filled_ns / 2, "a reader that had a processor has lost some"
    pytest.skip("the ring's reader was kept from the processors in each of ten captures")
