"""Results as a person sees them: the terminal, the page, the command."""

import io
import json
import re
import shutil

import numpy as np
import pytest
from synthetic_tests import MIB, MS, MadeTest, closed_loop, rows_of

from blkreel.analysis.charts import over_time
from blkreel.benchmarks import present
from blkreel.benchmarks.catalog import collect
from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.results import tables
from blkreel.cli.ui.benchmark_summary import show
from blkreel.common.console import Console, Detail
from blkreel.common.errors import OutputExists, UsageError
from blkreel.traces.format.condition import Role, input_names

pytestmark = pytest.mark.usefixtures("no_pictures")


def printed(document, width=200):
    file = io.StringIO()
    show(document, Console(file=file, width=width), Detail(why=True))
    return file.getvalue()


@pytest.fixture
def sweep(tmp_path):
    def make(depths=(1, 2, 4, 8, 16, 32), **more):
        test = MadeTest(tmp_path / "t", "depths", name="depth-sweep-read", **more)
        for depth in depths:
            test.step("depth", {"state": "enterprise", "depth": depth},
                      closed_loop(1000, 100_000 // min(depth, 8), depth))
        test.step("depth", {"state": "enterprise", "depth": 64}, status="failed", title="depth 64", error="it [broke]")
        return test.path
    return make


def test_the_terminal_says_what_it_is_how_sure_and_what_is_missing(sweep):
    document = results_of(sweep(quick=True))
    text = printed(document)
    assert "QUICK" not in printed({**document, "quick": False})
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "depth-sweep-read of depths" and lines[1].startswith("fast drive, Example 980")
    assert lines[2].startswith("QUICK") and lines[3] == "invalid"
    assert "missing: depth 64: it [broke]" in lines
    assert "By queue depth, state enterprise" in lines
    (row,) = [line.split() for line in lines if line.startswith("8 ")]
    assert row[:3] == ["8", "328", "80,000"]
    # Said once, not in a column of gaps.
    assert "Power, Efficiency: power not measured" in lines and text.count("power not measured") == 2


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_figure_is_cut_off_however_narrow_the_terminal(sweep, width):
    document = results_of(sweep())
    text = printed(document, width)
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for table in document["tables"]:
        for row in tables.text_table(table).rows:
            for cell in row:
                assert cell.value is None or cell.text in text


@pytest.mark.parametrize("rows", [3, 9])
@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_no_figure_is_cut_off_beside_a_wide_first_column(sweep, width, rows):
    columns = [{"key": "step", "title": "Step", "unit": ""},
               *({"key": f"k{n}", "title": "Latency, maximum", "unit": ""} for n in range(5)),
               {"key": "ios", "title": "I/Os", "unit": ""}]
    row = {"step": "sequential write 512", **{f"k{n}": 1234567 for n in range(5)}, "ios": 19752}
    document = {**results_of(sweep()), "tables": [{"title": "T", "columns": columns, "rows": [row] * rows}]}
    text = printed(document, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("19,752") == rows and text.count("1,234,567") == 5 * rows


def test_units_go_down_a_column_and_reasons_stand_for_values():
    table = {"title": "T", "columns": [{"key": "took_ns", "title": "Took", "unit": "ns"},
                                       {"key": "block", "title": "Block", "unit": "bytes"},
                                       {"key": "moved_bytes", "title": "Moved", "unit": "bytes"},
                                       {"key": "ok", "title": "OK", "unit": ""}],
             "rows": [{"took_ns": 1_500_000, "block": 4096, "moved_bytes": 10**9, "ok": True},
                      {"took_ns": None, "block": 512, "moved_bytes": None, "ok": False,
                       "why": {"took_ns": "n too small"}}]}
    one = tables.text_table(table)
    assert one.heads == [("Took", "ms"), ("Block", ""), ("Moved", ""), ("OK", "")]
    assert [[cell.text for cell in row] for row in one.rows] == [["1.50", "4K", "1.00 GB", "yes"],
                                                                ["–", "512", "–", "no"]]
    assert one.rows[1][0].why == "n too small"


def test_a_chart_keeps_the_peaks_and_gaps_of_a_long_series():
    values = np.full(20_000, 100.0)
    values[7777], values[12_345] = 9000.0, 0.0
    points = over_time.extremes(list(range(20_000)), values.tolist(), 1000)
    assert len(points) <= 1000 and points == sorted(points)
    assert (7777, 9000.0) in points and (12_345, 0.0) in points


def test_the_page_holds_every_table_its_method_and_nothing_from_elsewhere(tmp_path, sweep):
    page = tmp_path / "test.html"
    document = present.report_test(sweep(), page)
    html = page.read_text()
    for table in document["tables"]:
        assert table["title"] in html
    assert "power not measured" in html and "it [broke]" in html and "Quick:" not in html
    for name, _ in document["method"]:
        assert name.replace(chr(39), "&#39;") in html
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*', outside) and len(html) < 3_000_000
    with pytest.raises(OutputExists):
        present.report_test(tmp_path / "t", page)


def cached(tmp_path, place, fast, label="A drive", **more):
    test = MadeTest(tmp_path / place, "cache", **more)
    test.told["label"] = label
    test.step("fill", {"state": "fresh", "rest_ns": 0},
              closed_loop(400, np.repeat([MIB // 4, MIB], [fast, 400 - fast]), op=1, length_bytes=MIB),
              verdict=[{"level": "qualified", "text": f"{place} was warm"}] if label == "Warm" else [])
    return test.path


def test_tests_side_by_side(tmp_path):
    paths = [cached(tmp_path, "a", 100), cached(tmp_path, "b", 200, "Warm")]
    document = present.compare_results(present.read_tests(paths), tmp_path / "both.html")
    (table,) = document["tables"]
    assert [(row["of"], row["fast_bytes"]) for row in table["rows"]] == [
        ("0 ns · A drive", 100 * MIB), ("0 ns · Warm", 200 * MIB)]
    assert document["figures"] == {label: results_of(path)["figures"]
                                   for label, path in zip(("A drive", "Warm"), paths, strict=True)}
    assert [(each["label"], each["entry"], len(each["series"])) for each in document["tests"]] == [
        ("A drive", "A drive", 1), ("Warm", "Warm", 1)]
    texts = [reason["text"] for reason in document["verdict"]["reasons"]]
    assert texts == ["n=1: fewer than 6 repeats, no interval [all]", "b was warm [Warm]"]
    assert "Warm" in (tmp_path / "both.html").read_text()
    json.dumps(document, allow_nan=False)


def test_what_sets_tests_apart_qualifies_their_comparison(tmp_path):
    paths = [cached(tmp_path, "a", 100, parameters={"depth": 1, "span": 8}, scale=0.5),
             cached(tmp_path, "b", 100, parameters={"depth": 2, "span": 8}, quick=True)]
    texts = [reason["text"] for reason in present.compare_results(present.read_tests(paths))["verdict"]["reasons"]]
    assert texts[-3:] == ["quick is not the same: False [A drive (a)], True [A drive (b)]",
                          "scale is not the same: 0.5 [A drive (a)], 1.0 [A drive (b)]",
                          "depth is not the same: 1 [A drive (a)], 2 [A drive (b)]"]


@pytest.mark.parametrize(("name", "header", "run"), [
    ("trace", {}, {"source": {"path": "w.parquet", "sha256": "6f" * 32}}),
    ("recipe", {"recipe": {"sha256": "5e" * 32, "text": "steps = [1]"}}, {}),
    ("data", {"payload": {"compressible_percent": 50, "duplicates_percent": 0}}, {}),
    ("erase", {"erase": "format"}, {}), ("map", {}, {"map": {"name": "compact"}}),
    ("prefill", {}, {"unwritten_bytes": 4096}), ("polling", {}, {"polled": True})])
def test_tests_that_differ_in_an_input_are_no_repetitions(tmp_path, name, header, run):
    """Under one path and with the same parameters. A catalog keeps them apart, but for inputs that follow the drive."""
    for directory, account in (("a", {}), ("b", {}), ("other", run)):
        test = MadeTest(tmp_path / directory, "trace")
        test.told |= header if directory == "other" else {}
        test.step("trace", {"state": "full", "repeat": 1}, rows_of([0, MS], MS), do="replay",
                  **{"source": {"path": "w.parquet", "sha256": "5e" * 32}, "map": {"name": "identity"}} | account)
    compared = present.compare_results(present.read_tests([tmp_path / directory for directory in ("a", "b", "other")]))
    entries = [test["entry"] for test in compared["tests"]]
    assert entries[0] == entries[1] != entries[2]
    assert any(reason["text"].startswith(f"{name} is not the same: ") for reason in compared["verdict"]["reasons"])
    checksums = [collect.test_checksum(results_of(tmp_path / directory)) for directory in ("a", "b", "other")]
    assert checksums[0] == checksums[1] and (checksums[1] == checksums[2]) == (name in input_names(Role.SAID))


def test_a_copy_of_a_test_is_no_repetition(tmp_path):
    """Six copies were six repetitions, with an interval of width zero."""
    original = cached(tmp_path, "a", 100)
    copy = shutil.copytree(original, tmp_path / "backup")
    with pytest.raises(UsageError, match="backup is a copy of .*/a"):
        present.read_tests([original, cached(tmp_path, "b", 100), copy])


def test_different_tests_are_not_compared(tmp_path):
    paths = [cached(tmp_path, "a", 100), cached(tmp_path, "b", 100, name="another-test")]
    with pytest.raises(UsageError, match="is the test a-test"):
        present.compare_results(present.read_tests(paths))
    with pytest.raises(UsageError, match="named twice"):
        present.compare_results(present.read_tests([paths[0], paths[0]]))


def test_the_commands_take_tests(blkreel, tmp_path):
    paths = [cached(tmp_path, name, 100) for name in "ab"]
    for words, text in ((["report", paths[0]], "105 MB"), (["compare", *paths], "0 ns · A drive (b)")):
        page = tmp_path / f"{words[0]}.html"
        shown = blkreel(*words, "-o", page).stdout
        assert text in shown and f"Page: {page}" in shown and page.exists()
        assert blkreel(*words, "-o", page, check=False).returncode == 1, "it exists"
