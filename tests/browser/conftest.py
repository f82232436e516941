"""One browser for all tests of pages, and pages that complain of whatever a reader should not meet."""

import shutil

import pytest
from page_reader import Reader, show, without_pictures
from synthetic_pages import made

from blkreel.analysis.report.html.rendering import render_page


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make .stamps/venv-dev")
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("needs chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # Without the sandbox, since tests run as root. No page is open for so long that optimized code would pay.
        instance = playwright.chromium.launch(executable_path=chromium, args=[
            "--no-sandbox", "--disable-gpu", "--js-flags=--no-opt"])
        yield instance
        instance.close()


@pytest.fixture
def reader(browser):
    """A reader of its own, who must have had nothing to complain of."""
    one = Reader(browser)
    yield one
    one.close()
    assert one.complaints == []


@pytest.fixture(scope="session")
def made_pages(tmp_path_factory):
    """Paths of pages made up from the model: of one drive and of eight."""
    root = tmp_path_factory.mktemp("made")
    paths = {count: root / f"made-{count}.html" for count in (1, 8)}
    with without_pictures():
        for count, path in paths.items():
            path.write_text(render_page(made(count, paces=1, steps=60)), encoding="utf-8")
    return paths


@pytest.fixture(scope="session")
def _shared(browser, made_pages):
    one = Reader(browser)
    yield one, one.open(made_pages[8])
    one.close()


@pytest.fixture
def eight(_shared):
    """The page of eight drives, open and as it opens; shared, since opening takes longest."""
    reader, page = _shared
    page.emulate_media(media="screen", color_scheme="light")
    show(page, "")
    # Not in the view of the page: a test that ran before may have left it open.
    page.evaluate("document.getElementById('method-details').open = false")
    page.evaluate("scrollTo(0, 0)")
    del reader.complaints[:]
    yield page
    assert reader.complaints == []
