"""I/O by I/O through source_row, against plain pandas, whatever order the rows came in."""

import numpy as np
import pandas as pd
import pytest
from small_trace import new_trace

from blkreel.analysis.compare import paired as pairing
from blkreel.analysis.compare.paired import paired
from blkreel.analysis.metrics.measure import Measured
from blkreel.traces.format.schema import RUN_SCHEMA
from blkreel.traces.format.trace import Trace

MS = 1_000_000


def plan(count=6000, seed=1):
    random = np.random.default_rng(seed)
    return pd.DataFrame({
        "source_row": np.arange(count), "due_ns": np.arange(count) * MS, "op": random.integers(0, 2, count),
        "length_bytes": random.choice([4096, 6144, 131_072], count),
        "offset_bytes": random.integers(0, 9999, count) * 4096})


def run(path, t, slower=1.0, seed=2, apart=40, sha256="5e" * 32):
    """A run of the plan whose I/Os overtake each other by up to so many ms; gives what `measure` would."""
    random = np.random.default_rng(seed)
    t = t.assign(submit_ns=t.due_ns + random.integers(0, apart * MS, len(t)),
                 latency_ns=(random.lognormal(0, .5, len(t)) * MS * slower).astype(np.int64)).sort_values("submit_ns")
    told = {"source": {"sha256": sha256}}
    new_trace(path, {"run": told, "devices": []}, schema=RUN_SCHEMA, **{name: t[name].to_numpy() for name in t})
    return Measured(path, {"run": told}, len(t), partial=None), t.set_index("source_row")


def in_small_batches(monkeypatch):
    whole = Trace.batches
    monkeypatch.setattr(Trace, "batches", lambda self, columns=None: whole(self, columns, rows=300))


def logs_of(runs, column="latency"):
    return sum(np.log(t.latency_ns if column == "latency" else t.submit_ns + t.latency_ns - t.due_ns)
               for t in runs) / len(runs)


def check(shown, base, other, measure):
    first, ratio = base[0], (logs_of(other, measure) - logs_of(base, measure)).dropna()
    parts = [(shown, ratio)]
    ops = first.op[ratio.index]
    parts += [(one, ratio[ops == {"read": 0, "write": 1}[one["op"]]]) for one in shown["by_op"]]
    sizes = first.length_bytes[ratio.index]
    parts += [(one, ratio[(ops == {"read": 0, "write": 1}[one["op"]]) & (sizes >= one["from_bytes"])
                          & (sizes < one["to_bytes"])]) for one in shown["by_size"]]
    assert len(shown["by_op"]) == 2 and len(shown["by_size"]) == 4  # 4096 and 6144 are one class
    for told, mine in parts:
        assert told["n"] == len(mine) > 500
        assert told["geometric_mean"] == pytest.approx(np.exp(mine.mean()), rel=1e-9)
        assert told["slower_share"] == pytest.approx((mine > 0).mean())
        assert told["faster_share"] == pytest.approx((mine < 0).mean())
        ordered = np.sort(np.exp(mine.to_numpy()))
        for name, per_cent in (("p5", 5), ("p50", 50), ("p95", 95)):
            assert told[name] == pytest.approx(ordered[-(-len(mine) * per_cent // 100) - 1], rel=.003)
    assert sum(one["n"] for one in shown["classes"]) == len(ratio) and len(shown["classes"]) <= 200


@pytest.mark.parametrize("window_rows", [1 << 18, 512, 50])
def test_single_runs_against_pandas(tmp_path, monkeypatch, window_rows):
    in_small_batches(monkeypatch)
    (a, base), (b, other) = run(tmp_path / "a", plan()), run(tmp_path / "b", plan(), 1.5, 3)
    shown = paired(a, b, window_rows)
    assert (shown["unpaired"], shown["late"]) == (0, 0)
    check(shown["latency"], [base], [other], "latency")
    check(shown["response"], [base], [other], "response")
    lost = (other.latency_ns - base.latency_ns).sort_values(ascending=False, kind="stable").head(20)
    assert [one["source_row"] for one in shown["losses"]] == lost.index.tolist()
    worst, row = shown["losses"][0], base.loc[lost.index[0]]
    assert (worst["offset_bytes"], worst["length_bytes"], worst["op"]) == (
        row.offset_bytes, row.length_bytes, ["read", "write"][row.op])
    assert worst["at_ns"] == row.submit_ns - base.submit_ns.min()
    assert worst["other_ns"] - worst["base_ns"] == pytest.approx(lost.iloc[0])


def test_several_runs_are_first_made_one(tmp_path):
    bases = [run(tmp_path / f"a{seed}", plan(), 1, seed) for seed in (1, 2, 3)]
    others = [run(tmp_path / f"b{seed}", plan(), .5, seed) for seed in (4, 5)]
    shown = paired([one for one, _ in bases], [one for one, _ in others])
    assert (shown["base_runs"], shown["other_runs"]) == (3, 2)
    check(shown["latency"], [t for _, t in bases], [t for _, t in others], "latency")
    assert shown["latency"]["geometric_mean"] == pytest.approx(.5, rel=.03)
    assert "unit of repetition is a whole run" in shown["note"]


def test_a_run_beside_itself_is_even(tmp_path):
    a, _ = run(tmp_path / "a", plan())
    shown = paired(a, a)["latency"]
    assert shown["geometric_mean"] == 1 and shown["p1"] == shown["p99"] == 1
    assert shown["faster_share"] == shown["slower_share"] == 0 and paired(a, a)["losses"] == []


def test_missing_and_failed_rows_are_counted_not_guessed(tmp_path):
    t = plan()
    (a, _), (b, _) = run(tmp_path / "a", t.iloc[100:]), run(tmp_path / "b", t.assign(status=[5] * 50 + [0] * 5950))
    shown = paired(a, b, 1 << 14)
    assert shown["latency"]["n"] == 5900 and shown["unpaired"] == 50


def test_what_cannot_be_paired_says_why(tmp_path):
    t = plan(300)
    a, _ = run(tmp_path / "a", t)
    strange, _ = run(tmp_path / "b", t, sha256="00" * 32)
    tiled, _ = run(tmp_path / "c", pd.concat([t, t]))
    made, _ = run(tmp_path / "d", t.assign(source_row=-1))
    captured = Measured(tmp_path / "e", {}, 0, partial=None)
    assert paired(a, strange) == {"why": "not runs of one trace"} == paired(a, captured)
    assert "several times" in paired(a, tiled)["why"]
    assert "no I/O of the trace" in paired(a, made)["why"]
    few = paired(a, a)["latency"]
    assert few["p1"] is None and few["p5"] == 1  # n too small: 3 lie below p1


def test_rows_out_of_order_past_all_measure_are_told(tmp_path, monkeypatch):
    t = plan()
    a, _ = run(tmp_path / "a", t)
    far = t.assign(due_ns=t.due_ns.where(t.source_row != 0, 10**11))
    b, _ = run(tmp_path / "b", far)
    in_small_batches(monkeypatch)
    shown = paired(a, b, 512)
    assert shown["late"] == 1 and shown["latency"]["n"] == 5999
    monkeypatch.setattr(pairing, "MOST_AHEAD_ROWS", 100)
    assert "too different an order" in paired(a, b, 512)["why"]


def test_many_runs_are_not_read_further_ahead_than_they_need(tmp_path, monkeypatch):
    """Their windows are smaller than a batch."""
    a, _ = run(tmp_path / "a", plan())
    in_small_batches(monkeypatch)
    monkeypatch.setattr(pairing, "MOST_AHEAD_ROWS", 1000)
    shown = paired(a, a, 128)
    assert shown["latency"]["n"] == 6000 and shown["late"] == 0


def test_rows_from_far_inside_a_trace_are_found_at_once(tmp_path):
    t = plan(300)
    a, _ = run(tmp_path / "a", t.assign(source_row=t.source_row + 10**15))
    shown = paired(a, a)
    assert shown["latency"]["n"] == 300
