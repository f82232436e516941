"""What a run is judged by, and the figures it is judged on."""

import copy
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.foreign import DiskCount, foreign_ios
from blkreel.replay.lateness import Histogram, Lateness
from blkreel.replay.records import Fingerprint
from blkreel.replay.verdict import judge
from blkreel.traces.schema import FLAGS

GOOD = {
    "partial": None, "error_ops": 0, "planned_ops": 1000, "completed_ops": 1000, "as_planned": True, "dropped": {},
    "altered": {}, "unwritten_bytes": 0, "foreign_ios": 0, "page_cache": False, "environment": {"link": None},
    "lateness": {"p50_ns": 0, "p99_ns": 0, "max_ns": 0, "host_p99_ns": 100_000, "host_max_ns": 10_000_000,
                 "queue_full_ops": 0, "host_late_ops": 0},
    "drift_ns": 1_000_000, "idle": {"cap_ns": None, "removed_ns": 0}, "source": {"lost": {"total": 0}}, "underruns": 0,
    "record_stalls": 0, "wall_ns": 10**9,
    "certificate": {"host": {"suspended_ns": 0, "throttled": None, "causes": {}}},
}

STOPPED = {"count": 1, "total_ns": 50_000_000, "longest_ns": 50_000_000, "late_ops": 500, "max_late_ns": 49_000_000}
SMALL = {"count": 9, "total_ns": 2_000_000, "longest_ns": 900_000, "late_ops": 3, "max_late_ns": 800_000}



def judged(changes):
    run = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *way, last = path.split(".")
        place = run
        for step in way:
            place = place[step]
        place[last] = value
    verdict = judge(run)
    return verdict["level"], " / ".join(reason["text"] for reason in verdict["reasons"])


def test_at_the_limits_a_run_is_not_invalid():
    level, text = judged({})
    assert level == "qualified"
    assert text == "power was not measured"


@pytest.mark.parametrize(("changes", "text"), [
    ({"pace": {"factor": 2.0}}, "all times were divided by 2"),
    ({"pace": {"streams": {"1": {"factor": 0.5}}}}, "all times of stream 1 were divided by 0.5"),
    ({"pace": {"dependencies": "inferred"}}, "inferred from times alone"),
    ({"hazards": 1234}, "1,234 I/Os met others over the same blocks"),
])
def test_what_a_run_has_to_say_of_itself(changes, text):
    level, said = judged(changes)
    assert level == "qualified"
    assert re.search(text, said)


def test_what_was_observed_needs_no_word():
    pace = {"name": "dependent", "factor": None, "dependencies": "observed"}
    assert judged({"pace": pace, "hazards": 0}) == judged({})


@pytest.mark.parametrize(("changes", "text"), [
    ({"error_ops": 3, "first_error": "read of 4,096 bytes at 0: EIO"}, "3 I/Os failed.*EIO"),
    ({"completed_ops": 990}, "10 of 1,000 planned I/Os are missing"),
    ({"as_planned": False}, "not those of the plan"),
    ({"completed_ops": 998, "dropped": {"discard": 2}}, "2 I/Os could not be issued on this drive: discard"),
    ({"unwritten_bytes": 4096}, "4.10 KB were read that nothing had written"),
    ({"foreign_ios": 7}, "7 I/Os on the drive were not ours"),
    ({"lateness.host_p99_ns": 100_001}, r"1 % of the I/Os .*limit 100 us"),
    ({"lateness.host_max_ns": 10_000_001}, r"limit 10.0 ms"),
    ({"drift_ns": 1_000_001}, "behind its plan"),
    ({"page_cache": True}, "page cache"),
    ({"partial": "interrupted"}, "partial: interrupted"),
    ({"certificate.host.suspended_ns": 10**10}, "asleep for 10.0 s"),
    ({"certificate.host.causes": {"records": STOPPED}}, "records were not taken away"),
    ({"certificate.host.causes": {"stopped": STOPPED}}, "held up for 50.0 ms.*the process was stopped"),
    ({"certificate.host.causes": {"preempted": STOPPED}, "lateness": None}, "held up for 50.0 ms.*other work"),
    ({"environment.link": {"speed_gts": 8.0, "best_speed_gts": 16.0, "width": 4, "best_width": 4}}, "link runs at 8"),
])
def test_what_makes_a_run_invalid(changes, text):
    level, said = judged(changes)
    assert level == "invalid"
    assert re.search(text, said)


@pytest.mark.parametrize(("changes", "text"), [
    ({"idle.removed_ns": 10**9, "idle.cap_ns": 25_000_000}, "idle time capped at 25.0 ms: 1.00 s taken out"),
    ({"source.lost": {"total": 5}}, "the capture lost 5 events"),
    ({"altered": {"fua": 2}}, "2 I/Os were altered: fua"),
    ({"underruns": 1}, "the plan came too late"),
    ({"foreign_ios": None}, "could not be counted"),
    ({"record_stalls": 2}, "records were not taken away in time 2 times"),
    ({"certificate.host.causes": {"kernel": STOPPED | {"longest_ns": 10**7}}}, "held up for 5.0% of the .*the kernel"),
    ({"certificate.host.causes": {"plan": STOPPED}}, "held up for 5.0% of the time.*the plan did not"),
    ({"certificate.host.throttled": 3}, "heat slowed the processors down 3 times"),
])
def test_what_qualifies_a_run(changes, text):
    level, said = judged(changes)
    assert level == "qualified"
    assert re.search(text, said)


def test_lateness_comes_with_its_causes_the_worst_first():
    level, said = judged({"lateness.host_max_ns": 49_000_000,
                          "certificate.host.causes": {"kernel": SMALL, "stopped": STOPPED}})
    assert level == "invalid"
    assert re.search(r"late \(limit 10.0 ms\): the process was stopped \(once, 50.0 ms in all; 500 I/Os late\); "
                     r"the kernel .*\(9 times", said)


def test_a_run_that_nobody_watched_is_judged_by_the_rest():
    assert judged({"certificate": None})[0] == "qualified"


def test_device_limited_lateness_is_not_held_against_the_host():
    assert judged({"lateness.max_ns": 10**10, "lateness.queue_full_ops": 900})[0] == "qualified"


@given(st.lists(st.integers(0, (1 << 20) - 1) | st.integers(1 << 20, 1 << 50), min_size=1, max_size=300),
       st.sampled_from([500, 990, 999, 1000]))
def test_percentiles_are_nearest_rank(values, per_mille):
    histogram = Histogram()
    for part in (values[::2], values[1::2]):
        histogram.add(np.array(part, np.int64))
    exact = sorted(values)[-(-len(values) * per_mille // 1000) - 1]
    found = histogram.percentile_ns(per_mille)
    assert found == exact if exact < 1 << 20 else exact * 1023 / 1024 <= found <= exact
    assert histogram.max_ns == max(values)


def test_nothing_has_no_percentile():
    assert Histogram().percentile_ns(500) is None
    assert Lateness().account() is None


def test_lateness_is_split_by_whose_doing_it_is():
    lateness = Lateness()
    due_ns = np.arange(100) * 1000
    late_ns = np.full(100, 50)
    late_ns[10:20] = 500_000
    flags = np.zeros(100, np.int32)
    flags[10:18] = FLAGS["queue_full"]
    lateness.add(due_ns, due_ns + late_ns, flags)
    account = lateness.account()
    assert account["p50_ns"] == 50
    assert account["max_ns"] == account["host_max_ns"] == 500_000
    assert account["queue_full_ops"] == 8
    assert account["host_late_ops"] == 2
    assert lateness.drift_ns() == 50


def test_io_without_a_deadline_is_never_late():
    lateness = Lateness()
    lateness.add(np.array([-1, -1]), np.array([5, 10**10]), np.zeros(2, np.int32))
    assert lateness.account() is None
    assert lateness.drift_ns() == 0


def test_drift_is_of_the_end_whatever_the_order_of_completion():
    lateness = Lateness()
    due_ns = np.arange(1000) * 10**6
    drifting = due_ns // 100
    order = np.random.default_rng(1).permutation(1000)
    for part in np.array_split(order, 7):
        lateness.add(due_ns[part], (due_ns + drifting)[part], np.zeros(len(part), np.int32))
    assert lateness.drift_ns() == drifting[1000 - 64]


def test_foreign_io_is_told_by_bytes_not_by_split_requests():
    before, ours = DiskCount(10, 4096, 5, 512), {"read_ios": 1, "read_bytes": 1 << 20, "write_ios": 0, "write_bytes": 0}
    split = DiskCount(18, 4096 + (1 << 20), 5, 512)
    assert foreign_ios(before, split, **ours) == 0
    assert foreign_ios(before, DiskCount(13, 8192 + (1 << 20), 5, 512), **ours) == 2
    assert foreign_ios(before, DiskCount(18, 4096 + (1 << 20), 6, 1024), **ours) == 1
    assert foreign_ios(None, None, **ours) is None


ROWS = st.lists(st.tuples(*[st.integers(0, 1 << 40)] * 3, st.integers(0, 4)), min_size=1, max_size=30, unique=True)


def columns(rows):
    names = ("source_row", "offset_bytes", "length_bytes", "op")
    return {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}


@given(ROWS, st.randoms())
def test_a_fingerprint_knows_no_order_but_every_row(rows, random):
    one, other, less = Fingerprint(), Fingerprint(), Fingerprint()
    one.add(columns(rows))
    random.shuffle(rows)
    for row in rows:
        other.add(columns([row]))
    assert one == other
    row, *rest = rows
    less.add(columns([(row[0], row[1] ^ 512, row[2], row[3]), *rest]))
    assert one != less
