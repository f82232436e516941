"""The token bucket of a provider is recognized, and no drive without one is taken for such a volume; and stalls."""

from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path

import pytest
from documented import run_blkreel
from tree import GAME_DOWNLOAD

from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.metrics.provider_limit import group_limit, provider_limit
from blkreel.analysis.metrics.stalls import stalls
from blkreel.analysis.report.document import report
from blkreel.replay.simulated.spec import typical_drives
from blkreel.traces import samples

SAMPLES = sorted(path.stem for path in Path(samples.__file__).parent.glob("*.parquet"))
FAST = "nil:64GiB,clock=virtual,read_latency=400us,channels=2"
SLOW = "nil:64GiB,clock=virtual,read_latency=2ms,channels=8"
RECIPE = """
title = "limit"
explain = "reads or writes at random"
report = "depths"
steps = [{ do = "measure", role = "depth", name = "step", time = "%ds", streams = [
  { name = "stream", op = "%s", block = "%s", depth = 8 }] }]
"""


@pytest.fixture(scope="module")
def measured(command_server, tmp_path_factory):
    """measured(drive, op, block, seconds) measures a run on a simulated drive."""
    @cache
    def run_of(drive, op, block, seconds):
        directory = tmp_path_factory.mktemp("limit")
        (directory / "limit.toml").write_text(RECIPE % (seconds, op, block))
        run_blkreel(command_server, directory, "test", "limit.toml", "--on", drive, "-o", "test")
        (run,) = (directory / "test" / "steps").iterdir()
        return run

    return lambda drive, op="read", block="4K", seconds=30: measure(run_of(drive, op, block, seconds))


def test_iops_with_credit(measured):
    """5,000 IOPS until the credit of 35,000 is spent, then 1,000."""
    one = measured(f"{FAST},iops_limit=1000,iops_credit=35000")
    found = provider_limit(one.partial)
    assert found.iops == pytest.approx(1000, rel=0.01) and found.mb_s == pytest.approx(4.1, rel=0.01)
    assert 35_000 / 4_000 - 1 < found.since_ns / 1e9 < 35_000 / 4_000 + 2.1
    document, _ = report(one)
    entry = document["entry"]
    assert entry["provider_limit"] == found.words and "1,000 IOPS (4.10 MB/s)" in found.words
    assert [each["text"] for each in entry["verdict"]["notes"] if each["code"] == "provider_limit"] == [found.words]
    # A limit is a property of the volume: it changes no verdict.
    assert not any(each["code"] == "provider_limit" for each in entry["verdict"]["reasons"])


def test_bandwidth_with_credit(measured):
    one = measured(f"{FAST},rate_limit=125MB/s,rate_credit=5GB", block="128K")
    found = provider_limit(one.partial)
    assert found.mb_s == pytest.approx(125, rel=0.01) and "limited by the provider from" in found.words


@pytest.mark.parametrize(("drive", "op"), [
    (SLOW, "read"),  # saturated at a constant rate from its first I/O on
    (f"{SLOW},iops_limit=3000", "read"),  # and so is a limit without credit
    ("nil:64GiB,clock=virtual,cache=8GB,cache_bandwidth=2GB/s,write_bandwidth=300MB/s", "write"),  # a full write cache
], ids=["saturated", "no credit", "write cache"])
def test_what_looks_alike_is_not_named(measured, drive, op):
    assert provider_limit(measured(drive, op, block="128K" if op == "write" else "4K").partial) is None


@pytest.mark.parametrize(("drive", "op", "io_max", "words"), [
    (f"{SLOW},iops_limit=3000", "read", {"riops": 3000, "wiops": 3000}, "3,000 read IOPS"),
    (f"{SLOW},iops_limit=3000", "write", {"riops": 3000, "wiops": 3000}, "3,000 write IOPS"),
    (f"{SLOW},rate_limit=4MB/s", "read", {"rbps": 4_000_000, "riops": 2000}, "4.00 read MB/s"),
    (f"{SLOW},iops_limit=3000", "read", {"riops": 4000, "wiops": 3000}, ""),  # that it did not reach
])
def test_the_limit_of_a_control_group_is_named_without_credit(measured, drive, op, io_max, words):
    """The kernel tells the limit, so that it is recognized by its rate alone."""
    one = measured(drive, op)
    limit = group_limit(one.partial, io_max)
    one.metadata["devices"] = [{**one.metadata["devices"][0], "io_max": io_max}]
    entry = report(one)[0]["entry"]
    reasons = [reason for reason in entry["verdict"]["reasons"] if reason["code"] == "io_max"]
    if not words:
        assert limit is None and not reasons and entry["provider_limit"] is None
        return
    assert limit.words == f"limited by its control group from the start on, {words}"
    assert entry["provider_limit"] == limit.words
    assert [(reason["level"], reason["text"]) for reason in reasons] == [("qualified", limit.words)]
    trace = replace(one, metadata={"devices": one.metadata["devices"]})
    assert [note["code"] for note in report(trace)[0]["entry"]["verdict"]["notes"]] == ["io_max"]


def test_the_limit_of_a_control_group_is_named_in_a_run_of_few_seconds(measured):
    """As long as a game loads: it was valid, with the rate of the limit as that of the drive."""
    one = measured(f"{SLOW},iops_limit=3000", seconds=4)
    assert group_limit(one.partial, {"riops": 3000}).words == (
        "limited by its control group from the start on, 3,000 read IOPS")
    assert group_limit(one.partial, {"riops": 4000}) is None


def test_a_stall_is_in_the_verdict(measured):
    """The drive pauses from 12 s to 15.5 s and from 24 s to 27.5 s, with I/Os in flight."""
    one = measured(f"{FAST},stall_every=12s,stall_for=3500ms")
    found = stalls(one.partial)
    assert (found.count, found.longest_s) == (2, 3) and 11 <= found.since_s <= 13
    assert "no I/O completed for at least 3 s from " in found.words and "; 2 stalls in all" in found.words
    for transport, part, words in (("", "notes", found.words),
                                   ("tcp", "reasons", f"{found.words}: the connection (tcp) or its target")):
        one.metadata["devices"] = [{**one.metadata["devices"][0], "transport": transport}]
        verdict = report(one)[0]["entry"]["verdict"]
        assert [each["text"] for each in verdict[part] if each["code"] == "stall"] == [words]


def test_no_stall_without_io_in_flight(measured):
    """The seconds after the last one of a run are no stall, nor those in which others complete."""
    for drive in (FAST, f"{FAST},stall_every=3s,stall_for=900ms"):
        assert stalls(measured(drive, seconds=8).partial) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_no_sample_is_limited(name):
    partial = measure(f"sample:{name}").partial
    assert provider_limit(partial) is None and stalls(partial) is None


@pytest.mark.parametrize(("drive", "pace"), list(zip(typical_drives(), cycle(["original", "dependent"]))))
def test_no_typical_drive_is_limited(blkreel, tmp_path, drive, pace):
    blkreel("replay", GAME_DOWNLOAD, "--on", f"nil:{drive}", "--pace", pace, "-o", tmp_path / "run",
            check=False)
    assert provider_limit(measure(tmp_path / "run").partial) is None
