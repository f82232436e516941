"""The slowdown by writes, of runs whose latencies are chosen: with a baseline, and without one."""

import numpy as np
import pytest

from blkreel.analysis.compare.interference import Interference, interference
from blkreel.analysis.compare.slowdown import slowdown_by_writes
from blkreel.analysis.metrics.measure import measure
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS, RUN_SCHEMA
from blkreel.traces.format.writer import TraceWriter

US, MS = 1_000, 1_000_000
READ, WRITE = OPS["read"], OPS["write"]
READS = 60


def write_records(directory, run, **columns):
    directory.mkdir(parents=True)
    count = len(columns["submit_ns"])
    columns = {name: np.broadcast_to(value, count) for name, value in
               ({"due_ns": columns["submit_ns"], "length_bytes": 4096, "source_row": np.arange(count),
                 "offset_bytes": np.arange(count) * 4096, "status": 0} | columns).items()}
    with TraceWriter(directory / "records.parquet", RUN_SCHEMA) as out:
        out.write(columns)
        out.close({"run": {"label": "x", "source": {"sha256": "f" * 64}, **run}})


def with_baseline(directory, slowdown, path="baseline"):
    """Reads of 100 us, which take `slowdown` times as long beside the writes."""
    submit_ns = np.arange(2 * READS) * MS
    is_read = np.arange(2 * READS) % 2 == 0
    ratios = {"read_wait": slowdown, "load_time": None}
    write_records(directory, {"baseline": {"path": path, "slowdown": ratios}}, submit_ns=submit_ns,
                  op=np.where(is_read, READ, WRITE), latency_ns=int(100 * US * slowdown))
    write_records(directory / "baseline", {}, submit_ns=submit_ns[is_read], op=READ, latency_ns=100 * US,
                  source_row=np.flatnonzero(is_read))
    return measure(directory)


def beside_writes(directory, met_ns, unmet_ns, big_ns=None):
    """Every other read comes 1 ms after a write of 50 us, the others 500 ms later. big_ns: of reads of 64 KiB."""
    at = np.arange(READS) * 1000 * MS
    writes, met, unmet = at, at + MS, at + 501 * MS
    parts = [(writes, WRITE, 4096, 50 * US), (met, READ, 4096, met_ns), (unmet, READ, 4096, unmet_ns)]
    if big_ns:
        parts += [(met + US, READ, 65_536, big_ns[0]), (unmet + US, READ, 65_536, big_ns[1])]
    submit_ns = np.concatenate([part[0] for part in parts])
    order = np.argsort(submit_ns, kind="stable")
    op, length_bytes, latency_ns = (np.repeat([part[i] for part in parts], READS)[order] for i in (1, 2, 3))
    write_records(directory, {}, submit_ns=submit_ns[order], op=op, length_bytes=length_bytes, latency_ns=latency_ns)
    return measure(directory)


def slowdown_of(runs):
    return slowdown_by_writes(runs, [interference(open_trace(run.path)) for run in runs])


def test_baselines_give_the_ratio_of_each_run_with_an_interval(tmp_path):
    ratios = [2.0, 2.5, 3.0, 2.2, 2.8, 2.4]
    runs = [with_baseline(tmp_path / str(i), ratio) for i, ratio in enumerate(ratios)]
    found = slowdown_of(runs)
    assert found.met is None and found.paired.load_time is None
    wait = found.paired.read_wait
    assert wait.runs == tuple(ratios)
    assert wait.value == pytest.approx(np.exp(np.log(ratios).mean()))
    assert wait.interval.low < wait.value < wait.interval.high and wait.interval.n == 6
    reads = found.paired.reads
    assert reads["latency"]["n"] == READS, "the reads only: the baseline has no writes"
    assert reads["latency"]["geometric_mean"] == pytest.approx(2)


def test_one_run_has_no_interval(tmp_path):
    assert slowdown_of([with_baseline(tmp_path / "a", 2.0)]).paired.read_wait.interval is None


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "..", "missing"])
def test_a_baseline_is_only_read_from_a_folder_of_the_run(tmp_path, path):
    found = slowdown_of([with_baseline(tmp_path / "a", 2.0, path)])
    assert found.paired.read_wait.value == 2.0 and "baseline" in found.paired.reads["why"]


def test_without_a_baseline_reads_that_met_a_write_are_compared(tmp_path):
    run = beside_writes(tmp_path / "a", 300 * US, 100 * US)
    found = slowdown_of([run])
    assert found.paired is None
    assert found.met.latency.value == pytest.approx(3)
    assert (found.met.met, found.met.reads) == (READS, 2 * READS)
    (size,) = found.met.by_size
    assert (size.from_bytes, size.to_bytes, size.met, size.unmet) == (4096, 8192, READS, READS)
    assert (size.met_mean_ns, size.unmet_mean_ns) == (300 * US, 100 * US)
    assert size.met_p50_ns == pytest.approx(300 * US, rel=1 / 256)
    assert "not an effect of the writes alone" in found.met.note


def test_large_reads_are_compared_with_large_reads(tmp_path):
    """A plain mean over all reads would show a slowdown although each size is as fast with writes as without."""
    run = beside_writes(tmp_path / "a", 100 * US, 100 * US, big_ns=(2 * MS, 2 * MS))
    assert slowdown_of([run]).met.latency.value == pytest.approx(1)
    run = beside_writes(tmp_path / "b", 100 * US, 100 * US, big_ns=(4 * MS, 2 * MS))
    assert slowdown_of([run]).met.latency.value == pytest.approx((100 * US + 4 * MS) / (100 * US + 2 * MS))


def test_a_run_without_a_baseline_makes_the_statement_the_weaker_one(tmp_path):
    runs = [with_baseline(tmp_path / "a", 2.0), beside_writes(tmp_path / "b", 300 * US, 100 * US)]
    assert slowdown_of(runs).paired is None


def test_runs_that_say_nothing_have_a_reason():
    found = slowdown_by_writes([], [Interference()])
    assert found.paired is None and found.met is None and "no baseline" in found.why
