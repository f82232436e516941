"""The whole way once: from a real application to a comparison report, and what each step left behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blkreel.analysis.metrics.run_times import why_no_slowdown
from blkreel.common.units import format_ns
from blkreel.traces.format.reader import open_trace
from blkreel.traces.samples import sample_path

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Output directory, and what was printed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run `sudo make test`")
    for name in ("aria2c", "mktorrent", "opentracker"):
        if not shutil.which(name):
            pytest.skip(f"needs {name}: make demo installs it")
    work = tmp_path_factory.mktemp("demo")
    result = subprocess.run([Path(sys.executable).with_name("blkreel"), "demo", "--quick", "-o", work / "out",
                             "--work", work], capture_output=True, text=True, timeout=500,
                            env={**os.environ, "COLUMNS": "80", "BLKREEL_STATE_DIR": str(work / "state")})
    assert result.returncode in (0, 3), result.stderr
    assert not loop_devices_over(work), "the demo keeps loop devices"
    return work / "out", result


def loop_devices_over(directory):
    """Those whose file lies there. Which others there are may change meanwhile: they are not the demo's."""
    listed = subprocess.run(["losetup", "--json", "--list"], capture_output=True, text=True, check=True).stdout
    return {entry["name"] for entry in json.loads(listed or '{"loopdevices": []}')["loopdevices"]
            if Path(entry["back-file"]).is_relative_to(directory)}


def test_the_trace_holds_the_launches_and_the_download_by_name(demo, blkreel):
    output, _ = demo
    trace = open_trace(output / "source.parquet")
    frame = trace.table().to_pandas()
    names = frame["tid"].astype(str).map({tid: entry["comm"] for tid, entry in trace.metadata["threads"].items()})
    read_by = frame[frame.op == 0].groupby(names).length_bytes.sum()
    assert read_by.idxmax() == "python3" and read_by["python3"] > 100e6
    assert "aria2c" in set(names[frame.op == 1])
    assert trace.metadata["lost"]["total"] == 0
    assert (frame.queue_ns >= 0).any()
    # Some kernels hide a few completions from BPF: such an I/O is kept, and counted.
    unseen = trace.metadata["ledger"]["reused"] + trace.metadata["in_flight_at_end"]
    assert (frame.latency_ns < 0).sum() == unseen < 0.05 * len(frame)
    assert blkreel("check", output / "source.parquet", check=False).returncode == (3 if unseen else 0)


DRIVES = ("memory", "disk")


def accounts(output, replay):
    return {drive: open_trace(output / "runs" / f"{drive}-{replay}").metadata["run"] for drive in DRIVES}


def test_both_drives_replayed_the_capture_whole_and_in_order(demo):
    output, _ = demo
    trace = open_trace(output / "source.parquet").table().to_pandas()
    for drive, account in accounts(output, "application").items():
        frame = open_trace(output / "runs" / f"{drive}-application").table().to_pandas()
        assert account["state"]["name"] == "client"
        assert account["error_ops"] == 0 and not account["partial"]
        # I/O by I/O: what was issued is what was captured.
        frame = frame.sort_values("source_row")
        again = frame.merge(trace, left_on="source_row", right_index=True, suffixes=("", "_t"))
        assert len(again) == account["planned_ops"]
        assert (again.offset_bytes == again.offset_bytes_t).all() and (again.op == again.op_t).all()
        assert (again.submit_ns >= again.due_ns).all(), "an I/O was issued before it was due"
        assert (np.diff(again.due_ns) == np.diff(again.submit_ns_t)).all()


def test_both_drives_replayed_a_trace_that_ships_alone_and_beside_writes(demo):
    output, _ = demo
    for replay, sample in (("load", "game-load"), ("beside", "game-load")):
        for account in accounts(output, replay).values():
            assert account["planned_ops"] == account["completed_ops"] == open_trace(sample_path(sample)).rows
            assert account["error_ops"] == 0 and not account["partial"]


def test_the_answer_is_that_of_the_runs(demo):
    """The last lines: load time, what the drive adds, time with reads outstanding, what the writes cost, the page."""
    output, result = demo
    text = " ".join(result.stdout.split())
    assert result.stdout.strip().endswith(f"Page: {output / 'compare.html'}")
    for drive in DRIVES:
        load = accounts(output, "load")[drive]
        added = format_ns(load["own_wall_ns"] - load["zero_latency"]["load_time_ns"])
        assert f"{drive} image {format_ns(load['own_wall_ns'])} ({added} added by the drive)" in text
        assert f"{drive} image {format_ns(accounts(output, 'application')[drive]['reads']['wait_ns'])}" in text
        metadata = open_trace(output / "runs" / f"{drive}-beside").metadata
        beside = metadata["run"]
        assert beside["background"][0]["bytes"] > 100e6 and beside["baseline"]["slowdown"]["load_time"] > 0.5
        # A busy host may spoil the run.
        words = "not measured" if why_no_slowdown(metadata) else (
            f"{format_ns(beside['baseline']['load_time_ns'])} alone, ")
        assert f"{drive} image {words}" in text


def test_a_screen_shows_it(demo):
    _, result = demo
    lines = [*result.stderr.splitlines(), *result.stdout.splitlines()]
    assert len(lines) <= 60, "\n".join(lines)


def test_the_page_and_the_table_say_the_same(demo, blkreel):
    output, result = demo
    page = (output / "compare.html").read_text()
    figures = json.loads(blkreel("compare", *sorted((output / "runs").iterdir()), "--json").stdout)
    text = json.dumps(figures)
    for label in ("memory image", "disk image"):
        assert label in text and label in page and label in result.stdout
