"""Each query of docs/sql.md gives what blkreel itself says of the same files."""

import duckdb
import numpy as np
import pytest
from documented import blocks, make_runs

import blkreel

QUERIES = {}
for heading, code in blocks("sql.md", "sql"):
    QUERIES.setdefault(heading, []).append(code)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sql")
    make_runs(directory)
    return directory


@pytest.fixture
def ask(place, monkeypatch):
    """ask(heading) is what its queries give."""
    monkeypatch.chdir(place)
    asked = duckdb.connect()

    def run(heading, number=0):
        return asked.sql(QUERIES[heading][number]).df()

    yield run
    asked.close()


@pytest.fixture
def game(place):
    return blkreel.open(place / "game.parquet")


def test_each_query_has_a_test():
    tested = {"Percentiles", "Latency-weighted percentile", "Bursts", "Busy time", "Outstanding over time",
              "I/Os of each second", "Two runs, I/O by I/O", "A directory of runs", "What a file tells of itself",
              "Names of threads"}
    assert set(QUERIES) == tested and sum(map(len, QUERIES.values())) == 11


def test_percentiles(ask, game):
    found, ours = ask("Percentiles").set_index("op"), game.percentiles(at=[50, 90, 99])
    for op, name in ((0, "read"), (1, "write")):
        assert found.n[op] == ours.n[name] and found.max_ns[op] == ours.max_ns[name]
        assert found.p50_ns[op] == ours.p50_ns[name]
    assert (found.p90_ns[0], found.p99_ns[0]) == (ours.p90_ns["read"], ours.p99_ns["read"])
    assert found.isna().p99_ns[1]


def test_latency_weighted_percentile(ask, game):
    assert ask("Latency-weighted percentile").waiting_p50_ns[0] == game.figures["read"]["waiting"]["p50_ns"]


def test_bursts(ask, game):
    found, ours = ask("Bursts"), game.bursts("read")
    assert len(ours) > 5
    for name in ("start_ns", "end_ns", "ops", "bytes"):
        assert found[name].astype("int64").tolist() == ours[name].tolist()
    np.testing.assert_allclose(found.throughput_mb_s.astype(float), ours.throughput_mb_s)


def test_busy_time(ask, game):
    found = ask("Busy time")
    assert found.busy_ns[0] == game.figures["all"]["busy_ns"]
    assert 1 < found.islands[0] < game.rows


def test_outstanding_over_time(ask, game):
    found = ask("Outstanding over time")
    assert found.mean_busy_depth[0] == pytest.approx(game.figures["all"]["mean_busy_depth"], rel=1e-9)
    assert found.max_depth[0] >= found.mean_busy_depth[0]


def test_ios_of_each_second(ask, game):
    ours = game.seconds().read_ops.to_numpy()
    found = ask("I/Os of each second").read_ops.to_numpy()
    assert found.tolist() == ours[:len(found)].tolist() and not ours[len(found):].any()


def test_two_runs_by_their_source(ask, place):
    both = blkreel.open({"fast": place / "runs/fast", "slow": place / "runs/slow"})
    rows = both.frame(["source_row", "op", "latency_ns"])
    pairs = rows[rows.op == "read"].pivot(index="source_row", columns="label", values="latency_ns")
    found = ask("Two runs, I/O by I/O")
    ratios = np.sort(pairs.slow / pairs.fast)
    assert found.pairs[0] == len(pairs) == both.metrics.loc["read"].ops.iloc[0]
    assert found.median_ratio[0] == pytest.approx(ratios[-(-len(ratios) // 2) - 1])
    assert found.slower[0] == (pairs.slow > pairs.fast).sum() > 0


def test_a_run_beside_its_trace(ask, place, game):
    found = ask("Two runs, I/O by I/O", 1)
    run = blkreel.open(place / "runs/fast")
    assert found.reads.sum() == run.metrics.ops["read"]
    assert found.replayed_ns.sum() == run.metrics.service_ns["read"]
    assert found.captured_ns.sum() == game.metrics.service_ns["read"]


def test_a_directory_of_runs(ask, place):
    found = ask("A directory of runs").set_index("run")
    for name in ("fast", "slow"):
        ours = blkreel.open(place / "runs" / name).metrics.loc["read"]
        assert [found.reads[name], found.bytes[name], found.p99_ns[name]] == [ours.ops, ours.bytes, ours.latency_p99_ns]
    assert found.index.tolist() == ["fast", "slow"]


def test_what_a_file_tells_of_itself(ask, place):
    found = ask("What a file tells of itself").set_index("run")
    for name in ("fast", "slow"):
        run = blkreel.open(place / "runs" / name).run
        assert found.loc[name].tolist() == [run["label"], run["verdict"]["level"], run["moved_bytes"]]


def test_names_of_threads(ask, game):
    found = ask("Names of threads").set_index("process")
    rows = game.frame(["tid", "length_bytes"])
    names = {int(tid): entry["process"] for tid, entry in game.metadata["threads"].items()}
    ours = rows.groupby(rows.tid.map(names)).length_bytes.agg(["count", "sum"])
    assert found.ops.to_dict() == ours["count"].to_dict() and found.bytes.to_dict() == ours["sum"].to_dict()
