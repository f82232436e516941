"""Pages of what is seldom: names without end, several runs of a drive, colors that the system chooses."""

import shlex

import pytest
from page_reader import Reader, settle, without_pictures
from synthetic_runs import write_run

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Entry, Page, Row, Section, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.report import export, figure, present
from blkreel.analysis.report.html.rendering import render_page

LONG, SHORT = "drive" * 60, "Short name of a drive"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [write_run(root / f"{name[:5]}-{seed}", name, 90 + 60 * seed, seed=seed, seconds=4, model=f"{name[:5]} 1")
            for name in (LONG, SHORT) for seed in range(2)]


@pytest.fixture(scope="module")
def path(runs, tmp_path_factory):
    output = tmp_path_factory.mktemp("page") / "page.html"
    with without_pictures():
        present.compare(runs, output, view=export.View(highlight=SHORT))
    return output


@pytest.fixture(scope="module")
def shared(browser, path):
    reader = Reader(browser)
    yield reader.open(path)
    reader.close()
    assert reader.complaints == []


@pytest.mark.parametrize("width", [400, 900])
def test_a_name_without_end_leaves_room_for_what_is_said_of_the_drive(shared, width):
    shared.set_viewport_size({"width": width, "height": 900})
    settle(shared)
    table = shared.locator("#drives-table")
    names = {name: table.locator(".name", has_text=name).bounding_box() for name in (LONG, SHORT)}
    assert names[LONG]["width"] <= 0.6 * width and names[LONG]["height"] > 3 * names[SHORT]["height"] / 2
    assert names[LONG]["x"] + names[LONG]["width"] <= table.locator("th", has_text="Verdict").bounding_box()["x"]
    if width >= 900:
        assert names[SHORT]["height"] < 32  # on one line
    caption = table.locator("caption > span").bounding_box()
    assert caption["x"] >= 0 and caption["x"] + caption["width"] <= width


def test_the_drive_under_test_is_marked_where_the_system_chooses_colors(shared):
    shared.emulate_media(forced_colors="active")
    settle(shared)
    widths = shared.evaluate("""() => [...document.querySelectorAll("#drives-table tbody tr")].map((row) =>
        [row.matches(".marked"), parseFloat(getComputedStyle(row.firstElementChild).borderLeftWidth)])""")
    shared.emulate_media(forced_colors="none")
    assert sorted(widths) == [[False, 0], [True, 6]]


def test_the_command_beside_a_figure_of_several_runs_gives_that_figure(shared, runs):
    page = shared
    page.locator("#figures a.about").first.click()
    words = shlex.split(page.locator("#about code").first.inner_text())
    mine = [str(run) for run in runs if run.name.startswith(SHORT[:5])]
    assert words == ["blkreel", "compare", *mine, "--figure", "read_wait"]
    shown = page.locator("#figures tr", has_text=SHORT).locator("td.n").first
    assert float(figure.printed(present.compare(mine), words[-1])) == float(shown.get_attribute("data-v"))


def test_pairs_go_with_the_drives_that_filters_hide(reader, tmp_path):
    runs = [write_run(tmp_path / f"{name}-{seed}", name, 90, seed=seed, seconds=3, model=name)
            for name in ("alpha", "bravo", "charlie") for seed in range(6)]
    with without_pictures():
        present.compare(runs, tmp_path / "page.html", view=export.View(highlight="alpha"))
    page = reader.open(tmp_path / "page.html", view="search=bravo")
    rows = page.evaluate("""() => [...document.querySelectorAll("#ratios-table tbody tr[data-entry]")].filter(
        (row) => row.offsetParent).map((row) => row.dataset.entry)""")
    assert rows and set(rows) == {"bravo"}


def test_names_of_equal_drives_stand_below_each_other_and_the_marked_one_on_top(reader, tmp_path):
    drives = [f"Drive {number}" for number in range(12)]
    points = [Point(name, "", x, 100.0) for name in drives for x in (1.0, 2.0)]
    spec = curves("Rates", points, SeriesStyle(tuple(drives), {}), Axis("time, s"), Axis("MB/s"), dots=False)
    table = Table("Rates", (Column("drive", "Drive"), Column("mb_s", "Rate", "rate")),
                  tuple(Row({"drive": name, "mb_s": 100.0}, name) for name in drives))
    path = tmp_path / "equal.html"
    path.write_text(render_page(Page("comparison", "Equal", "", tuple(
        Entry(name, {}, {"level": "valid", "reasons": []}) for name in drives),
        (Section("s", "S", (Chart("rates", "Rates", table, spec),)),))), encoding="utf-8")
    page = reader.open(path, width=1600, view="highlight=Drive+5")
    assert_names_stand_apart(page)
    page.set_viewport_size({"width": 400, "height": 900})
    settle(page)
    assert_names_stand_apart(page)


def assert_names_stand_apart(page):
    names = page.locator("[data-chart=rates] svg .mark-text text", has_text="Drive")
    boxes = {name.text_content(): name.bounding_box() for name in names.all()}
    assert sorted(boxes, key=lambda name: boxes[name]["y"]) == ["Drive 4", "Drive 5", "Drive 6"]
    upper, middle, lower = sorted(boxes.values(), key=lambda box: box["y"])
    assert min(middle["y"] - upper["y"], lower["y"] - middle["y"]) >= 14  # the height of a line
    seen = page.locator("[data-chart=rates] svg .mark-line path").evaluate_all(
        "all => all.filter((line) => line.getAttribute('opacity') !== '0').map((line) => line.getAttribute('stroke'))")
    assert seen[-1] == names.filter(has_text="Drive 5").get_attribute("fill")
