"""The token bucket of a provider is recognized, and no drive without one is taken for such a volume."""

from itertools import cycle
from pathlib import Path

import pytest
from tree import GAME_DOWNLOAD

from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.metrics.provider_limit import provider_limit
from blkreel.analysis.report.document import report
from blkreel.replay.simulated.spec import typical_drives
from blkreel.traces import samples

SAMPLES = sorted(path.stem for path in Path(samples.__file__).parent.glob("*.parquet"))
FAST = "nil:64GiB,clock=virtual,read_latency=200us,channels=8"
SLOW = "nil:64GiB,clock=virtual,read_latency=2ms,channels=8"
RECIPE = """
title = "limit"
explain = "reads or writes at random for 30 s"
report = "depths"
[[steps]]
do = "measure"
role = "depth"
name = "step"
time = "30s"
  [[steps.streams]]
  name = "stream"
  op = "{op}"
  block = "{block}"
  depth = {depth}
"""


@pytest.fixture
def measured(blkreel, tmp_path):
    """measured(drive, op, block) measures a run of 30 s on a simulated drive."""
    def run(drive, op="read", block="4K"):
        (tmp_path / "limit.toml").write_text(RECIPE.format(op=op, block=block, depth=8))
        blkreel("test", "limit.toml", "--on", drive, "-o", "test", cwd=tmp_path, check=False)
        (run,) = (tmp_path / "test" / "steps").iterdir()
        return measure(run)

    return run


def test_iops_with_credit(measured):
    """40,000 IOPS until the credit of 300,000 is spent, then 3,000."""
    one = measured(f"{FAST},iops_limit=3000,iops_credit=300000")
    found = provider_limit(one.partial)
    assert found.iops == pytest.approx(3000, rel=0.01) and found.mb_s == pytest.approx(12.29, rel=0.01)
    assert 300_000 / 37_000 - 1 < found.since_ns / 1e9 < 300_000 / 37_000 + 2.1
    document, _ = report(one)
    entry = document["entry"]
    assert entry["provider_limit"] == found.words and "3,000 IOPS (12.3 MB/s)" in found.words
    assert [each["text"] for each in entry["verdict"]["notes"] if each["code"] == "provider_limit"] == [found.words]
    # A limit is a property of the volume: it changes no verdict.
    assert not any(each["code"] == "provider_limit" for each in entry["verdict"]["reasons"])


def test_bandwidth_with_credit(measured):
    one = measured(f"{FAST},rate_limit=125MB/s,rate_credit=10GB", block="128K")
    found = provider_limit(one.partial)
    assert found.mb_s == pytest.approx(125, rel=0.01) and "limited by the provider from" in found.words


@pytest.mark.parametrize(("drive", "op"), [
    (SLOW, "read"),  # saturated at a constant rate from its first I/O on
    (f"{SLOW},iops_limit=3000", "read"),  # and so is a limit without credit
    ("nil:64GiB,clock=virtual,cache=8GB,cache_bandwidth=2GB/s,write_bandwidth=300MB/s", "write"),  # a full write cache
], ids=["saturated", "no credit", "write cache"])
def test_what_looks_alike_is_not_named(measured, drive, op):
    assert provider_limit(measured(drive, op, block="128K" if op == "write" else "4K").partial) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_no_sample_is_limited(name):
    assert provider_limit(measure(f"sample:{name}").partial) is None


@pytest.mark.parametrize(("drive", "pace"), zip(typical_drives(), cycle(["original", "dependent"])))
def test_no_typical_drive_is_limited(blkreel, tmp_path, drive, pace):
    blkreel("replay", GAME_DOWNLOAD, "--on", f"nil:{drive}", "--pace", pace, "-o", tmp_path / "run",
            check=False)
    assert provider_limit(measure(tmp_path / "run").partial) is None
