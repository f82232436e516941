"""Charts of runs without some of the drives: no complaint in the console. test_report_pages.py has all drives."""

import json
from pathlib import Path

import pytest
from synthetic_runs import write_four_runs, write_run

from blkreel.analysis.charts.spec import without
from blkreel.analysis.charts.theme import NO_BRAND
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document
from blkreel.analysis.report.html import rendering
from blkreel.analysis.report.page import compare_page

pytestmark = pytest.mark.browser
LIBRARY = Path(rendering.__file__).with_name("vega.js")


@pytest.fixture(scope="module")
def drawn(browser):
    """Draws specifications one after another, and gives what the console said of each by its name."""
    page = browser.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.set_content('<div id="place" style="width: 500px"></div>')
    page.add_script_tag(content=LIBRARY.read_text(encoding="utf-8"), type="module")
    page.wait_for_function("Boolean(window.vegaEmbed)")

    def draw(specs):
        complaints = {}
        for name, spec in specs.items():
            said.clear()
            if "vconcat" in spec:
                spec = {**spec, "vconcat": [{**view, "width": 400} for view in spec["vconcat"]]}
            page.evaluate("""([spec, config]) => vegaEmbed('#place', spec, {config, renderer: 'svg',
                          actions: false, logLevel: window.vega?.Warn ?? 2}).then(() => null)""",
                          [spec, {**NO_BRAND.config("light"), "aria": False}])
            # As wide as its place and as high as its rows: Vega-Lite remarks on that of each ranking.
            heard = [line for line in said if 'Dropping "fit-y"' not in line]
            if heard:
                complaints[name] = heard
        return complaints

    yield draw
    page.close()


def specs_of(page, hidden):
    return {chart.id: without(json.loads(json.dumps(chart.spec)), set(hidden))
            for section in page.sections for chart in section.charts if chart.spec}


def test_the_console_would_tell_of_a_layer_without_rows(drawn):
    layer = {"mark": "point", "transform": [{"filter": "datum.a > 3"}],
             "encoding": {"x": {"field": "a", "type": "quantitative"}}}
    assert "Infinite extent" in str(drawn({"bad": {"data": {"values": [{"a": 1}]}, **layer}}))


@pytest.fixture(scope="module")
def four_runs(tmp_path_factory):
    runs = write_four_runs(tmp_path_factory.mktemp("four"))
    return compare_page.page_of(*document.comparison([measure(path) for path in runs]))


@pytest.mark.parametrize("hidden", ["In memory", "On disk"])
def test_charts_of_a_comparison_are_quiet(drawn, four_runs, hidden):
    assert drawn(specs_of(four_runs, [hidden])) == {}


def test_charts_of_many_drives_are_quiet(drawn, tmp_path):
    runs = [measure(write_run(tmp_path / f"run{index}", f"Drive {index}", seed=index, seconds=3))
            for index in range(10)]
    page = compare_page.page_of(*document.comparison(runs), highlight="Drive 3")
    assert drawn(specs_of(page, [f"Drive {index}" for index in range(1, 10)])) == {}
