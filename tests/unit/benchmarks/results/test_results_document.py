"""The document of a test: what it says where steps are missing, its verdict, and its figures by plain pandas."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import write_trace
from synthetic_tests import MS, MadeTest, closed_loop, rows_of

from blkreel.benchmarks.reports.page import page_of
from blkreel.benchmarks.reports.registry import REPORTS
from blkreel.benchmarks.reports.results import results_of
from blkreel.common import verdict as common_verdict
from blkreel.common.errors import TraceError
from blkreel.common.verdict import step_reason
from blkreel.traces.format.trace import Trace

ROLES = {"mixed-burst": [("mixed", {"repeat": 1}), ("baseline", {"repeat": 1})],
         "mixes": [("mix", {"state": "full", "mix": 50})], "consistency": [("consistency", {"state": "full"})],
         "depths": [("depth", {"depth": 4})],
         "qd1": [("qd1", {"access": "random", "op": "read", "block": 4096}),
                 ("blocks", {"access": "random", "op": "read", "block": 512})],
         "trim": [("extents", {}), ("whole", {"state": "full"})], "cache": [("fill", {"rest_ns": 0})],
         "trace": [("trace", {"state": "full", "repeat": 1})],
         "trace-passes": [("trace", {"state": "full", "phase": "degrade", "pass_number": number, "trace": "a.parquet"})
                          for number in (1, 2)],
         "rounds": [("round", {"state": "full", "round": number}) for number in (1, 2)]}


@st.composite
def rows(draw):
    """Reads, writes, flushes and discards of any length and latency, some of which never came back."""
    count = draw(st.integers(1, 300))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    submit = np.sort(random.integers(0, 5000 * MS, count))
    latency = np.where(random.random(count) < 0.02, -1, random.integers(1, 300 * MS, count))
    return rows_of(submit, latency, op=random.choice([0, 0, 1, 1, 2, 3], count),
                   length_bytes=random.integers(1, 256, count) * 512,
                   # Below 0 would be none at all.
                   due_ns=np.maximum(submit - random.integers(0, MS, count), 0),
                   burst=random.integers(-1, 4, count), stream=random.integers(0, 2, count))


@pytest.mark.parametrize("report", REPORTS)
@cases(5)
@given(rows(), st.sampled_from([5, 64]))
def test_any_rows_give_a_document_that_json_can_hold(report, columns, batch):
    """Whatever a run holds, and however it is cut into batches: the same document, with no NaN in it."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        test = MadeTest(Path(place) / "t", report)
        for role, labels in ROLES[report]:
            test.step(role, labels, columns)
        whole = json.dumps(results_of(test.path), allow_nan=False)
        whole_batches = Trace.batches
        patch.setattr(Trace, "batches", lambda self, names=None: whole_batches(self, names, batch))
        assert json.dumps(results_of(test.path), allow_nan=False) == whole


def busy_ns(t):
    reach = t.complete_ns.cummax().shift(fill_value=t.submit_ns.min())
    return (t.complete_ns - t.submit_ns.where(t.submit_ns > reach, reach)).clip(lower=0).sum()


@cases(5)
@given(rows())
def test_plain_pandas_gives_the_same_figures(columns):
    with tempfile.TemporaryDirectory() as place:
        documents = {}
        for report in ("mixes", "depths", "trace", "mixed-burst", "trim"):
            test = MadeTest(Path(place) / report, report)
            test.step(*ROLES[report][0], columns)
            documents[report] = results_of(test.path)["figures"]
    t = pd.DataFrame(columns)
    t = t[t.latency_ns >= 0].assign(complete_ns=t.submit_ns + t.latency_ns)
    data, reads, writes = t[t.op < 2], t[t.op == 0], t[t.op == 1]
    span_ns = t.complete_ns.max() - t.submit_ns.min() if len(t) else 0

    mix = documents["mixes"]["states"]["full"]["mixes"]["50"]
    assert mix["mb_s"] == (pytest.approx(data.length_bytes.sum() / span_ns * 1000) if span_ns else None)
    assert mix["read_mean_ns"] == (pytest.approx(reads.latency_ns.mean()) if len(reads) else None)
    depth = documents["depths"]["states"][""]["depths"]["4"]
    assert depth["max_ns"] == (data.latency_ns.max() if len(data) else None)
    assert depth["little"] == (pytest.approx(data.latency_ns.sum() / span_ns / 4) if span_ns else None)

    trace = documents["trace"]["states"]["full"]
    assert trace["data_rate_mb_s"] == (pytest.approx(data.length_bytes.sum() / busy_ns(t) * 1000) if len(t) else None)
    for name, part in (("all", data), ("reads", reads), ("writes", writes)):
        assert trace[name]["ops"] == len(part)
        assert trace[name]["mean_ns"] == (pytest.approx(part.latency_ns.mean()) if len(part) else None)

    def bursts(part):
        labeled = part[part.burst >= 0].groupby(["stream", "burst"])
        return labeled.agg(begin=("submit_ns", "min"), end=("complete_ns", "max"), bytes=("length_bytes", "sum"))

    mixed = documents["mixed-burst"]["states"][""]["mixed"]
    for kind, part in (("read", reads), ("write", writes)):
        table = bursts(part)
        makespan = (table.end - table.begin).sum()
        assert mixed[f"{kind}_burst_mb_s"] == (pytest.approx(table.bytes.sum() / makespan * 1000) if makespan else None)

    discards = t[t.op == 3]
    response = data.complete_ns - data.due_ns
    met = pd.Series(False, index=data.index)
    slowest = []
    for discard in discards.itertuples():
        mine = (data.due_ns < discard.complete_ns) & (data.complete_ns > discard.submit_ns)
        met |= mine
        slowest.append(response[mine].max() if mine.any() else np.nan)
    (extents,) = documents["trim"]["extents"].values()
    assert extents["extents"] == len(discards)
    alone = response[~met].sort_values()
    assert extents["background_median_ns"] == (alone.iloc[-(-len(alone) // 2) - 1] if len(alone) else None)
    if len(alone):
        points = pd.DataFrame({"x": discards.length_bytes.to_numpy() / 1e9,
                               "y": (np.array(slowest, float) - extents["background_median_ns"]) / 1e9}).dropna()
        if points.x.nunique() > 1:
            assert extents["added_s_per_gb"] == pytest.approx(np.polyfit(points.x, points.y, 1)[0], rel=1e-6, abs=1e-9)


# What is missing is named, and never made up.

def sweep(tmp_path, **more):
    return MadeTest(tmp_path / "t", "depths", **more)


def test_steps_that_were_not_done_are_named(tmp_path):
    test = sweep(tmp_path)
    test.step("depth", {"depth": 1}, closed_loop(100, MS), title="depth 1")
    test.step("depth", {"depth": 2}, status="failed", error="the drive went away", title="depth 2")
    test.step("depth", {"depth": 4}, status="waiting", title="depth 4")
    test.step(None, {}, do="rest", status="waiting", title="rest")
    document = results_of(test.path)
    assert [(each["title"], each["status"], each["why"]) for each in document["missing"]] == [
        ("depth 2", "failed", "the drive went away"), ("depth 4", "waiting", "not done yet"),
        ("rest", "waiting", "not done yet")]
    assert list(document["figures"]["states"][""]["depths"]) == ["1"]
    texts = [reason["text"] for reason in document["verdict"]["reasons"] if reason["level"] == "invalid"]
    assert texts == ["1 step failed: depth 2", "the test is not finished: 2 steps to go"]


def test_rounds_that_were_not_needed_are_not_missing(tmp_path):
    test = MadeTest(tmp_path / "t", "rounds")
    for number in range(1, 8):
        test.step("round", {"round": number}, closed_loop(100, MS) if number < 6 else None,
                  status="done" if number < 6 else "skipped")
    document = results_of(test.path)
    assert not document["missing"] and document["figures"]["of"][""]["steady"]
    assert document["figures"]["of"][""]["steady_iops"] == pytest.approx(1000)


@pytest.mark.parametrize(("spoil", "why"), [
    (lambda path: path.write_bytes(path.read_bytes()[:-20]), "truncated"),
    (lambda path: (path.unlink(), write_trace(path)), "a captured trace")], ids=["damaged", "a captured trace"])
def test_a_step_without_a_run_leaves_the_others(tmp_path, spoil, why):
    test = sweep(tmp_path)
    kept, spoilt = (test.step("depth", {"depth": depth}, closed_loop(100, MS, depth)) for depth in (1, 2))
    spoil(test.path / "steps" / spoilt / "records.parquet")
    document = results_of(test.path)
    assert list(document["figures"]["states"][""]["depths"]) == ["1"]
    assert document["missing"][0]["step"] == spoilt and why in document["missing"][0]["why"]
    assert document["verdict"]["level"] == "invalid"


@pytest.mark.parametrize("report", REPORTS)
def test_a_test_of_which_nothing_is_done_is_all_missing(tmp_path, report):
    test = MadeTest(tmp_path / "t", report)
    for role, labels in ROLES[report]:
        test.step(role, labels, status="waiting")
    document = results_of(test.path)
    assert len(document["missing"]) == len(ROLES[report]) and document["verdict"]["level"] == "invalid"
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize(("content", "said"), [
    ("[]", "damaged"), ('{"version": 1, "steps": [], "report": "horoscope"}', "horoscope"),
    ('{"version": 1, "steps": [{"id": "a"}], "report": "mixes"}', "damaged"),
    ('{"version": 1, "steps": [{"id": "a", "do": "rest", "status": "done", "labels": {"repeat": "x"}}]}',
     "the label repeat of step a is not an integer"),
    ('{"version": 1, "steps": [{"id": "a", "do": "rest", "status": "done", "labels": {"depth": [1]}}]}',
     r"steps\[0\].labels.depth is not a string")])
def test_what_is_no_test_is_told(tmp_path, content, said):
    (tmp_path / "test.json").write_text(content)
    with pytest.raises(TraceError, match=said):
        results_of(tmp_path)


def test_progress_ends_at_the_total(tmp_path):
    test = sweep(tmp_path)
    for depth in (1, 2, 4):
        test.step("depth", {"depth": depth}, closed_loop(100, MS, depth))
    told = []
    results_of(test.path, on_step=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(("report", "role", "label"), [
    ("mixes", "mix", "mix"), ("depths", "depth", "depth"), ("cache", "fill", "rest_ns"), ("rounds", "round", "round")])
def test_a_recipe_of_ones_own_that_lacks_a_label_loses_that_step_alone(tmp_path, report, role, label):
    test = MadeTest(tmp_path / "t", report)
    lacking = test.step(role, {"state": "full"}, closed_loop(100, MS, op=1))
    test.step(role, {"state": "full", label: 1}, closed_loop(100, MS, op=1))
    document = results_of(test.path)
    (missing,) = document["missing"]
    assert missing["step"] == lacking and f"label {label!r}" in missing["why"]
    assert document["tables"] and document["verdict"]["level"] == "invalid"


def test_a_recipe_of_ones_own_without_the_role_of_its_report_is_told(tmp_path):
    test = MadeTest(tmp_path / "t", "depths")
    test.step("deepness", {"depth": 1}, closed_loop(100, MS))
    verdict = results_of(test.path)["verdict"]
    assert verdict["reasons"][0] == step_reason("no_measured_step", "invalid",
                                                "no step has the role depth of this report")


# The verdict.

def reason(level, text, code="recorded_verdict"):
    return common_verdict.reason(code, level, text)


def test_the_worst_step_decides_and_each_reason_stands_once(tmp_path):
    test = sweep(tmp_path, quick=True, scale=0.25)
    for depth, late in ((1, "120 us"), (2, "1.30 ms"), (4, None)):
        given = [reason("qualified", "power not measured")]
        given += [reason("invalid", f"this machine issued 1 % of the I/Os more than {late} late")] if late else []
        test.step("depth", {"depth": depth}, closed_loop(100, MS, depth), verdict=given, title=f"depth {depth}")
    verdict = results_of(test.path)["verdict"]
    assert verdict["level"] == "invalid"
    assert [each["text"] for each in verdict["reasons"]] == [
        "this machine issued 1 % of the I/Os more than 120 us late, and similar (2 of 3 steps: depth 1, depth 2)",
        "quick: shortened, not the method's durations",
        "scaled to 25 % of the method's sizes, to fit the drive",
        "n=1: fewer than 6 repeats, no interval",
        "power not measured (all steps)"]
    assert verdict["reasons"][0]["steps"] == ["01-depth-1", "02-depth-2"]


def test_what_the_account_of_a_step_shows_counts_without_a_reason_of_its_own(tmp_path):
    test = sweep(tmp_path)
    test.step("depth", {"depth": 1}, closed_loop(100, MS), error_ops=3)
    test.step("depth", {"depth": 2}, closed_loop(100, MS), partial="interrupted", title="depth 2")
    texts = [each["text"] for each in results_of(test.path)["verdict"]["reasons"] if each["level"] == "invalid"]
    assert texts == ["3 I/Os failed (depth 1)", "partial run: interrupted (depth 2)"]


def test_a_limit_of_a_control_group_is_a_reason_against_a_benchmark(tmp_path):
    """It was valid, and its 250 IOPS those of the drive."""
    test = sweep(tmp_path)
    for repeat in range(1, 7):
        test.step("depth", {"depth": 1, "repeat": repeat}, closed_loop(100, MS),
                  io_max={"riops": 250, "wbps": 50_000_000})
    verdict = results_of(test.path)["verdict"]
    assert [(each["code"], each["level"], each["text"]) for each in verdict["reasons"]] == [
        ("io_max", "qualified", "its control group limits the drive to 250 read IOPS, 50.0 write MB/s (all steps)")]


def test_six_whole_repeats_of_a_clean_test_are_valid(tmp_path):
    test = sweep(tmp_path)
    for repeat in range(1, 7):
        test.step("depth", {"depth": 1, "repeat": repeat}, closed_loop(100, MS))
    document = results_of(test.path)
    assert document["verdict"] == {"level": "valid", "reasons": [], "notes": [], "withheld": []}
    assert document["figures"]["states"][""]["depths"]["1"]["n"] == 6


@pytest.mark.parametrize(("report", "role", "label"), [
    ("depths", "depth", {"depth": 4}), ("mixes", "mix", {"mix": 50}), ("cache", "fill", {"rest_ns": 0}),
    ("qd1", "qd1", {"access": "random", "op": "read", "block": 4096}), ("trim", "whole", {}),
    ("consistency", "consistency", {}), ("trace", "trace", {}), ("mixed-burst", "mixed", {}),
    ("trace-passes", "trace", {"pass_number": 1, "trace": "a.parquet"})])
def test_loops_of_a_recipe_of_ones_own_are_never_pooled(tmp_path, report, role, label):
    """Steps that differ in a label that the report does not know, and a repeat of one of them."""
    test = MadeTest(tmp_path / "t", report)
    for size, repeat, depth in (("small", 1, 1), ("small", 2, 1), ("large", 1, 2)):
        test.step(role, {"state": "full", "size": size, "repeat": repeat, **label}, closed_loop(100, MS, depth))
    figures = results_of(test.path)["figures"]
    groups = figures["whole"] if report == "trim" else figures["states"]
    assert list(groups) == ["full, size small", "full, size large"]
    assert [next(rows_with(group, "n"))["n"] for group in groups.values()] == [2, 1]


def rows_with(entry, key):
    """All rows of nested figures that have a key."""
    if isinstance(entry, dict):
        if key in entry:
            yield entry
        for value in entry.values():
            yield from rows_with(value, key)


def test_a_run_that_no_figure_is_of_counts_in_the_verdict(tmp_path):
    test = MadeTest(tmp_path / "t", "trim")
    test.step("refill", {}, closed_loop(10, MS, op=1), verdict=[reason("invalid", "5 I/Os failed")])
    told = []
    document = results_of(test.path, on_step=lambda done, total: told.append((done, total)))
    assert reason("invalid", "5 I/Os failed") | {"steps": ["01-refill"]} in document["verdict"]["reasons"]
    assert told[-1] == (1, 1)


def test_write_amplification_is_by_step_and_of_all_steps(tmp_path):
    """By the drive's counters; their steps add up, and a step that wrote too little has a reason."""
    test = MadeTest(tmp_path / "t", "rounds")
    for number, host, media in ((1, 100, 150), (2, 300, 650), (3, 2, 2)):
        writes = {"unit": "B", "host": host * 512_000, "media": media * 512_000, "host_step": 512_000, "media_step": 1}
        test.step("round", {"state": "full", "round": number}, closed_loop(20, MS, op=1),
                  telemetry={"smart": {"changed": {}, "critical_warning": 0, "took_ns": None, "writes": writes}})
    table = results_of(test.path)["tables"][-1]
    assert table["title"] == "Write amplification"
    factors = [row["write_amplification"] for row in table["rows"]]
    assert factors == [1.5, pytest.approx(2.16667, abs=1e-5), None, pytest.approx(802 / 402)]
    assert "too few writes" in table["rows"][2]["why"]["write_amplification"]
    assert table["rows"][3]["of"] == "all steps" and table["rows"][3]["host_bytes"] == 402 * 512_000
    uncounted = MadeTest(tmp_path / "u", "rounds")
    uncounted.step("round", {"state": "full", "round": 1}, closed_loop(20, MS, op=1))
    assert "Write amplification" not in [each["title"] for each in results_of(uncounted.path)["tables"]]


def at(figures, path):
    for name in path.split("/"):
        figures = figures[name]
    return figures


@pytest.mark.parametrize(("report", "withheld", "missing", "present"), [
    ("mixed-burst", ["read_wait"], ["mixed/read_wait_ns", "mixed/read_burst_mb_s", "slowdown"],
     ["mixed/read_service_time_ns", "mixed/write_burst_mb_s", "mixed/read_latency/p50_ns"]),
    ("mixed-burst", ["read_p50"], ["mixed/read_latency/p50_ns"],
     ["mixed/read_wait_ns", "slowdown", "mixed/write_latency/p50_ns"]),
    ("qd1", ["read_p99"], ["qd1/random-read-4K/p99_ns"], ["qd1/random-read-4K/mean_ns", "qd1/random-read-4K/kiops"]),
    ("trace", ["read_wait", "read_p99"], ["data_rate_mb_s", "reads/p99_ns", "all/p99_ns"],
     ["wall_rate_mb_s", "reads/mean_ns", "writes/p99_ns"]),
    ("depths", ["write_service_time"], ["depths/4/mean_ns"], ["depths/4/mb_s"]),
    ("mixes", ["write_service_time"], ["mixes/50/write_mean_ns"], ["mixes/50/read_mean_ns", "mixes/50/mb_s"]),
    ("trace-passes", ["write_service_time"], ["score", "access_ns"], ["bandwidth_mb_s"])])
def test_a_figure_whose_metric_a_verdict_withholds_is_missing(tmp_path, report, withheld, missing, present):
    test = MadeTest(tmp_path / "t", report)
    number = np.arange(4000)
    rows = rows_of(number * MS, MS // 2, op=number % 2, length_bytes=4096, burst=number // 2000, stream=number % 2,
                   due_ns=number * MS)
    for index, (role, labels) in enumerate(ROLES[report]):
        test.step(role, labels, rows, withheld=() if index else withheld)
    document = results_of(test.path)
    figures = next(iter(document["figures"]["states"].values()))
    assert [at(figures, path) for path in missing] == [None] * len(missing)
    assert '"withheld"' in json.dumps([document["tables"], figures]), "the reason"
    assert all(at(figures, path) is not None for path in present)
    charts = [chart for section in page_of(document).sections for chart in section.charts]
    if withheld == ["read_wait"]:
        assert {burst["why"]["slowdown"] for burst in figures["bursts"].values()} == {"withheld"}
    if withheld == ["read_p50"]:
        (tail,) = [chart for chart in charts if chart.id == "read-tail"]
        assert tail.notes == ("Without a curve, because a value is withheld: fast drive.",)
