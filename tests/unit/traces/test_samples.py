"""The traces that ship: whole, small, as their pages say, and what their stories tell."""

import json
import re
import subprocess
import sys
from functools import cache

import pyarrow.parquet as pq
import pytest
from tree import TREE, load_script

from blkreel.common.units import digits, format_bytes, format_ns
from blkreel.traces.format.exposure import exposure_of
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.samples import SAMPLES, compute_shares, sample_path

DIRECTORY = TREE / "traces/samples"


@cache
def frame_of(name):
    """Its rows, with the name of the process that each belongs to."""
    trace = open_trace(sample_path(name))
    frame = trace.table().to_pandas()
    threads = trace.metadata["threads"]
    frame["process"] = [threads.get(str(tid), {}).get("process", "") for tid in frame.tid]
    frame["own"] = (frame["flags"] & FLAGS["own"]) != 0
    return frame


def moved_bytes(frame, kind):
    return frame[frame.op == OPS[kind]].length_bytes.sum()


@pytest.fixture(scope="module")
def describe():
    return load_script("samples/describe.py")


@pytest.mark.parametrize("name", SAMPLES)
def test_it_is_valid_and_nearly_whole(name, blkreel):
    """Some kernels hide a completion from BPF now and then."""
    checked = blkreel("check", f"sample:{name}", code=(0, 3))
    unseen = (frame_of(name).latency_ns < 0).mean()
    assert unseen <= 0.005 and (unseen > 0) == (checked.returncode == 3), checked.stdout


@pytest.mark.parametrize("name", SAMPLES)
def test_its_emulated_drive_was_in_time(name):
    (use,) = open_trace(sample_path(name)).metadata["emulated"]
    assert use["late_ios"] < 0.1 * use["ios"], f"{use['name']}: recorded on a busy machine"


def test_a_load_time_of_the_application_start_is_no_lower_bound(blkreel):
    """It has the uses of pages."""
    assert "lower bound" not in blkreel("info", "sample:app-start").stdout


@pytest.mark.parametrize("name", SAMPLES)
def test_it_is_small_and_has_its_story(name):
    assert (DIRECTORY / f"{name}.parquet").stat().st_size < 1_000_000
    assert {"integrity", "survey"} <= open_trace(sample_path(name)).metadata.keys(), "a cut of it is refused"
    assert f"- **`{name}`**: " in (TREE / "docs/samples.md").read_text()


def test_each_can_be_recorded_again_by_name():
    record = [sys.executable, TREE / "samples/record.py"]
    listed = subprocess.run([*record, "--help"], capture_output=True, text=True, check=True).stdout
    for name, shows in SAMPLES.items():
        assert re.search(rf"^ +{name} +{re.escape(shows)}$", listed, re.MULTILINE), name
    unknown = subprocess.run([*record, "app-start", "chess"], capture_output=True, text=True)
    assert unknown.returncode == 2 and unknown.stderr.endswith("unknown sample: chess\n")


def test_there_are_no_others_and_all_are_installed():
    assert {path.stem for path in DIRECTORY.glob("*.parquet")} == set(SAMPLES)
    for name in SAMPLES:
        assert sample_path(name).read_bytes() == (DIRECTORY / f"{name}.parquet").read_bytes()


def test_the_page_has_the_figures_of_the_files(describe):
    assert describe.on_page() == describe.figures(), "out of date: make samples"


@pytest.mark.parametrize("name", SAMPLES)
def test_its_computing_share_is_that_of_its_rows(describe, name):
    assert compute_shares()[name] == pytest.approx(describe.compute_share(sample_path(name)), abs=0.01)


@pytest.mark.parametrize("name", SAMPLES)
def test_it_tells_nothing_of_the_machine_but_its_scratch_drive(name):
    raw = b"".join(value for value in pq.read_metadata(sample_path(name)).metadata.values()).decode()
    assert "/home/" not in raw
    metadata = open_trace(sample_path(name)).metadata
    assert metadata["host"] == "vm"
    # What follows a chroot is a path on the scratch drive.
    words = metadata["command"][:2] if metadata["command"][0] == "chroot" else metadata["command"]
    assert all(not word.startswith("/") or word.startswith("/var/tmp/blkreel-") for word in words)
    for file in metadata.get("files") or []:
        assert file["path"].startswith("/var/tmp/blkreel-samples/source/"), file
    devices = metadata["devices"]
    assert [device["kind"] for device in devices] == ["loop"] and not devices[0]["serial_hash"]


# Sample, its process (None: all), operation, bytes at least and at most.
STORIES = [*((name, "python", "read", 4.1e9, 4.4e9) for name in SAMPLES if name.startswith("model-load-")),
           ("update-verify", "aria2c", "read", 4.95e9, 5.05e9), ("update-verify", None, "write", 0, 1e6),
           ("update-unpack", "zstd", "read", 1e9, 3e9), ("update-unpack", None, "write", 2e9, 6e9),
           ("download", "aria2c", "write", 1, 6e9), ("download", None, "write", 500e6, 6e9),
           ("download", None, "read", 0, 5e6), ("game-small", "main", "read", 150e6, 1e9),
           ("game-load", "main", "read", 1e9, 6e9), ("app-start", "soffice.bin", "read", 50e6, 1e9),
           ("package-install", "dpkg", "write", 1, 1e9), ("package-install", None, "write", 200e6, 2e9)]


@pytest.mark.parametrize(("name", "process", "kind", "least", "most"), STORIES)
def test_a_program_moves_the_bytes_of_its_story(name, process, kind, least, most):
    frame = frame_of(name)
    assert least <= moved_bytes(frame[frame.process == process] if process else frame, kind) <= most


@pytest.mark.parametrize(("name", "flushes"), [("update-unpack", 1), ("download", 5), ("package-install", 1000)])
def test_what_is_written_is_flushed(name, flushes):
    assert (frame_of(name).op == OPS["flush"]).sum() >= flushes


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("download-")])
def test_a_download_at_a_rate_writes_for_a_minute(name):
    frame = frame_of(name)
    rate = 110e6 if "1g" in name else 37.5e6
    seconds = (frame.submit_ns.max() - frame.submit_ns.min()) / 1e9
    assert seconds >= 60 and moved_bytes(frame, "write") < 1.05 * rate * (seconds + 5)
    if name.endswith("-steady"):
        assert moved_bytes(frame, "write") > 0.9 * rate * seconds
        writes = frame[frame.op == OPS["write"]]
        by_second = writes.groupby((writes.submit_ns - writes.submit_ns.min()) // 10**9).length_bytes.sum()
        assert (by_second > 0.3 * rate).mean() > 0.9, "no burst, no pause"


def test_a_database_reads_its_table_in_one_pass_and_its_rows_at_random():
    restart, queries = (frame_of(name)[frame_of(name).own] for name in ("database-restart", "database-queries"))
    assert set(restart.process) == set(queries.process) == {"postgres"}
    reads = restart[restart.op == OPS["read"]]
    large = reads[reads.length_bytes >= 64 << 10]
    assert moved_bytes(large, "read") > 0.9 * moved_bytes(restart, "read") > 0.8e9
    single = queries[(queries.op == OPS["read"]) & (queries.length_bytes == 8 << 10)]
    assert len(single) > 10_000 and single.tid.nunique() >= 8, "by each of the clients"


@pytest.mark.parametrize(("name", "program", "rate"), [
    ("game-download", "main", 37.5e6), ("model-download", "python", 110e6)])
def test_a_load_and_a_download_overlap_and_are_told_apart(name, program, rate):
    frame = frame_of(name)
    reads = frame[(frame.op == OPS["read"]) & frame.own]
    assert moved_bytes(reads, "read") > 1e9 and program in set(reads.process)
    writes = frame[(frame.op == OPS["write"]) & ~frame.own]
    begin, end = reads.submit_ns.min(), reads.submit_ns.max()
    meanwhile = writes[(writes.submit_ns > begin) & (writes.submit_ns < end)]
    assert moved_bytes(meanwhile, "write") > 0.8 * rate * (end - begin) / 1e9
    assert exposure_of(open_trace(sample_path(name))).beside_share >= 0.8


def test_a_user_finds_them_by_name(blkreel):
    listed = json.loads(blkreel("samples", "--json").stdout)["samples"]
    assert [entry["name"] for entry in listed] == [f"sample:{name}" for name in SAMPLES]
    shown = blkreel("samples").stdout
    assert max(map(len, shown.splitlines())) <= 80, "whole in a terminal of 80 columns"
    for entry in listed:
        row, = (line for line in shown.splitlines() if line.startswith(f"{entry['name']} "))
        for text in (format_bytes(entry["read_bytes"]), format_ns(entry["duration_ns"]),
                     f" {digits(entry['compute_share'] * 100)} % "):  # rounded, 31.7 % not as 31 %
            assert text in row
        assert entry["rows"] == open_trace(entry["path"]).rows == open_trace(entry["name"]).rows
