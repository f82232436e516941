"""What a certificate adds up, held against the same by brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.fidelity import gaps as arrivals
from blkreel.replay.fidelity.certificate import Certificate, InFlight, certificate_lines, distance
from blkreel.replay.fidelity.gaps import Arrivals, Gaps, InSubmitOrder
from blkreel.replay.telemetry.sensors.host_counters import read_counters
from blkreel.traces.format.metadata_types import Run

IOS = st.lists(st.tuples(st.integers(0, 1000), st.integers(-1, 300)), min_size=1, max_size=60)


def in_parts(count, parts):
    return np.array_split(np.arange(count), parts)


@given(IOS, st.integers(1, 7))
def test_time_in_flight_is_counted_by_its_depth(ios, parts):
    start = np.sort(np.array([one[0] for one in ios], np.int64))
    end = start + np.array([one[1] for one in ios], np.int64)
    counted = InFlight()
    for part in in_parts(len(start), parts):
        counted.add(start[part], end[part])
    known = end >= start
    depth_at = [int(((start <= t) & (end > t) & known).sum()) for t in range(1500)]
    busy = [depth for depth in depth_at if depth]
    account = counted.account()
    if not busy:
        assert account is None
        return
    assert account["busy_ns"] == len(busy)
    assert account["max"] == max(busy)
    assert account["mean"] == pytest.approx(sum(busy) / len(busy), abs=0.001)
    assert account["p50"] == sorted(busy)[-(-len(busy) // 2) - 1]


def test_idle_time_is_no_matter_of_depth():
    start = np.arange(100) * 1000
    one, other = InFlight(), InFlight()
    one.add(start, start + 1500)
    other.add(start + 10**9 * (start >= 50_000), start + 10**9 * (start >= 50_000) + 1500)
    assert distance(one, other) < 0.01
    assert one.account()["p50"] == other.account()["p50"]
    deeper = InFlight()
    deeper.add(start, start + 5000)
    assert distance(one, deeper) > 0.9


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)), min_size=1, max_size=50), st.integers(1, 5))
def test_records_are_put_in_the_order_of_submission(ios, parts):
    submit, took = (np.array(column, np.int64) for column in zip(*ios, strict=True))
    complete = submit + took
    order = np.argsort(complete, kind="stable")
    given_back, sorter = [], InSubmitOrder()
    for part in in_parts(len(order), parts):
        rows = order[part]
        given_back.append(sorter.take(submit[rows], submit[rows], complete[rows], 0))
    given_back.append(sorter.drain())
    seen = np.concatenate([columns[0] for columns in given_back if columns is not None])
    assert seen.tolist() == np.sort(submit).tolist()
    assert sorter.misplaced == 0


def test_a_stuck_io_does_not_hold_all_others_in_memory():
    sorter, rows, given_back = InSubmitOrder(), 1 << 18, 0
    for number in range(12):
        submit = np.arange(rows) + number * rows
        given = sorter.take(submit, submit, submit + 10, 0)
        given_back += len(given[0]) if given else 0
        assert sorter._count <= arrivals.WINDOW_ROWS + rows
    last = sorter.take(np.array([5]), np.array([5]), np.array([12 * rows]), 0)
    rest = sorter.drain()
    assert given_back + sum(len(columns[0]) for columns in (last, rest) if columns) == 12 * rows + 1
    assert sorter.misplaced == 1


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=100), st.sampled_from([500, 990]))
def test_gaps_are_known_to_one_part_in_32(values, per_mille):
    gaps = Gaps()
    gaps.add(np.array(values, np.int64))
    exact = sorted(values)[-(-len(values) * per_mille // 1000) - 1]
    found = gaps.percentile_ns(per_mille)
    assert (found == 0 if exact < 1024 else exact * 31 / 32 <= found <= exact)


def test_a_replay_on_time_has_the_gaps_of_its_plan_and_a_bunched_one_has_not():
    due = np.cumsum(np.random.default_rng(3).exponential(100_000, 20_000)).astype(np.int64)
    exact, bunched = Arrivals(), Arrivals()
    for part in in_parts(len(due), 9):
        exact.add(due[part] + 300, due[part])
        bunched.add(-(-due[part] // 1_000_000) * 1_000_000, due[part])
    same, other = exact.account(), bunched.account()
    assert same["ks"] == 0
    assert same["mean_shift_ns"] == 0
    assert same["changed"]["max_ns"] == 0
    assert same["planned"] == same["issued"]
    assert same["gaps"] == len(due) - 1
    assert other["ks"] > 0.5
    assert other["issued"]["p50_ns"] == 0
    assert other["changed"]["p50_ns"] > 10_000


def test_what_has_no_deadline_has_no_gaps():
    counted = Arrivals()
    counted.add(np.arange(5), np.full(5, -1))
    assert counted.account() is None


def test_a_certificate_of_a_run():
    due = np.arange(1000) * 10_000
    certificate = Certificate(timed=True)
    certificate.begin()
    batches = [{"due_ns": due, "captured_ns": due + 77, "captured_latency_ns": np.full(1000, 20_000)}]
    assert len(list(certificate.watch(batches))) == 1
    certificate.take({"submit_ns": due + 50, "due_ns": due, "complete_ns": due + 5050})
    assert certificate.account()["host"] is None
    causes = {"preempted": {"count": 1, "total_ns": 5, "longest_ns": 5, "late_ops": 2, "max_late_ns": 5}}
    certificate.end({"stall_monitor": {"causes": causes}})
    account = certificate.account()
    assert account["in_flight"]["captured"]["mean"] == pytest.approx(2, abs=0.01)
    assert account["in_flight"]["replayed"]["mean"] == 1
    assert account["in_flight"]["ks"] == pytest.approx(1, abs=0.01)
    assert account["arrivals"]["ks"] == 0
    assert account["host"]["steal_ns"] >= 0
    assert account["host"]["causes"]["preempted"]["words"] == "preempted by another process"
    lines = certificate_lines(Run.of({"run": {"certificate": account}}).certificate)
    assert lines[1] == "mean I/Os in flight while busy: 2 captured, 1 replayed"
    assert "preempted by another process 5 ns (1 time)" in lines[2]


def test_the_machine_counts(tmp_path):
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text("cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 1\n")
    (tmp_path / "proc/pressure/cpu").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=33\nfull total=1\n")
    throttle = tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle"
    throttle.mkdir(parents=True)
    (throttle / "core_throttle_count").write_text("4\n")
    counted = read_counters(tmp_path / "proc", tmp_path / "sys")
    assert counted.steal_ns % 250 == 0 and counted.steal_ns > 0
    assert counted.throttled == 4
    assert counted.machine_waited_ns == 33_000
    nothing = read_counters(tmp_path / "none", tmp_path / "none")
    assert nothing.throttled is None
    assert counted.since(nothing) == {"steal_ns": counted.steal_ns, "throttled": None, "machine_waited_ns": None,
                                      "counted_ns": counted.counted_ns - nothing.counted_ns}
