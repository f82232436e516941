"""A comparison of many traces is a dashboard: one table, charts of one drive on demand, rows left where they are."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tree import APP_START

from blkreel.analysis.compare import second_pass
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document, export, present
from blkreel.analysis.report.page import compare_page
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def fleet():
    """(document, sections) of a dozen traces."""
    one = measure(APP_START)
    return document.comparison([replace(one, path=Path(f"host{number}.parquet")) for number in range(12)])


def test_all_traces_stand_in_one_table_without_charts(fleet):
    page = compare_page.page_of(*fleet)
    assert [section.id for section in page.sections] == ["figures"]
    table = page.sections[0].charts[0].table
    assert {row.entry for row in table.rows} == {f"host{number}" for number in range(12)}
    assert any("12 traces" in notice and "--highlight" in notice for notice in page.notices)


def test_the_drive_that_is_looked_at_has_its_charts(fleet):
    page = compare_page.page_of(*fleet, highlight="host7")
    assert [section.title for section in page.sections[:-1]] == ["As captured (host7.parquet)"]
    assert any(chart.spec for chart in page.sections[0].charts)


@pytest.mark.parametrize(("highlight", "read"), [(None, []), ("host7", ["host7.parquet"])])
def test_rows_are_read_again_only_for_what_is_drawn(tmp_path, monkeypatch, highlight, read):
    for number in range(12):
        shutil.copy(APP_START, tmp_path / f"host{number}.parquet")
    opened = []
    monkeypatch.setattr(second_pass, "open_trace", lambda path: opened.append(Path(path).name) or open_trace(path))
    present.compare([tmp_path], tmp_path / "fleet.html", view=export.View(highlight=highlight))
    assert opened == read


def test_more_drives_than_a_reader_tells_apart_are_not_compared_by_each_io(fleet, monkeypatch):
    monkeypatch.setattr(second_pass, "MOST_ENTRIES", 0)
    section = fleet[1][3]
    second_pass.read_again([section])
    assert "left out" in section.entries[0].document["interference"]["why"]


def test_drives_that_share_no_trace_have_no_rank(fleet):
    assert {entry.rank for entry in compare_page.page_of(*fleet).entries} == {None}
