"""blkreel.open: the same figures as the report's, held against plain pandas; rows as they are in the file."""

import json
import subprocess
import sys

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from synthetic_runs import write_run
from synthetic_tests import MS, MadeTest, closed_loop
from tree import COMPILE, GAME_LOAD

import blkreel
from blkreel.common.errors import UsageError
from blkreel.traces.samples import located


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    return [write_run(directory / "a", "fast drive", seconds=6),
            write_run(directory / "b", "slow drive", 300, seconds=6)]


def rows_of(path):
    return pd.read_parquet(path / "records.parquet")


def test_importing_loads_nothing_heavy():
    code = ("import sys, blkreel; print([n for n in ('numpy', 'pandas', 'pyarrow', 'click') if n in sys.modules]); "
            "blkreel.open('sample:game-small').rows; print('pandas' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\nFalse\n"


def test_figures_are_those_of_the_report_and_of_pandas(runs, blkreel_json):
    study, rows = blkreel.open(runs[0]), rows_of(runs[0])
    shown = blkreel_json("report", runs[0])["entry"]["figures"]
    assert json.loads(json.dumps(study.figures)) == shown
    for op, name in ((0, "read"), (1, "write")):
        mine = rows[(rows.op == op) & (rows.latency_ns >= 0)]
        line = study.metrics.loc[name]
        assert (line.ops, line.bytes, line.service_ns) == (len(mine), mine.length_bytes.sum(), mine.latency_ns.sum())
        ordered = np.sort(mine.latency_ns)
        assert line.latency_p99_ns == ordered[-(-len(ordered) * 99 // 100) - 1]
        assert line.throughput_by_busy_mb_s == pytest.approx(line.bytes * 1000 / line.busy_ns)
        assert line.bursts_makespan_ns == shown[name]["bursts"]["makespan_ns"]
    assert study.metrics.dtypes["latency_p99_ns"] == "Int64"
    # A figure that there is none of is missing, and no less a number for that.
    assert blkreel.open(GAME_LOAD).metrics.response_p99_ns.isna().all()


def test_a_metric_without_any_value_is_a_missing_number(tmp_path):
    new_trace(path := tmp_path / "t.parquet", {"devices": []}, submit_ns=np.arange(3) * 10_000, latency_ns=10_000)
    study = blkreel.open(path)
    assert (study.metrics.consistency_score * 2).isna().all() and study.metrics.dtypes["iops"] == "float64"
    assert (study.percentiles(of="queue").mean_ns / 1000).isna().all()


@given(st.integers(1, 99_999), st.integers(1, 3000))
@cases(25)
def test_percentiles_are_by_nearest_rank_and_only_where_enough_lie_beyond(tmp_path, thousandths, count):
    latency = np.random.default_rng(count).integers(1, 10**9, count)
    path = tmp_path / "t.parquet"
    new_trace(path, {"devices": [], "clock": "monotonic", "threads": {}}, submit_ns=np.arange(count),
              latency_ns=latency)
    percent = str(thousandths / 1000)
    found = blkreel.open(path).percentiles("read", [percent])
    value = found[f"p{percent.replace('.', '_')}_ns"].loc["read"]
    if count * (100_000 - thousandths) >= 10 * 100_000:
        assert value == np.sort(latency)[max(1, -(-count * thousandths // 100_000)) - 1]
    else:
        assert value is pd.NA
    assert found.max_ns.loc["read"] == latency.max() and found.n.loc["read"] == count


@pytest.mark.parametrize("percent", ["1/0", "1/3", "nan", "sNaN", "inf", "0", "1e-999999999", "101", ""])
def test_a_percentile_must_be_a_number_of_percent(percent):
    with pytest.raises(UsageError, match="invalid percentile"):
        blkreel.open("sample:app-start").percentiles(at=[percent])


def test_a_gap_is_a_number_of_nanoseconds():
    """A negative one made a burst of each I/O."""
    assert len(blkreel.open("sample:app-start", gap_ns=1e8).bursts()) == 3
    for gap_ns in (-1, 0.5, float("nan"), float("inf"), 1 << 63, "100ms", None):
        with pytest.raises(UsageError, match="invalid gap_ns"):
            blkreel.open("sample:app-start", gap_ns=gap_ns)


def test_bursts_seconds_and_timeline_add_up_to_the_rows(runs):
    study, rows = blkreel.open(runs[0]), rows_of(runs[0])
    reads = rows[rows.op == 0]
    bursts = study.bursts("read")
    assert bursts.ops.sum() == len(reads) and bursts.bytes.sum() == reads.length_bytes.sum()
    assert (bursts.start_ns.to_numpy()[1:] - np.maximum.accumulate(bursts.end_ns)[:-1].to_numpy() > 100 * MS).all()
    assert len(blkreel.open(runs[0], gap_ns=10**12).bursts("read")) == 1
    complete_s = (reads.submit_ns + reads.latency_ns - rows.submit_ns.min()) // 10**9
    seconds = study.seconds().set_index("second").read_ops
    assert seconds[seconds > 0].to_dict() == complete_s.value_counts().to_dict()
    every, filled = study.seconds(), study.seconds(empty=False)
    assert every.second.tolist() == list(range(len(every)))
    assert filled.values.tolist() == every[every.drop(columns="second").any(axis=1)].values.tolist()
    timeline = study.timeline()
    widths_s = (timeline.end_ns - timeline.begin_ns) / 1e9
    assert (timeline.read_mb_s * widths_s * 1e6).sum() == pytest.approx(reads.length_bytes.sum())
    assert (timeline.write_iops * widths_s).sum() == pytest.approx((rows.op == 1).sum())


def test_a_distribution_is_that_of_the_rows(runs):
    study, reads = blkreel.open(runs[0]), rows_of(runs[0]).query("op == 0")
    whole = study.latency("read", points=None)
    for line in whole.sample(20, random_state=1).itertuples():
        assert line.at_least == (reads.latency_ns >= line.value_ns).sum()
        assert line.share_at_least == line.at_least / len(reads)
    few = study.latency("read", points=50)
    assert len(few) <= 50 and few.merge(whole).shape == few.shape
    assert few.at_least.iloc[-1] == 1 and few.value_ns.iloc[-1] == whole.value_ns.max()
    response = study.latency("read", of="response", points=None)
    assert response.value_ns.max() == (reads.submit_ns + reads.latency_ns - reads.due_ns).max()


def test_a_distribution_of_equal_values_has_a_line_for_each(tmp_path):
    latency = np.repeat([100, 200, 300], [900, 99, 1])
    study = blkreel.open(new_trace(tmp_path / "equal.parquet", latency_ns=latency))
    for points in (None, 400):
        assert study.latency("read", points=points).values.tolist() == [
            [100, 1000, 1.0], [200, 100, 0.1], [300, 1, 0.001]]


def test_rows_come_as_they_are_in_the_file(runs):
    study, rows = blkreel.open(runs[0]), rows_of(runs[0])
    pd.testing.assert_frame_equal(study.frame().drop(columns="op"), rows.drop(columns="op"))
    assert study.frame(["op"]).op.map(blkreel.OPS).tolist() == rows.op.tolist()
    assert pa.table(study).num_rows == study.rows == len(rows)
    assert study.stream(["latency_ns", "op"]).schema.names == ["latency_ns", "op"]
    sizes = [batch.num_rows for batch in study.stream(["op"], batch_rows=1000)]
    assert max(sizes) <= 1000 and sum(sizes) == len(rows)


def test_several_have_a_label_each_in_every_frame(runs):
    both, one = blkreel.open(runs), blkreel.open(runs[1])
    assert both.labels == ["fast drive", "slow drive"]
    for name, words in (("metrics", ()), ("percentiles", ()), ("latency", ()), ("bursts", ()), ("seconds", ()),
                        ("timeline", ()), ("frame", (["latency_ns"],))):
        ours, alone = getattr(both, name), getattr(one, name)
        ours, alone = (ours(*words), alone(*words)) if callable(ours) else (ours, alone)
        assert list(ours)[0] == "label" and "label" not in alone
        mine = ours[ours.label == "slow drive"].drop(columns="label").reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, alone.reset_index(drop=True), check_dtype=False)
    assert both.figures["slow drive"] == one.figures and both.run["slow drive"] == one.run
    assert both.stream(["op"]).read_all().column("label").value_counts().to_pylist() == [
        {"values": "fast drive", "counts": blkreel.open(runs[0]).rows}, {"values": "slow drive", "counts": one.rows}]


def test_what_is_called_the_same_is_told_apart(runs, tmp_path):
    again = write_run(tmp_path / "again", "fast drive", seconds=2)
    assert blkreel.open([runs[0], again]).labels == [str(path / "records.parquet") for path in (runs[0], again)]
    assert len(set(blkreel.open([runs[0], runs[0]]).labels)) == 2
    assert blkreel.open({"x": runs[0], "y": runs[0]}).labels == ["x", "y"]
    assert blkreel.open([GAME_LOAD, runs[0]]).labels == ["game-load", "fast drive"]


@pytest.mark.parametrize("call, text", [
    (lambda study: study.percentiles("read", 99), r"at is 99, not a list; give a list: at=\[99\]"),
    (lambda study: study.percentiles("read", "99.9"), "at is '99.9', not a list"),
    (lambda study: study.frame("op"), r"columns is the text 'op', not a list; give a list: \['op'\]"),
    (lambda study: study.latency("read", points=0), "invalid points: 0; give the most lines")])
def test_a_wrong_argument_is_named_with_its_remedy(runs, call, text):
    with pytest.raises(blkreel.BlkreelError, match=text):
        call(blkreel.open(runs[0]))


def test_traces_and_runs_share_the_columns_that_both_have(runs):
    mixed = blkreel.open([GAME_LOAD, runs[0]])
    assert "due_ns" not in mixed.columns and "latency_ns" in mixed.columns
    assert mixed.frame(["latency_ns"]).groupby("label", observed=True).size().sum() == mixed.rows
    with pytest.raises(blkreel.BlkreelError, match="game-load.parquet has no column 'due_ns'; its columns are"):
        mixed.stream(["due_ns"])


def test_large_ones_have_histograms_with_a_stated_error(runs):
    exact, binned = blkreel.open(runs[0]), blkreel.open(runs[0], exact=False)
    ours, theirs = exact.metrics.loc["read"], binned.metrics.loc["read"]
    assert ours.latency_error == 0 and 0 < theirs.latency_error <= 0.01
    assert (ours.ops, ours.latency_max_ns, ours.latency_mean_ns, ours.busy_ns) == (
        theirs.ops, theirs.latency_max_ns, theirs.latency_mean_ns, theirs.busy_ns)
    assert theirs.latency_p99_ns == pytest.approx(ours.latency_p99_ns, rel=theirs.latency_error)
    assert binned.latency("read").at_least.max() == ours.ops
    assert binned.percentiles("read", [50]).p50_ns.loc["read"] == theirs.latency_p50_ns


def test_a_url_is_as_good_as_a_path():
    fsspec.filesystem("memory").pipe("/traces/t.parquet", located(GAME_LOAD).read_bytes())
    study = blkreel.open("memory://traces/t.parquet")
    assert study.labels == ["t"] and study.figures == blkreel.open(GAME_LOAD).figures
    assert blkreel.open(["memory://traces/t.parquet", COMPILE]).labels == ["t", "compile"]
    with pytest.raises(blkreel.BlkreelError, match="memory://traces/none.parquet"):
        blkreel.open("memory://traces/none.parquet")


def test_a_pattern_is_all_that_matches(runs):
    assert blkreel.open(str(runs[0].parent / "*")).labels == ["fast drive", "slow drive"]
    with pytest.raises(blkreel.BlkreelError, match="nothing matches"):
        blkreel.open(str(runs[0].parent / "c*"))


def test_a_test_is_the_runs_of_its_steps(tmp_path):
    made = MadeTest(tmp_path / "qd1", "none of ours")
    for name, cost_ns in (("slow", 200_000), ("fast", 50_000)):
        made.step(name, {}, closed_loop(2000, cost_ns))
    made.step("later", status="waiting")
    test = blkreel.open(made.path)
    assert test.labels == ["01-slow", "02-fast"] and test.rows == 4000
    reads = test.metrics.loc["read"].set_index("label")
    assert reads.latency_p50_ns.to_dict() == {"01-slow": 200_000, "02-fast": 50_000}
    assert test.steps.status.to_dict() == {"01-slow": "done", "02-fast": "done", "03-later": "waiting"}
    assert blkreel.open([made.path, COMPILE]).labels == ["qd1/01-slow", "qd1/02-fast", "compile"]
    with pytest.raises(blkreel.BlkreelError, match="unknown report"):
        _ = test.results


def test_one_file_under_two_labels_is_read_and_shown_under_both(runs, tmp_path):
    (tmp_path / "link").symlink_to(runs[0])
    study = blkreel.open({"A": runs[0], "B": tmp_path / "link"})
    reads = study.metrics.loc["read"].set_index("label")
    assert reads.loc["A"].to_dict() == reads.loc["B"].to_dict() and len(reads) == 2


def test_a_script_reads_much_with_many_processes_and_needs_no_guard(runs, tmp_path):
    script = tmp_path / "study.py"
    script.write_text(f"""
import os
import blkreel
from blkreel.analysis.scale import fleet, pool

fleet.POOL_ROWS = 1
begun = []
Pool = pool.Pool
pool.Pool = lambda jobs: begun.append(jobs) or Pool(jobs)
paths = {[str(path) for path in runs]!r}
with open({str(tmp_path / "times")!r}, "a") as times:
    times.write("run\\n")
many = blkreel.open(paths, jobs=2)
one = blkreel.open(paths, jobs=1)
print(many.metrics.equals(one.metrics), begun)
""")
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert told.stdout == "True [2]\n", told.stderr
    assert (tmp_path / "times").read_text() == "run\n"  # once, not in each process again


def test_every_error_says_what_mends_it(runs, tmp_path):
    study = blkreel.open(runs[0])
    (tmp_path / "text.parquet").write_text("no trace")
    (tmp_path / "empty").mkdir()
    for act in (lambda: blkreel.open("/nowhere/t.parquet"), lambda: blkreel.open(tmp_path / "text.parquet"),
                lambda: blkreel.open(tmp_path / "empty"), lambda: blkreel.open([]), lambda: blkreel.open({}),
                lambda: blkreel.open("sample:none"), lambda: study.bursts("reads"), lambda: study.latency("trim"),
                lambda: study.percentiles("read", of="speed"), lambda: study.percentiles("read", [101]),
                lambda: study.percentiles("read", ["half"]), lambda: study.frame(["nothing"]), lambda: study.steps,
                lambda: study.results):
        with pytest.raises(blkreel.BlkreelError) as caught:
            act()
        assert caught.value.remedy, caught.value
    with pytest.raises(AttributeError):
        _ = blkreel.nothing


@pytest.fixture
def blkreel_json(request):
    """The JSON document of a command, which the package of that name does not hide here."""
    run = request.getfixturevalue("blkreel")
    return lambda *words: json.loads(run(*words, "--json").stdout)
