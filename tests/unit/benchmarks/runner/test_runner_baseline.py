"""`blkreel test trace` replays the reads again without the writes, where a trace reads beside background writes."""

import json

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

DRIVE = "nil:64MiB,clock=virtual,read_latency=100us,channels=1,write_latency=500us"


@pytest.fixture
def trace(tmp_path):
    """Reads of a workload, each with a write of another program right before it."""
    count = 400
    return new_trace(tmp_path / "both.parquet", submit_ns=np.arange(count) // 2 * 2_000_000, latency_ns=90_000,
                     op=1 - np.arange(count) % 2, flags=np.where(np.arange(count) % 2, FLAGS["own"], 0))


def document_of(blkreel, tmp_path, trace, *words):
    result = blkreel("test", "trace", "--on", DRIVE, "-o", tmp_path / "test", "--set", f"trace={trace}", *words,
                     "--json", code=0)
    return json.loads(result.stdout)


def test_each_state_is_prepared_for_the_baseline_and_for_the_run(blkreel, tmp_path, trace):
    document = document_of(blkreel, tmp_path, trace)
    runs = sorted((tmp_path / "test/steps").iterdir())
    assert [run.name for run in runs] == ["02-replay-fresh", "04-replay-full"]
    for run, state in zip(runs, ("fresh", "full"), strict=True):
        account = open_trace(run).metadata["run"]
        alone = open_trace(run / "baseline").metadata["run"]
        assert alone["without"] == ["writes"] and account["baseline"]["path"] == "baseline"
        for each in (alone, account):
            assert each["state"]["name"] == state and not each["state"]["written_since_bytes"]
        # A read of 100 us that waits for 500 us of a write.
        slowdown = document["figures"]["states"][state]["slowdown_of_read_wait"]
        assert slowdown == account["baseline"]["slowdown"]["read_wait"] == pytest.approx(6, rel=0.02)
    assert "Slowdown by background writes" in [each["title"] for each in document["tables"]]


def test_the_baseline_does_not_change_what_the_run_starts_from(blkreel, tmp_path, trace):
    """On a drive that is full and goes on to empty its cache, the replay of the reads was a rest before the writes."""
    drive = "nil:64MiB,clock=virtual,cache=8MiB,write_bandwidth=2MB/s,read_latency=100us"
    runs = [tmp_path / baseline for baseline in ("auto", "none")]
    for run in runs:
        blkreel("test", "trace", "--on", drive, "-o", run, "--set", f"trace={trace}", "--set", "states=full", "--set",
                f"baseline={run.name}", "--set", "idle=original", check=False)
    writes = [json.loads((run / "results.json").read_text())["figures"]["states"]["full"]["writes"] for run in runs]
    assert writes[0] == writes[1]


@pytest.mark.parametrize("words", [["--set", "baseline=none"], ["--set", "trace=sample:app-start"]])
def test_without_background_writes_there_is_no_baseline(blkreel, tmp_path, trace, words):
    drive = DRIVE.replace("64MiB", "8GiB")
    blkreel("test", "trace", "--quick", "--on", drive, "-o", tmp_path / "test", "--set", f"trace={trace}", *words,
            check=False)
    (run,) = (tmp_path / "test/steps").iterdir()
    assert open_trace(run).metadata["run"]["baseline"] is None
    assert not (run / "baseline").exists()


def test_force_replaces_a_test_with_its_baselines(blkreel, tmp_path, trace):
    document_of(blkreel, tmp_path, trace, "--quick")
    document_of(blkreel, tmp_path, trace, "--quick", "--force")


def test_an_unknown_kind_of_baseline_is_refused(blkreel, tmp_path, trace):
    result = blkreel("test", "trace", "--on", DRIVE, "-o", tmp_path / "test", "--set", f"trace={trace}", "--set",
                     "baseline=always", check=False)
    assert result.returncode == 2 and "baseline=auto or baseline=none" in result.stderr
