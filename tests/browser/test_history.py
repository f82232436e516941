"""The page of a history as its readers meet it: at two widths, by keyboard, without JavaScript."""

import pytest
from click.testing import CliRunner
from page_reader import settle
from synthetic_history import NIGHTS, QUERY, fill_nights

from blkreel.cli.main import cli

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Reads take longer from this night on, and so the data rate falls.
CHANGES = {"throughput": ("2026-09-21", "−16"), "read-p99": ("2026-09-21", "+19")}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    root = tmp_path_factory.mktemp("history")
    done = CliRunner().invoke(cli, ["results", "history", "--catalog", str(fill_nights(root)), *QUERY, "--metric",
                                    "throughput", "--metric", "read_p99", "-o", str(root / "history.html")],
                              standalone_mode=False)
    assert not done.exception and not done.return_value, done.output
    return root / "history.html"


def assert_changes_are_visible(page):
    for metric, (night, size) in CHANGES.items():
        section = page.locator(f"#{metric}")
        sentence = section.locator("p", has_text="1 change in 30 nights").inner_text()
        assert night in sentence and size in sentence
        labels = section.locator(f"#history-{metric} svg text").all_text_contents()
        assert night in labels and any(label.startswith(size) for label in labels)
        cells = section.locator(f"#changes-{metric}-table tbody tr").locator("th, td")
        assert cells.first.inner_text() == night and cells.first.is_visible()
        assert cells.nth(1).inner_text().replace("-", "−").startswith(size)
        assert "worse" in cells.all_inner_texts()


def test_changes_at_any_width_and_everything_by_keyboard(reader, history):
    page = reader.open(history)
    for width in (1000, 400):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate(OVERFLOW) <= 0
        assert_changes_are_visible(page)
        for picture in page.locator("main svg").all():
            assert picture.bounding_box()["width"] <= width
    nights = page.locator("#history-throughput-table")
    assert not nights.is_visible()
    page.locator("#history-throughput-behind summary").focus()
    page.keyboard.press("Enter")
    nights.wait_for(state="visible")
    first = nights.locator("tbody tr").first.locator("th, td").first
    assert nights.locator("tbody tr").count() == NIGHTS and first.inner_text() == "2026-09-01"
    # Once upward as it is, once downward.
    nights.locator("thead button").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_function("""document.querySelector("#history-throughput-table tbody tr").innerText
        .startsWith("2026-09-30")""")
    assert all(button.inner_text().strip() for button in page.locator("#changes-throughput-table thead button").all())


def test_changes_and_nights_read_without_javascript(reader, history):
    page = reader.open(history, width=1000, java_script_enabled=False)
    assert_changes_are_visible(page)
    page.locator("#history-read-p99-behind summary").click()
    nights = page.locator("#history-read-p99-table")
    assert nights.is_visible() and nights.locator("tbody tr").count() == NIGHTS
