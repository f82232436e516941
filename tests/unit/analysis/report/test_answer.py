"""The first screen in words: over who wins, who ties, how many runs there are, and what is invalid or withheld."""

import pytest
from synthetic_sections import entry, figures_of_run, ratio, section

from blkreel.analysis.report import answer
from blkreel.analysis.stats.intervals import smallest_difference

FAST, NEXT, SLOW = (entry("A", 400, 1), entry("B", 800, 2), entry("C", 4000, 3))
TIE = (entry("A", 400, 1, ["B"]), entry("B", 402, 1, ["A"]), entry("C", 4000, 3))


@pytest.mark.parametrize(("entries", "under_test", "words"), [
    ((FAST, NEXT, SLOW), None, "A has the lowest read wait of 3 drives: 400 ms, 2.0 times lower than B"),
    ((FAST, NEXT, SLOW), "A", "A has the lowest read wait of 3 drives: 400 ms, 2.0 times lower than B"),
    ((FAST, NEXT, SLOW), "C", "C: read wait 4.00 s, 10 times higher than A, rank 3 of 3 drives"),
    (TIE, None, "A and B tie for the lowest read wait of 3 drives (400 to 402 ms)"),
    (TIE, "B", "B ties with A for the lowest read wait of 3 drives (402 ms)"),
    ([entry(name, 400, 1) for name in "ABC"], "B", "No difference shown in read wait among 3 drives (400 ms)"),
    ([entry("A", 400, n=1), entry("B", 800, n=1), entry("C", 900, n=3)], None,
     "A measured the lowest read wait of 3 drives (400 ms); not ranked: A has 1 run, 6 are needed"),
    ([entry("A", 400, n=2), entry("B", 800, n=2), entry("C", 900, n=2)], "B",
     "B: read wait 800 ms, 2.0 times higher than A; not ranked: 2 runs each, 6 are needed"),
    ([FAST], None, "A: read wait 400 ms"),
    ([entry("A", 400, level="invalid", n=1, reasons=[{"level": "invalid", "text": "3 I/Os failed"}])], None,
     "A: no result, the run is invalid (3 I/Os failed)"),
    ([entry("A", 300, 1, level="invalid"), NEXT, SLOW], None,
     "B has the lowest read wait of 2 drives (1 without a result): 800 ms, 5.0 times lower than C"),
    ([entry("A", 300, 1, withheld=True), NEXT, SLOW], "A",
     "A: no result, read wait is withheld; lowest read wait: B, 800 ms"),
    ([entry(name, 400, level="invalid") for name in "ABC"], None, "No result: the runs of all 3 drives are invalid"),
    ([entry(name, 400, level="invalid", reasons=[{"level": "invalid", "text": "page cache"}]) for name in "AB"], None,
     "No result: the runs of both drives are invalid (page cache)"),
    ([FAST, entry("B", 800, level="invalid")], None,
     "A: read wait 400 ms; B: no result, a run is invalid"),
])
def test_the_sentence_names_the_result_and_how_sure_it_is(entries, under_test, words):
    assert answer.sentence(section(*entries), under_test) == words


def two(p99_differs=True, wait=(400, 401), n=6, wait_differs=False):
    base, other = entry("fw 1.1", wait[0], 1, n=n, p99_ms=0.84), entry("fw 1.2", wait[1], 1, n=n, p99_ms=40)
    ratios = [ratio("fw 1.1", "fw 1.2", wait[1] / wait[0], wait_differs),
              ratio("fw 1.1", "fw 1.2", 40 / 0.84, p99_differs, "read_p99")]
    return section(base, other, ratios=ratios if n >= 6 else [])


def test_a_drive_with_too_few_runs_beside_one_with_enough_is_named():
    shown = two()
    shown["entries"][1]["n"] = 2
    assert answer.sentence(shown).endswith("; not supported by 2 runs of fw 1.2, 6 are needed")


@pytest.mark.parametrize(("shown", "under_test", "words"), [
    (two(), None, "fw 1.2: read p99 48 times higher (0.840 to 40.0 ms); read wait unchanged"),
    (two(), "fw 1.1", "fw 1.1: read p99 48 times lower (40.0 to 0.840 ms); read wait unchanged"),
    (two(wait=(400, 500), wait_differs=True), None,
     "fw 1.2: read p99 48 times higher (0.840 to 40.0 ms), read wait 25 % higher (400 to 500 ms)"),
    (two(wait=(400, 440)), None,
     "fw 1.2: read p99 48 times higher (0.840 to 40.0 ms); no difference shown in read wait"),
    (two(p99_differs=False), None, "No difference shown between fw 1.1 and fw 1.2 in read wait (400 to 401 ms)"),
    (two(n=1), None, "fw 1.2: read p99 48 times higher (0.840 to 40.0 ms), read wait 0.2 % higher (400 to 401 ms); "
                     "not supported by 1 run each, 6 are needed"),
])
def test_two_drives_are_compared_by_the_largest_effect(shown, under_test, words):
    assert answer.sentence(shown, under_test) == words


def test_changes_are_those_of_the_drive_under_test_and_largest_first():
    shown = two()
    forward = answer.changes(shown, *shown["entries"])
    assert [change.metric.key for change in forward] == ["read_p99", "read_wait"]
    back = answer.changes(shown, *reversed(shown["entries"]))
    assert back[0].ratio == pytest.approx(1 / forward[0].ratio)
    assert (back[0].low, back[0].high) == pytest.approx((1 / forward[0].high, 1 / forward[0].low))


def test_differences_name_the_drives_without_a_difference():
    ratios = [ratio("A", "B", 1.005, False), ratio("A", "C", 10, True), ratio("B", "C", 10, True)]
    assert answer.differences(section(*TIE, ratios=ratios), "A") == (
        "A differs from 1 of 2 drives in read wait; no difference shown to B.")


def test_with_too_few_runs_the_page_says_what_more_would_give():
    few = [entry(name, wait, n=2) for name, wait in (("A", 400), ("B", 800), ("C", 900))]
    for each in few:
        wait = each["headline"]["read_wait"]["value"]
        each["runs"] = [{"figures": figures_of_run(wait * factor)} for factor in (0.98, 1.02)]
    text = answer.differences(section(*few))
    assert text.startswith("The order is not supported: 2 runs of each drive. 6 runs of each give ranks and 95 %")
    spread = [[0.98, 1.02]] * 3
    assert f"differences from {(smallest_difference(spread, 6) - 1) * 100:.2f} %" in text
    assert "spread" not in answer.differences(section(*[entry(name, 400, n=1) for name in "ABC"]))


def test_reasons_stand_once_for_each_cause():
    late = {"level": "qualified", "code": "schedule_effect", "metric": "read_p99", "text": "read p99: effect 3 %"}
    more = late | {"text": "read p99: effect 4 %"}
    shown = [entry("A", 1, reasons=[late]), entry("B", 1, reasons=[more]),
             entry("C", 1, level="invalid", reasons=[{"level": "invalid", "text": "3 I/Os failed"}])]
    assert answer.reasons(shown) == [("invalid", "3 I/Os failed: C"),
                                     ("qualified", "read p99: effect 3 % (the first of several values): A and B")]


def test_the_workload_has_its_title_or_else_its_file():
    assert answer.workload(section(FAST, NEXT)) == "Game load · Original timing · 2 drives · 6 runs each"
    assert answer.workload(section(FAST, entry("B", 1, n=2), title=None)) == (
        "game.parquet · Original timing · 2 drives · 2 to 6 runs each")


@pytest.mark.parametrize(("value", "words"), [(48.2, "48 times higher"), (1 / 2.5, "2.5 times lower"),
                                              (1.3, "30 % higher"), (0.97, "3.0 % lower"), (1.0001, "the same"),
                                              (1500, "1,500 times higher")])
def test_a_ratio_in_words(value, words):
    assert answer.apart(value) == words
