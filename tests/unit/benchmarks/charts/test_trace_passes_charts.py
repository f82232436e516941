"""The charts of trace-consistency: each pass at its place, phases as lines, and names that fit a narrow page."""

import pytest
from synthetic_fleet import fleet, single

from blkreel.analysis.charts.dot_plot import Dot, dot_plot
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis
from blkreel.benchmarks.reports.page import page_of


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return single(tmp_path_factory.mktemp("passes"), "trace-passes")


def charts(page):
    return {chart.id: chart for section in page.sections for chart in section.charts}


@pytest.mark.parametrize("drives", [1, 3])
def test_passes_stand_in_the_order_of_the_test_with_their_phases(document, drives):
    page = page_of(document if drives == 1 else fleet(document, drives))
    chart = charts(page)["bandwidth-by-pass"]
    rows = chart.spec["data"]["values"]
    of_first = [row for row in rows if row["entry"] == rows[0]["entry"]]
    assert [(row["x"], row["line"], row["at"]) for row in of_first] == [
        (0, "degrade", "D1"), (1, "degrade", "D2"), (2, "degrade", "D3"), (3, "steady", "S1"), (4, "steady", "S2"),
        (5, "recovery", "R1"), (6, "recovery", "R2")]
    # D1 against S1: four times as slow. S2 is as S1.
    assert of_first[0]["y"] == pytest.approx(4 * of_first[3]["y"]) and of_first[3]["y"] == of_first[4]["y"]
    assert len(rows) == 7 * drives == len(chart.table.rows)
    assert "D degrade, S steady, R recovery" in str(chart.spec)


def test_the_page_shows_the_formula_of_the_score_and_ranks_by_it(document):
    page = page_of(fleet(document, 3))
    assert "√(bandwidth in MB/s × 1 / access time in s)" in charts(page)["score"].text
    scores = {row.entry: row.values["score"] for row in charts(page)["score"].table.rows}
    ranks = {entry.key: entry.rank for entry in page.entries}
    assert sorted(scores, key=scores.get, reverse=True) == sorted(ranks, key=ranks.get)


def test_a_chart_by_trace_has_the_mean_at_its_right(document):
    chart = charts(page_of(document))["bandwidth-by-trace"]
    (total,) = document["figures"]["states"].values()
    assert [row["text"] for row in chart.spec["layer"][0].get("data", chart.spec["data"])["values"] if row["text"]] == [
        f"{total['bandwidth_mb_s']:.1f} MB/s"]


@pytest.mark.parametrize(("names", "has_columns"), [
    (("empty", "full"), False), (("game-load", "game-download", "package-install", "app-start"), True)])
def test_long_names_of_parts_stand_in_columns(names, has_columns):
    """In one row the last ones would lie outside a page of 400 pixels."""
    dots = [Dot("A", number + 1, 0, name, text="") for number, name in enumerate(names)]
    spec = dot_plot("a plot", dots, SeriesStyle(("A",), {}), Axis("rate", "MB/s"), names)
    assert ("'columns'" in str(spec)) == has_columns
