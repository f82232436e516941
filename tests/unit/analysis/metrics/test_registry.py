"""One definition for each metric, and everything else made from it."""

import ast

import numpy as np
import pytest
from tree import TREE

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.definitions import headline, metrics_table, registry
from blkreel.analysis.metrics.definitions.metric import ALL_PACES, pace_names
from blkreel.analysis.metrics.definitions.registry import CLASS_METRICS, METRICS
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.analysis.report.figure import paths

PACKAGES = ("common", "traces", "capture", "replay", "analysis", "cli")  # a benchmark has figures of its own
# Counters and words that other things have too.
GENERIC = {"ops", "bytes", "error_ops", "unseen_ops", "data_bytes", "read_ops", "write_ops", "other_ops", "read_bytes",
           "write_bytes", "seconds", "bursts", "consistency", "throughput", "writer", "data", "i/os", "iops",
           "read_iops", "write_iops", "other_iops", "makespan_ns", "throughput_mb_s", "wait",
           "written_share", "written_on_time"}
# Keys of a run's account, which the replay writes.
GENERIC |= {"load_time_ns", "read_wait_ns", "load_time", "read_wait", "slowdown_by_writes", "other_bytes"}
# The verdict of a replay, which may not import the registry, names what it holds against its limits.
GENERIC |= {"issue lateness p99", "issue lateness max"}

DEFINITIONS = {TREE / "analysis/metrics/definitions/registry.py", TREE / "analysis/metrics/definitions/headline.py"}
# The replay may not import the registry: the effect of the host is stored by the keys of metrics.
BY_KEY_ONLY = {TREE / "replay/fidelity" / name for name in ("host_effect.py", "queue_metrics.py", "verdict.py")}
# A prediction has two metrics of a run, by their keys.
BY_KEY_ONLY |= {TREE / "replay/predict/prediction.py", TREE / "cli/commands/drive/predict.py"}
# The list of samples has one metric, stored by its key.
BY_KEY_ONLY |= {TREE / "cli/commands/trace/samples.py"}


def strings(path):
    """The string constants of a module, without its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [(node.lineno, node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings]


def test_no_metric_is_named_outside_the_registry():
    """Neither by key, path, column nor title: what is written twice drifts apart."""
    names = {name.casefold() for metric in METRICS.values()
             for name in (metric.key, metric.path, metric.column, metric.title)}
    names |= {metric.label.casefold() for metric in CLASS_METRICS}
    again = [f"{path.relative_to(TREE)}:{line}: {text}" for package in PACKAGES
             for path in sorted((TREE / package).rglob("*.py")) if path not in DEFINITIONS
             for line, text in strings(path) if text.casefold() in names - GENERIC
             and not (path in BY_KEY_ONLY and text in METRICS)]
    assert again == []


def test_the_table_in_the_documentation_is_current():
    page = (TREE / "docs/method.md").read_text()
    assert metrics_table.with_table(page) == page, "run: make docs"
    assert all(f"`CLASS_{metric.key}`" in page for metric in CLASS_METRICS)


def test_keys_paths_and_columns_are_unique():
    metrics = list(METRICS.values())
    for names in ([metric.path for metric in metrics], [metric.column for metric in metrics],
                  [metric.title for metric in metrics]):
        assert len(set(names)) == len(names)
    assert set(METRICS).isdisjoint(registry.BY_PATH)


def test_the_document_holds_the_metrics_and_nothing_else(four_ios):
    tree = registry.figures(four_ios)
    beside = {path for path in paths(tree) if path.rpartition(".")[2] in ("too_small", "error", "iops_1s")}
    assert set(paths(tree)) - beside == set(registry.BY_PATH)
    assert {metric.key: registry.value_at(tree, metric.path) for metric in METRICS.values()} == {
        metric.key: metric.compute(four_ios) for metric in METRICS.values()}


def test_a_metric_without_meaning_at_the_pace_has_no_value_and_a_reason(four_ios):
    tree, response = registry.figures(four_ios), headline.READ_RESPONSE_P99
    assert "depth" not in response.paces
    assert headline.headline(tree, ("depth",))[response.key] is None
    assert "pace" in headline.why_missing(tree, response, ("depth",))
    assert headline.headline(tree, ("depth",))[headline.READ_WAIT.key] == 30_000
    assert headline.why_missing(tree, response, ("original",)) == "no due times"
    assert headline.why_missing(tree, METRICS["write_throughput"]) == "no writes"
    assert headline.why_missing(tree, headline.READ_P50) == "n too small (n=4)"


@pytest.mark.parametrize(("pace", "leads"), [
    ("dependent", "load_time"), ("original", "read_wait"), ("scaled", "read_wait"), ("captured", "read_wait"),
    ("depth", "throughput"), ("asap", "throughput")])
def test_the_pace_decides_what_a_comparison_leads_with(pace, leads):
    metrics = headline.headline_metrics([pace])
    assert metrics[0].key == leads and set(headline.leading_metrics([pace])) <= set(metrics)
    assert all(metric.meaningful([pace]) and not headline.why_refused(metric, [pace]) for metric in metrics)
    # One question is asked once, except where the answers are of another size.
    for family in headline.ranked_families([pace]):
        assert all(metric.better and (not metric.same_rank or metric.key in ("added_by_drive", "iops"))
                   for metric in family)


@pytest.mark.parametrize(("key", "pace", "words"), [
    ("read_burst_throughput", "original", "set by the plan at original pace; use read_wait"),
    ("write_burst_time", "scaled", "set by the plan at scaled pace; use write_wait"),
    ("throughput", "original", "set by the plan at original pace; use read_wait"),
    ("iops", "scaled", "set by the plan at scaled pace; use read_wait"),
    ("makespan", "original", "use read_wait"), ("load_time", "original", "use read_wait"),
    ("load_time", "asap", "has no meaning at asap pace; use throughput"),
    ("read_response_p99", "depth", "needs fixed due times, which depth pace does not have; use read_p99"),
    ("read_response_p99", "dependent", "needs fixed due times, which dependent pace does not have; use read_p99"),
    ("lateness_p99", "asap", "needs due times, which asap pace does not have; use throughput")])
def test_a_metric_that_the_plan_sets_is_refused_with_the_right_one(key, pace, words):
    assert words in headline.why_refused(METRICS[key], [pace])
    assert METRICS[key] not in headline.headline_metrics([pace])


def test_metrics_of_the_run_need_its_account(four_ios):
    run = {"pace": {"name": "dependent", "read_ahead": {"ios": 4, "read_ahead_ios": 1}}, "own_wall_ns": 50_000,
           "zero_latency": {"load_time_ns": 10_000}, "reads": {"load_time_ns": 50_000},
           "baseline": {"path": "baseline", "load_time_ns": 40_000, "read_wait_ns": 15_000,
                        "slowdown": {"load_time": 1.25, "read_wait": 2}}, "source": {"duration_ns": 86_400 * 10**9},
           "telemetry": {"smart": {"writes": {"unit": "B", "host": 1000, "media": 2500, "host_step": 1,
                                              "media_step": 1}}}}
    tree = registry.figures(four_ios, RunTimes.of({"run": run}))["run"]
    # Idle for longer than the gap of 5 us: from 20 to 30 us.
    assert tree == {"load_time_ns": 50_000, "added_by_drive_ns": 40_000, "compute_share": 0.2, "largest_speedup": 5,
                    "read_share": 1, "read_ahead_share": 0.25, "slowdown_by_writes": 1.25, "write_amplification": 2.5,
                    "load_time_alone_ns": 40_000, "read_wait_alone_ns": 15_000, "background_reached": None,
                    "media_writes_per_day_bytes": 2.5 * four_ios.write.bytes}
    pooled = registry.figures(four_ios + four_ios, RunTimes.of({"run": run}) + RunTimes.of({"run": run}))["run"]
    assert pooled == {**tree, "load_time_ns": 100_000, "added_by_drive_ns": 80_000,
                      "load_time_alone_ns": 80_000, "read_wait_alone_ns": 30_000}
    open_loop = registry.figures(four_ios, RunTimes.of({"run": {**run, "pace": {"name": "original"}}}))["run"]
    assert open_loop["slowdown_by_writes"] == 2 and open_loop["load_time_ns"] is None
    background = dict.fromkeys(("asked_bytes_s", "reached_bytes_s", "outstanding_share", "latency_p99_ns"), 1)
    beside = {**run, "background": [{"words": "", **background, "reached_share": share} for share in (0.9, 0.5, None)]}
    assert registry.figures(four_ios, RunTimes.of({"run": beside}))["run"]["background_reached"] == 0.5
    phases = {**run, "baseline": {**run["baseline"], "phases": [1, 4], "slowdown": {"load_time": 2, "read_wait": 3}}}
    assert registry.figures(four_ios, RunTimes.of({"run": phases}))["run"]["slowdown_by_writes"] == 2
    none = registry.figures(four_ios, RunTimes.of({"run": {**run, "zero_latency": None}}))
    assert none["run"]["added_by_drive_ns"] is None
    assert "without latency" in headline.why_missing(none, METRICS["added_by_drive"], ("dependent",))


def test_iops_by_hand(four_ios):
    """Four reads from 0 to 40 us. At the times of a plan the plan sets the rate, so that no drive is judged by it."""
    iops, read_iops = METRICS["iops"], METRICS["read_iops"]
    assert iops.compute(four_ios) == read_iops.compute(four_ios) == 100_000
    assert METRICS["write_iops"].compute(four_ios) is None
    assert read_iops.meaningful(("depth",)) and not read_iops.meaningful(("original",))


@pytest.mark.parametrize(("pace", "names"), [
    (None, ("captured",)), ({}, ("original",)), ({"name": "depth", "depth": 4}, ("depth",)),
    ({"name": "asap", "streams": {"1": {"name": "original"}, "2": {"name": "asap"}}}, ("asap", "original"))])
def test_a_run_has_the_paces_of_its_streams_too(pace, names):
    assert pace_names(pace) == names and set(names) <= set(ALL_PACES)


@pytest.fixture(scope="module")
def four_ios():
    accumulator = MetricsAccumulator(gap_ns=5000)
    accumulator.feed({"submit_ns": np.array([0, 5000, 12_000, 30_000]), "latency_ns": np.array([10, 10, 8, 10]) * 1000,
                      "queue_ns": np.full(4, -1), "op": np.zeros(4, np.int8), "length_bytes": np.full(4, 4096),
                      "flags": np.zeros(4, np.int32), "status": np.zeros(4, np.int16)})
    return accumulator.finish()
