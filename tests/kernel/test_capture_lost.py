"""Events that are lost are counted, placed in time, stored, shown, and answered with exit code 3."""

import json

import pytest

from blkreel.traces.reader import open_trace

pytestmark = pytest.mark.kernel

# The command's parent is blkreel; the helper stands beside it.
STOPPED = "helper=$(pgrep -P $PPID -x blkreel-capture); kill -STOP $helper; {fio}; kill -CONT $helper"


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_a_reader_that_stops_costs_counted_events(blkreel, loop_drive, program, tmp_path, kind):
    drive, report, trace = loop_drive(), tmp_path / "fio.json", tmp_path / "t.parquet"
    fio = (f"{program('fio')} --name=r --filename={drive} --direct=1 --rw=randread --bs=4k --size=40m --iodepth=16"
           f" --ioengine=io_uring --output-format=json --output={report}")
    result = blkreel("capture", drive, "--programs", kind, "--ring-size", "64K", "-o", trace, "--json", "--",
                     "sh", "-ec", STOPPED.format(fio=fio), check=False)
    assert result.returncode == 3, result.stderr
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


def test_a_small_ring_that_is_read_loses_nothing(blkreel, loop_drive, program, tmp_path):
    """The forced wake-up empties a ring that would fill within one look every 10 ms."""
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    result = blkreel("capture", drive, "--ring-size", "1M", "-o", trace, "--json", "--", program("fio"), "--name=r",
                     f"--filename={drive}", "--direct=1", "--rw=read", "--bs=4k", "--size=64m", "--loops=4",
                     "--ioengine=io_uring", "--iodepth=32", f"--output={tmp_path}/fio")
    summary = json.loads(result.stdout)
    assert summary["rows"] == 4 * 16_384 and summary["lost"] == 0
