"""Charts over runs and I/O by I/O: what the document says of pairs, ties and background writes is what is drawn."""

import json

import pytest
from synthetic_runs import write_run

from blkreel.analysis import document
from blkreel.analysis.exhibits import compare
from blkreel.analysis.exhibits.model import MOST_MARKS
from blkreel.analysis.exhibits.parts import marks, without
from blkreel.analysis.interference import interference
from blkreel.analysis.measure import measure
from blkreel.analysis.once_more import read_again
from blkreel.analysis.paired import paired
from blkreel.traces.reader import open_trace

BASE, OTHER = "base drive", "other drive"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Six runs of two drives, and one of a third."""
    root = tmp_path_factory.mktemp("pairs")
    measured = [measure(write_run(root / f"{index}-{seed}", label, read_us, seed=seed, seconds=4, model=label))
                for index, (label, read_us, runs) in enumerate(((BASE, 80, 6), (OTHER, 240, 6), ("third drive", 80, 1)))
                for seed in range(runs)]
    told, sections = document.comparison(measured)
    (section,) = sections
    first, *others = section.entries
    section.shown["paired"] = [{"base": first.shown["label"], "other": other.shown["label"],
                                **paired(first.measured[0], other.measured[0])} for other in others]
    for entry in section.entries[:2]:
        entry.shown["interference"] = interference(open_trace(entry.measured[0].path)).shown()
    section.entries[2].shown["interference"] = {"why": "not asked for"}
    page = compare.page_of(told, sections, highlight=OTHER)
    return section.shown, {one.id: one for part in page.sections for one in part.exhibits}


def test_intervals_and_ranks_are_those_of_the_document(compared):
    section, exhibits = compared
    entries = {entry["label"]: entry for entry in section["entries"]}
    for row in exhibits["read-service"].table.rows:
        told = entries[row.entry]["headline"]["read_service_ns"]
        assert [row.values[key] for key in ("rank", "read_service_low_ns", "read_service_high_ns")] == [
            told["rank"], told["low"], told["high"]]
    drawn = {row["entry"]: row for row in exhibits["read-service"].spec["data"]["values"]}
    assert drawn[BASE]["low"] < drawn[BASE]["value"] < drawn[BASE]["high"]
    assert drawn["third drive"]["low"] == drawn["third drive"]["high"] and drawn["third drive"]["band"] == 0
    (row,) = [row for row in exhibits["read-service"].table.rows if row.entry == "third drive"]
    assert row.values["rank"] is None and "too few runs" in row.why["rank"]


def test_drives_that_tie_share_a_shade_and_those_that_differ_do_not(compared):
    section, exhibits = compared
    for id_, name in (("wait", "wait_ns"), ("read-service", "read_service_ns")):
        drawn = {row["entry"]: row["band"] for row in exhibits[id_].spec["data"]["values"]}
        ranks = {entry["label"]: entry["headline"][name]["rank"] for entry in section["entries"]}
        same = ranks[BASE] == ranks[OTHER]
        assert (drawn[BASE] == drawn[OTHER] > 0) == same
    # The drive under test is what the others stand against; what has too few runs for an interval is not listed.
    told = {row.group: row.values for row in exhibits["ratios"].table.rows}
    sure = {one["figure"]: one for one in section["ratios"] if one["differ"] is not None}
    assert len(exhibits["ratios"].table.rows) == len(told) == 3
    row, one = told["Total service time of reads"], sure["read_service_ns"]
    assert (one["base"], one["other"]) == (row["other"], row["base"]) == (BASE, OTHER)
    assert [row[key] for key in ("change", "low", "high")] == pytest.approx(
        [1 / one["value"] - 1, 1 / one["high"] - 1, 1 / one["low"] - 1])
    assert row["verdict"] == ("differ" if one["differ"] else "tie")


def test_a_drive_with_too_few_runs_has_a_place_and_no_rank(compared):
    section, _ = compared
    ranks = {entry["label"]: entry["headline"]["wait_ns"]["rank"] for entry in section["entries"]}
    entries = compare.entries_of([section], compare._leads([section]), OTHER)
    assert {entry.key: entry.rank for entry in entries} == ranks and ranks["third drive"] is None
    assert sorted(entry.order for entry in entries) == [1, 2, 3] == [entry.order for entry in entries]
    assert {entry.key: entry.why for entry in entries if entry.why} == {"third drive": "n=1"}


def test_the_drive_under_test_is_what_others_are_held_against_io_by_io(tmp_path):
    runs = [write_run(tmp_path / label, label, seconds=2, model=label) for label in ("a", "b", "c")]
    _, sections = document.comparison([measure(run) for run in runs])
    for marked, base in ((None, "a"), ("b", "b"), ("elsewhere", "a")):
        read_again(sections, marked=marked)
        assert [(pair["base"], pair["other"]) for pair in sections[0].shown["paired"]] == [
            (base, other) for other in "abc" if other != base]


def test_facts_and_reasons_of_one_pace_are_not_told_of_all(tmp_path):
    runs = [write_run(tmp_path / f"o{seed}", seed=seed, seconds=2) for seed in range(6)]
    runs.append(write_run(tmp_path / "capped", cap_ns=3_000_000, seconds=2))
    told, sections = document.comparison([measure(run) for run in runs])
    (entry,) = compare.page_of(told, sections).entries
    assert entry.facts["runs"] == "1 to 6" and entry.facts["idle"].startswith("as captured; capped at 3 ms, ")
    few = [reason["text"] for reason in entry.verdict["reasons"] if "fewer than 6 runs" in reason["text"]]
    assert len(few) == 1 and few[0].endswith(f"({sections[1].shown['title']})") and "idle capped" in few[0]


def test_pairs_are_drawn_as_they_were_found(compared):
    section, exhibits = compared
    rows = exhibits["paired"].spec["data"]["values"]
    for pair in section["paired"]:
        mine = [row for row in rows if row["entry"] == pair["other"]]
        assert [row["share"] for row in mine] == sorted(row["share"] for row in mine)
        assert mine[0]["share"] == 0 and mine[-1]["share"] == 1
        # Where the curve passes a half lies the median of the ratios.
        below = max(row["ratio"] for row in mine if row["share"] <= 0.5)
        above = min(row["ratio"] for row in mine if row["share"] >= 0.5)
        assert below * 0.99 <= pair["latency"]["p50"] <= above * 1.01
        (line,) = [row for row in exhibits["paired"].table.rows
                   if row.entry == pair["other"] and row.values["measure"] == "latency"]
        assert line.values["geometric_mean"] == pair["latency"]["geometric_mean"]
    assert "unit of repetition" in " ".join(exhibits["paired"].notes)
    losses = [row.values["source_row"] for row in exhibits["losses"].table.rows if row.entry == OTHER]
    assert losses == [one["source_row"] for one in section["paired"][0]["losses"]]


def test_what_writes_do_is_drawn_by_bins_and_no_cause_is_claimed(compared):
    section, exhibits = compared
    exhibit = exhibits["interference"]
    drawn = [row for view in exhibit.spec["vconcat"] for row in view["data"]["values"]]
    windows = section["entries"][0]["interference"]["windows"]
    told = {(one["from"], key): one[f"{key}_ns"] for window in windows if window["window_ns"] == 10**8
            for one in window["bins"] for key in ("p50", "p99") if one[f"{key}_ns"]}
    found = {(row["bin"], {"median": "p50", "p99": "p99"}[row["measure"]]): row["ns"]
             for row in exhibit.spec["vconcat"][0]["data"]["values"] if row["entry"] == BASE}
    assert found == told or len({begin for begin, _ in told}) < 2
    assert {row["entry"] for row in drawn} == {BASE, OTHER}
    assert "partly their result" in exhibit.notes[0] and "not asked for" in exhibit.notes


def test_charts_over_runs_stay_small_and_lose_their_hidden_drives(compared):
    _, exhibits = compared
    for id_ in ("wait", "paired", "interference"):
        assert marks(exhibits[id_].spec) <= MOST_MARKS
        text = json.dumps(without(exhibits[id_].spec, {OTHER})["layer"] if id_ != "interference" else
                          without(exhibits[id_].spec, {OTHER})["vconcat"])
        assert f'"entry": "{OTHER}"' not in text
