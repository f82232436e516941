"""Runs and benchmarks on one page."""

import json
import shutil

import numpy as np
import pytest
from documents import valid_document
from synthetic_fleet import small_test
from synthetic_runs import write_run
from synthetic_tests import MadeTest, both, rows_of

from blkreel.analysis.report import export, present
from blkreel.benchmarks.present import attached_results, read_tests

pytestmark = pytest.mark.usefixtures("no_pictures")
MS = 10**6
LABELS = ("drive A", "drive B")


@pytest.fixture(scope="module")
def review(tmp_path_factory):
    """Runs and a benchmark of two drives; B is slower in the benchmark."""
    root = tmp_path_factory.mktemp("review")
    runs = [write_run(root / f"run-{index}", label, 60, seed=1, seconds=3) for index, label in enumerate(LABELS)]
    tests = []
    for index, label in enumerate(LABELS):
        test = MadeTest(root / f"burst-{index}", "mixed-burst")
        test.told |= {"label": label, "drive": {**test.told["drive"], "serial_hash": label}}
        reads = rows_of(np.arange(2000) * 3 * MS, (1 + 1500 * index) * MS, burst=np.arange(2000) // 500)
        writes = rows_of(np.arange(900) * 7 * MS, 5 * MS, op=1, burst=np.arange(900) // 90)
        test.step("mixed", {}, both(reads, writes))
        test.step("baseline", {}, reads)
        tests.append(test.path)
    return root, runs, tests


def test_a_benchmark_is_a_workload_of_the_page(review):
    root, runs, tests = review
    document = present.compare(runs, root / "review.html", attached=attached_results(read_tests(tests)),
                               view=export.View(highlight="drive A"))
    assert json.loads(json.dumps(document)) == document
    relative = document["relative_performance"]
    assert [each["title"] for each in relative["workloads"]][1] == "a-test" and relative["reference"] == "drive A"
    assert relative["workloads"][1]["drives"]["drive B"] < 0.99
    assert document["benchmarks"][0]["test"] == "a-test"
    html = (root / "review.html").read_text()
    assert 'id="workloads"' in html and 'id="t0-tests"' in html
    ids = [part.partition('"')[0] for part in html.split("<article")[1:] for part in part.split(' id="')[1:2]]
    assert len(ids) == len(set(ids))


def test_the_command_takes_both(blkreel, review):
    _, runs, tests = review
    shown = json.loads(blkreel("compare", *runs, *tests, "--json").stdout)
    assert "relative_performance" in shown and len(shown["benchmarks"]) == 1
    assert "a-test: qualified: n=1: fewer than 6" in blkreel("compare", *runs, *tests).stdout


@pytest.fixture(scope="module")
def benchmarks(review, tmp_path_factory):
    """The benchmark of the review, and another one of the same drives."""
    root = tmp_path_factory.mktemp("benchmarks")
    others = [small_test(root / f"qd1-{index}", "qd1") for index in range(len(LABELS))]
    for path, label in zip(others, LABELS, strict=True):
        told = json.loads((path / "test.json").read_text())
        (path / "test.json").write_text(json.dumps(told | {"label": label, "seed": LABELS.index(label)}))
    return [*review[2], *others]


def test_several_benchmarks_without_runs_are_a_matrix(blkreel, benchmarks, tmp_path):
    page = tmp_path / "benchmarks.html"
    shown = blkreel("compare", *benchmarks, "-o", page, env={"COLUMNS": "80"}).stdout
    lines = shown.splitlines()
    assert any("a-test" in line and "qd1" in line for line in lines)
    assert "100 % is " in shown and max(map(len, lines[:-1])) <= 80
    assert sum(line.startswith(LABELS) for line in lines) == len(LABELS)
    verdicts = [line for line in lines if line.startswith(("a-test: ", "qd1: "))]
    assert len(verdicts) == 2 and all("qualified: " in line for line in verdicts), "no page, no verdict"
    html = page.read_text()
    assert 'id="workloads"' in html and 'id="t0-tests"' in html and 'id="t1-' in html
    assert " kIOPS" in html.split('id="t0-tests"')[0], "a score has its unit"
    document = valid_document("compare", blkreel("compare", *benchmarks, "--json").stdout)
    assert len(document["benchmarks"]) == 2 and set(document["relative_performance"]["drives"]) == set(LABELS)
    refused = blkreel("compare", *benchmarks, "--fail-if", "read_p99 > 1ms", check=False)
    assert refused.returncode == 2 and "several benchmarks without runs" in refused.stderr


def test_an_invalid_benchmark_is_in_no_score(blkreel, review, benchmarks, tmp_path):
    """A drive had 24 % of the performance of another by a sweep that ended after its first depth."""
    unfinished = shutil.copytree(benchmarks[-1], tmp_path / "unfinished")
    told = json.loads((unfinished / "test.json").read_text())
    told["steps"][-1] |= {"status": "failed", "error": "interrupted"}
    (unfinished / "test.json").write_text(json.dumps(told))
    refused = blkreel("compare", *benchmarks[:-1], unfinished, check=False)
    note = "qd1: drive B left out, invalid (1 step failed: "
    assert refused.returncode == 2 and note in refused.stderr
    document = json.loads(blkreel("compare", *review[1], *benchmarks[2:-1], unfinished, "--json").stdout)
    assert document["relative_performance"] is None and any(each.startswith(note) for each in document["notes"])


def test_benchmarks_of_different_drives_name_the_drives_of_each(blkreel, benchmarks):
    refused = blkreel("compare", benchmarks[0], benchmarks[3], check=False)
    assert refused.returncode == 2 and "a-test: drive A; " in refused.stderr and "drive B)" in refused.stderr
