"""A site of a catalog as its readers meet it: at three widths, by keyboard, without JavaScript."""

import pytest
from page_reader import SETTLED, settle, show
from synthetic_site import DRIVES, HOSTILE, WORKLOADS, fill

from blkreel.benchmarks.site import build

# A page may move sideways within tables only.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    build(fill(root)[0], root / "site")
    return root / "site"


def pages(site):
    return [site / "index.html", *(next((site / name).glob("*.html")) for name in ("drives", "workloads", "pairs"))]


def test_each_page_fits_its_window(reader, site):
    page = reader.open(site / "index.html")
    for path in pages(site):
        page.goto(path.as_uri())
        page.wait_for_function(SETTLED)
        for width in (400, 1000, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            settle(page)
            assert page.evaluate(OVERFLOW) <= 0, path
            assert page.locator("h1").bounding_box()["width"] <= width


def test_from_the_overview_to_a_drive_by_keyboard_and_search(reader, site):
    page = reader.open(site / "index.html")

    def follow(name, directory):
        link = page.locator("main").get_by_role("link", name=name, exact=True).first
        link.focus()
        assert link.evaluate("link => link === document.activeElement")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{directory}/*")

    follow(WORKLOADS[0], "workloads")
    page.wait_for_function(SETTLED)
    follow("Slow", "drives")
    page.wait_for_function(SETTLED)
    page.get_by_role("navigation", name="Site").get_by_role("link").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/index.html")
    page.wait_for_function(SETTLED)
    show(page, "search=slow")
    assert page.locator("#drives-table tbody tr:visible").count() == 1
    page.locator("#search").fill("")
    page.wait_for_function("document.querySelectorAll('#drives-table tbody tr:not([hidden])').length === 3")


def test_everything_reads_without_javascript(reader, site):
    page = reader.open(site / "index.html", java_script_enabled=False)
    names = page.locator("#drives-table tbody th").all_inner_texts()
    assert names == list(DRIVES) and HOSTILE in names
    assert page.locator("#drives-by-workloads svg").count() == 1
    page.locator("#all-workloads-table a", has_text=WORKLOADS[0]).click()
    assert page.locator("h1").inner_text().startswith(WORKLOADS[0])
    assert page.locator("#drives-table a", has_text="Fast").count() == 1
