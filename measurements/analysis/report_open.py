"""Time to open a page in a browser: until it can be read, until visible charts are drawn, until all charts are drawn.

    .venv/bin/python -m measurements.analysis.report_open [PAGE.html] [--drives 20] [--repeat 7]

Without PAGE.html, a comparison of synthetic drives at three paces is rendered. Each repetition uses a new browser
process, because a second page in one process reuses the compiled chart library. A page without charts and
drives, opened in turn, gives the time of the library alone. Times are those of the browser clock, from
the start of the navigation.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from blkreel.analysis.charts.model import Page
from blkreel.analysis.report.html.rendering import render_page
from measurements.lab import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/synthetic"))
WANTED_MS, WANTED_BYTES = 2000, 5_000_000
MARKS = ("DOMContentLoaded", "charts on the screen", "all charts")


def opened(playwright, path):
    """ms from the start of the navigation to each of MARKS; without charts the second is missing."""
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"),
                                         args=["--no-sandbox", "--disable-gpu"])
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.add_init_script("""addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
        if (document.documentElement.dataset.settled === "1") window.settledAt ??= performance.now();
    }).observe(document.documentElement, { attributes: true }));""")
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_function("window.settledAt", timeout=120_000)
    times_ms = page.evaluate("""() => [performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
        Number(document.documentElement.dataset.first ?? NaN), window.settledAt]""")
    browser.close()
    return times_ms


def summary(times):
    values = [time for time in times if time == time]
    return f"{statistics.median(values):5.0f} ms ({min(values):.0f} to {max(values):.0f})" if values else "–"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("page", nargs="?", type=Path)
    options.add_argument("--drives", type=int, default=20)
    options.add_argument("--repeat", type=int, default=7)
    options = options.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        path = options.page.resolve() if options.page else Path(directory, "page.html")
        if not options.page:
            from synthetic_pages import made
            path.write_text(render_page(made(options.drives, paces=3, steps=400)), encoding="utf-8")
        empty = Path(directory, "empty.html")
        empty.write_text(render_page(Page("report", "Empty", "", (), ())), encoding="utf-8")
        times = {path: [], empty: []}
        for _ in range(options.repeat):
            for file, openings in times.items():
                openings.append(opened(playwright, file))
        size = path.stat().st_size
        print(f"{path.name}: {size / 1e6:.2f} MB (goal: under {WANTED_BYTES / 1e6:g}); "
              f"median of {options.repeat} (smallest to largest)")
        print(f"| | the page | without charts | ratio |\n{'|---' * 4}|")
        for index, mark in enumerate(MARKS):
            own, bare = ([opening[index] for opening in openings] for openings in times.values())
            ratio = f"{statistics.median(own) / statistics.median(bare):.2f}" if bare[0] == bare[0] else "–"
            print(f"| {mark} | {summary(own)} | {summary(bare)} | {ratio} |")
        worst = statistics.median(opening[1] for opening in times[path])
        print(f"readable with its first charts after {worst / 1000:.2f} s (goal: under {WANTED_MS / 1000:g} s)")


if __name__ == "__main__":
    main()
