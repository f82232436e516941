"""The hour of random writes: what its last 400 s say, a stall and a steady state that were put in, and memory."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from synthetic_tests import MS, SECOND, MadeTest, rows_of

from blkreel.analysis.metrics.partials.formulas import consistency
from blkreel.benchmarks.reports.results import results_of


def writes(per_second, latency_ns=MS):
    """As many writes in each second as told, evenly."""
    submit = np.concatenate([second * SECOND + np.arange(count) * (SECOND // count)
                             for second, count in enumerate(per_second) if count])
    return rows_of(submit, latency_ns, op=1, due_ns=-1)


def hour(tmp_path, rows, labels=None, **more):
    test = MadeTest(tmp_path / "t", "consistency")
    test.step("consistency", labels or {"state": "full"}, rows, **more)
    return results_of(test.path)


def test_the_last_400_seconds_of_an_hour(tmp_path):
    """10 IOPS, but in the last 400 s 20 and 40 in turn: mean 30, deviation 10. The hour before is not in them."""
    per_second = np.full(3600, 10)
    per_second[3200::2], per_second[3201::2] = 20, 40
    document = hour(tmp_path, writes(per_second, 1), temperature=(np.arange(3601) * SECOND, np.arange(3601) / 100))
    figures = document["figures"]["states"]["full"]
    # The last write completes some time before the last second is over, so that second is cut off.
    expected = asdict(consistency(per_second[3199:3599]))
    assert figures["last_s"] == 400
    assert {key: figures[key] for key in expected if key != "seconds"} == {
        key: value for key, value in expected.items() if key != "seconds"}
    assert figures["score"] == pytest.approx(3, rel=0.01) and figures["mean_iops"] == pytest.approx(30, rel=0.01)
    names = {series["title"]: series for series in document["series"]}
    assert list(names) == ["IOPS, full", "Temperature, full", "IOPS over the last 400 s, full",
                           "Temperature over the last 400 s, full"]
    assert len(names["IOPS, full"]["lines"][0]["x"]) == 3599
    line = names["IOPS over the last 400 s, full"]["lines"][0]
    assert line["x"] == list(range(3199, 3599)) and line["y"] == per_second[3199:3599].tolist()
    assert names["Temperature over the last 400 s, full"]["lines"][0]["x"][0] == 3199
    assert figures["max_temperature_c"] == pytest.approx(36)


def test_a_shorter_run_says_which_share_it_took(tmp_path):
    document = hour(tmp_path, writes([50] * 90))
    assert document["figures"]["states"]["full"]["last_s"] == 10
    assert "the last 10 s" in dict(document["method"])["Shorter than an hour"]
    assert [series["title"] for series in document["series"]] == ["IOPS, full", "IOPS over the last 10 s, full"]


def test_seconds_without_a_completion_are_zeros(tmp_path):
    document = hour(tmp_path, writes([100] * 40 + [0] * 20 + [100] * 30))
    assert document["series"][0]["lines"][0]["y"][38:62] == [100] * 2 + [0] * 20 + [100] * 2


def test_a_stall_and_a_steady_state_that_were_put_in(tmp_path):
    """1,000 IOPS for 2 minutes, then 200; and from the beginning a stall of 300 ms each 7 s."""
    submit = np.concatenate([np.arange(0, 120 * SECOND, MS), np.arange(120 * SECOND, 600 * SECOND, 5 * MS)])
    submit = submit[submit % (7 * SECOND) < 6700 * MS]
    figures = hour(tmp_path, rows_of(submit, MS, op=1))["figures"]["states"]["full"]
    assert figures["stall_period_ns"] == pytest.approx(7 * SECOND, rel=0.001)
    assert figures["stall_ns"] == pytest.approx(300 * MS, rel=0.03) and figures["stall_complete"]
    assert figures["round_ns"] == 14 * SECOND
    assert figures["steady_iops"] == pytest.approx(200 * 6.7 / 7, rel=0.01)
    assert 112 * SECOND <= figures["steady_at_ns"] <= 126 * SECOND


def test_a_rate_that_goes_on_falling_is_not_steady(tmp_path):
    document = hour(tmp_path, writes(np.linspace(500, 20, 300).astype(int)))
    assert document["figures"]["states"]["full"]["steady_iops"] is None
    assert document["tables"][1]["rows"][0]["why"]["steady_iops"] == "not steady"
    assert any(reason["text"].startswith("not steady") and reason["level"] == "qualified"
               for reason in document["verdict"]["reasons"])


def test_states_and_repeats_stand_apart(tmp_path):
    test = MadeTest(tmp_path / "t", "consistency")
    for state, counts in (("full", (90, 110)), ("full+op25", (200, 200))):
        for repeat, count in enumerate(counts, 1):
            test.step("consistency", {"state": state, "repeat": repeat}, writes([count, count + 10] * 20))
    states = results_of(test.path)["figures"]["states"]
    assert states["full"]["n"] == 2 and len(states["full"]["runs"]) == 2
    assert states["full"]["mean_iops"] == pytest.approx((95 * 115) ** 0.5)
    assert states["full+op25"]["mean_iops"] == pytest.approx(205)


def test_a_run_without_rows_is_no_error(tmp_path):
    document = hour(tmp_path, rows_of([], []))
    assert document["figures"]["states"]["full"]["mean_iops"] is None


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Three million rows, which would take 120 MB as the four columns and more as a frame: the pass holds batches."""
    test = MadeTest(tmp_path / "t", "consistency")
    count = 3_000_000
    submit = np.arange(count) * 20_000
    test.step("consistency", {"state": "full"}, rows_of(submit, 640_000 + submit % 977, op=1))
    program = ("import resource, sys; from blkreel.benchmarks.reports.results import results_of; "
               "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; d = results_of(sys.argv[1]); "
               "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)")
    grown_kb = int(subprocess.run([sys.executable, "-c", program, test.path], capture_output=True, text=True,
                                  check=True, cwd=Path(sys.executable).parent).stdout)
    assert grown_kb < 90_000, grown_kb
