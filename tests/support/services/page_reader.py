"""Opens report pages in a browser and navigates between their views."""

from contextlib import contextmanager

import pytest

from blkreel.analysis.report.html import rendering

SETTLED = "document.documentElement.dataset.settled === '1'"


class Reader:
    """Opens pages and records console messages and network requests."""

    def __init__(self, browser):
        self._browser, self.complaints, self._contexts = browser, [], []

    def open(self, path, width=1280, scheme="light", view="", **options):
        """A page that has drawn all of its charts. view: what stands behind "#" of its address."""
        context = self._browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme,
                                            reduced_motion="reduce", **options)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:"))
                or self.complaints.append(f"request: {request.url}"))
        page.goto(path.as_uri() + (f"#{view}" if view else ""))
        if options.get("java_script_enabled", True):
            page.wait_for_function(SETTLED, timeout=90_000)
        return page

    def close(self):
        for context in self._contexts:
            context.close()
        self._contexts = []


@contextmanager
def without_pictures():
    """Pages without the pictures for readers without JavaScript, which take most of the time of making a page."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rendering, "static_svg", lambda chart, page: "")
        yield


def settle(page):
    """Until a page has drawn what was done to it, as it would be after a quarter of a second.

    The page waits for a pause in what is typed, and in what else changes its view. Its own clock tells when that is
    over: on a busy machine it runs behind ours.
    """
    page.evaluate("""async () => {
        for (let frame = 0; frame < 2; frame += 1) await new Promise((resume) => requestAnimationFrame(resume));
        await new Promise((resume) => setTimeout(resume, 250));
    }""")
    page.wait_for_function(SETTLED)


def show(page, view):
    """Go to another view of a page that is open."""
    page.evaluate("""async (hash) => {
        if (location.hash === hash) return;
        const changed = new Promise((resume) => addEventListener("hashchange", resume, { once: true }));
        location.hash = hash;
        await changed;
    }""", f"#{view}" if view else "")
    page.wait_for_function(SETTLED)
