"""The pages of tests as data: they agree with the figures, and every chart is drawn with any of its drives."""

import copy
import json
import math
import re

import numpy as np
import pytest
import vl_convert
from documents import check_vega_lite
from synthetic_fleet import KINDS, another, fleet, single, small_test
from synthetic_tests import MS, MadeTest, closed_loop

from blkreel.analysis.charts.model import FORMATS, MOST_MARKS
from blkreel.analysis.charts.theme import NO_BRAND
from blkreel.analysis.report.html.rendering import render_page
from blkreel.benchmarks.charts.drives import drives_of
from blkreel.benchmarks.reports.page import page_of
from blkreel.benchmarks.reports.registry import REPORTS
from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.results.compared import compared

COUNTS = (1, 3, 20)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Of each kind of test, its results on one drive."""
    root = tmp_path_factory.mktemp("kinds")
    return {kind: single(root, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def pages(documents):
    return {(kind, count): page_of(document if count == 1 else fleet(document, count))
            for kind, document in documents.items() for count in COUNTS}


@pytest.mark.parametrize("kind", KINDS)
def test_each_column_of_a_comparison_keeps_its_values(documents, kind):
    document = documents[kind]
    both = compared(["a", "b"], [document, document])
    for table in both["tables"]:
        keys = [column["key"] for column in table["columns"]]
        assert len(set(keys)) == len(keys)
        # The first cell has the label; the columns behind it keep what the test has in them.
        own = next(each for each in document["tables"] if each["title"] == table["title"])
        for key in keys[1:]:
            assert {row[key] for row in table["rows"]} == {row.get(key) for row in own["rows"]}


def charts(page):
    return [one for section in page.sections for one in section.charts]


def chart(page, id_):
    (found,) = [one for one in charts(page) if one.id == id_]
    return found


def nodes(spec):
    """Every object of a specification, outer ones first."""
    if isinstance(spec, dict):
        yield spec
    for part in spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ():
        yield from nodes(part)


def data_sets(spec):
    """The objects that have data of their own."""
    return [node["data"] for node in nodes(spec) if isinstance(node.get("data"), dict)]


def data(spec):
    """Every inline datum of a specification."""
    return [row for each in data_sets(spec) for row in each.get("values") or []]


def fitted(spec):
    spec = copy.deepcopy(spec)
    for view in (spec, *spec.get("vconcat", [])):
        view["width"] = 500 if "vconcat" not in view else view.pop("width", 0)
    if "vconcat" in spec:
        del spec["width"]
    spec.pop("autosize", None)
    return spec


def left(spec, entries):
    """The chart as it is drawn with these drives alone: what the page and the exported pictures do."""
    spec = copy.deepcopy(spec)
    for each in data_sets(spec):
        each["values"] = [row for row in each["values"] if row.get("entry") in (None, *entries)]
    return spec


def short(spec):
    """With three data of each set: the schema is the same for all of them, and slow."""
    spec = copy.deepcopy(spec)
    for each in data_sets(spec):
        each["values"] = each["values"][:3]
    return spec


def form(node):
    """What the schema sees of a specification: its structure and words, without data, texts and numbers."""
    if isinstance(node, dict):
        return {key: None if key == "values" else form(value) for key, value in node.items()}
    if isinstance(node, list):
        parts = [form(part) for part in node]
        return [part for index, part in enumerate(parts) if part not in parts[:index]]
    return node if isinstance(node, str) and re.fullmatch("[a-z]+", node) else type(node).__name__


def without_domain(spec):
    """Positions that have to look for the extent of their data, which a layer that is left empty has not: the browser's
    console would say so."""
    places = [node.get("encoding", {}).get(channel, {}) for node in nodes(spec) for channel in ("x", "y")]
    return [place for place in places if place.get("type") == "quantitative" and place.get("scale") is not None
            and "domain" not in place["scale"] and not {"domainMin", "domainMax"} <= set(place["scale"])]


def drawn(spec, highlight="", theme="light"):
    spec = fitted(spec)
    spec["params"] = [{**each, "value": highlight} if each["name"] == "highlight" else each for each in spec["params"]]
    return vl_convert.vegalite_to_svg(spec, config=NO_BRAND.config(theme), vl_version="6.1")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_holds_to_its_model(pages, kind, count):
    page = pages[kind, count]
    assert page.kind == "test" and len(page.entries) == count
    keys = {entry.key for entry in page.entries}
    ids = [one.id for one in charts(page)]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z0-9-]+", id_) for id_ in ids)
    for one in charts(page):
        names = {column.key for column in one.table.columns}
        assert len(names) == len(one.table.columns), one.id
        assert all(column.format in FORMATS for column in one.table.columns)
        for row in one.table.rows:
            assert row.entry in keys
            for column in one.table.columns:  # what is not there says why
                assert row.values.get(column.key) is not None or column.key in row.why or not column.recompute, one.id
        if one.spec is not None:
            rows = data(one.spec)
            assert 0 < len(rows) <= MOST_MARKS, one.id
            assert {row["entry"] for row in rows if "entry" in row} <= keys
            assert one.spec["description"] and one.spec["params"][0]["name"] == "highlight"
            assert "config" not in one.spec
            json.dumps(one.spec, allow_nan=False)
            assert not without_domain(one.spec), one.id


def test_specifications_match_the_schema(pages):
    """Each form is validated once; charts of one form differ in data and texts."""
    drives = [(kind, 3) for kind in KINDS] + [("mixes", 1), ("depths", 20)]  # other counts have these layers
    forms = {json.dumps(form(one.spec), sort_keys=True): one.spec
             for key in drives for one in charts(pages[key]) if one.spec is not None}
    assert len(forms) > 20
    for spec in forms.values():
        check_vega_lite(short(fitted(spec)))


@pytest.mark.parametrize("count", (1, 3))
@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_of_a_table_is_what_its_command_prints(documents, pages, kind, count):
    page = pages[kind, count]
    by_path = {documents[kind]["path"]: documents[kind]} if count == 1 else {
        each["path"]: each for each in fleet(documents[kind], count)["tests"]}
    seen = 0
    for one in charts(page):
        for column in one.table.columns:
            if not column.recompute:
                continue
            for row in one.table.rows:
                if row.values.get(column.key) is None:
                    continue
                told = re.fullmatch(r"blkreel report RUN --figure '?([^']+)'?", column.recompute)[1]
                key = told.format(**row.values)
                found = by_path[row.path]["figures"]
                for part in key.split("."):
                    found = found[part]
                assert found == row.values[column.key], (one.id, key)
                seen += 1
    assert seen > 4


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_draws_whoever_is_left_and_whoever_is_marked(pages, kind, capfd):
    page = pages[kind, 3]
    keys = [entry.key for entry in page.entries]
    for index, one in enumerate(one for one in charts(page) if one.spec is not None):
        some = (keys, keys[:1], keys[1:], [])[index % 4]
        svg = drawn(left(one.spec, some), keys[0], "dark")
        assert svg.count("<path") > (3 if some else 0), one.id
        texts = re.findall(">([^<]+)<", svg)
        if one.spec.get("height") != {"step": 40}:
            continue
        assert [key for key in keys if key in texts] == [key for key in keys if key in some], one.id
    told = "".join(capfd.readouterr())
    assert "WARN" not in told and "Infinite" not in told


def test_lines_of_many_drives_are_muted_but_for_the_marked_one(pages):
    """Readers distinguish eight hues; of more drives, only the marked one and its neighbors have a color and a name."""
    few = chart(pages["depths", 3], "depth-sweep").spec["layer"][0]["encoding"]
    assert few["color"]["field"] == "entry" and few["strokeDash"]["field"] == "entry"
    many = chart(pages["depths", 20], "depth-sweep")
    assert "strokeDash" not in many.spec["layer"][0]["encoding"]
    assert many.spec["layer"][0]["encoding"]["color"]["value"] == {"expr": "other"}
    svg = drawn(many.spec, "Drive 07")
    shown = {name for name in (f"Drive {number:02}" for number in range(1, 21)) if f">{name}" in svg}
    assert shown == {"Drive 06", "Drive 07", "Drive 08"}


def test_the_best_drive_stands_first_everywhere(pages):
    for kind in KINDS:
        page = pages[kind, 20]
        ranks = [entry.rank for entry in page.entries]
        assert ranks == sorted(ranks) and ranks[0] == 1, kind
        assert page.entries[0].key == "Drive 20", kind  # made the fastest
        first = next(one for one in charts(page) if one.spec and "step" in str(one.spec.get("height")))
        places = {row["entry"]: row["order"] for row in data(first.spec)}
        assert sorted(places, key=places.get)[0] in ("Drive 20", "Drive 19"), (kind, first.id)


def test_a_drive_with_an_invalid_test_stands_last(documents):
    document = json.loads(json.dumps(fleet(documents["depths"], 3)))
    for test in document["tests"]:
        if test["entry"] == "Drive 03":  # made the fastest
            test["verdict"] = {**test["verdict"], "level": "invalid"}
    page = page_of(document)
    first = next(one for one in charts(page) if one.spec and "step" in str(one.spec.get("height")))
    places = {row["entry"]: row["order"] for row in data(first.spec)}
    assert sorted(places, key=places.get) == ["Drive 02", "Drive 01", "Drive 03"]


def test_slowdown_runs_from_reads_alone_to_reads_beside_the_writer(documents, pages):
    one = chart(pages["mixed-burst", 1], "slowdown")
    figures = documents["mixed-burst"]["figures"]["states"]["client"]
    ends = {row["part"]: row["value"] for row in data(one.spec)}
    alone, beside = figures["baseline"]["read_wait_ns"], figures["mixed"]["read_wait_ns"]
    assert ends["beside the writer"] / ends["alone"] == pytest.approx(beside / alone)
    row = one.table.rows[0].values
    assert (row["read_wait_ns"], row["alone_ns"], row["slowdown"]) == (beside, alone, figures["slowdown"])
    assert f"{figures['slowdown']:.2f} ×" in data(one.spec)[0]["text"]


def test_the_timeline_holds_every_byte_and_ends_with_the_run(documents, pages):
    (series,) = [one for one in documents["mixed-burst"]["series"]
                 if one["of"]["what"] == "timeline" and one["of"]["role"] == "mixed"]
    told = sum(sum(line["y"]) for line in series["lines"]) * series["of"]["width_ns"]
    one = chart(pages["mixed-burst", 1], "timeline")
    rows = one.spec["vconcat"][0]["data"]["values"]
    area = sum((after["t"] - row["t"]) * (row["read"] + row["write"])
               for row, after in zip(rows, rows[1:], strict=False)) * 1e9
    assert area == pytest.approx(told, rel=0.01)
    assert one.wide and one.zooms
    assert '"name": "zoom"' in json.dumps(one.spec)


def ringed(page, id_):
    return [row["x"] for row in data(chart(page, id_).spec) if row.get("ring")]


def test_the_lowest_depth_with_enough_and_the_end_of_the_fast_part_are_ringed(documents, pages):
    lowest = documents["depths"]["figures"]["states"]["enterprise"]["lowest_depth_with_95_percent"]
    assert ringed(pages["depths", 3], "depth-sweep") == [lowest] * 3
    fast = documents["cache"]["figures"]["states"]["fresh"]["fills"]["first"]["fast_bytes"]
    assert ringed(pages["cache", 1], "cache") == [pytest.approx(fast / 1e9)]
    split = {row["part"]: row["value"] for row in data(chart(pages["cache", 1], "cache-split").spec)}
    assert split["cached"] > 4 * split["exhausted"]


def test_percentiles_of_too_few_say_so(pages):
    one = chart(pages["qd1", 3], "qd1-qos-random-read-4k")
    assert all(row.why["p99_99_ns"] == "n too small (n=1,500)" for row in one.table.rows)
    assert {row["part"] for row in data(one.spec)} == {"mean", "p99"}
    assert any("n too small for p99.99" in note for note in one.notes)


def test_tests_of_one_drive_are_repetitions(documents):
    """Six tests of each drive: an interval, on the logarithm, and the command is of no single test."""
    six = page_of(fleet(documents["depths"], 3, repeats=6))
    assert [len(six.entries), {entry.facts["tests"] for entry in six.entries}] == [3, {"6"}]
    values = [each["figures"]["states"]["enterprise"]["depths"]["32"]["mb_s"]
              for each in fleet(documents["depths"], 3, repeats=6)["tests"] if each["label"].startswith("Drive 02")]
    logs = [math.log(value) for value in values]
    mean = sum(logs) / 6
    half = 2.5706 * math.sqrt(sum((each - mean) ** 2 for each in logs) / 5 / 6)
    (dot,) = [row for row in data(chart(six, "depth-apart").spec)
              if row["entry"] == "Drive 02" and row["part"] == "depth 32"]
    assert dot["value"] == pytest.approx(math.exp(mean))
    assert (dot["low"], dot["high"]) == (pytest.approx(math.exp(mean - half), rel=1e-4),
                                         pytest.approx(math.exp(mean + half), rel=1e-4))
    assert any("95 %" in note for note in chart(six, "depth-apart").notes)
    rows = chart(six, "depth-sweep").table.rows
    assert all(row.path is None and row.remarks["mb_s"].startswith("95 %: ") for row in rows)
    # A maximum is of single I/Os: it is not averaged, and the cell gives the range with its unit.
    assert all(row.values["max_ns"] is None and re.fullmatch(
        r"6 tests: not averaged; [\d.,]+ [µm]s to [\d.,]+ [µm]s", row.why["max_ns"]) for row in rows)
    assert {row.values["lowest_depth_with_95_percent"] for row in chart(six, "lowest-depth").table.rows} == {
        documents["depths"]["figures"]["states"]["enterprise"]["lowest_depth_with_95_percent"]}
    assert len(chart(six, "tests").table.rows) == 18
    assert {entry.verdict["level"] for entry in six.entries} == {"valid"}


def test_few_repetitions_show_their_range_and_no_interval(documents):
    three = page_of(fleet(documents["depths"], 2, repeats=3))
    dots = data(chart(three, "depth-apart").spec)
    assert all(row["low"] < row["value"] < row["high"] and row["thick"] < 2 for row in dots)
    assert any("no interval" in note for note in chart(three, "depth-apart").notes)
    assert chart(three, "depth-sweep").table.rows[0].remarks["mb_s"].startswith("n=3: ")
    assert [reason["text"] for reason in three.entries[0].verdict["reasons"]] == [
        "n=3: fewer than 6 repeats, no interval"]


def test_repeats_within_a_test_give_an_interval_too(tmp_path):
    test = MadeTest(tmp_path / "t", "depths")
    for repeat in range(1, 7):
        test.step("depth", {"state": "full", "depth": 1, "repeat": repeat}, closed_loop(100, 100_000 + 1000 * repeat))
    document = results_of(test.path)
    whole = chart(page_of(document), "depth-sweep").table.rows[0].remarks["mb_s"]
    assert whole.startswith("95 %: ")
    assert len(document["figures"]["states"]["full"]["depths"]["1"]["mb_s_repeats"]) == 6


@pytest.mark.parametrize(("report", "role", "labels"), [
    ("consistency", "consistency", [{}]), ("depths", "depth", [{"depth": 1}]),
    ("rounds", "round", [{"round": number} for number in range(1, 6)])])
def test_the_score_is_of_all_repeats(tmp_path, report, role, labels):
    """It was that of the first repeat, or had no interval."""
    test = MadeTest(tmp_path / "t", report)
    random = np.random.default_rng(1)
    for repeat in range(1, 7):
        for each in labels:
            test.step(role, {"state": "full", "repeat": repeat, **each},
                      closed_loop(4000, random.integers(MS, 60 * MS, 4000), op=1))
    (drive,) = drives_of(results_of(test.path))
    score = REPORTS[report].headline(drive)
    assert score.n == 6 and score.low < score.value < score.high and score.smallest < score.value < score.largest


def test_other_parameters_or_another_unit_are_no_repetition(documents):
    one, same = (another(documents["depths"], 1, 1.0) for _ in range(2))
    other = another(documents["depths"], 1, 1.0)
    other["parameters"] = {"span": 1}
    unit = another(documents["depths"], 1, 1.0)
    unit["drive"]["serial_hash"] = "f" * 64
    emulated = [another(documents["depths"], 1, 1.0) for _ in range(2)]
    for each, latency in zip(emulated, ("80us", "900us"), strict=True):
        each["drive"]["serial_hash"], each["units"] = "", ["/run/blkreel/emulated/usb/drive", f"nil:usb,{latency}"]
    updated = another(documents["depths"], 1, 1.0)
    updated["drive"]["firmware"] = "2.0"
    tests = [one, same, other, unit, *emulated, updated]
    for path, each in zip("abcdefg", tests, strict=True):
        each["path"] = path
    page = page_of(compared(list("abcdefg"), tests))
    assert [row.values["directory"] for row in chart(page, "tests").table.rows if row.entry == page.entries[0].key]
    assert sorted(len([row for row in chart(page, "tests").table.rows if row.entry == entry.key])
                  for entry in page.entries) == [1, 1, 1, 1, 1, 2]
    assert any("span is not the same" in notice.lower() for notice in page.notices)


def test_what_the_user_told_of_the_drives_makes_filters(documents):
    class DrivesFile:
        def facts(self, label, model):
            return {"class": "consumer" if label == "Drive 01" else "enterprise", "flash": "TLC"}

        def relations(self, label, models):
            assert models["Drive 03"] == "Example 3"
            return {"Drive 03": f"rival of {label}"}
    page = page_of(fleet(documents["depths"], 3), "Drive 02", DrivesFile())
    assert [entry.facts.get("relation") for entry in page.entries] == ["rival of Drive 02", None, None]
    assert "class" in page.filters and "flash" not in page.filters
    assert {entry.key: entry.facts["class"] for entry in page.entries}["Drive 01"] == "consumer"


def test_quick_and_missing_stand_on_the_page(tmp_path):
    test = MadeTest(tmp_path / "t", "depths", quick=True, parameters={"span": 64 * 10**9, "depths": [1, 2]})
    test.told["parameters_text"] = {"span": "64 GB"}
    test.step("depth", {"state": "full", "depth": 1}, closed_loop(10, 1000))
    test.step("depth", {"state": "full", "depth": 2}, status="failed", title="depth 2", error="it broke")
    page = page_of(results_of(test.path))
    assert any(notice.startswith("Quick:") for notice in page.notices)
    assert " --quick: not the figures of the method · " in page.sections[0].source, "pictures have it"
    assert "Missing: depth 2 (it broke)." in page.notices
    assert {("span", "64 GB"), ("depths", "1, 2")} <= set(page.parameters)
    assert page.entries[0].verdict["level"] == "invalid"


def test_a_test_without_any_run_has_a_page(tmp_path):
    for kind in KINDS:
        test = MadeTest(tmp_path / kind, kind)
        test.step("depth", {"state": "full"}, status="waiting")
        page = page_of(results_of(test.path))
        assert [one.id for one in charts(page)][-1] == "tests" or charts(page), kind
        assert render_page(page)


def test_a_state_measured_on_one_drive_only(documents, tmp_path):
    """Drives with different states: each chart shows those that have it, and says who has not."""
    both_states = another(results_of(small_test(tmp_path / "t", "mixes")), 1, 1.0)
    one_state = another(documents["mixes"], 2, 1.1)
    del one_state["figures"]["states"]["full"]
    one_state["figures"]["full_over_empty"] = {}
    page = page_of(compared(["a", "b"], [both_states, one_state]))
    full = chart(page, "mix-full")
    assert {row["entry"] for row in data(full.spec)} == {"Drive 01"}
    assert {row["entry"] for row in data(chart(page, "full-empty").spec)} == {"Drive 01"}
