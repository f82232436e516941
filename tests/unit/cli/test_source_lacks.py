"""What a trace cannot do because its source did not record it, as each command says it."""

import json

import numpy as np
import pytest
from small_trace import new_trace

DRIVE = "nil:1GiB,clock=virtual"


@pytest.fixture
def trace(tmp_path):
    """trace(lacks, step_ns): a trace of 50 I/Os, as an import writes it."""
    def make(lacks=(), step_ns=1000):
        count = 50
        return new_trace(tmp_path / "t.parquet", {
            "source_format": "volumes", "clock_resolution_ns": step_ns, "duration_ns": (count - 1) * 10**9,
            "source_lacks": [*lacks, "dependencies"], "devices": [{"name": "v", "path": "v"}]},
                         submit_ns=np.arange(count) * 10**9, tid=1, latency_ns=-1 if "latency" in lacks else 5000)

    return make


def test_a_clock_of_a_second_has_an_order(trace, blkreel, tmp_path):
    """tests/unit/replay/plan/test_plan.py has the paces that are refused."""
    path = trace(step_ns=10**9)
    blkreel("replay", path, "--on", DRIVE, "-o", tmp_path / "run", "--pace", "depth=4")
    assert "limits    no original timing: the clock of the source has steps of 1.00 s" in blkreel("info", path).stdout


def test_without_completions_there_are_no_service_times(trace, blkreel, tmp_path):
    path = trace(["latency"])
    assert "limits    no service times: the source records no completions" in blkreel("info", path).stdout
    report = blkreel("report", path).stdout
    assert "50 I/Os, none with its completion" in report
    assert "no service times: its source (volumes) records no completions" in report
    run = tmp_path / "run"
    text = blkreel("replay", path, "--on", DRIVE, "-o", run).stdout
    assert "qualified: the source of the trace records no completions" in text
    for others in ([run], []):
        result = blkreel("compare", *others, path, code=2)
        assert "has no service times to compare" in result.stderr and "--drop-invalid" in result.stderr
    assert blkreel("compare", run, path, "--drop-invalid").returncode == 0


def test_an_inferred_run_names_the_share(trace, blkreel, tmp_path):
    result = blkreel("replay", trace(), "--on", DRIVE, "-o", tmp_path / "run", "--pace", "dependent", "--json")
    run = json.loads(result.stdout)["run"]
    assert run["pace"]["dependencies_inferred"] == 0.98
    assert "dependencies inferred from times for 98 % of the I/Os" in str(run["verdict"]["reasons"])
