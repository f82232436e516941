"""Time of `results site` for a catalog of many drives, and the size and loading time of its pages in Chromium.

    .venv/bin/python -m measurements.analysis.site_speed [--drives 500] [--workloads 10] [--repeat 3]

The results are copies of one synthetic run, two for each drive and workload. The second build follows a new result.
"""

import argparse
import math
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from measurements.lab import machine

sys.path[:0] = [str(Path(__file__).parents[2] / "tests/support/synthetic")]
from synthetic_site import fill, put, result_of  # noqa: E402

from blkreel.benchmarks.site import build  # noqa: E402

LOADED = """() => performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd"""


def timed(what, work):
    before, begin_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    built = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what}: {time.monotonic() - begin_s:.1f} s, {processor_s:.1f} s of processor time; {built.files:,} files, "
          f"{built.written:,} written")


def loaded(pages, repeat):
    """Name of each page and its loading times in Chromium, in ms; nothing without playwright and Chromium."""
    chromium = shutil.which("chromium")
    if not chromium:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for path in pages:
            page = browser.new_page()
            times_ms = []
            for _ in range(repeat):
                page.goto(path.as_uri())
                times_ms.append(page.evaluate(LOADED))
            yield path, times_ms
            page.close()
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("drives", 500), ("workloads", 10), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print(machine())
    chance = random.Random(1)
    drives = {f"Vendor drive {number}": math.exp(chance.gauss(0, 0.5)) for number in range(options.drives)}
    workloads = [f"Workload {number}" for number in range(options.workloads)]
    with tempfile.TemporaryDirectory() as directory:
        catalog, run = fill(Path(directory), drives, workloads)
        catalog.refresh()
        site = Path(directory) / "site"
        timed("whole", lambda: build(catalog, site))
        put(catalog, result_of(run, 10**6, "Vendor drive 7", workloads[0], 1.0, workloads))
        timed("after a new result", lambda: build(catalog, site))
        largest = max(site.rglob("*.html"), key=lambda path: path.stat().st_size)
        print(f"largest page: {largest.relative_to(site)}, {largest.stat().st_size:,} bytes")
        one_of_each = [site / "index.html", *(next((site / name).glob("*.html")) for name in ("drives", "workloads",
                                                                                            "pairs"))]
        for path, times_ms in loaded(one_of_each, options.repeat):
            print(f"{path.relative_to(site)}: readable after {statistics.median(times_ms):.0f} ms "
                  f"({min(times_ms):.0f} to {max(times_ms):.0f})")


if __name__ == "__main__":
    main()
