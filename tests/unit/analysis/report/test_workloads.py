"""One page over several workloads: relative performance, the matrix, and the sentence over all."""

import pytest
from synthetic_sections import entry, figures_of_run, ratio, section

from blkreel.analysis.report import workloads
from blkreel.analysis.report.charts.workload_profile import workload_matrix


def runs_of(shown):
    """Gives each entry six runs that spread by 1 % around its value."""
    for each in shown["entries"]:
        wait = each["headline"]["read_wait"]["value"]
        each["runs"] = [{"figures": figures_of_run(wait * (1 + 0.004 * (index - 2.5)))} for index in range(each["n"])]
    return shown


def two_workloads(second_b=400, n=6):
    """A is the reference; B is twice as fast as A on the first workload, and takes second_b ms on the second."""
    ratios = [ratio("A", "B", 0.5, True), ratio("A", "C", 1.0, False), ratio("B", "C", 2, True)] if n >= 6 else []
    first = section(entry("A", 400, n=n), entry("B", 200, n=n), entry("C", 400, n=n), ratios=ratios, title="Game load")
    other = section(entry("A", 400, n=n), entry("B", second_b, n=n), entry("C", 400, n=n), title="Compilation")
    return [runs_of(first), runs_of(other)]


def test_each_drive_is_relative_to_the_reference_and_over_all_by_the_geometric_mean():
    shown = workloads.overview_of(two_workloads(), "A")
    assert [each.title for each in shown.workloads] == ["Game load", "Compilation"]
    assert {label: own.share for label, own in shown.workloads[0].drives.items()} == {"A": 1, "B": 2, "C": 1}
    assert shown.overall["B"].value == pytest.approx(2**0.5) and shown.overall["A"].value == 1
    assert shown.overall["B"].low < 2**0.5 < shown.overall["B"].high
    document = workloads.relative_document(shown)
    assert document["reference"] == "A" and document["drives"]["B"]["value"] == pytest.approx(2**0.5)


@pytest.mark.parametrize(("second_b", "n", "under_test", "words"), [
    (400, 6, "A", "Over 2 workloads, B is the fastest of 3 drives with 141 % of the performance of A (141 to 142 %)"),
    (400, 6, "B", "B is the fastest of 3 drives over 2 workloads; second is A with 71 % of the performance of B "
                  "(70 to 71 %)"),
    (1600, 6, "A", "A ties with C for the best performance of 3 drives over 2 workloads"),
    (400, 1, "A", "Over 2 workloads, B measured 141 % of the performance of A; not supported by one run of a drive"),
])
def test_the_sentence_over_workloads(second_b, n, under_test, words):
    shown = workloads.overview_of(two_workloads(second_b, n), under_test)
    shown_answer = workloads.answer(shown)
    assert shown_answer.sentence == words
    assert [figure.note for figure in shown_answer.figures] == [
        f"Game load on {under_test}", f"Compilation on {under_test}"]


@pytest.mark.parametrize(("drives", "under_test", "words"), [
    ({"A": [100] * 6, "B": [200, 202, 204], "C": [900]}, "A",
     "Over 2 workloads, B measured 50 % of the performance of A; not supported by one run of C"),
    ({"A": [100, 101] * 3, "B": [40, 160] * 3, "C": [90, 91] * 3}, "A",
     "Over 2 workloads, C has 111 % of the performance of A (111 to 112 %); no difference shown to B"),
    ({"A": [100, 101] * 3, "B": [50, 51] * 3, "C": [50, 51.2] * 3}, "A",
     "Over 2 workloads, B has 199 % of the performance of A (198 to 201 %); no difference shown to C")])
def test_no_drive_ties_without_an_interval_or_with_a_slower_one(drives, under_test, words):
    scores = [workloads.Score(title, "score", False, str, drives) for title in ("First", "Second")]
    assert workloads.answer(workloads.overview_of_scores(scores, under_test)).sentence == words


def test_without_a_drive_under_test_the_best_of_the_first_workload_is_the_reference():
    assert workloads.overview_of(two_workloads(), None).reference == "B"


def test_one_workload_needs_no_overview():
    assert workloads.overview_of(two_workloads()[:1], "A") is None
    assert workloads.overview_of([], None) is None


def test_two_paces_of_a_workload_are_told_apart_by_titles_whose_units_keep_their_letters():
    sections = two_workloads()
    for each, beside in zip(sections, ("", ", beside writes of 110 MB/s"), strict=True):
        each |= {"title": f"Dependent timing{beside} (sample:game-load)"}
        each["source"]["title"] = "Game load"
    shown = workloads.overview_of(sections, "A")
    titles = ["Game load, dependent timing", "Game load, dependent timing, beside writes of 110 MB/s"]
    assert [each.title for each in shown.workloads] == titles
    header = workload_matrix(shown, ["A", "B", "C"]).spec["layer"][0]["encoding"]["x"]["axis"]
    assert header["labelExpr"] == "split(datum.label, ', ')" and header["labelPadding"] == 2 + 2 * 14, "three lines"


def test_workloads_of_one_name_are_columns_of_their_own():
    """They were one, with the values of both written over each other."""
    sections = two_workloads() + two_workloads()
    for each, (title, sha256) in zip(sections, (
            ("Dependent timing (inferred)", "a"), ("Dependent timing (inferred), no computing", "a"),
            ("Original timing (game.parquet)", "b1"), ("Original timing (game.parquet)", "c2")), strict=True):
        each |= {"title": title}
        each["source"] |= {"title": "Game", "sha256": sha256}
    chart = workload_matrix(workloads.overview_of(sections, "A"), ["A", "B", "C"])
    columns = [row["column"] for row in chart.spec["data"]["values"] if row["entry"] == "B"]
    assert len(set(columns)) == len(sections) + 1
    assert columns[:3] == ["Game, dependent timing (inferred)", "Game, dependent timing (inferred), no computing",
                           "Game, original timing (game.parquet), b1"]


def test_ties_are_gray_and_numbers_are_percent():
    chart = workload_matrix(workloads.overview_of(two_workloads(), "A"), ["B", "A", "C"])
    cells = {(row["entry"], row["column"]): row for row in chart.spec["data"]["values"]}
    assert cells["B", "Game load"]["text"] == "200 %" and cells["B", "Game load"]["depth"] > 0
    assert cells["C", "Game load"]["depth"] == 0 == cells["A", "Game load"]["depth"]
    assert cells["B", "all workloads"]["text"] == "141 %" and cells["B", "all workloads"]["way"] == "better"
    (row,) = [row for row in chart.table.rows if row.entry == "C"]
    assert row.remarks["workload_0"] == "no difference shown"


def test_a_drive_that_misses_a_workload_has_no_mean():
    sections = two_workloads()
    sections[1]["entries"] = sections[1]["entries"][:2]
    shown = workloads.overview_of(sections, "A")
    assert "C" not in shown.overall and "C" in shown.workloads[0].drives
