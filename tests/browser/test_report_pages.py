"""The pages in a real browser: drawn, quiet, alone, and with the figures of the document."""

import json
import shutil

import numpy as np
import pytest
from synthetic_runs import write_four_runs, write_run, write_trace
from synthetic_tests import MadeTest, both, rows_of

from blkreel.analysis import present

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make .stamps/venv-dev")

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("needs chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # Without the sandbox, since tests run as root.
        instance = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield instance
        instance.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name to (path of the page, its document)."""
    root = tmp_path_factory.mktemp("pages")
    runs = write_four_runs(root)
    trace = write_trace(root / "game.parquet", lost=3)
    return {"compare": (root / "compare.html", present.compare(runs, root / "compare.html")),
            "run": (root / "run.html", present.report(runs[0], root / "run.html")),
            "trace": (root / "trace.html", present.report(trace, root / "trace.html")),
            **{test.path.name: (page := test.path.with_suffix(".html"), present.report_test(test.path, page))
               for test in (hour(root / "hour"), bursts(root / "bursts"))}}


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


@pytest.fixture
def opened(browser):
    """Opens a page, waits until it has drawn, and fails at the end if it was not quiet and alone."""
    contexts, complaints = [], []

    def open_page(path, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:"))
                or complaints.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.drawn")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("name", ["compare", "run", "trace", "hour", "bursts"])
def test_every_chart_is_drawn_with_marks(opened, pages, name):
    page = opened(pages[name][0])
    charts = page.locator("[data-chart]")
    assert charts.count() >= {"compare": 16, "run": 8, "trace": 6, "hour": 4, "bursts": 2}[name]
    for index in range(charts.count()):
        chart = charts.nth(index)
        marks = chart.locator("svg .mark-rect path, svg .mark-line path, svg .mark-area path, svg .mark-symbol path")
        drawn = marks.evaluate_all("all => all.filter(m => (m.getAttribute('d') ?? '').length > 10).length")
        assert drawn >= 1, chart.get_attribute("data-chart")
        # In its place: neither cut off nor pushing the page wide.
        assert chart.locator("svg").first.bounding_box()["width"] <= chart.bounding_box()["width"] + 1


@pytest.mark.parametrize("name", ["compare", "run", "trace", "hour", "bursts"])
@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_page_is_never_wider_than_the_screen(opened, pages, name, width):
    page = opened(pages[name][0], width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_headline_table_shows_the_figures_of_the_document(opened, pages):
    path, document = pages["compare"]
    page = opened(path)
    rows = page.locator("#headline tbody tr:not(.pace)")
    entries = [entry for section in document["sections"] for entry in section["entries"]]
    assert rows.count() == len(entries)
    units = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "MB/s": 1}
    headings = [text.strip() for text in page.locator("#headline thead th.number small").all_inner_texts()]
    for index, entry in enumerate(entries):
        row = rows.nth(index)
        assert row.locator("th").inner_text().split("\n")[0] == entry["label"]
        assert entry["verdict"]["level"] in row.locator(".badge").inner_text()
        cells = row.locator("td.number")
        assert cells.count() == len(entry["headline"]) == len(headings)
        for position, unit in enumerate(headings):
            cell = cells.nth(position)
            value = entry["headline"][cell.get_attribute("data-figure")]["value"]
            assert float(cell.get_attribute("data-value")) == value
            shown = float(cell.inner_text().split("\n")[0].replace(",", ""))
            assert shown == pytest.approx(value / units[unit], rel=0.006)


def test_report_table_shows_the_figures_of_the_document(opened, pages):
    path, document = pages["trace"]
    page = opened(path)
    figures = document["entry"]["figures"]
    row = page.locator("#classes tr", has_text="Total service time").locator("td")
    shown = [row.nth(index).get_attribute("data-value") for index in range(3)]
    assert [int(value) for value in shown] == [figures[name]["service_ns"] for name in ("read", "write", "other")]
    assert "the capture lost 3 events" in page.locator("header").inner_text()
    assert page.locator("#threads tbody tr").count() == len(document["threads"])


def test_page_of_a_test_shows_the_figures_of_the_document(opened, pages):
    path, document = pages["bursts"]
    page = opened(path)
    for table in document["tables"]:
        rows = page.locator("table.figures", has=page.locator("caption", has_text=table["title"])).locator("tbody tr")
        assert rows.count() == len(table["rows"])
        for index, row in enumerate(table["rows"]):
            cells = rows.nth(index).locator("td")
            for position, column in enumerate(table["columns"]):
                value = row[column["key"]]
                shown = cells.nth(position).get_attribute("data-value")
                assert shown == (None if value is None else str(value))
    assert "QUICK" not in page.inner_text("main").upper()
    assert "Quick" in opened(pages["hour"][0]).inner_text("main")


def _colour(page, selector, attribute):
    return page.locator(selector).first.evaluate(f"node => getComputedStyle(node)['{attribute}']")


def _brightness(colour):
    return sum(int(float(part)) for part in colour.strip("rgba()").split(",")[:3]) / 3


def test_dark_and_light_follow_the_reader_while_the_page_is_open(opened, pages):
    page = opened(pages["compare"][0], scheme="dark")
    label = "[data-chart='s0-read-latency'] svg .role-axis-label text"
    assert _brightness(_colour(page, "body", "backgroundColor")) < 60
    assert _brightness(_colour(page, label, "fill")) > 130
    page.emulate_media(color_scheme="light")
    page.wait_for_function("Number(document.documentElement.dataset.drawn) > 1")
    assert _brightness(_colour(page, "body", "backgroundColor")) > 200
    assert _brightness(_colour(page, label, "fill")) < 130


def test_dragging_the_strip_zooms_all_rows_of_a_pace(opened, pages):
    page = opened(pages["compare"][0])
    chart = page.locator("[data-chart='s0-timeline']")
    chart.scroll_into_view_if_needed()

    def ticks():
        axis = chart.locator("svg .concat_1_group .role-axis[aria-label^='X-axis'] .role-axis-label text")
        return [float(text) for text in axis.all_text_contents()]

    assert min(ticks()) == 0 and max(ticks()) > 10
    box = chart.locator("svg .concat_2_group path.background").first.bounding_box()
    y = box["y"] + box["height"] / 2
    first_row = chart.locator("svg .concat_0_group .mark-line path").first
    whole = first_row.get_attribute("d")
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=8)
    page.mouse.up()
    page.wait_for_timeout(300)
    # A quarter to a half of twelve seconds, in the row that was not touched as well.
    assert 2.5 < min(ticks()) < 3.5 and 5.5 < max(ticks()) < 6.5
    assert first_row.get_attribute("d") != whole


def test_a_table_stands_behind_each_chart_and_opens_by_keyboard(opened, pages):
    page = opened(pages["compare"][0])
    without = page.evaluate("""[...document.querySelectorAll('[data-chart]')]
        .filter(chart => !chart.closest('.card').querySelector('details table')).map(chart => chart.dataset.chart)""")
    assert without == []
    summary = page.locator(".card > details > summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".card > details table").first.is_visible()
    assert page.evaluate("""[...document.querySelectorAll('table')]
        .every(table => table.caption && table.querySelector('th[scope]'))""")


def test_page_prints(opened, pages):
    page = opened(pages["compare"][0], scheme="dark")
    page.emulate_media(media="print")
    page.wait_for_function("Number(document.documentElement.dataset.drawn) > 1")
    assert _brightness(_colour(page, "body", "backgroundColor")) > 200
    assert _brightness(_colour(page, "h1", "color")) < 60
    assert _brightness(_colour(page, "[data-chart='s0-read-latency'] svg .role-axis-label text", "fill")) < 130
    assert len(page.pdf()) > 20_000


def test_twenty_drives_open_and_stay_small(opened, tmp_path):
    runs = [write_run(tmp_path / f"run{index}", f"Drive {index}", 60 + 20 * index, seed=index, seconds=4)
            for index in range(20)]
    document = present.compare(runs, tmp_path / "compare.html")
    assert (tmp_path / "compare.html").stat().st_size < 5_000_000
    page = opened(tmp_path / "compare.html")
    assert page.locator("#headline tbody tr:not(.pace)").count() == 20
    assert json.dumps(document)
