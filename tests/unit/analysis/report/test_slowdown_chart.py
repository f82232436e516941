"""The chart of the slowdown by background writes, from baselines."""

import pytest

from blkreel.analysis.report.charts.slowdown import slowdown


def entry(label, paired=None):
    return {"label": label, "n": 6, "verdict": {"level": "valid"}, "runs": [{"path": f"runs/{label}"}],
            "slowdown_by_writes": {"paired": paired, "why": ""}}


def ratio(value, low=None, high=None):
    return {"value": value, "interval": low and {"low": low, "high": high}, "runs": [value]}


def paired(read_wait, load_time=None):
    return {"read_wait": ratio(read_wait, read_wait * 0.9, read_wait * 1.1),
            "load_time": load_time and ratio(load_time), "reads": {}}


def test_baselines_give_the_slowdown_of_the_read_wait_the_least_first():
    entries = [entry("slow", paired(20.4)), entry("fast", paired(1.5)), entry("none")]
    chart = slowdown(entries, "s0-slowdown")
    rows = chart.spec["data"]["values"]
    assert [(row["entry"], row["text"]) for row in rows] == [("fast", "1.50x"), ("slow", "20.4x")]
    assert rows[0]["low"] == pytest.approx(1.35) and rows[0]["thick"] > 2
    assert chart.notes == ("Without a value: none: no baseline.",)
    assert [row.values["read_wait_slowdown"] for row in chart.table.rows] == [20.4, 1.5]


def test_at_dependent_pace_the_load_time_leads():
    chart = slowdown([entry("a", paired(3, 1.2)), entry("b", paired(2, 1.4))], "slowdown")
    assert [row["text"] for row in chart.spec["data"]["values"]] == ["1.20x", "1.40x"]
    assert {"load_time_slowdown", "read_wait_slowdown"} <= {column.key for column in chart.table.columns}


def test_the_exposure_stands_beside_the_slowdown_and_the_reason_beside_a_missing_one():
    exposed = {**entry("a", paired(2)), "exposure": {"beside_share": 0.9, "met_share": 0.1, "write_bytes_s": 110e6}}
    unexposed = entry("b")
    unexposed["slowdown_by_writes"]["why"] = "writes beside 0.2 % of the reads"
    chart = slowdown([exposed, unexposed], "slowdown")
    (row,) = chart.table.rows
    assert (row.values["beside_share"], row.values["met_share"], row.values["background_rate"]) == (0.9, 0.1, 110)
    assert [column.header for column in chart.table.columns if column.format == "share"] == [
        "beside_share", "met_share"], "0.9 is not 0.9 %"
    assert chart.notes == ("Without a value: b: writes beside 0.2 % of the reads.",)


def test_without_any_value_there_is_no_chart():
    assert slowdown([entry("a")], "slowdown") is None
    assert slowdown([{"label": "a"}], "slowdown") is None
