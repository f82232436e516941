"""A page for every reader: any width, dark, on paper, by keyboard, by ear, without JavaScript; quiet and alone."""

import re
import shutil
import subprocess

import pytest
from page_reader import SETTLED, settle, show
from synthetic_pages import made

from blkreel.analysis.charts.model import Chart, Column, Entry, Page, Row, Section, Table
from blkreel.analysis.report.html.rendering import render_page

pytestmark = pytest.mark.browser


def brightness(page, selector, attribute):
    color = page.locator(selector).first.evaluate(
        "(node, name) => name === 'fill' ? node.getAttribute('fill') : getComputedStyle(node)[name]", attribute)
    parts = [int(color[start:start + 2], 16) for start in (1, 3, 5)] if color.startswith("#") else [
        int(float(part)) for part in color.strip("rgba()").split(",")[:3]]
    return sum(parts) / 3


def next_frame(page):
    """Until the page has been told of what was emulated: media queries change with a frame."""
    page.evaluate("() => new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(() => resume())))")


LABEL = "[data-chart=s0-wait] svg .role-axis-label text"


@pytest.mark.parametrize("width", [320, 400, 900, 1600])
def test_page_is_never_wider_than_the_screen_nor_a_chart_than_its_place(eight, width):
    eight.set_viewport_size({"width": width, "height": 900})
    try:
        settle(eight)
        assert eight.evaluate("document.documentElement.scrollWidth") <= width
        over = eight.evaluate("""() => [...document.querySelectorAll("[data-chart]")].filter((place) =>
            !(place.querySelector("svg")?.getBoundingClientRect().width <= place.clientWidth + 1))
            .map((place) => place.dataset.chart)""")
        assert over == []
    finally:
        eight.set_viewport_size({"width": 1280, "height": 900})


def test_a_report_of_one_drive_has_facts_instead_of_choices(reader, made_pages):
    page = reader.open(made_pages[1], 900)
    assert page.locator("#highlight, #drives").count() == 0
    assert "WD Black Model 0 1TB" in page.locator("header dl.facts").inner_text()
    assert page.locator("header .badge").first.inner_text() == "✓ valid"
    page.get_by_role("searchbox").fill("steam")
    page.wait_for_function("document.querySelectorAll('#threads-table tbody tr:not([hidden])').length === 1")


def test_colors_follow_the_system_until_the_reader_chooses(eight):
    assert brightness(eight, "body", "backgroundColor") > 240
    eight.emulate_media(color_scheme="dark")
    settle(eight)
    assert brightness(eight, "body", "backgroundColor") < 60 and brightness(eight, LABEL, "fill") > 130
    eight.get_by_role("radio", name="Light").check()
    eight.wait_for_function(SETTLED)
    assert brightness(eight, "body", "backgroundColor") > 240 and brightness(eight, LABEL, "fill") < 130
    assert "theme=light" in eight.url


def test_paper_is_white_whole_and_without_controls(eight, tmp_path):
    show(eight, "theme=dark&highlight=Kioxia+SN740&open=s0-wait-behind")
    eight.locator("#method-details > summary").click()
    assert brightness(eight, LABEL, "fill") > 130
    eight.emulate_media(media="print")
    next_frame(eight)
    assert brightness(eight, "body", "backgroundColor") > 240 and brightness(eight, "h1", "color") < 60
    assert brightness(eight, LABEL, "fill") < 130
    for name in (".controls", ".contents", "#copy-link", ".csv", ".zoom", "a.about"):
        assert not eight.locator(name).first.is_visible(), name
    # Of tables behind charts those that the reader opened.
    assert eight.locator("#s0-wait-table tbody tr").first.is_visible()
    assert not eight.locator("#s0-timeline-table tbody tr").first.is_visible()
    assert eight.locator("#s0-wait-behind .scroll").evaluate("node => node.scrollHeight - node.clientHeight") <= 1
    path = tmp_path / "page.pdf"
    eight.pdf(path=path)
    eight.emulate_media(media="screen")
    next_frame(eight)
    assert brightness(eight, LABEL, "fill") > 130
    if shutil.which("pdftotext"):
        # Cell by cell: a line of -layout goes through all cells of a row, and where a cell is broken depends on fonts.
        text = subprocess.run(["pdftotext", path, "-"], capture_output=True, text=True, check=True).stdout
        for words in ("8 drives loading a game", "Micron SN780", "Σ makespans of the read bursts", "Decisions"):
            assert words in re.sub(r"\s+", " ", text)


def test_without_javascript_tables_can_be_read(reader, made_pages):
    page = reader.open(made_pages[8], java_script_enabled=False)
    assert "JavaScript is off" in page.locator("main .notice").first.inner_text()
    assert page.locator("#drives-table tbody tr").count() == 8
    assert page.locator("#drives-table tr.marked").count() == 1
    assert not page.get_by_label("Drive under test").is_visible()
    page.locator("#s0-wait-behind > summary").click()
    assert page.locator("#s0-wait-table tbody tr", has_text="Kioxia SN740").is_visible()
    # The title of a column links to its definition.
    page.get_by_role("link", name="About Wait time: formula, unit, command").first.click()
    assert "Σ makespans" in page.locator(":target").inner_text()


def test_headings_landmarks_and_pictures_have_names(eight):
    levels = eight.locator("h1, h2, h3").evaluate_all("all => all.map((each) => Number(each.tagName[1]))")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    ids = eight.locator("[id]").evaluate_all("all => all.map((each) => each.id)")
    assert len(ids) == len(set(ids))
    tree = eight.locator("body").aria_snapshot()
    for role in ("banner", "main", "contentinfo", 'navigation "Contents"', 'region "Choose what is shown"', "status"):
        assert role in tree, role
    for chart in eight.locator("[data-chart]").all():
        assert chart.get_attribute("role") == "img" and len(chart.get_attribute("aria-label")) > 20
        behind = eight.locator(f"#{chart.get_attribute('aria-details')}")
        assert behind.locator("table caption").count() == 1
    assert eight.evaluate("""() => [...document.querySelectorAll("main table")].every((table) => table.caption
        && [...table.tHead.rows[0].cells].every((cell) => cell.scope === "col"))""")


def test_the_whole_page_can_be_used_by_keyboard(reader, tmp_path):
    path = tmp_path / "three.html"
    path.write_text(render_page(made(3, paces=1, steps=20)), encoding="utf-8")
    page = reader.open(path)
    stops, nameless, unseen = [], [], []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    for _ in range(200):
        name, seen, outlined, done = page.evaluate("""() => {
            const node = document.activeElement;
            const box = node.getBoundingClientRect();
            const name = node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent;
            const style = getComputedStyle(node.type === "radio" ? node.nextElementSibling : node);
            const inside = box.width > 0 && box.bottom > 0 && box.top < innerHeight;
            return [`${node.tagName} ${name.trim().slice(0, 60)}`, inside,
                    parseFloat(style.outlineWidth) >= 2 && style.outlineStyle !== "none", node === document.body];
        }""")
        if done:
            break
        stops.append(name)
        nameless += [name] if len(name.split()) < 2 else []
        unseen += [] if seen and outlined else [name]
        page.keyboard.press("Tab")
    assert done and nameless == [] and unseen == []
    for wanted in ("SELECT Drive under test", "BUTTON Only its neighbors", "SUMMARY Filters", "INPUT Search",
                   "BUTTON Copy link", "BUTTON WD Black SN710", "BUTTON Verdict", "A Method",
                   "BUTTON Save as SVG: Wait time", "SUMMARY Table behind Wait time", "INPUT From", "BUTTON Zoom in",
                   "BUTTON Copy CSV: I/O by command"):
        assert any(stop.startswith(wanted) for stop in stops), wanted
    page.get_by_role("link", name="Skip to the figures").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


@pytest.mark.parametrize("form", ["SVG", "PNG"])
def test_a_chart_is_saved_alone(eight, form):
    with eight.expect_download() as told:
        eight.get_by_role("button", name=f"Save as {form}: Reads over writes").click()
    assert told.value.suggested_filename == f"s0-timeline.{form.lower()}"
    saved = told.value.path().read_bytes()
    assert len(saved) > 5000
    assert saved.startswith(b"\x89PNG" if form == "PNG" else b"<svg")
    assert form == "PNG" or b"WD Black SN710" in saved


def test_a_chart_that_cannot_be_drawn_says_so_and_the_others_stand(browser, made_pages, tmp_path):
    table = Table("Two", (Column("entry", "Drive"), Column("x", "X", "number")), (Row({"entry": "a", "x": 1}, "a"),))
    good = {"data": {"values": [{"x": 1}]}, "mark": "bar", "encoding": {"x": {"field": "x", "type": "quantitative"}}}
    page = Page("report", "Broken", "", (Entry("a", {}, {"level": "valid", "reasons": []}),), (Section("s", "S", (
        Chart("bad", "Bad", table, {**good, "mark": {"type": "bar", "color": {"expr": "nothing("}}}),
        Chart("good", "Good", table, good))),))
    path = tmp_path / "broken.html"
    path.write_text(render_page(page), encoding="utf-8")
    from page_reader import Reader
    reader = Reader(browser)
    opened = reader.open(path)
    assert "could not be drawn" in opened.locator("[data-chart=bad]").inner_text()
    assert opened.locator("[data-chart=good] svg .mark-rect path").count() == 1
    assert len(reader.complaints) == 1 and reader.complaints[0].startswith("console error: bad:")
    reader.close()


