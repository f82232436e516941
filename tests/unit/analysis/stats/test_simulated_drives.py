"""Simulated drives on the virtual clock, whose order is known: from a USB stick to PCIe 5."""

import json
import re

import pytest
from synthetic_runs import write_trace
from tree import TREE

# (read latency in us, channels, MB/s), the fastest first.
DRIVES = [(12, 64, 14_000), (20, 64, 10_000), (80, 32, 3500), (110, 16, 3500), (600, 4, 300), (3000, 1, 90)]


@pytest.fixture
def runs(blkreel, tmp_path):
    trace = write_trace(tmp_path / "trace.parquet", seconds=4)
    paths = []
    for index, (latency_us, channels, mb_s) in enumerate(DRIVES):
        spec = (f"nil:16GiB,clock=virtual,read_latency={latency_us}us,write_latency={latency_us}us,"
                f"channels={channels},read_bandwidth={mb_s}MB/s,write_bandwidth={mb_s}MB/s")
        paths.append(tmp_path / f"{index:02}")
        blkreel("replay", trace, "--on", spec, "-o", paths[-1], "--label", f"drive {index:02}", check=False)
    return paths


def test_headline_metrics_tell_the_drives_apart_and_those_of_the_plan_are_refused(blkreel, runs):
    shown = json.loads(blkreel("compare", *runs, "--json", check=False).stdout)
    (section,) = shown["sections"]
    for key in ("read_wait", "read_response_p99", "read_p99"):
        values = [entry["headline"][key]["value"] for entry in sorted(section["entries"], key=lambda e: e["label"])]
        assert values == sorted(values) and values[-1] > 10 * values[0], (key, values)
    refused = blkreel("compare", *runs[:2], "--fail-if", "read_burst_throughput < -5%", check=False)
    assert refused.returncode == 2 and "set by the plan at original pace; use read_wait" in refused.stderr
    assert "use read_wait" in blkreel("report", runs[0], "--figure", "makespan", code=2).stderr


def test_the_first_condition_of_the_readme_finds_a_firmware_with_stalls(blkreel, tmp_path):
    """A firmware that pauses for 53 ms in 1.1 s: read p99 from 0.84 to 40 ms, at the same median, and within 10 % of
    the read wait and 1 % of the makespan."""
    trace = write_trace(tmp_path / "trace.parquet", seconds=24)
    drive = ("nil:16GiB,clock=virtual,read_latency=80us,write_latency=60us,channels=64,read_bandwidth=7GB/s,"
             "write_bandwidth=7GB/s")
    stalls = {"old": "stall_every=20ms,stall_for=860us", "new": "stall_every=1100ms,stall_for=53ms"}
    for label, keys in stalls.items():
        blkreel("replay", trace, "--on", f"{drive},{keys}", "-o", tmp_path / label, "--label", label, check=False)
    runs = [tmp_path / label for label in stalls]
    old, new = (entry["figures"] for entry in json.loads(
        blkreel("compare", *runs, "--json").stdout)["sections"][0]["entries"])
    assert new["read"]["latency"]["p99_ns"] / old["read"]["latency"]["p99_ns"] == pytest.approx(48, abs=2)
    assert new["read"]["latency"]["p50_ns"] == old["read"]["latency"]["p50_ns"]
    assert new["all"]["makespan_ns"] == pytest.approx(old["all"]["makespan_ns"], rel=0.01)

    readme = (TREE / "README.md").read_text()
    condition = re.search("--fail-if '([^']+)'", readme)[1]
    failed = blkreel("compare", *runs, "--fail-if", condition, "--allow-simulated", check=False)
    assert failed.returncode == 4 and f"met: {condition}  [new against old]" in failed.stderr
    # The sum of the waits hides a stall of few reads.
    blkreel("compare", *runs, "--fail-if", "read_wait > +10%", "--allow-simulated")
