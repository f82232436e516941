"""Each report on rows whose figures a person can work out, and published figures to the digit they were rounded to."""

import numpy as np
import pytest
from synthetic_tests import GIB, KIB, MIB, MS, SECOND, MadeTest, both, closed_loop, rows_of

from blkreel.benchmarks.reports.results import results_of

US = 1000
WRITER = {"number": 0, "name": "writer", "op": "write", "bursts": {"bytes": 4 * MIB, "every_ns": 2 * SECOND,
                                                                   "first_ns": 0, "count": None}}


def near(value, published, digits):
    """A published figure is tested against the interval that it was rounded from."""
    half = 0.5 * 10.0 ** -digits
    return published - half <= value <= published + half


# Mixed burst.

def reads_of(bursts, cost_ns, length_bytes=64 * KIB):
    """Bursts of ten reads, one each 6.2 s; cost_ns: of a read, by burst."""
    parts = []
    for number, begin_s in enumerate(bursts):
        begin = int(begin_s * SECOND)
        submit = begin + np.arange(10) * cost_ns[number]
        parts.append(rows_of(submit, cost_ns[number], op=0, length_bytes=length_bytes, burst=number, stream=1,
                             due_ns=begin))
    return parts


def writes_of(count, took_ns):
    """A burst each 2 s of four 1 MiB writes, one after the other."""
    return [rows_of(number * 2 * SECOND + np.arange(4) * took_ns // 4, took_ns // 4, op=1, length_bytes=MIB,
                    burst=number, stream=0, due_ns=number * 2 * SECOND) for number in range(count)]


def mixed_burst(tmp_path, took_ns=SECOND, streams=(WRITER,), mixed_cost=(2 * MS, 8 * MS), **more):
    test = MadeTest(tmp_path / "t", "mixed-burst", **more)
    test.step("mixed", {"repeat": 1}, both(*writes_of(5, took_ns), *reads_of((1, 7.2), mixed_cost)), streams=streams)
    test.step("baseline", {"repeat": 1}, both(*reads_of((1, 7.2), (MS, MS))))
    return results_of(test.path)


def test_bursts_of_two_writers_are_not_one(tmp_path):
    """The second writer has no plan and slow bursts of the same numbers: the first one kept up."""
    test = MadeTest(tmp_path / "t", "mixed-burst")
    slow = [rows_of(np.array([number * 2 * SECOND]), 3 * SECOND, op=1, length_bytes=KIB, burst=number, stream=2)
            for number in range(5)]
    test.step("mixed", {"repeat": 1}, both(*writes_of(5, SECOND), *slow, *reads_of((1, 7.2), (MS, MS))),
              streams=(WRITER, {"number": 2, "name": "log", "op": "write"}))
    figures = results_of(test.path)["figures"]["states"][""]
    assert figures["writer"][0]["state"] == "kept up" and figures["writer"][0]["late_bursts"] == 0
    assert figures["mixed"]["write_bursts"] == 10


def test_mixed_burst_by_hand(tmp_path):
    document = mixed_burst(tmp_path)
    figures = document["figures"]["states"][""]
    mixed = figures["mixed"]
    assert mixed["read_wait_ns"] == 20 * MS + 80 * MS and figures["baseline"]["read_wait_ns"] == 20 * MS
    assert mixed["read_service_time_ns"] == 100 * MS
    assert mixed["read_burst_mb_s"] == pytest.approx(20 * 64 * KIB / 100e-3 / 1e6)
    assert mixed["write_burst_mb_s"] == pytest.approx(20 * MIB / 5 / 1e6)
    assert figures["slowdown"] == pytest.approx((2 * 8) ** 0.5)
    # Half of 100 ms of waiting was in reads of up to 8 ms; but with 20 reads only the median may be shown.
    assert mixed["read_waiting"] == {"p50_ns": 8 * MS, "p90_ns": None, "p99_ns": None}
    rows = document["tables"][-1]["rows"]
    assert [(row["burst"], row["at_ns"], row["makespan_ns"], row["baseline_ns"], row["slowdown"]) for row in rows] == [
        (0, SECOND, 20 * MS, 10 * MS, 2), (1, 7_200 * MS, 80 * MS, 10 * MS, 8)]
    assert figures["writer"] == [{"repeat": 1, "state": "kept up", "bursts": 4, "late_bursts": 0, "written_share": 1.0,
                                  "offered_bytes": 16 * MIB, "written_bytes": 16 * MIB,
                                  "read_beside_writes": 0.0}]
    assert {line["name"] for line in document["series"][0]["lines"]} == {"reads", "writes"}
    assert [line["name"] for line in document["series"][1]["lines"]] == ["reads"]


def test_timeline_holds_every_byte(tmp_path):
    document = mixed_burst(tmp_path)
    drawn = document["series"][0]
    for line, total in zip(drawn["lines"], (20 * 64 * KIB, 20 * MIB), strict=True):
        width_s = line["x"][1] - line["x"][0]
        assert sum(line["y"]) * width_s * 1e6 == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize(("took_ns", "late"), [(2 * SECOND, 0), (2 * SECOND + 8, 5)])
def test_a_write_burst_has_to_end_before_the_next_is_due(tmp_path, took_ns, late):
    document = mixed_burst(tmp_path, took_ns)
    assert document["figures"]["states"][""]["writer"][0]["late_bursts"] == late
    texts = [reason["text"] for reason in document["verdict"]["reasons"]]
    assert any("writer fell behind" in text for text in texts) == bool(late)


def test_bursts_that_were_never_issued_count_against_the_writer(tmp_path):
    """A queue that is full leaves no rows of what was due: the plan knows of them."""
    test = MadeTest(tmp_path / "t", "mixed-burst")
    test.step("mixed", {}, both(*writes_of(3, SECOND), *reads_of((1, 15), (MS, MS))), streams=[WRITER])
    writer = results_of(test.path)["figures"]["states"][""]["writer"][0]
    assert (writer["state"], writer["bursts"], writer["late_bursts"]) == ("fell behind", 7, 4)
    assert writer["written_share"] == pytest.approx(3 / 7)


def test_a_writer_without_a_plan_is_not_judged(tmp_path):
    assert mixed_burst(tmp_path, streams=())["figures"]["states"][""]["writer"] == [
        {"repeat": 1, "state": "unplanned", "read_beside_writes": 0.0}]


def test_bursts_are_paired_by_number_not_by_order(tmp_path):
    test = MadeTest(tmp_path / "t", "mixed-burst")
    test.step("mixed", {"repeat": 1}, both(*reads_of((1, 7.2), (2 * MS, 8 * MS))))
    missing_first = {name: column[10:] for name, column in both(*reads_of((1, 7.2), (MS, MS))).items()}
    test.step("baseline", {"repeat": 1}, missing_first)
    document = results_of(test.path)
    assert [row["slowdown"] for row in document["tables"][-1]["rows"]] == [None, 8]
    assert document["tables"][-1]["rows"][0]["why"]["slowdown"] == "no baseline"
    assert document["figures"]["states"][""]["slowdown"] is None  # not the mean of the bursts that happen to be there


def test_repeats_of_a_mixed_burst_are_geometric_means(tmp_path):
    test = MadeTest(tmp_path / "t", "mixed-burst")
    for repeat, cost in ((1, MS), (2, 4 * MS)):
        test.step("mixed", {"repeat": repeat}, both(*reads_of((1, 7.2), (cost, cost))))
        test.step("baseline", {"repeat": repeat}, both(*reads_of((1, 7.2), (MS, MS))))
    figures = results_of(test.path)["figures"]["states"][""]
    assert figures["mixed"]["read_wait_ns"] == pytest.approx(40 * MS)
    assert (figures["mixed"]["read_wait_ns_smallest"], figures["mixed"]["read_wait_ns_largest"]) == (20 * MS, 80 * MS)
    assert figures["slowdown"] == pytest.approx(2) and figures["slowdown_largest"] == 4
    assert figures["mixed"]["read_latency"]["n"] == 40  # percentiles of all I/Os together


def test_published_writer_and_reads(tmp_path):
    """40 MB each 2 s is 20 MB/s; ten times 400 MiB in 64K reads is 64,000 reads."""
    test = MadeTest(tmp_path / "reads", "mixed-burst")
    submit = np.concatenate([number * 6_200 * MS + np.arange(6400) * 100 * US for number in range(10)])
    test.step("mixed", {}, rows_of(submit, 100 * US, length_bytes=64 * KIB, burst=np.repeat(np.arange(10), 6400)))
    document = results_of(test.path)
    assert document["figures"]["states"][""]["mixed"]["read_latency"]["n"] == 64_000
    assert all(row["mb_s"] == pytest.approx(400 * MIB / 0.64 / 1e6) for row in document["tables"][-1]["rows"])
    # 40 MB in 10 I/Os at the beginning of each 2 s, for 20 s; the last ends with its two seconds.
    test = MadeTest(tmp_path / "writes", "trace")
    submit = np.repeat(np.arange(10) * 2 * SECOND, 10)
    latency = np.where(np.arange(100) == 99, 2 * SECOND, 50 * MS)
    test.step("trace", {}, rows_of(submit, latency, op=1, length_bytes=4_000_000))
    assert near(results_of(test.path)["figures"]["states"][""]["wall_rate_mb_s"], 20, 0)


# Mixes.

def mixes(tmp_path, states=("data", "full"), leave_out=None, repeats=1, **more):
    """100 reads at 100 %, 50 of each at 50 %, 100 writes at 0 %; a full drive takes 2, 4 and 5 times as long."""
    test = MadeTest(tmp_path / "t", "mixes")
    for state in states:
        for mix, slower in ((100, 2), (50, 4), (0, 5)):
            for repeat in range(1, repeats + 1):
                if (state, mix, repeat) == leave_out:
                    test.step("mix", {"state": state, "mix": mix, "repeat": repeat}, status="failed", error="it broke")
                    continue
                cost = MS * (slower if state == "full" else 1) * repeat
                op = np.repeat([0, 1], [mix, 100 - mix])
                test.step("mix", {"state": state, "mix": mix, "repeat": repeat},
                          closed_loop(100, cost, op=op, length_bytes=1_000_000), **more)
    return results_of(test.path)


def test_mixes_by_hand(tmp_path):
    document = mixes(tmp_path)
    states = document["figures"]["states"]
    assert {mix: row["mb_s"] for mix, row in states["data"]["mixes"].items()} == {
        "100": 1000.0, "50": 1000.0, "0": 1000.0}
    assert [states["full"]["mixes"][mix]["mb_s"] for mix in ("100", "50", "0")] == [500.0, 250.0, 200.0]
    assert states["full"]["mean"]["mb_s"] == pytest.approx(950 / 3)
    ratios = document["figures"]["full_over_empty"]["full"]
    assert ratios["mixes"] == {"100": 0.5, "50": 0.25, "0": 0.2} and ratios["mean"] == pytest.approx(0.95 / 3)
    assert states["full"]["mixes"]["50"]["read_mean_ns"] == 4 * MS
    assert [series["title"] for series in document["series"]] == ["Throughput by share of reads"]
    assert document["series"][0]["lines"][1] == {"name": "full", "x": [0, 50, 100], "y": [200.0, 250.0, 500.0]}


def test_each_report_counts_what_it_is_about(tmp_path):
    """A read of 1 ms, a write of 3 ms, a flush of 7 ms, a read that was not seen to end, and a discard of 2 ms."""
    columns = rows_of(np.array([0, 1, 4, 11, 20]) * MS, np.array([MS, 3 * MS, 7 * MS, -1, 2 * MS]), op=[0, 1, 2, 0, 3],
                      length_bytes=1_000_000, burst=[0, 0, -1, 0, -1])
    figures = {}
    for report, role, labels in (("mixes", "mix", {"state": "full", "mix": 50}), ("depths", "depth", {"depth": 4}),
                                 ("trace", "trace", {"state": "full", "repeat": 1}), ("mixed-burst", "mixed", {})):
        test = MadeTest(tmp_path / report, report)
        test.step(role, labels, columns)
        figures[report] = next(iter(results_of(test.path)["figures"]["states"].values()))
    mix, depth, trace = figures["mixes"]["mixes"]["50"], figures["depths"]["depths"]["4"], figures["trace"]
    assert (mix["mb_s"], mix["read_mean_ns"], mix["write_mean_ns"]) == (pytest.approx(2000 / 22), MS, 3 * MS)
    assert (depth["max_ns"], depth["little"]) == (3 * MS, pytest.approx(4 / 22 / 4))
    assert [(trace[name]["ops"], trace[name]["mean_ns"]) for name in ("all", "reads", "writes")] == [
        (2, 2 * MS), (1, MS), (1, 3 * MS)]
    assert trace["data_rate_mb_s"] == pytest.approx(2000 / 13)
    assert [figures["mixed-burst"]["mixed"][f"{name}_burst_mb_s"] for name in ("read", "write")] == [
        pytest.approx(1000), pytest.approx(1000 / 3)]


def test_a_mean_without_one_of_its_mixes_is_no_mean(tmp_path):
    document = mixes(tmp_path, leave_out=("full", 50, 1))
    full = document["figures"]["states"]["full"]
    assert full["mean"]["mb_s"] is None and "50" not in full["mixes"]
    assert full["mean"]["why"]["mb_s"] == "missing: 50 %"
    assert document["figures"]["full_over_empty"]["full"]["mean"] is None
    assert [each["why"] for each in document["missing"]] == ["it broke"]
    assert document["verdict"]["level"] == "invalid"


def test_energy_of_all_mixes(tmp_path):
    """2 W throughout: 0.1 s each in state data, so 300 MB with 0.6 J; and 0.2, 0.4, 0.5 s when full."""
    document = mixes(tmp_path, power=(np.arange(-1, 3) * SECOND, [2.0] * 4))
    states = document["figures"]["states"]
    assert states["data"]["mean"]["mb_per_j"] == pytest.approx(500)
    assert states["full"]["mean"]["mb_per_j"] == pytest.approx(300 / 2.2)
    assert states["full"]["mixes"]["0"]["mb_per_j"] == pytest.approx(100) and states["full"]["mean"][
        "average_w"] == pytest.approx(2)
    assert [series["title"] for series in document["series"]][1:] == ["Power by share of reads",
                                                                     "Efficiency by share of reads"]


def test_repeats_of_mixes(tmp_path):
    full = mixes(tmp_path, repeats=2)["figures"]["states"]["full"]
    assert full["mixes"]["100"]["mb_s"] == pytest.approx((500 * 250) ** 0.5)
    assert full["mixes"]["100"]["mb_s_smallest"] == 250 and full["mixes"]["100"]["n"] == 2
    assert full["mean"]["mb_s"] == pytest.approx(950 / 3 / 2 ** 0.5)


# Depths.

def depths(tmp_path, rates={1: 10_000, 2: 19_000, 4: 38_000, 8: 39_900, 32: 40_000, 128: 40_000}, failed=()):  # noqa: B006
    test = MadeTest(tmp_path / "t", "depths")
    for depth, iops in rates.items():
        if depth in failed:
            test.step("depth", {"depth": depth}, status="failed")
            continue
        test.step("depth", {"depth": depth}, closed_loop(40_000, SECOND // iops, depth))
    return results_of(test.path)


def test_depths_by_hand(tmp_path):
    document = depths(tmp_path)
    figures = document["figures"]["states"][""]
    assert figures["depths"]["1"]["iops"] == pytest.approx(10_000) and figures["depths"]["1"]["mean_ns"] == 100 * US
    assert figures["depths"]["32"]["mb_s"] == pytest.approx(163.84)
    assert figures["depths"]["32"]["max_ns"] == 32 * 25 * US
    # 38,000 is 95 % of 40,000.
    assert figures["lowest_depth_with_95_percent"] == 4
    maxima = [each["max_ns"] for each in figures["depths"].values()]
    assert figures["mean_of_maxima_ns"] == pytest.approx(sum(maxima) / 6)
    assert [table["title"] for table in document["tables"]] == ["By queue depth", "Depth 32 and 128", "Of the sweep"]
    for depth, row in figures["depths"].items():
        assert row["little"] == pytest.approx(1, abs=0.01), depth
    assert "within 1 %" in dict(document["method"])["Little's law"]


def test_an_io_that_was_not_seen_to_end_is_in_no_figure(tmp_path):
    """Its latency is -1, which is no time, and its end is not known."""
    whole, unseen = MadeTest(tmp_path / "whole", "depths"), MadeTest(tmp_path / "unseen", "depths")
    rows = closed_loop(40_000, 25 * US, 8)
    whole.step("depth", {"depth": 8}, rows)
    unseen.step("depth", {"depth": 8}, both(rows, rows_of(np.arange(100) * MS, -1, length_bytes=MIB)))
    assert results_of(unseen.path)["figures"] == results_of(whole.path)["figures"]


def test_a_sweep_that_lacks_a_depth_names_no_lowest(tmp_path):
    document = depths(tmp_path, failed=(128,))
    assert document["figures"]["states"][""]["lowest_depth_with_95_percent"] is None
    assert document["tables"][-1]["rows"][0]["why"] == {"lowest_depth_with_95_percent": "depths are missing"}


@pytest.mark.parametrize(("depth", "mean_ns", "iops", "mb_s"), [
    (1, 112_220, 8911, 36.5), (1, 150_580, 6641, 27.2), (128, 860_000, 148_837, None), (32, 1_455_000, 22_000, 90.1)])
def test_published_depths_agree_with_themselves(tmp_path, depth, mean_ns, iops, mb_s):
    """4K at depth 1: 36.5 MB/s is 8,911 IOPS and 112 µs. Depth 128 at 0.86 ms is 148,837 IOPS."""
    test = MadeTest(tmp_path / "t", "depths")
    # Each of `depth` places is taken again as soon as it is free.
    count = 200
    submit = (np.arange(count)[:, None] * mean_ns + np.zeros(depth, np.int64)).ravel()
    test.step("depth", {"depth": depth}, rows_of(submit, mean_ns))
    row = results_of(test.path)["figures"]["states"][""]["depths"][str(depth)]
    assert row["iops"] == pytest.approx(iops, rel=0.001)
    assert mb_s is None or near(row["mb_s"], mb_s, 1)


# One at a time.

def test_qd1_by_hand(tmp_path):
    test = MadeTest(tmp_path / "t", "qd1")
    test.step("qd1", {"access": "random", "op": "read", "block": 4096},
              closed_loop(1000, np.repeat([100 * US, 10 * MS], [990, 10])),
              power=(np.arange(-1, 3) * SECOND, [2.0] * 4))
    for block in (512, 1 << 20):
        test.step("blocks", {"access": "random", "op": "read", "block": block},
                  closed_loop(100, block * 2 + 50 * US, length_bytes=block))
    document = results_of(test.path)
    (row,) = document["figures"]["states"][""]["qd1"].values()
    span_s = 0.099 + 0.1
    assert row["kiops"] == pytest.approx(1 / span_s) and row["mb_s"] == pytest.approx(4.096 / span_s)
    assert row["mean_ns"] == pytest.approx(199 * US)
    # The 990th of 1,000 by nearest rank; for p99.99 100,000 would be needed.
    assert row["p99_ns"] == 100 * US and row["p99_99_ns"] is None
    assert row["why"]["p99_99_ns"] == "n too small (n=1,000)"
    assert row["kiops_per_w"] == pytest.approx(1 / span_s / 2) and row["mb_per_j"] == pytest.approx(4.096 / span_s / 2)
    blocks = list(document["figures"]["states"][""]["blocks"].values())
    assert [each["block"] for each in blocks] == [512, 1 << 20] and blocks[0]["p99_ns"] is None
    assert document["series"][0]["lines"][0]["x"] == [512, 1 << 20]


def test_enough_for_p99_99(tmp_path):
    test = MadeTest(tmp_path / "t", "qd1")
    cost = np.full(100_000, 1000)
    cost[:10] = 5000
    test.step("qd1", {"access": "random", "op": "write", "block": 4096}, closed_loop(100_000, cost, op=1))
    (row,) = results_of(test.path)["figures"]["states"][""]["qd1"].values()
    assert row["p99_99_ns"] == 1000 and row["max_ns"] == 5000


# Trim.

def extents(added=lambda size: 2 * MS + size // 1000, own=lambda size: MS + size // 500, sizes=None):
    """Reads each ms of 100 µs; one discard a second, during which the reads due in it wait for `added`."""
    sizes = sizes or [MIB, 16 * MIB, 64 * MIB, 256 * MIB] * 3
    due = np.arange(0, (len(sizes) + 2) * SECOND, MS)
    latency = np.full(len(due), 100 * US)
    begins = np.arange(1, len(sizes) + 1) * SECOND + 500 * US
    for begin, size in zip(begins, sizes, strict=True):
        first = np.searchsorted(due, begin)
        if due[first] < begin + own(size):
            latency[first] = 100 * US + added(size)
    return both(rows_of(due, latency, due_ns=due, stream=0),
                rows_of(begins, [own(size) for size in sizes], op=3, length_bytes=sizes, stream=1))


def trim(tmp_path, **more):
    test = MadeTest(tmp_path / "t", "trim")
    test.step("extents", {}, extents(**more))
    for state, took in (("empty", SECOND), ("full", 8 * SECOND)):
        test.step("whole", {"state": state}, rows_of([0, took // 2], took // 2, op=3, length_bytes=2 * GIB),
                  do="discard")
    return results_of(test.path)


def test_drives_emptied_after_several_states_are_told_apart(tmp_path):
    """25 % of spare left out, it is another amount that was discarded: no repeat of the other."""
    test = MadeTest(tmp_path / "t", "trim")
    for before, size in (("full", 4 * GIB), ("full+op25", 3 * GIB)):
        for state, took in ((before, 8 * SECOND), ("empty", SECOND)):
            labels = {"state": state, **({"before": before} if state == "empty" else {})}
            test.step("whole", labels, rows_of([0], took, op=3, length_bytes=size), do="discard")
    whole = results_of(test.path)["figures"]["whole"]
    assert {name: (row["bytes"], row["n"]) for name, row in whole.items()} == {
        "full": (4 * GIB, 1), "empty after full": (4 * GIB, 1),
        "full+op25": (3 * GIB, 1), "empty after full+op25": (3 * GIB, 1)}
    assert whole["empty after full+op25"]["s_per_gb"] == pytest.approx(1 / (3 * GIB / 1e9))


def test_trim_by_hand(tmp_path):
    """1 ns for each 1,000 bytes is 1 ms for a GB; the discard itself takes twice that."""
    document = trim(tmp_path)
    (row,) = document["figures"]["extents"].values()
    assert row["added_s_per_gb"] == pytest.approx(0.001, rel=1e-3)
    assert row["added_at_nothing_ns"] == pytest.approx(2 * MS, rel=1e-3)
    assert row["own_s_per_gb"] == pytest.approx(0.002, rel=1e-3) and row["own_median_s_per_gb"] == pytest.approx(
        0.002, rel=1e-3)
    assert (row["extents"], row["sizes"], row["met"], row["background_median_ns"]) == (12, 4, 12, 100 * US)
    whole = document["figures"]["whole"]
    assert whole["full"]["s_per_gb"] == pytest.approx(8 / (4 * GIB / 1e9))
    assert whole["empty"]["s_per_gb"] == pytest.approx(1 / (4 * GIB / 1e9))


def test_a_read_beside_discards_waits_since_it_was_due(tmp_path):
    test = MadeTest(tmp_path / "t", "trim")
    test.step("extents", {}, both(rows_of([MS], MS, due_ns=0), rows_of([SECOND], MS, op=3)))
    (row,) = results_of(test.path)["figures"]["extents"].values()
    assert row["background_median_ns"] == 2 * MS


def test_the_line_goes_through_the_extents_of_all_repeats(tmp_path):
    """The first repeat alone was the result of six."""
    test = MadeTest(tmp_path / "t", "trim")
    for state, factor in (("data", 1), ("full", 10)):
        for repeat in (1, 2, 3):
            test.step("extents", {"state": state, "repeat": repeat},
                      extents(added=lambda size, f=factor * repeat: MS + f * size // 1000))
    document = results_of(test.path)
    for state, factor in (("data", 1), ("full", 10)):
        row = document["figures"]["extents"][state]
        assert row["added_s_per_gb"] == pytest.approx(0.002 * factor, rel=1e-3)
        assert row["added_s_per_gb_repeats"] == pytest.approx([0.001 * factor, 0.002 * factor, 0.003 * factor],
                                                              rel=1e-3)
        assert (row["n"], row["extents"], row["met"], row["background_median_ns"]) == (3, 36, 36, 100 * US)
    titles = [table["title"] for table in document["tables"]]
    assert len(set(titles)) == len(titles) and sum(title.endswith("state full") for title in titles) == 1


def test_one_odd_extent_does_not_move_the_median_slope(tmp_path):
    odd = iter(range(100))
    document = trim(tmp_path, added=lambda size: size // 1000 + (300 * MS if next(odd) == 5 else 0))
    (row,) = document["figures"]["extents"].values()
    assert row["added_median_s_per_gb"] == pytest.approx(0.001, rel=0.05)
    assert abs(row["added_s_per_gb"] - 0.001) > 0.01


def test_discards_that_nobody_met_have_no_slope(tmp_path):
    (row,) = trim(tmp_path, own=lambda size: 10 + size // 10**6)["figures"]["extents"].values()
    assert row["added_s_per_gb"] is None and row["why"]["added_s_per_gb"] == "no background I/O met a discard"
    assert row["own_s_per_gb"] == pytest.approx(1e-6, rel=0.1)


def test_one_size_has_no_slope(tmp_path):
    (row,) = trim(tmp_path, sizes=[MIB] * 4)["figures"]["extents"].values()
    assert row["own_s_per_gb"] is None and row["why"]["own_s_per_gb"] == "fewer than two sizes"


# Trace.

def test_trace_by_hand(tmp_path):
    """Reads of 1 ms back to back for a second, writes of 3 ms over half of it; a full drive writes twice as long."""
    test = MadeTest(tmp_path / "t", "trace")
    for state, took in (("empty", 3 * MS), ("full", 6 * MS)):
        reads = rows_of(np.arange(1000) * MS, MS, length_bytes=10_000)
        writes = rows_of(np.arange(50) * 10 * MS, took, op=1, length_bytes=100_000)
        test.step("trace", {"state": state, "repeat": 1}, both(reads, writes), do="replay",
                  idle={"name": "cap", "cap_ns": 25 * MS, "removed_ns": 7 * SECOND},
                  power=(np.arange(-1, 3) * SECOND, [3.0] * 4))
    document = results_of(test.path)
    empty, full = (document["figures"]["states"][state] for state in ("empty", "full"))
    assert empty["data_rate_mb_s"] == pytest.approx(15) and empty["energy_j"] == pytest.approx(3)
    assert empty["mb_per_j"] == pytest.approx(5)
    assert empty["all"]["mean_ns"] == pytest.approx((1000 + 150) / 1050 * MS)
    assert (empty["reads"]["p99_ns"], empty["all"]["p99_ns"], empty["writes"]["p99_ns"]) == (MS, 3 * MS, None)
    assert full["writes"]["mean_ns"] == 6 * MS
    assert document["figures"]["full_over_empty"]["writes_mean"] == 2
    assert "capped at 25 ms, 7 s removed" in dict(document["method"])["Idle time"]


@pytest.mark.parametrize(("traces", "level"), [(("one", "one"), "valid"), (("one", "other"), "invalid")])
def test_runs_of_a_trace_that_was_replaced_meanwhile_are_no_test(tmp_path, traces, level):
    test = MadeTest(tmp_path / "t", "trace")
    for state, sha256 in zip(("empty", "full"), traces, strict=True):
        test.step("trace", {"state": state, "repeat": 1}, rows_of([0, MS], MS), do="replay",
                  source={"path": "game.parquet", "sha256": sha256})
    reasons = [each for each in results_of(test.path)["verdict"]["reasons"] if "different traces" in each["text"]]
    assert [each["level"] for each in reasons] == ([level] if level == "invalid" else [])
