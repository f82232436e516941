"""Histories of simulated results: what is selected, what changed, and the documents of it."""

import math
from datetime import date, timedelta
from xml.etree import ElementTree

import numpy as np
import pytest

from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.benchmarks.history import Selection, document_of, history_of, selected
from blkreel.benchmarks.history.document import change_words, junit_of, lines, outcome
from blkreel.benchmarks.history.page import page_of
from blkreel.common.errors import UsageError

LOAD_TIME = metric_of("load_time", "ns", "lower")
SELECTION = Selection("game load", ("990",))
START = date(2026, 9, 1)


def result(night: int, run: int = 0, **other: object) -> dict[str, object]:
    return {"id": f"{night:03d}-{run}", "label": "A", "model": "Example 990", "firmware": "1.0", "unit": "ab" * 32,
            "capacity_bytes": 10**12, "simulated": False, "workload": "5e" * 32, "workload_title": "Game load",
            "workload_name": "game.parquet", "pace": "Dependent timing", "state": "client", "condition": "device 0",
            "verdict": "valid",
            "started_at": f"{START + timedelta(night)}T2{run}:00:00Z", "host": "lab", "kernel": "6.12",
            "path": f"runs/{night}-{run}", **other}


def nights(count=40, runs=3, step=25, ratio=1.1, firmware=lambda night: "1.0", **other):
    """(rows, values): load times of 40 s that spread by 3 %, and step."""
    random = np.random.default_rng(1)
    rows = [result(night, run, firmware=firmware(night), **other) for night in range(count) for run in range(runs)]
    values = 40e9 * np.exp(random.normal(0, 0.03, len(rows))) * np.where(np.arange(len(rows)) >= step * runs, ratio, 1)
    return rows, dict(zip((row["id"] for row in rows), values.tolist(), strict=True))


@pytest.fixture(scope="module")
def slower():
    rows, values = nights()
    chosen = selected(rows, SELECTION)
    return chosen, history_of(chosen.rows, values, LOAD_TIME, "date")


def test_a_step_is_dated_and_sized(slower):
    _, history = slower
    change, = history.changes
    assert history.points[change.index].name == "2026-09-26"
    assert change.point.ratio.low < 1.1 < change.point.ratio.high
    assert change.worse
    first, second = history.levels
    assert (first.first, first.last, second.first, second.last) == (0, 24, 25, 39)
    assert first.value == pytest.approx(40e9, rel=0.01)
    assert history.points[0].runs == 3
    assert history.dated_from == pytest.approx(2.9 * 0.03 / math.sqrt(3), rel=0.2)


def test_higher_is_better_of_a_throughput():
    rows, values = nights()
    history = history_of(rows, values, metric_of("read_throughput", "MB/s", "higher"), "date")
    assert [change.worse for change in history.changes] == [False]
    assert outcome(history, None, False).status == "unchanged"


def test_a_version_is_a_point_and_its_runs_are_compared():
    rows, values = nights(count=12, runs=1, step=6, firmware=lambda night: "1.0" if night < 6 else "1.1")
    history = history_of(rows, values, LOAD_TIME, "firmware")
    assert [(point.name, point.runs) for point in history.points] == [("1.0", 6), ("1.1", 6)]
    change, = history.changes
    assert history.points[change.index].name == "1.1"


def test_few_runs_are_not_searched_and_never_pass():
    for count, words in ((11, "11 nights"), (1, "1 night")):
        rows, values = nights(count=count, runs=2, step=5, ratio=2)
        history = history_of(rows, values, LOAD_TIME, "date")
        assert not history.changes
        decided = outcome(history, None, False)
        assert decided.status == "unknown"
        assert f"n too small ({words}, 12 are needed)" in decided.why


def test_changes_for_the_worse_fail_until_they_are_accepted(slower):
    _, history = slower
    assert outcome(history, None, False).status == "changed"
    assert outcome(history, date(2026, 9, 26), False).status == "unchanged"
    assert outcome(history, date(2026, 9, 25), False).status == "changed"


@pytest.mark.parametrize(("more", "statuses"), [
    ({"runs": 12, "ratio": 1.015}, ["unchanged", "unchanged"]), ({"simulated": True}, ["unknown", "changed"])],
    ids=["a change below 2 percent is listed and does not fail", "a simulated drive is decided only when allowed"])
def test_what_a_change_decides(more, statuses):
    rows, values = nights(**more)
    history = history_of(rows, values, LOAD_TIME, "date")
    assert len(history.changes) == 1
    assert [outcome(history, None, allows_simulated).status for allows_simulated in (False, True)] == statuses


def test_invalid_results_and_those_without_a_date_are_left_out():
    rows, _ = nights(count=3)
    rows[0]["verdict"], rows[1]["started_at"] = "invalid", None
    chosen = selected(rows, SELECTION)
    assert dict(chosen.left_out) == {"invalid": 1, "without a date": 1}
    assert len(chosen.rows) == 7
    with pytest.raises(UsageError, match="1 invalid"):
        selected(rows[:1], SELECTION)


def test_values_that_are_missing_or_zero_are_left_out():
    rows, values = nights(count=3)
    values[rows[0]["id"]], values[rows[1]["id"]] = 0.0, None
    history = history_of(rows, values, LOAD_TIME, "date")
    assert history.unusable == 2
    assert history.points[0].runs == 1
    with pytest.raises(ValueError, match="load_time"):
        history_of(rows, {}, LOAD_TIME, "date")


@pytest.mark.parametrize(("other", "message"), [
    ({"state": "fresh"}, "2 states: client, fresh; choose one by --where state=TEXT"),
    ({"pace": "Original timing"}, "2 paces: Dependent timing, Original timing; choose one by --where pace=TEXT"),
    ({"pace": "Original timing, idle removed"}, "2 paces: Dependent timing; Original timing, idle removed; choose one"),
    ({"condition": "device 1"}, "2 kinds of inputs: device 0, device 1; choose one by --where condition=TEXT"),
    ({"unit": "cd" * 32}, "2 units: abababababab, cdcdcdcdcdcd; choose one by --where unit=HASH"),
    ({"workload": "6f" * 32}, "2 workloads: Game load .5e5e5e5e5e5e., Game load .6f6f6f6f6f6f.; choose one by its"),
    ({"capacity_bytes": 2 * 10**12}, "2 capacities"),
])
def test_results_that_are_not_comparable_are_no_series(other, message):
    rows = [result(0), result(1, **other)]
    with pytest.raises(UsageError, match=message):
        selected(rows, SELECTION)


def test_options_choose_among_what_is_not_comparable():
    rows = [result(0), result(1, state="fresh"), result(2, unit="cd" * 32), result(3, pace="Original timing")]
    chosen = selected(rows, Selection("5e5e5e", ("A",), {"unit": "ab", "pace": "dependent", "state": "client"}))
    assert [row["id"] for row in chosen.rows] == ["000-0"]


@pytest.mark.parametrize(("selection", "message"), [
    (Selection("game lod"), "WORKLOAD game lod: no result has it; did you mean 'Game load'?"),
    (Selection("game", ("991",)), "--drive 991: no result has it"),
    (Selection("game", ("example",)), "the results have 2 models: Example 980, Example 990; choose one by --drive"),
    (Selection("game", ("990",), {"unit": "77"}), "--where unit=77: no result has it; use one of: abab"),
    (Selection("game", ("990",), {"state": "dirty"}), "--where state=dirty: no result has it; use one of: client"),
])
def test_what_no_result_has_is_an_error_with_what_they_have(selection, message):
    with pytest.raises(UsageError) as error:
        selected([result(0), result(1, model="Example 980", label="B")], selection)
    assert message in str(error.value)


def test_a_whole_name_goes_before_a_part_of_others():
    rows = [result(0), result(1, model="Example 990 Pro", label="B")]
    assert [row["id"] for row in selected(rows, Selection("game", ("Example 990",))).rows] == ["000-0"]


def test_results_of_several_hosts_are_pointed_out():
    assert "results of 2 hosts: lab, office" in selected([result(0), result(1, host="office")], SELECTION).notices[0]


def test_runs_without_a_value_are_counted():
    """Else the nights since a metric is withheld look like nights without a change."""
    rows, values = nights(step=40)
    missing = {row["id"]: None for row in rows[90:]}
    history = history_of(selected(rows, SELECTION).rows, {**values, **missing}, LOAD_TIME, "date")
    assert "no change in 30 nights, 90 runs (30 without a value left out)" in lines(
        [history], selected(rows, SELECTION), 100, False)[2]


def test_labels_of_drives_without_a_serial_are_pointed_out():
    """Two sticks of one model are a series with a step. A drive with a serial may have any label."""
    results = [result(0, label="stick a"), result(1, label="stick b")]
    assert not selected(results, SELECTION).notices
    notices = selected([{**row, "unit": ""} for row in results], SELECTION).notices
    assert "2 labels without a serial: stick a, stick b" in notices[0]


def test_versions_that_differ_beside_those_compared_are_pointed_out():
    rows = [result(0), result(1, firmware="1.1")]
    assert "results of 2 firmware versions: 1.0, 1.1" in selected(rows, SELECTION, "kernel").notices[0]
    assert selected(rows, SELECTION, "firmware").notices == ()
    assert selected(rows, SELECTION).notices == ()


def test_a_change_names_the_version_that_is_new_since_then():
    rows, values = nights(firmware=lambda night: "1.0" if night < 25 else "1.1")
    history = history_of(rows, values, LOAD_TIME, "date")
    assert change_words(history, history.changes[0]).endswith(", worse, with firmware 1.1")


def test_results_of_a_benchmark_have_no_pace():
    rows, values = nights(count=2, pace="", state="")
    history = history_of(rows, values, metric_of("score", "", "higher"), "date")
    chosen = selected(rows, SELECTION)
    assert lines([history], chosen, 80, False)[0] == "Game load on Example 990"
    assert page_of([history], chosen).lead == "Game load on Example 990; 6 runs."


def test_the_summary_fits_80_columns(slower):
    chosen, history = slower
    text = lines([history], chosen, 80, True)
    assert all(len(line.replace("[bold]", "").replace("[red]", "").replace("[/]", "")) <= 80 for line in text)
    assert any("1 change in 40 nights, 120 runs" in line for line in text)
    assert sum("2026-09-26" in line for line in text) >= 2


def test_the_document_has_every_point_and_its_results(slower):
    chosen, history = slower
    document = document_of([history], chosen, "date", [outcome(history, None, False)])
    series, = document["series"]
    assert len(series["points"]) == 40
    assert series["points"][0]["ids"] == ["000-0", "000-1", "000-2"]
    assert series["changes"][0]["name"] == "2026-09-26"
    assert document["fail_on_change"][0]["status"] == "changed"


def test_junit_has_a_case_for_each_metric(slower):
    chosen, history = slower
    few_rows, few_values = nights(count=3)
    few = history_of(few_rows, few_values, LOAD_TIME, "date")
    outcomes = [outcome(history, None, False), outcome(history, date(2026, 12, 1), False), outcome(few, None, False)]
    suite = ElementTree.fromstring(junit_of(outcomes, chosen)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    changed, unchanged, unknown = suite.findall("testcase")
    assert "2026-09-26" in changed.find("failure").get("message")
    assert unchanged.find("failure") is None
    assert unchanged.find("error") is None
    assert "12 are needed" in unknown.find("error").get("message")


def test_junit_of_a_hostile_name_is_xml():
    rows, values = nights(count=2, workload_title="Game load \x00\x1b]<&\"\udcff")
    history = history_of(rows, values, LOAD_TIME, "date")
    text = junit_of([outcome(history, None, False)], selected(rows, SELECTION))
    assert ElementTree.fromstring(text.encode()).find("testsuite").get("name").startswith("blkreel history: Game load")


@pytest.mark.parametrize("by", ["date", "kernel"])
def test_the_page_has_a_chart_that_can_be_drawn(slower, by):
    import vl_convert

    chosen, _ = slower
    rows, values = nights()
    page = page_of([history_of(rows, values, LOAD_TIME, by)], chosen)
    chart = page.sections[0].charts[0]
    svg = vl_convert.vegalite_to_svg({**chart.spec, "width": 900, "config": page.brand.config("light")})
    assert "40.1 s" in svg or "41." in svg
    assert len(chart.table.rows) == (40 if by == "date" else 1)
    if by == "date":
        assert "+9." in svg or "+10." in svg
