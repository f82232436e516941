"""Tables of a page: sorted, searched, copied, explained."""

import csv
import io
from dataclasses import replace

import pytest
from page_reader import without_pictures
from synthetic_pages import made

from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.report.export import as_csv
from blkreel.analysis.report.html.rendering import render_page

pytestmark = pytest.mark.browser
PAGE = made(8, paces=1, steps=60)
CHARTS = {chart.id: chart for section in PAGE.sections for chart in section.charts}


def column(page, table, index):
    """Texts of a column's cells, without notes, in the order shown."""
    return page.locator(f"#{table} tbody tr:not(.group):visible").evaluate_all(
        "(rows, index) => rows.map((row) => row.cells[index].firstChild.textContent)", index)


def opened(page, id_):
    page.locator(f"#{id_}-behind > summary").click()
    return f"{id_}-table"


def test_a_click_on_a_heading_sorts_by_it_and_missing_values_stay_last(eight):
    table = opened(eight, "s0-wait")
    head = eight.locator(f"#{table} th[data-key=wait_ns]")
    written = column(eight, table, 1)
    assert written[1] == "no reads"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    known = sorted(float(text) for text in written if text != "no reads")
    assert [*map(float, column(eight, table, 1)[:-1])] == known and column(eight, table, 1)[-1] == "no reads"
    head.get_by_role("button").focus()
    eight.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert [*map(float, column(eight, table, 1)[:-1])] == known[::-1] and column(eight, table, 1)[-1] == "no reads"
    eight.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "none" and column(eight, table, 1) == written


def test_a_column_of_which_more_is_better_begins_with_the_most_and_groups_stay_together(eight):
    table = opened(eight, "s0-efficiency")
    eight.locator(f"#{table} th[data-key=mb_j] button.sort").click()
    of_group = eight.locator(f"#{table} tbody").evaluate_all(
        "all => all.map(body => [...body.rows].slice(1).map(row => Number(row.cells[2].dataset.v)))")
    assert len(of_group) == 4
    assert all(values == sorted(values, reverse=True) for values in of_group)
    rows = CHARTS["s0-efficiency"].table.rows
    assert sorted(sum(of_group, [])) == pytest.approx(sorted(row.values["mb_j"] for row in rows))


def test_units_are_chosen_for_a_column_and_raw_values_stand_behind(eight):
    table = opened(eight, "s0-read-tail")
    cells = eight.locator(f"#{table} tbody tr").first.locator("td, th")
    values = CHARTS["s0-read-tail"].table.rows[0].values
    assert [cells.nth(index).get_attribute("data-v") for index in (1, 2, 3)] == [
        str(values[key]) for key in ("n", "p50_ns", "p99_ns")]
    assert cells.nth(1).inner_text() == "64,000"
    assert eight.locator(f"#{table} th[data-key=p50_ns] small").inner_text() == "µs"
    assert float(cells.nth(2).inner_text()) == pytest.approx(values["p50_ns"] / 1000, rel=.006)
    assert cells.nth(4).inner_text() == "n too small"


def test_words_that_name_drives_keep_them_in_tables_and_charts(eight):
    eight.get_by_role("searchbox").fill("kioxia")
    eight.wait_for_function("document.querySelector('#status').textContent.startsWith('1 of 8')")
    eight.wait_for_function("document.documentElement.dataset.settled === '1'")
    assert column(eight, "drives-table", 1) == ["Kioxia SN740"]
    assert eight.locator("#drives-table .count").inner_text() == " · 1 of 8 rows shown"
    assert eight.locator("[data-chart=s0-wait] .mark-symbol path").count() == 1
    eight.get_by_role("button", name="Reset").click()
    assert eight.locator("#drives-table tbody tr:visible").count() == 8


def test_other_words_keep_rows_that_hold_them(eight):
    eight.get_by_role("searchbox").fill("kworker")
    eight.wait_for_function("document.querySelectorAll('#threads-table tbody tr:not([hidden])').length === 1")
    assert eight.locator("#status").inner_text() == "8 drives"
    assert eight.locator("[data-chart=s0-wait] .mark-symbol path").count() == 7


@pytest.mark.parametrize("id_", ["s0-wait", "s0-efficiency", "threads"])
def test_csv_holds_raw_values_under_keys(eight, id_):
    table = CHARTS[id_].table
    if CHARTS[id_].spec:
        opened(eight, id_)
    with eight.expect_download() as told:
        eight.get_by_role("button", name=f"Download CSV: {table.caption}").click()
    assert told.value.suggested_filename == f"{id_}.csv"
    header, *lines = csv.reader(io.StringIO(told.value.path().read_text(encoding="utf-8")))
    keys, titles = [each.key for each in table.columns], [each.header for each in table.columns]
    grouped = any(row.group for row in table.rows)
    assert header == (["group", *titles] if grouped else titles)
    wanted = [["" if (value := row.values.get(key)) is None else str(value) for key in keys] for row in table.rows]
    if grouped:
        wanted = [[row.group, *line] for row, line in zip(table.rows, wanted, strict=True)]
    assert sorted(lines) == sorted(wanted)
    if not grouped:
        assert lines == wanted


def test_csv_of_a_page_is_that_of_the_command(reader, tmp_path):
    """A column of ns had the heading `ios`, names were formulas, and the last text of a row ended in a line break."""
    table = Table("Odd values", (Column("name", "Name"), Column("ios", "Time", "time"), Column("note", "Note")), (
        Row({"name": "=1+1", "ios": 33, "note": "a b"}), Row({"name": "b", "ios": -5, "note": "@x"})))
    path = tmp_path / "odd.html"
    with without_pictures():
        path.write_text(render_page(replace(made(1, paces=1, steps=60), sections=(
            Section("s0", "Odd", (Chart("odd", "Odd", table),)),))), encoding="utf-8")
    page = reader.open(path)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV: Odd values").click()
    assert download.value.path().read_text(encoding="utf-8") == as_csv(table) == (
        "name,ios_ns,note\n'=1+1,33,a b\nb,-5,'@x\n")


def test_csv_is_copied_as_shown_whatever_the_browser_lets_a_file_do(eight):
    show_order = "sort.s0-wait-table=wait_ns.down&open=s0-wait-behind&search=sn7"
    eight.evaluate("hash => { location.hash = hash }", show_order)
    eight.wait_for_function("document.querySelector('#s0-wait-behind').open")
    button = eight.get_by_role("button", name="Copy CSV: Wait time of each drive")
    eight.evaluate("""() => {
        navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); };
    }""")
    button.click()
    eight.wait_for_function("window.copied")
    first = eight.evaluate("window.copied")
    values = [line.split(",")[1] for line in first.splitlines()[1:]]
    assert values[-1] == "" and [*map(int, values[:-1])] == sorted(map(int, values[:-1]), reverse=True)
    assert "Copied 8 rows" in eight.locator("#said").inner_text()
    eight.evaluate("""() => {
        navigator.clipboard.writeText = () => Promise.reject(new Error("not for files"));
        document.execCommand = () => { window.again = document.activeElement.value; return true; };
    }""")
    button.click()
    eight.wait_for_function("window.again")
    assert eight.evaluate("window.again") == first
    eight.evaluate("() => { document.execCommand = () => false; }")
    button.click()
    area = eight.get_by_label("Copy this text")
    assert area.input_value() == first
    eight.keyboard.press("Escape")
    assert area.count() == 0


def test_each_column_says_its_formula_unit_and_command(eight):
    table = opened(eight, "s0-wait")
    link = eight.locator(f"#{table} th[data-key=wait_ns]").get_by_role("link", name="About Wait time")
    box = eight.locator("#about")
    # While the page still draws, a table may be made again, and its links lose the focus.
    for _ in range(20):
        link.press("Enter")
        eight.wait_for_timeout(250)
        if box.is_visible():
            break
    text = box.inner_text()
    assert "Σ makespans of the read bursts" in text and "ns" in text
    # Of the drive under test, with its own path.
    assert "blkreel report 'runs/Crucial SN730/1' --figure read.bursts.makespan_ns" in text
    eight.keyboard.press("Escape")
    box.wait_for(state="hidden")
    assert link.evaluate("node => node === document.activeElement")
    told = eight.locator("#columns").text_content()
    for chart in CHARTS.values():
        assert all(each.formula in told for each in chart.table.columns)


def test_text_of_strangers_stays_text(eight):
    assert eight.locator("#threads-table tbody th").first.inner_text() == "steam <b>"
