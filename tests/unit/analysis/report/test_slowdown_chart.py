"""The chart of the slowdown by background writes: from baselines, or as a weaker statement."""

import pytest

from blkreel.analysis.report.charts.slowdown import is_paired, slowdown


def entry(label, paired=None, met=None):
    return {"label": label, "n": 6, "verdict": {"level": "valid"}, "runs": [{"path": f"runs/{label}"}],
            "slowdown_by_writes": {"paired": paired, "met": met, "why": ""}}


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
    assert is_paired(entries) and "Without a value: none." in chart.notes
    assert [row.values["read_wait_slowdown"] for row in chart.table.rows] == [20.4, 1.5]


def test_at_dependent_pace_the_load_time_leads():
    chart = slowdown([entry("a", paired(3, 1.2)), entry("b", paired(2, 1.4))], "slowdown")
    assert [row["text"] for row in chart.spec["data"]["values"]] == ["1.20x", "1.40x"]
    assert {"load_time_slowdown", "read_wait_slowdown"} <= {column.key for column in chart.table.columns}


def test_without_baselines_the_statement_is_weaker_and_says_so():
    met = {"latency": ratio(4.0), "met": 100, "reads": 200, "by_size": [], "note": "not an effect of the writes alone"}
    chart = slowdown([entry("a", met=met)], "slowdown")
    assert not is_paired([entry("a", met=met)])
    assert any("weaker" in note and "not an effect of the writes alone" in note for note in chart.notes)


def test_without_any_value_there_is_no_chart():
    assert slowdown([entry("a")], "slowdown") is None
    assert slowdown([{"label": "a"}], "slowdown") is None
