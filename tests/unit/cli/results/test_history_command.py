"""`blkreel results history`: its table, page and documents, and the exit code for build servers."""

import json
from functools import partial
from xml.etree import ElementTree

import pytest
from documents import valid_document
from in_process import run_command
from synthetic_catalog import variant
from synthetic_history import NIGHTS, QUERY, fill_nights

from blkreel.benchmarks.catalog import Catalog
from blkreel.common.errors import OutputExists, UsageError


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return fill_nights(tmp_path_factory.mktemp("history"))


@pytest.fixture
def history(catalog, monkeypatch):
    """history(*words): (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "80")
    return partial(run_command, "results", "history", "--catalog", catalog)


def test_the_document_matches_its_schema(history):
    _, text, _ = history(*QUERY, "--metric", "read_p99", "--metric", "iops", "--json")
    document = valid_document("results-history", text)
    assert [series["metric"] for series in document["series"]] == ["read_p99", "iops"]
    assert [series["changes"][0]["name"] for series in document["series"]] == ["2026-09-21"] * 2
    assert "fail_on_change" not in document
    document = valid_document("results-history", history(*QUERY, "--fail-on-change", "--json")[1])
    assert document["fail_on_change"][0]["status"] == "changed"


def test_the_usual_metric_is_that_of_most_results(tmp_path):
    """The verdict on the latest result withholds it."""
    opened = Catalog.open(fill_nights(tmp_path))
    result = opened.entry(opened.result_table()["id"][0].as_py())
    metrics = {key: metric for key, metric in result["metrics"].items() if key != "throughput"}
    opened.put(variant(result, NIGHTS, headline="iops", metrics=metrics, started_at="2026-12-01T20:00:00Z"),
               opened.partial_content(result))
    _, text, _ = run_command("results", "history", "--catalog", opened.directory, *QUERY, "--json")
    (series,) = json.loads(text)["series"]
    assert (series["metric"], series["unusable"]) == ("throughput", 1)


def test_a_change_for_the_worse_fails_with_junit(history, tmp_path):
    junit = tmp_path / "history.xml"
    code, _, errors = history(*QUERY, "--fail-on-change", "--junit", junit)
    assert code == 4
    assert "changed: throughput: 2026-09-21" in errors
    suite = ElementTree.parse(junit).find("testsuite")
    assert suite.get("failures") == "1"
    code, _, errors = history(*QUERY, "--fail-on-change", "--accepted-until", "2026-09-21", "--junit", junit, "--force")
    assert code == 0
    assert "unchanged: throughput" in errors
    assert ElementTree.parse(junit).find("testsuite").get("failures") == "0"


def test_page_pictures_and_tables(history, tmp_path):
    code, text, _ = history(*QUERY, "-o", tmp_path / "page.html")
    assert code == 0
    assert f"Page: {tmp_path / 'page.html'}" in text and "1 change in 30 nights, 30 runs" in text.replace("\n  ", " ")
    assert len(text.splitlines()) < 15 < len(history(*QUERY, "--all")[1].splitlines())
    page = (tmp_path / "page.html").read_text()
    assert "2026-09-21" in page
    assert "http" not in page.partition("<script>")[0].replace("http-equiv", "")
    history(*QUERY, "-o", tmp_path / "picture.svg")
    assert "Data rate by wall time by date (higher is better)" in (tmp_path / "picture.svg").read_text()
    history(*QUERY, "-o", tmp_path / "table.csv")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == NIGHTS + 1


def test_an_existing_output_stays(history, tmp_path):
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(OutputExists):
        history(*QUERY, "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"


@pytest.mark.parametrize(("words", "message"), [
    (("--metric", "read_p98"), "--metric read_p98: the results do not have it; did you mean 'read_p9"),
    (("--junit", "history.xml"), "--junit: nothing to decide; add --fail-on-change"),
    (("--accepted-until", "2026-09-01"), "--accepted-until: nothing to decide"),
    (("--where", "color=red"), "--where color=red: not COLUMN=TEXT; COLUMN is one of: unit, pace"),
    (("--where", "state=dirty"), "--where state=dirty: no result has it; use one of: full"),
    (("--metric", "iops", "--metric", "read_p99", "-o", "history.png"), "one picture or table of 2 metrics"),
    (("-o", "history.json"), "history.json: a .json file cannot be written here; name a file with .html, .png"),
])
def test_wrong_options_are_refused(history, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        history(*QUERY, *words)
    assert message in str(error.value)
    assert not list(tmp_path.iterdir())
