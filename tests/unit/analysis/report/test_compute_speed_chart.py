"""The chart of load times over compute speeds."""

import pytest

from blkreel.analysis.report.charts.compute_speed import compute_speed

S = 10**9
SHA256 = "5e" * 32


def entry(label, load_s, compute=1, curve=None, bound_s=None, **run):
    pace = {"name": "dependent", **({} if compute == 1 else {"compute": compute})}
    headline = {"load_time": {"value": load_s * S}, "load_time_alone": {"value": None}}
    account = {"pace": pace, "source": {"sha256": SHA256}, "compute_curve": curve and [
        {"compute": speed, "load_time_ns": value * S} for speed, value in curve.items()],
        "zero_latency": bound_s and {"load_time_ns": bound_s * S}, **run}
    return {"label": label if compute == 1 else f"{label}, compute {compute}", "n": 1, "headline": headline,
            "verdict": {"level": "valid"}, "drive": {"model": label}, "pace": pace,
            "runs": [{"path": f"runs/{label}-{compute}", "run": account}]}


def chart_of(*sections, order=("a", "b")):
    shown = [{"entries": entries} for entries in sections]
    return compute_speed(shown[0], shown, "compute-speed", order)


def points(chart):
    return {(row["entry"], row["at"]): row["is"] for row in chart.spec["data"]["values"]}


@pytest.mark.parametrize(("curve", "bound_s", "answer"), [
    ({1: 10, 4: 4, "none": 2}, 9, "10.0 s at the recorded compute speed, 2.00 s without computing, 9.00 s on a drive "
     "without latency: a faster processor helps more"),
    ({1: 10, 4: 9.5, "none": 9}, 3, "a faster drive helps more"),
    ({1: 10, "none": 9.5}, 9.8, "neither alone helps much")])
def test_of_one_drive_the_sentence_says_whether_drive_or_processor_helps(curve, bound_s, answer):
    chart = chart_of([entry("a", 10, curve=curve, bound_s=bound_s)], order=("a",))
    assert chart.text.endswith(f"{answer}.")
    assert list(points(chart)) == [("a", {1: "x1", 4: "x4", "none": "no computing"}[speed]) for speed in curve]


def test_of_several_drives_it_says_how_far_they_are_apart():
    chart = chart_of([entry("a", 10, curve={1: 10, "none": 1}), entry("b", 12, curve={1: 12, "none": 3})])
    assert chart.text == ("The slowest drive takes 1.20 times as long as the fastest at the recorded compute speed, "
                          "3.00 times without computing.")
    assert points(chart)["b", "no computing"] == "3.00 s"
    assert [row.values["change"] for row in chart.table.rows] == pytest.approx([0, -0.9, 0, -0.75])


def test_beside_a_background_the_load_times_are_said_to_be_alone():
    """The bars above are of the load beside the writes, and differ far more."""
    beside = {"background": [{"words": "writes of 110 MB/s", **dict.fromkeys((
        "asked_bytes_s", "reached_bytes_s", "reached_share", "outstanding_share", "latency_p99_ns"))}]}
    chart = chart_of([entry("a", 40, curve={1: 10, "none": 2}, **beside)])
    assert chart.title == "Load time alone over compute speed" and "Without the writes of 110 MB/s." in chart.notes


@pytest.mark.parametrize(("asleep_share", "words"), [(None, "count as computing"), (0.3, "keep their length")])
def test_the_note_says_what_becomes_of_sleep(asleep_share, words):
    """Sleep that the trace has (`slept_ns`) is no computing: it stays at every compute speed."""
    pace = {"name": "dependent", "asleep_share": asleep_share}
    chart = chart_of([entry("a", 10, curve={1: 10, "none": 2}, pace=pace)])
    assert chart.notes[0] == f"Waits for timers, frames or the network {words}."


def test_replays_at_other_speeds_of_the_same_trace_and_drive_make_a_curve():
    others = [entry("a", 4, 4), entry("a", 2, "none"), entry("b", 3, 4), entry("a", 1, 16, source={"sha256": "other"}),
              entry("a", 1, 8, idle={"name": "cap"})]
    chart = chart_of([entry("a", 10), entry("b", 12)], *([each] for each in others))
    assert points(chart) == {("a", "x1"): "10.0 s", ("a", "x4"): "4.00 s", ("a", "no computing"): "2.00 s",
                             ("b", "x1"): "12.0 s", ("b", "x4"): "3.00 s"}
    assert chart.text.endswith("1.33 times with computing 4 times as fast."), "the last speed that both have"


def test_no_chart_with_one_speed_nor_in_a_section_at_another_speed():
    assert chart_of([entry("a", 10)]) is None
    assert chart_of([entry("a", 4, 4)], [entry("a", 10)]) is None
    assert chart_of([entry("a", 10, pace={"name": "original"})]) is None
