"""Charts over runs and I/O by I/O: they draw the pairs, ties and background writes of the document."""


import pytest
from synthetic_runs import write_run

from blkreel.analysis.compare.interference import interference
from blkreel.analysis.compare.paired import paired
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.report import document
from blkreel.analysis.report.page import compare_page
from blkreel.traces.format.reader import open_trace

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
    section.document["paired"] = [{"base": first.document["label"], "other": other.document["label"],
                                **paired(first.measured[0], other.measured[0])} for other in others]
    for entry in section.entries[:2]:
        entry.document["interference"] = interference(open_trace(entry.measured[0].path)).document()
    section.entries[2].document["interference"] = {"why": "not asked for"}
    page = compare_page.page_of(told, sections, highlight=OTHER)
    return section.document, {one.id: one for part in page.sections for one in part.charts}


def test_intervals_and_ranks_are_those_of_the_document(compared):
    section, charts = compared
    entries = {entry["label"]: entry for entry in section["entries"]}
    for row in charts["read-wait"].table.rows:
        told = entries[row.entry]["headline"]["read_wait"]
        assert [row.values[key] for key in ("rank", "read_wait_low_ns", "read_wait_high_ns")] == [
            told["rank"], told["low"], told["high"]]
    drawn = {row["entry"]: row for row in charts["read-wait"].spec["data"]["values"]}
    assert drawn[BASE]["low"] < drawn[BASE]["value"] < drawn[BASE]["high"]
    assert drawn[BASE]["thick"] > drawn["third drive"]["thick"] and drawn[BASE]["spread"].startswith("95 % t interval")
    assert any("fewer than 6 runs" in note for note in charts["read-wait"].notes)
    assert drawn["third drive"]["low"] == drawn["third drive"]["high"] and drawn["third drive"]["bracket_0"] == 0
    (row,) = [row for row in charts["read-wait"].table.rows if row.entry == "third drive"]
    assert row.values["rank"] is None and "too few runs" in row.why["rank"]


def test_drives_that_tie_share_a_bracket_and_those_that_differ_do_not(compared):
    section, charts = compared
    for id_, name in (("read-wait", "read_wait"), ("read-response-p99", "read_response_p99")):
        drawn = {row["entry"]: row["bracket_0"] for row in charts[id_].spec["data"]["values"]}
        ranks = {entry["label"]: entry["headline"][name]["rank"] for entry in section["entries"]}
        same = ranks[BASE] == ranks[OTHER]
        assert (drawn[BASE] == drawn[OTHER] == 1) == same
    # The drive under test is what the others stand against; what has too few runs for an interval is not listed.
    told = {row.group: row.values for row in charts["ratios"].table.rows}
    sure = {one["figure"]: one for one in section["ratios"] if one["differ"] is not None}
    assert len(charts["ratios"].table.rows) == len(told) == 2
    row, one = told["Read wait"], sure["read_wait"]
    assert (one["base"], one["other"]) == (row["other"], row["base"]) == (BASE, OTHER)
    assert [row[key] for key in ("change", "low", "high")] == pytest.approx(
        [1 / one["value"] - 1, 1 / one["high"] - 1, 1 / one["low"] - 1])
    assert row["verdict"] == ("differ" if one["differ"] else "tie")


def test_a_drive_with_too_few_runs_has_a_place_and_no_rank(compared):
    section, _ = compared
    ranks = {entry["label"]: entry["headline"]["read_wait"]["rank"] for entry in section["entries"]}
    entries = compare_page.entries_of([section], compare_page._leads([section]), OTHER)
    assert {entry.key: entry.rank for entry in entries} == ranks and ranks["third drive"] is None
    assert sorted(entry.order for entry in entries) == [1, 2, 3] == [entry.order for entry in entries]
    assert {entry.key: entry.why for entry in entries if entry.why} == {"third drive": "n=1"}


def test_facts_and_reasons_of_one_pace_are_not_told_of_all(tmp_path):
    runs = [write_run(tmp_path / f"o{seed}", seed=seed, seconds=2) for seed in range(6)]
    runs.append(write_run(tmp_path / "capped", cap_ns=3_000_000, seconds=2))
    told, sections = document.comparison([measure(run) for run in runs])
    (entry,) = compare_page.page_of(told, sections).entries
    assert entry.facts["runs"] == "1 to 6" and entry.facts["idle"].startswith("as captured; capped at 3 ms, ")
    few = [reason["text"] for reason in entry.verdict["reasons"] if "fewer than 6 runs" in reason["text"]]
    assert len(few) == 1 and few[0].endswith(f"({sections[1].document['title']})") and "idle capped" in few[0]


def test_pairs_are_drawn_as_they_were_found(compared):
    section, charts = compared
    rows = charts["paired"].spec["data"]["values"]
    for pair in section["paired"]:
        mine = [row for row in rows if row["entry"] == pair["other"]]
        assert [row["y"] for row in mine] == sorted(row["y"] for row in mine)
        assert mine[0]["y"] == 0 and mine[-1]["y"] == 1
        # Where the curve passes a half lies the median of the ratios.
        below = max(row["x"] for row in mine if row["y"] <= 0.5)
        above = min(row["x"] for row in mine if row["y"] >= 0.5)
        assert below * 0.99 <= pair["latency"]["p50"] <= above * 1.01
        (line,) = [row for row in charts["paired"].table.rows
                   if row.entry == pair["other"] and row.values["measure"] == "latency"]
        assert line.values["geometric_mean"] == pair["latency"]["geometric_mean"]
    assert "unit of repetition" in " ".join(charts["paired"].notes)
    losses = [row.values["source_row"] for row in charts["losses"].table.rows if row.entry == OTHER]
    assert losses == [one["source_row"] for one in section["paired"][0]["losses"]]


def test_what_writes_do_is_drawn_by_bins_and_no_cause_is_claimed(compared):
    section, charts = compared
    chart = charts["interference"]
    drawn = [row for view in chart.spec["vconcat"] for row in view["data"]["values"]]
    in_flight = [entry["interference"]["in_flight"]["bins"] for entry in section["entries"][:2]]
    begins = sorted({each["from"] for bins in in_flight for each in bins if each["p50_ns"] or each["p99_ns"]})
    expected = {(each["from"], key): each[f"{key}_ns"] for each in in_flight[0] for key in ("p50", "p99")
                if each[f"{key}_ns"]}
    view = chart.spec["vconcat"][-1]
    assert {(begins[int(row["x"])], {"median": "p50", "p99": "p99"}[row["line"]]): row["y"]
            for row in view["data"]["values"] if row["entry"] == BASE} == expected
    assert {row["entry"] for row in drawn} == {BASE, OTHER}
    assert "partly their result" in chart.notes[0] and "not asked for" in chart.notes
