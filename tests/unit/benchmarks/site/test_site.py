"""A site of a catalog: its figures, links, files to embed, feed, and what a second build writes."""

import json
import math
import re
import shlex
import shutil
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote
from xml.etree import ElementTree

import pandas as pd
import pytest
from synthetic_catalog import variant
from synthetic_site import DRIVES, HOSTILE, WORKLOADS, fill, put, result_of

from blkreel.analysis.report import drives_file
from blkreel.benchmarks.catalog.tables import matching
from blkreel.benchmarks.history.selection import Selection, selected
from blkreel.benchmarks.site import build, pages
from blkreel.benchmarks.site.content import content_of
from blkreel.common.errors import UsageError
from blkreel.common.progress import ProgressTask

pytestmark = pytest.mark.usefixtures("no_pictures")
FILES = """
[[drive]]
match = "Fast"
class = "consumer"
price = 200
currency = "EUR"
price_date = 2026-11-01

[[drive]]
match = "Slow"
price = 40
currency = "EUR"
price_date = 2026-11-01
"""
ATOM = "{http://www.w3.org/2005/Atom}"


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.found += [value for name, value in attributes if name in ("href", "src")]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """catalog; run, the result that its results were made of; site, its directory."""
    root = tmp_path_factory.mktemp("site")
    catalog, run = fill(root)
    (root / "drives.toml").write_text(FILES)
    build(catalog, root / "site", url="https://example.org/ssd/", title="Lab",
          drives_file=drives_file.load(root / "drives.toml"))
    return SimpleNamespace(catalog=catalog, run=run, site=root / "site")


@pytest.fixture(scope="module")
def plain(built, tmp_path_factory):
    """The directory of a site that is built without drives.toml."""
    site = tmp_path_factory.mktemp("plain") / "site"
    build(built.catalog, site)
    return site


@pytest.fixture
def own(built, plain, tmp_path):
    """The same, of a catalog and a site that a test may change."""
    copied = type(built.catalog).open(shutil.copytree(built.catalog.directory, tmp_path / "catalog"))
    return SimpleNamespace(catalog=copied, run=built.run, site=shutil.copytree(plain, tmp_path / "site"))


def names_of(site):
    return {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}


def page_of(site, directory, begin):
    (found,) = (site / directory).glob(f"{begin}-*.html")
    return found


def rows_of(html, table):
    """The texts of the cells of a table of a page, by row."""
    body = re.search(rf'<table id="{table}".*?</table>', html, re.DOTALL)[0]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.split(r"<t[dh][^>]*>", row)[1:]]
            for row in re.split(r"<tr", body)[2:]]


def test_all_links_lead_to_files_of_the_site(built):
    pages = list(built.site.rglob("*.html"))
    assert len(pages) == 1 + 3 + 2 + 3 + 2 * 3  # overview, drives, workloads, pairs, and two to embed for each chart
    for page in pages:
        for link in Links(page.read_text()).found:
            if link == "data:,":
                continue
            assert "://" not in link, f"{page}: {link}"
            path, _, fragment = link.partition("#")
            assert not path or (page.parent / unquote(path)).is_file(), f"{page}: {link}"
            assert path or f'id="{fragment}"' in page.read_text(), f"{page}: {link}"


def watched(catalog, on_update):
    """The catalog. on_update(step, done, total): called with the progress of what is done with it."""
    def progress(step, total=None):
        task = ProgressTask()
        task.update = lambda done, detail="": on_update(step, done, total)
        return nullcontext(task)

    return type(catalog).open(catalog.directory, progress=progress)


def test_a_build_shows_how_much_of_it_is_done(built, tmp_path):
    shown = []
    build(watched(built.catalog, lambda *update: shown.append(update)), tmp_path / "site")
    assert shown == [("making pages", number, len(shown)) for number in range(1, len(shown) + 1)]


def test_names_are_text(built):
    for page in built.site.rglob("*.html"):
        text = page.read_text()
        assert "<script>alert" not in text and Links(text).tags.count("script") <= 4
    assert "Söhne" in (built.site / "index.html").read_text()


def test_overview_has_the_geometric_mean_and_value_for_money(built):
    """By hand: each workload has factors 1, 0.5 and 0.25, and data rate is better higher."""
    html = (built.site / "index.html").read_text()
    rows = {row[1]: row for row in rows_of(html, "drives-by-workloads-table")}
    assert rows["Fast"][2] == "100" and rows["Slow"][2] == "25.0"
    assert rows["Fast"][0] == "1" and rows["Slow"][0] == "3"
    # Percent for each 100 EUR: 100 / 2, and 25 / 0.4.
    assert rows["Fast"][-1] == "50.0" and rows["Slow"][-1] == "62.5"
    # The best drive relative to itself is no measurement.
    assert not any(letter.isdigit() for letter in rows["Fast"][3]) and "to" in rows["Slow"][3]


def test_an_overview_without_a_ranked_drive_has_a_table_but_no_picture(tmp_path):
    """No drive has a result of each workload, so none has an overall performance."""
    catalog, run = fill(tmp_path, {"A": 1.0}, WORKLOADS[:1])
    put(catalog, result_of(run, 101, "B", WORKLOADS[1], 1.0))
    build(catalog, tmp_path / "site")
    assert {name for name in names_of(tmp_path / "site") if name.startswith("embed/overview")} == {
        "embed/overview.csv", "embed/overview.table.html"}
    html = (tmp_path / "site/index.html").read_text()
    assert "embed/overview.csv" in html and "embed/overview.svg" not in html
    assert len(rows_of(html, "drives-by-workloads-table")) == 2


def test_a_workload_of_one_drive_leaves_the_others_in_the_overview(tmp_path):
    """The slowest of three drives has a second workload to itself: it is not the best drive over both, place 1 of 1."""
    catalog, run = fill(tmp_path, {"A": 1.0, "B": 0.5, "C": 0.25}, WORKLOADS[:1])
    put(catalog, result_of(run, 101, "C", WORKLOADS[1], 1.0))
    content = content_of(catalog.result_table().to_pylist(), catalog.metric_table())
    assert [column.title for column in content.columns] == [WORKLOADS[0]]
    assert {drive.label: drive.place for drive in content.drives} == {"A": 1, "B": 2, "C": 3}
    sentence = pages.Maker(content, "Lab").drive(content.drives[2]).answer.sentence
    assert "C has 25 % of the performance of the best drive over 1 workload, place 3 of 3" in sentence


def test_the_overview_says_what_it_leaves_out(own, tmp_path, monkeypatch):
    monkeypatch.setattr("blkreel.benchmarks.site.content.MOST_COLUMNS", 1)
    (tmp_path / "drives.toml").write_text(FILES.replace('currency = "EUR"', 'currency = "USD"', 1))
    put(own.catalog, result_of(own.run, 900, "Model of a drive", WORKLOADS[0], 1, simulated=True))
    content = content_of(own.catalog.result_table().to_pylist(), own.catalog.metric_table(),
                         drives_file.load(tmp_path / "drives.toml"))
    page = pages.Maker(content, "Lab").index()
    assert page.notices == ("Prices are left out: they are in several currencies, EUR, USD.",)
    chart = page.sections[0].charts[0]
    assert "Of the 2 workloads the 1 with most drives in common." in chart.notes
    assert any(note.startswith("Without simulated drives") for note in chart.notes)
    assert "price" not in [column.key for column in chart.table.columns]


def test_commands_list_the_values_that_a_mean_is_of(own):
    content = content_of(own.catalog.result_table().to_pylist(), own.catalog.metric_table())
    condition = content.conditions[0]
    command = next(column.recompute for column in pages.Maker(content, "Lab").chart(condition).table.columns
                   if column.title == condition.metric.title)
    *words, checksum = command.split()
    assert words == ["blkreel", "results", "list", "--catalog", "DIR", "--workload"]
    listed = matching(own.catalog.result_table(), (), (checksum,)).to_pylist()
    assert sorted(row["headline_value"] for row in listed) == sorted(
        value for each in condition.standings for value in each.values)
    drive = next(drive for drive in content.drives if drive.label == HOSTILE)
    (hint,) = next(section for section in pages.Maker(content, "Lab").drive(drive).sections
                   if section.id == "pairs").lead
    assert shlex.split(hint)[shlex.split(hint).index("--drive") + 1] == HOSTILE


def test_values_are_those_of_the_tables(built):
    """Against plain pandas over the tables of the catalog."""
    content = content_of(built.catalog.result_table().to_pylist(), built.catalog.metric_table())
    frame = pd.read_parquet(built.catalog.directory / "tables/results.parquet")
    means = frame.groupby(["workload_title", "label"], observed=True).headline_value.apply(
        lambda values: math.exp(sum(map(math.log, values)) / len(values)))
    assert len(content.conditions) == len(WORKLOADS)
    for condition in content.conditions:
        assert condition.score.higher_is_better
        assert [each.label for each in condition.standings] == list(DRIVES)
        for each in condition.standings:
            assert math.isclose(each.value, means[condition.title, each.label], rel_tol=1e-12)
    assert [drive.label for drive in content.drives] == list(DRIVES)
    assert math.isclose(content.drives[1].overall.value, 0.5, rel_tol=1e-9)


def test_a_page_of_a_pair_has_ratio_and_interval(built):
    (page,) = (built.site / "pairs").glob("fast-*--slow-*.html")
    rows = rows_of(page.read_text(), "by-workload-table")
    assert [row[0] for row in rows] == list(WORKLOADS)
    for row in rows:
        low, high = map(float, re.match(r"([\d.]+) to ([\d.]+) %", row[6]).groups())
        assert row[5] == "25.0" and low < 25 < high and row[7] == "yes"


def test_a_drive_has_the_metrics_of_its_newest_results(built):
    html = page_of(built.site, "drives", "fast").read_text()
    rows = {row[0]: row for row in rows_of(html, "all-metrics-table")}
    assert rows["I/Os"][1:3] == ["1,500", "1,500"]  # counts, as such
    newest = max((row for row in built.catalog.result_table().to_pylist() if row["label"] == "Fast"
                  and row["workload_title"] == WORKLOADS[0]), key=lambda row: (row["started_at"], row["id"]))
    assert f'results/{newest["id"]}.json' in html
    assert {row[4] for row in rows.values()} == {
        row["key"] for row in built.catalog.metric_table().to_pylist() if row["id"] == newest["id"]}


def test_a_difference_has_a_color_only_where_the_results_show_it(built):
    rows = built.catalog.result_table().to_pylist()
    close = result_of(built.run, 950, "Slow", WORKLOADS[0], 1.0)  # one result as fast as the best, beside two slow ones

    def tied(rows):
        content = content_of(rows, built.catalog.metric_table())
        chart = pages.Maker(content, "Lab").index().sections[0].charts[0]
        return {(cell["entry"], cell["column"]): cell["depth"] == 0 for cell in chart.spec["data"]["values"]}

    assert not tied(rows)["Slow", WORKLOADS[0]] and tied(rows)["Fast", "Overall"]
    wide = {**next(row for row in rows if row["label"] == "Slow" and row["workload_title"] == WORKLOADS[0]),
            "id": close["id"], "headline_value": close["metrics"][close["headline"]]["value"]}
    assert tied([*rows, wide])["Slow", WORKLOADS[0]]


def test_a_site_names_no_fastest_drive_beside_one_with_a_single_result(built):
    """Although the second differs from the best."""
    rows = built.catalog.result_table().to_pylist()
    slow = content_of(rows, built.catalog.metric_table()).conditions[0].standings[-1]
    content = content_of([row for row in rows if row["id"] not in [row["id"] for row in slow.rows[:-1]]],
                         built.catalog.metric_table())
    doubt = "; one result is too few to show a difference to Slow"
    assert pages.Maker(content, "Lab").condition(content.conditions[0]).answer.sentence.endswith(doubt)
    sentence = pages.Maker(content, "Lab").index().answer.sentence
    assert sentence.startswith("Fast measured fastest of 3 drives over 2 workloads, then ") and sentence.endswith(doubt)
    fast, *_, slow = content.drives
    doubt = "; one result is too few to show a difference to Fast"
    assert pages.Maker(content, "Lab").drive(slow).answer.sentence.endswith(doubt)
    assert pages.Maker(content, "Lab").pair(fast, slow).answer.sentence.endswith(doubt)
    assert not pages.Maker(content, "Lab").drive(fast).answer.sentence.endswith(doubt)


def test_drives_as_fast_as_each_other_share_a_place(tmp_path):
    catalog, _ = fill(tmp_path, {"A": 1.0, "B": 0.5, "C": 0.5, "D": 0.25})
    content = content_of(catalog.result_table().to_pylist(), catalog.metric_table())
    assert [drive.place for drive in content.drives] == [1, 2, 2, 4]


def test_raw_files_are_those_of_the_catalog(built):
    copied = {path.name: path.read_bytes() for path in (built.site / "results").iterdir()}
    assert copied == {path.name: path.read_bytes() for path in built.catalog.results.iterdir()}


@pytest.mark.parametrize("name", ["overview", "game-load"])
def test_a_chart_has_each_form(built, name):
    stem = name if name == "overview" else page_of(built.site, "workloads", name).stem
    files = {path.name.removeprefix(stem): path.read_bytes() for path in (built.site / "embed").glob(f"{stem}*")}
    widths = {suffix: int.from_bytes(files[suffix][16:20], "big") for suffix in (".png", "@2x.png")}
    assert files[".png"].startswith(b"\x89PNG") and widths["@2x.png"] == 2 * widths[".png"]
    spec = json.loads(files[".vl.json"])
    assert "vega-lite" in spec["$schema"] and spec["data"]["values"]
    ElementTree.fromstring(files[".svg"])
    for suffix in (".html", ".table.html"):
        assert files[suffix].count(b"<tr>") == 1 + len(DRIVES) and b"<script" not in files[suffix]
    assert b"Alternative text: " in files[".txt"] and files[".csv"].count(b"\n") == 1 + len(DRIVES)


def test_the_feed_names_each_result_once_the_newest_first(built):
    feed = ElementTree.parse(built.site / "feed.xml").getroot()
    entries = feed.findall(f"{ATOM}entry")
    assert {each.findtext(f"{ATOM}id").rpartition(":")[2] for each in entries} == {
        path.stem for path in built.catalog.results.iterdir()}
    dates = [each.findtext(f"{ATOM}updated") for each in entries]
    assert dates == sorted(dates, reverse=True) and feed.findtext(f"{ATOM}updated") == dates[0]
    for each in entries:
        link = each.find(f"{ATOM}link").get("href")
        assert link.startswith("https://example.org/ssd/drives/") and (built.site / link[24:]).is_file()
    assert any(HOSTILE in each.findtext(f"{ATOM}title") for each in entries)


def test_a_second_build_writes_nothing(own):
    before = {name: (own.site / name).stat().st_mtime_ns for name in names_of(own.site)}
    again = build(own.catalog, own.site)
    assert (again.written, again.removed) == (0, 0)
    assert before == {name: (own.site / name).stat().st_mtime_ns for name in names_of(own.site)}


def test_a_new_result_changes_the_pages_that_show_it(own):
    before = {name: (own.site / name).read_bytes() for name in names_of(own.site)}
    # Without a date it is not in the list of the newest, and in no feed.
    put(own.catalog, result_of(own.run, 900, "Slow", WORKLOADS[0], 0.25, started_at=None))
    build(own.catalog, own.site)
    after = {name: (own.site / name).read_bytes() for name in names_of(own.site)}
    changed = {name for name in after if after[name] != before.get(name)} - {"manifest.json"}
    assert str(page_of(own.site, "workloads", "photo-import").relative_to(own.site)) not in changed
    assert not any(name.startswith("embed/photo-import") for name in changed)
    assert {"index.html", str(page_of(own.site, "drives", "slow").relative_to(own.site))} <= changed


def test_pages_of_removed_results_go_and_edited_ones_stay(own):
    edited = page_of(own.site, "drives", "slow")
    edited.write_text("mine")
    (own.site / "drives" / "note.txt").write_text("also mine")
    gone = [row["id"] for row in own.catalog.result_table().to_pylist() if row["label"] == "Slow"]
    for id_ in gone:
        own.catalog.path_of(id_).unlink()
    again = build(own.catalog, own.site)
    assert again.edited == (str(edited.relative_to(own.site)),) and edited.read_text() == "mine"
    assert (own.site / "drives" / "note.txt").exists()
    assert not [name for name in names_of(own.site) if "slow-" in name and name != str(edited.relative_to(own.site))]
    assert not any((own.site / "results" / f"{id_}.json").exists() for id_ in gone)


def test_an_ended_build_is_completed(own, monkeypatch, tmp_path):
    done = []

    def step(_, number, total):
        done.append(number)
        if number == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(watched(own.catalog, step), tmp_path / "other")
    assert not (tmp_path / "other" / "feed.xml").exists()
    build(own.catalog, tmp_path / "other")
    assert names_of(tmp_path / "other") == names_of(tmp_path / "site")


def test_a_killed_build_does_not_hide_what_it_wrote(own, monkeypatch):
    """A title of the same length, and back: sizes and earlier checksums would say that nothing is to be done."""
    build(own.catalog, own.site, title="Lab A")
    before = {name: (own.site / name).read_bytes() for name in names_of(own.site)}

    def step(_, number, total):
        if number == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(watched(own.catalog, step), own.site, title="Lab B")
    assert "Lab B" in (own.site / "index.html").read_text()
    build(own.catalog, own.site, title="Lab A")
    assert {name: (own.site / name).read_bytes() for name in names_of(own.site)} == before


def test_other_directories_are_left_alone(own, tmp_path):
    other = tmp_path / "home"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not a site; name another output"):
        build(own.catalog, other)
    assert names_of(other) == {"index.html"}


@pytest.mark.parametrize(("account", "words"), [
    ({"map": {"name": "tile", "copies": 8}}, "map tile, copies 8"),
    ({"state": {"name": "data", "spans": [[0, 40_000_000]], "span_bytes": 40_000_000}}, "data, 40 MB written")])
def test_results_that_differ_in_an_input_are_no_repetitions(own, account, words):
    """The map of a run follows the size of the drive, and needs no option to differ."""
    metadata = {**own.run["metadata"], "run": {**own.run["metadata"]["run"], **account}}
    put(own.catalog, result_of(own.run, 902, "Slow", WORKLOADS[0], 25.0, metadata=metadata))
    rows = own.catalog.result_table().to_pylist()
    content = content_of(rows, own.catalog.metric_table())
    usual, other = (condition for condition in content.conditions if condition.title == WORKLOADS[0])
    assert [len(usual.of("Slow").values), len(other.of("Slow").values)] == [2, 1]
    assert words in other.detail and words not in usual.detail
    with pytest.raises(UsageError, match="2 kinds of inputs: "):
        selected([row for row in rows if row["label"] == "Slow"], Selection(WORKLOADS[0]))


def test_a_label_of_several_units_names_them(own):
    """The facts were those of the newest result, and the value of all."""
    for number, unit, firmware in ((903, "1a", "1.0"), (904, "2b", "2.0")):
        drive = {**own.run["drive"], "unit": unit, "firmware": firmware, "capacity_bytes": number * 10**9,
                 "model": f"Model {number}"}
        result = result_of(own.run, number, "Slow", WORKLOADS[0], 0.25)
        put(own.catalog, variant(result, number, label="Slow", drive=drive))
    build(own.catalog, own.site)
    words = " ".join(re.sub(r"<[^>]*>", " ", page_of(own.site, "drives", "slow").read_text()).split())
    assert re.search(r"firmware [^ ]*,? ?1\.0, 2\.0", words) and "903 GB, 904 GB" in words
    assert "Model 903, Model 904" in words


def test_a_page_has_the_verdict_of_its_own_results(own):
    """A workload all of whose results were valid was qualified for those of another one."""
    put(own.catalog, result_of(own.run, 905, "Slow", WORKLOADS[1], 0.25, verdict={
        **own.run["verdict"], "level": "qualified"}))
    content = content_of(own.catalog.result_table().to_pylist(), own.catalog.metric_table())
    levels = {condition.title: {entry.key: entry.verdict["level"]
                                for entry in pages.Maker(content, "Lab").condition(condition).entries}
              for condition in content.conditions}
    assert [levels[title]["Slow"] for title in WORKLOADS] == ["valid", "qualified"]


def test_results_without_a_value_are_counted(own):
    verdict = {**own.run["verdict"], "level": "invalid"}
    put(own.catalog, result_of(own.run, 901, "Slow", WORKLOADS[0], 0.25, verdict=verdict))
    assert build(own.catalog, own.site).left_out == {"invalid": 1}
    assert "Left out: 1 result invalid." in (own.site / "index.html").read_text()
    assert Path(own.site / "results").is_dir()


def test_an_empty_catalog_makes_no_site(built, tmp_path):
    empty = type(built.catalog).open(tmp_path / "catalog", create=True)
    with pytest.raises(UsageError, match="no results"):
        build(empty, tmp_path / "site")
    assert not (tmp_path / "site").exists()
