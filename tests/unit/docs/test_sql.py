"""Each query of docs/sql.md returns the figures that blkreel computes for the same files."""

import duckdb
import numpy as np
import pytest
from documented import blocks, run_blkreel

import blkreel

QUERIES = {}
for heading, code in blocks("sql.md", "sql"):
    QUERIES.setdefault(heading, []).append(code)


@pytest.fixture
def ask(examples, monkeypatch):
    """ask(heading) returns the result of its query as a frame."""
    monkeypatch.chdir(examples)
    connection = duckdb.connect()

    def run(heading, number=0):
        return connection.sql(QUERIES[heading][number]).df()

    yield run
    connection.close()


@pytest.fixture
def game(examples):
    return blkreel.open(examples / "game.parquet")


def test_each_query_has_a_test():
    tested = {"Percentiles", "Bursts", "Outstanding over time", "Two runs, I/O by I/O", "A directory of runs",
              "Metadata of a file"}
    assert set(QUERIES) == tested and sum(map(len, QUERIES.values())) == 7


def test_percentiles(ask, game):
    result, ours = ask("Percentiles").set_index("op"), game.percentiles(at=[50, 90, 99])
    for op, name in ((0, "read"), (1, "write")):
        assert result.n[op] == ours.n[name] and result.max_ns[op] == ours.max_ns[name]
        assert result.p50_ns[op] == ours.p50_ns[name]
    assert (result.p90_ns[0], result.p99_ns[0]) == (ours.p90_ns["read"], ours.p99_ns["read"])
    assert result.isna().p99_ns[1]


def test_bursts(ask, game):
    result, ours = ask("Bursts"), game.bursts("read")
    assert len(ours) > 1
    for name in ("start_ns", "end_ns", "ops", "bytes"):
        assert result[name].astype("int64").tolist() == ours[name].tolist()
    np.testing.assert_allclose(result.throughput_mb_s.astype(float), ours.throughput_mb_s)


def test_outstanding_over_time(ask, game):
    result = ask("Outstanding over time")
    assert result.mean_busy_depth[0] == pytest.approx(game.figures["all"]["mean_busy_depth"], rel=1e-9)
    assert result.max_depth[0] >= result.mean_busy_depth[0]


def test_two_runs_by_source_row(ask, examples):
    both = blkreel.open({"fast": examples / "runs/fast", "slow": examples / "runs/slow"})
    rows = both.frame(["source_row", "op", "latency_ns"])
    pairs = rows[rows.op == "read"].pivot(index="source_row", columns="label", values="latency_ns")
    result = ask("Two runs, I/O by I/O")
    ratios = np.sort(pairs.slow / pairs.fast)
    assert result.pairs[0] == len(pairs) == both.metrics.loc["read"].ops.iloc[0]
    assert result.median_ratio[0] == pytest.approx(ratios[-(-len(ratios) // 2) - 1])
    assert result.slower[0] == (pairs.slow > pairs.fast).sum() > 0


def test_a_run_joined_with_its_trace(ask, examples, game):
    result = ask("Two runs, I/O by I/O", 1)
    run = blkreel.open(examples / "runs/fast")
    assert result.reads.sum() == run.metrics.ops["read"]
    assert result.replayed_ns.sum() == run.metrics.service_ns["read"]
    assert result.captured_ns.sum() == game.metrics.service_ns["read"]


def test_a_examples(ask, examples):
    result = ask("A directory of runs").set_index("run")
    for name in ("fast", "slow"):
        ours = blkreel.open(examples / "runs" / name).metrics.loc["read"]
        assert result.loc[name, ["reads", "bytes", "p99_ns"]].tolist() == [ours.ops, ours.bytes, ours.latency_p99_ns]
    assert result.index.tolist() == ["fast", "slow"]


def test_io_beside_the_workload_is_in_no_query_of_runs(examples, tmp_path, command_server, monkeypatch):
    """Rows of a background name rows of another trace, so that a join multiplied the pairs."""
    run_blkreel(command_server, tmp_path, "replay", examples / "game.parquet", "--on", "nil:64GiB,clock=virtual",
                "--pace", "dependent", "--background", examples / "game.parquet", "-o", "runs/slow")
    (tmp_path / "runs/fast").symlink_to(tmp_path / "runs/slow")
    (tmp_path / "game.parquet").symlink_to(examples / "game.parquet")
    monkeypatch.chdir(tmp_path)
    reads = blkreel.open("runs/slow").metrics.ops["read"]
    pairs, threads = (duckdb.sql(query).df() for query in QUERIES["Two runs, I/O by I/O"])
    assert pairs.pairs.tolist() == [reads] and threads.reads.sum() == reads
    assert set(duckdb.sql(QUERIES["A directory of runs"][0]).df().reads) == {reads}


def test_metadata_of_a_file(ask, examples):
    result = ask("Metadata of a file").set_index("run")
    for name in ("fast", "slow"):
        run = blkreel.open(examples / "runs" / name).run
        assert result.loc[name].tolist() == [run["label"], run["verdict"]["level"], run["moved_bytes"]]
