"""Pages of real documents in a browser: all charts drawn, at any width, with the figures of the document."""

import re

import numpy as np
import pytest
from page_reader import Reader, settle, show, without_pictures
from synthetic_runs import write_four_runs, write_run
from synthetic_tests import MadeTest, both, rows_of

from blkreel.analysis.report import export, present
from blkreel.analysis.report.html.rendering import render_page
from blkreel.benchmarks.reports.page import page_of
from blkreel.benchmarks.reports.results import results_of

pytestmark = pytest.mark.browser
WIDTHS = (1600, 390)  # the page opens at the first one, since drawing takes longest
CHARTS = {"compare": 16, "run": 8, "hour": 1, "bursts": 2}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name to (path of the page, its document)."""
    root = tmp_path_factory.mktemp("pages")
    runs = write_four_runs(root)
    with without_pictures():
        made = {"compare": (root / "compare.html", present.compare(runs, root / "compare.html")),
                "run": (root / "run.html", present.report(runs[0], root / "run.html"))}
        for test in (hour(root / "hour"), bursts(root / "bursts")):
            path, document = test.path.with_suffix(".html"), results_of(test.path)
            path.write_text(render_page(page_of(document)), encoding="utf-8")
            made[test.path.name] = (path, document)
    return made


@pytest.fixture(scope="module")
def opened(browser, pages):
    """Opens the page of a name, once; at the end none may have said anything or asked for anything."""
    one, open_ = Reader(browser), {}

    def page_of(name):
        if name not in open_:
            open_[name] = one.open(pages[name][0], WIDTHS[0])
            open_[name].evaluate("document.querySelectorAll('details.more').forEach((each) => each.open = true)")
            settle(open_[name])
        return open_[name]

    yield page_of
    one.close()
    assert one.complaints == []


def hour(directory):
    """A test over an hour, with its temperature."""
    test, second = MadeTest(directory, "consistency", quick=True), 10**9
    times = np.arange(0, 3600 * second, second // 50)
    test.step("consistency", {"state": "full"}, rows_of(times[times % (7 * second) < 6 * second], 10**6, op=1),
              temperature=(np.arange(3600) * second, 40 + np.sin(np.arange(3600) / 200) * 9))
    return test


def bursts(directory):
    """A test of reads beside writes."""
    test, ms = MadeTest(directory, "mixed-burst"), 10**6
    reads = rows_of(np.arange(2000) * 3 * ms, 2 * ms, burst=np.arange(2000) // 500)
    test.step("mixed", {}, both(reads, rows_of(np.arange(900) * 7 * ms, 5 * ms, op=1, burst=np.arange(900) // 90)))
    test.step("baseline", {}, reads)
    return test


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_with_marks_and_fits_any_screen(opened, name):
    page = opened(name)
    charts = page.locator("[data-chart]")
    assert charts.count() >= CHARTS[name]
    for chart in charts.all():
        drawn = chart.locator("svg :is(.mark-rect, .mark-line, .mark-area, .mark-symbol, .mark-rule) :is(path, line)")
        told = chart.get_attribute("data-chart")
        assert drawn.evaluate_all("all => all.filter(m => m.tagName === 'line' || m.getAttribute('d').length > 10)"
                                  ".length") >= 1, told
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # In its place: neither cut off nor pushing the page wide.
        assert page.evaluate("""() => [...document.querySelectorAll("[data-chart]")].filter((place) =>
            place.querySelector("svg").getBoundingClientRect().width > place.clientWidth + 1)
            .map((place) => place.dataset.chart)""") == []


def test_the_table_that_leads_shows_the_figures_of_the_document(opened, pages):
    _, document = pages["compare"]
    page = opened("compare")
    entries = [entry for section in document["sections"] for entry in section["entries"]]
    rows = page.locator("#figures-table tbody tr:not(.group)")
    assert rows.count() == len(entries)
    heads = page.locator("#figures-table thead th").evaluate_all(
        "all => all.map(head => [head.dataset.key, head.querySelector('small')?.textContent ?? ''])")
    units = {"%": 0.01, "": 1, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "MB/s": 1}
    for entry, row in zip(entries, rows.all(), strict=True):
        cells = row.locator("th, td").evaluate_all(
            "all => all.map(cell => [cell.dataset.v, cell.firstChild.textContent])")
        of_key = {key: (unit, *cell) for (key, unit), cell in zip(heads, cells, strict=True)}
        assert of_key["drive"][2] == entry["label"] and entry["verdict"]["level"] in row.inner_text()
        for name, figure in entry["headline"].items():
            if name not in of_key or figure["value"] is None:
                continue
            unit, raw, shown = of_key[name]
            assert float(raw) == pytest.approx(figure["value"], rel=1e-12)
            assert float(shown.replace(",", "")) == pytest.approx(figure["value"] / units[unit], rel=0.006)


@pytest.fixture(scope="module")
def two_drives(tmp_path_factory):
    """The page of two drives with six runs each, with pictures."""
    root = tmp_path_factory.mktemp("two")
    runs = [write_run(root / f"{label}-{seed}", label, read_us, seed=seed, seconds=4, model="Example 980")
            for label, read_us in (("fw 1.1", 60), ("fw 1.2", 400)) for seed in range(6)]
    path = root / "two.html"
    return path, present.compare(runs, path, view=export.View(highlight="fw 1.2"))


def test_the_first_screen_of_two_drives_answers_and_fits_on_five_sheets(reader, two_drives, tmp_path):
    path, document = two_drives
    page = reader.open(path, 1000)
    assert page.locator("h1").inner_text().replace("\u00a0", " ") == document["answer"]["sentence"]
    assert page.locator("h1").bounding_box()["y"] + page.locator("h1").bounding_box()["height"] < 900
    assert document["answer"]["sentence"].startswith("fw 1.2: ")
    assert page.locator("[data-chart]").evaluate_all("all => all.filter((each) => each.checkVisibility()).length") == 3
    page.pdf(path=tmp_path / "two.pdf", format="A4")
    # Within the margins of print.css, A4 is 184 mm = 695 px wide.
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 695, "height": 1000})
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 695
    sheets = (tmp_path / "two.pdf").read_bytes()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", sheets)) <= 5


def test_on_paper_no_table_is_cut_off_no_name_is_broken_and_closed_details_are_named(reader, pages):
    """Within the margins of print.css, A4 is 184 mm = 695 px wide."""
    for name, width in (("run", 695), ("compare", 695), ("bursts", 695)):
        page = reader.open(pages[name][0], width)
        page.emulate_media(media="print")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.locator("tbody th .name:visible").evaluate_all(
            """all => all.filter((each) => each.textContent.length < 7
                && each.getClientRects()[0].height > 2 * parseFloat(getComputedStyle(each).fontSize))""") == []
        closed = page.locator("details.more:not([open]) > summary")
        assert closed.count() and all(closed.nth(at).is_visible() for at in range(closed.count())), name
        assert "Not printed" in closed.first.evaluate("node => getComputedStyle(node, '::before').content")


def test_without_javascript_the_open_charts_are_pictures_in_the_colors_of_the_page(reader, two_drives):
    page = reader.open(two_drives[0], 1000, java_script_enabled=False)
    charts = page.locator("[data-chart]:visible")
    assert charts.count() == 3 == page.locator("[data-chart]:visible > svg").count()
    label, fills = page.locator("[data-chart] > svg .role-axis-label text").first, set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fills.add(label.evaluate("node => getComputedStyle(node).fill"))
    assert len(fills) == 2
    page.locator("#s0-details > summary").click()
    assert charts.count() > 12 and charts.count() == page.locator("[data-chart]:visible > svg").count()
    assert page.locator("#s0-details [data-chart] > svg .role-axis-label text").first.is_visible()
    page.locator("#read-wait-behind > summary").click()
    assert page.locator("#read-wait-table tbody tr").count() == 2


def test_many_drives_begin_with_those_that_matter_and_stay_small(reader, tmp_path):
    runs = [write_run(tmp_path / f"run{index}", f"Drive {index}", 60 + 20 * index, seed=index, seconds=3)
            for index in range(12)]
    present.compare(runs, tmp_path / "compare.html", view=export.View(highlight="Drive 5"))
    assert (tmp_path / "compare.html").stat().st_size < 4_000_000
    page = reader.open(tmp_path / "compare.html")

    def bars():
        return page.locator("[data-chart=read-wait] .role-axis-label text").all_text_contents()

    order = page.locator("#drives-table tbody tr").evaluate_all("all => all.map((row) => row.dataset.entry)")
    assert {"Drive 5", order[0], order[-1]} <= set(bars()) and len([name for name in bars() if name in order]) == 8
    page.locator("#read-wait .rest button").click()
    settle(page)
    assert [name for name in bars() if name in order] == order
    assert "all=read-wait" in page.url
    show(page, "highlight=Drive+7&near=1")
    assert page.locator("#drives-table tbody tr:visible").count() == 5
