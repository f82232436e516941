"""trace-consistency and game-score on rows whose figures a person can work out."""

import numpy as np
import pytest
from synthetic_tests import KIB, MS, MadeTest, both, rows_of

from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.reports.trace_passes import score, trace_names

US = 1000
ALL = {"state": "full"}


def reads(slower=1):
    """Ten reads of 64 KiB, one at a time, 200 us each: 655,360 bytes in 2 ms are 327.68 MB/s."""
    return rows_of(np.arange(10) * 10 * MS, 200 * US * slower, length_bytes=64 * KIB)


def writes(slower=1):
    """Eight pairs of writes of 128 KiB, 300 us each, the second 100 us after the first: 2,097,152 bytes in 3.2 ms are
    655.36 MB/s. The flush and the discard count for nothing, and nor does a write without a completion."""
    first = np.arange(8) * 10 * MS
    return both(rows_of(first, 300 * US * slower, op=1, length_bytes=128 * KIB),
                rows_of(first + 100 * US * slower, 300 * US * slower, op=1, length_bytes=128 * KIB),
                rows_of([2 * MS], 5 * MS, op=2, length_bytes=0), rows_of([3 * MS], 9 * MS, op=3, length_bytes=4096),
                rows_of([4 * MS], -1, op=1, length_bytes=4096))


def passes(tmp_path, *, leave_out=None, repeats=(1,), sha256="a"):
    """Degrade: as above, then all twice as slow. Steady: four times as slow."""
    test = MadeTest(tmp_path / "t", "trace-passes")
    for repeat in repeats:
        for phase, number, slower in (("degrade", 1, 1), ("degrade", 2, 2), ("steady", 1, 4)):
            for trace, make in (("sample:game-load", reads), ("my.game.parquet", writes)):
                labels = {**ALL, "repeat": repeat, "phase": phase, "pass_number": number, "trace": trace}
                if (phase, number, trace) == leave_out:
                    test.step("trace", labels, status="failed", error="it broke")
                else:
                    own = f"{trace}{sha256 if phase == 'steady' else 'a'}"
                    test.step("trace", labels, make(slower * repeat), source={"path": trace, "sha256": own})
    return results_of(test.path)


def test_the_score_by_hand():
    assert score(327.68, 200_000) == pytest.approx(1280)  # √(327.68 × 5000) = √1,638,400
    assert score(400, 100_000) == pytest.approx(2000)  # √(400 × 10,000): the example of docs/tests.md
    assert score(None, 100) is score(100, None) is score(100, 0) is None


def test_passes_by_hand(tmp_path):
    full = passes(tmp_path)["figures"]["states"]["full"]
    first = full["passes"]["degrade-1"]
    # √(327.68 × 655.36), √(200 × 300) us, and √(463.4095 × 1e6 / 244.949).
    assert first["bandwidth_mb_s"] == pytest.approx(463.4095)
    assert first["access_ns"] == pytest.approx(244_948.97)
    assert first["score"] == pytest.approx(1375.4495)
    assert (first["phase"], first["pass_number"]) == ("degrade", 1)
    # Twice as slow: half the bandwidth, twice the access time, half the score.
    assert full["passes"]["degrade-2"]["score"] == pytest.approx(1375.4495 / 2)
    assert full["phases"]["degrade"]["score"] == pytest.approx(1375.4495 / 2 ** 0.5)
    assert full["phases"]["steady"]["bandwidth_mb_s"] == pytest.approx(463.4095 / 4)
    # Of all: 1, 2 and 4 times as slow, so twice in the geometric mean.
    assert full["score"] == pytest.approx(1375.4495 / 2)
    assert full["access_ns"] == pytest.approx(2 * 244_948.97)
    # By trace: √(655.36 × 1e6 / 300) = 1478.0166, over all passes and in one phase.
    assert full["traces"]["game-load"]["score"] == pytest.approx(1280 / 2)
    assert full["traces"]["my_game"]["score"] == pytest.approx(1478.0166 / 2)
    assert full["phases"]["steady"]["traces"]["my_game"]["bandwidth_mb_s"] == pytest.approx(163.84)
    assert list(full["passes"]) == ["degrade-1", "degrade-2", "steady-1"]


def test_the_tables_and_the_formula(tmp_path):
    document = passes(tmp_path)
    assert [table["title"] for table in document["tables"]] == [
        "Score = √(bandwidth in MB/s × 1 / access time in s)", "By phase", "By pass", "By trace"]
    assert [(row["phase"], row["pass_number"]) for row in document["tables"][2]["rows"]] == [
        ("degrade", 1), ("degrade", 2), ("steady", 1)]
    method = dict(document["method"])
    assert "1 / access time" in method["Score"]
    assert "comparable" in method["Comparability"]


def test_without_phases_there_are_passes_alone(tmp_path):
    test = MadeTest(tmp_path / "t", "trace-passes")
    for number in (1, 2):
        test.step("trace", {**ALL, "pass_number": number, "trace": "sample:game-load"}, reads(number))
    document = results_of(test.path)
    full = document["figures"]["states"]["full"]
    assert "phases" not in full and list(full["passes"]) == ["1", "2"]
    assert full["score"] == pytest.approx(1280 / 2 ** 0.5)
    assert [table["title"] for table in document["tables"]][1:] == ["By pass", "By trace"]


def test_a_mean_without_one_of_its_replays_is_no_mean(tmp_path):
    document = passes(tmp_path, leave_out=("degrade", 2, "sample:game-load"))
    full = document["figures"]["states"]["full"]
    assert full["score"] is full["phases"]["degrade"]["score"] is full["passes"]["degrade-2"]["score"] is None
    assert full["traces"]["game-load"]["bandwidth_mb_s"] is None
    assert full["why"]["score"] == "missing: trace full 1 degrade 2 sample:game-load"
    # The others have all of theirs.
    assert full["passes"]["degrade-1"]["score"] == pytest.approx(1375.4495)
    assert full["traces"]["my_game"]["score"] == pytest.approx(1478.0166 / 2)
    assert document["verdict"]["level"] == "invalid"


def test_appends_are_writes_in_bytes_and_in_time(tmp_path):
    """1 MB in 1 ms, and another in 1 ms: the time of an append had been left out, which doubled the bandwidth."""
    test = MadeTest(tmp_path / "t", "trace-passes")
    test.step("trace", {**ALL, "trace": "zoned.parquet"}, rows_of([0, 2 * MS], MS, op=[0, 5], length_bytes=1_000_000))
    trace = results_of(test.path)["figures"]["states"]["full"]["traces"]["zoned"]
    assert trace["bandwidth_mb_s"] == pytest.approx(1000)


def test_a_replay_without_reads_and_writes_has_no_score(tmp_path):
    test = MadeTest(tmp_path / "t", "trace-passes")
    test.step("trace", {**ALL, "trace": "flushes.parquet"}, rows_of([0, MS], MS // 2, op=2, length_bytes=0))
    full = results_of(test.path)["figures"]["states"]["full"]
    assert full["score"] is None and full["why"]["score"] == "a replay without reads and writes"


def test_repeats_are_geometric_means_with_their_range(tmp_path):
    full = passes(tmp_path, repeats=(1, 2))["figures"]["states"]["full"]
    assert full["n"] == 2
    assert full["passes"]["degrade-1"]["score"] == pytest.approx(1375.4495 / 2 ** 0.5)
    assert full["passes"]["degrade-1"]["score_repeats"] == [pytest.approx(1375.4495), pytest.approx(1375.4495 / 2)]


@pytest.mark.parametrize(("sha256", "is_invalid"), [("a", False), ("b", True)])
def test_a_trace_that_changed_between_passes_makes_the_test_invalid(tmp_path, sha256, is_invalid):
    reasons = passes(tmp_path, sha256=sha256)["verdict"]["reasons"]
    assert ("different_traces" in [reason["code"] for reason in reasons]) == is_invalid


def test_names_of_traces_are_parts_of_a_key():
    assert trace_names(["sample:app-start", "/a/b.v2.parquet"]) == {
        "sample:app-start": "app-start", "/a/b.v2.parquet": "b_v2"}
    # Equal names of files keep their directories.
    assert trace_names(["/a/x.parquet", "/b/x.parquet"]) == {"/a/x.parquet": "/a/x_parquet",
                                                             "/b/x.parquet": "/b/x_parquet"}
