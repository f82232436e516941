"""The slowdown by writes, of runs whose latencies are chosen."""

from dataclasses import replace

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.analysis.compare.second_pass import SlowdownByWrites, slowdown_by_writes
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.analysis.report.document import comparison
from blkreel.traces.format.schema import OPS, RUN_SCHEMA

US, MS = 1_000, 1_000_000
READ, WRITE = OPS["read"], OPS["write"]
READS = 60


def write_records(directory, run, **columns):
    directory.mkdir(parents=True)
    new_trace(directory / "records.parquet", {"run": {"label": "x", "source": {"sha256": "f" * 64}, **run}},
              schema=RUN_SCHEMA, **{"due_ns": columns["submit_ns"], "status": 0,
                                    "source_row": np.arange(len(columns["submit_ns"]))} | columns)


def with_baseline(directory, slowdown, path="baseline", writes=READS, verdict="valid"):
    """Reads of 100 us, which take `slowdown` times as long beside the writes of 1 MB, one after each of the first."""
    submit_ns = np.arange(2 * READS) * MS
    is_read = np.arange(2 * READS) % 2 == 0
    ratios = {"read_wait": slowdown, "load_time": None}
    write_records(directory, {"baseline": {"path": path, "slowdown": ratios, "verdict": verdict,
                                           "read_wait_ns": READS * 100 * US}}, submit_ns=submit_ns,
                  op=np.where(is_read, READ, WRITE), latency_ns=np.where(is_read, int(100 * US * slowdown), US),
                  length_bytes=np.where(is_read | (np.arange(2 * READS) > 2 * writes), 4096, 1_000_000))
    write_records(directory / "baseline", {}, submit_ns=submit_ns[is_read], op=READ, latency_ns=100 * US,
                  source_row=np.flatnonzero(is_read))
    return measure(directory)


def test_baselines_give_the_ratio_of_each_run_with_an_interval(tmp_path):
    ratios = [2.0, 2.5, 3.0, 2.2, 2.8, 2.4]
    runs = [with_baseline(tmp_path / str(i), ratio) for i, ratio in enumerate(ratios)]
    found = slowdown_by_writes(runs)
    assert found.paired.load_time is None
    wait = found.paired.read_wait
    assert wait.runs == tuple(ratios)
    assert wait.value == pytest.approx(np.exp(np.log(ratios).mean()))
    assert wait.interval.low < wait.value < wait.interval.high and wait.interval.n == 6
    reads = found.paired.reads
    assert reads["latency"]["n"] == READS, "the reads only: the baseline has no writes"
    assert reads["latency"]["geometric_mean"] == pytest.approx(2)


def test_an_invalid_baseline_gives_no_slowdown_anywhere(tmp_path):
    for verdict, stated in (("qualified", 2.0), ("invalid", None)):
        run = with_baseline(tmp_path / verdict, 2.0, verdict=verdict)
        paired = slowdown_by_writes([run]).paired
        assert (paired and paired.read_wait.value) == stated
        value = figures(run.partial, RunTimes.of(run.metadata))["run"]["slowdown_by_writes"]
        assert (value is None) == (stated is None)
    assert "baseline without the writes is invalid" in slowdown_by_writes([run]).why


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "..", "missing"])
def test_a_baseline_is_only_read_from_a_folder_of_the_run(tmp_path, path):
    found = slowdown_by_writes([with_baseline(tmp_path / "a", 2.0, path)])
    assert found.paired.read_wait.value == 2.0 and "baseline" in found.paired.reads["why"]


def test_without_a_baseline_there_is_no_slowdown(tmp_path):
    """Reads of one run that met a write are not compared with its other reads: they differ in more than the writes."""
    runs = [with_baseline(tmp_path / "a", 2.0), with_baseline(tmp_path / "b", 2.0)]
    del runs[1].metadata["run"]["baseline"]
    assert slowdown_by_writes(runs).why == "no baseline of 1 of 2 runs: replay with --baseline"
    assert "--baseline" in slowdown_by_writes([]).why


@pytest.mark.parametrize(("baseline", "verdict", "why"), [
    ({"verdict": "invalid", "reason": "7 external I/Os on the drive", "withheld": []}, {},
     "the baseline without the writes is invalid: 7 external I/Os on the drive"),
    ({"verdict": "qualified", "withheld": ["read_wait"]}, {},
     "read wait of the baseline without the writes withheld: effect of the host"),
    ({"verdict": "qualified", "withheld": ["read_wait"]}, {"background": [{}]},
     "read wait of the baseline without the background withheld: effect of the host"),
    ({"verdict": "valid"}, {"withheld": ["load_time"]}, "load time of the run withheld: its verdict says why"),
    ({"verdict": "valid"}, {"withheld": ["read_wait"]}, "read wait of the run withheld: effect of the host")])
def test_no_slowdown_is_stated_from_times_that_must_not_be_used(tmp_path, baseline, verdict, why):
    measured = with_baseline(tmp_path / "a", 2.0)

    def judged(baseline, withheld, background=()):
        run = {**measured.metadata["run"], "background": list(background), "pace": {"name": "dependent"},
               "verdict": {"level": "valid", "reasons": [], "withheld": withheld}}
        run["baseline"] = {**run["baseline"], **baseline}
        return replace(measured, metadata={**measured.metadata, "run": run})

    run = judged(baseline, verdict.get("withheld", []), verdict.get("background", ()))
    assert slowdown_by_writes([run]) == SlowdownByWrites(why=why)
    assert figures(run.partial, RunTimes.of(run.metadata))["run"]["slowdown_by_writes"] is None
    read_wait = slowdown_by_writes([judged({"verdict": "qualified", "withheld": ["write_p99"]}, [])]).paired.read_wait
    assert read_wait.value == 2.0 and read_wait.interval is None, "one run has no interval"


def test_reads_beside_few_writes_have_no_slowdown(tmp_path):
    run = with_baseline(tmp_path / "a", 2.0, writes=0)
    found = slowdown_by_writes([run])
    assert found.paired is None and "no slowdown can be measured; use --background" in found.why
    assert figures(run.partial, RunTimes.of(run.metadata))["run"]["slowdown_by_writes"] is None
    (entry,) = comparison([run])[0]["sections"][0]["entries"]
    assert entry["exposure"]["why"] == found.why
