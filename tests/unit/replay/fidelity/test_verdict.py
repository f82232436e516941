"""What a run is judged by, and the figures it is judged on."""

import copy
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.verdict import CODES
from blkreel.replay.drive.external_io import DiskCount, foreign_ios
from blkreel.replay.fidelity.host_effect import EffectLimits
from blkreel.replay.fidelity.lateness import Histogram, Lateness
from blkreel.replay.fidelity.verdict import judge
from blkreel.replay.run.records import IoChecksum
from blkreel.traces.format.schema import FLAGS

GOOD = {
    "partial": None, "error_ops": 0, "planned_ops": 1000, "completed_ops": 1000, "as_planned": True, "dropped": {},
    "altered": {}, "unwritten_bytes": 0, "foreign_ios": 0, "page_cache": False,
    "environment": {"link": None, "cpu_count": 4},
    "lateness": {"p50_ns": 0, "p99_ns": 0, "max_ns": 0, "host_p99_ns": 100_000, "host_max_ns": 10_000_000,
                 "queue_full_ops": 0, "host_late_ops": 0},
    "drift_ns": 1_000_000, "idle": {"cap_ns": None, "removed_ns": 0}, "source": {"lost": {"total": 0}}, "underruns": 0,
    "record_stalls": 0, "wall_ns": 10**9,
    "certificate": {"host": {"suspended_ns": 0, "throttled": None, "causes": {}}},
}

EFFECT = {"effect": 0.0, "schedule": 0.0, "best_case": 0.0, "level": "accepted"}
HEADLINE = ["read_wait", "read_throughput", "read_response_p99"]


def host_effect(**effects):
    """The account of effects: those given, as shares, the others 0."""
    limits = EffectLimits()
    metrics = {key: {**EFFECT, "effect": effects.get(key, 0.0), "level": limits.level(effects.get(key, 0.0))}
               for key in (*HEADLINE, "read_p50", "read_p99", "read_p99_99")}
    return {"limits": {"accepted": limits.accepted, "withheld": limits.withheld}, "metrics": metrics,
            "headline": HEADLINE, "queue": None}


READ_AHEAD = {"ios": 1000, "read_ahead_ios": 900, "blocked_unknown_ios": 0}
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
    assert {reason["code"] for reason in verdict["reasons"]} <= set(CODES)
    return verdict["level"], " / ".join(reason["text"] for reason in verdict["reasons"])


QUALIFIES = [
    ({"pace": {"factor": 2.0}}, "times divided by 2"),
    ({"pace": {"streams": {"1": {"factor": 0.5}}}}, "times of stream 1 divided by 0.5"),
    ({"pace": {"dependencies": "inferred"}}, "inferred from times, because"),
    ({"pace": {"dependencies": "inferred", "dependencies_inferred": 0.6667}}, "from times for 66.7 % of the I/Os"),
    ({"pace": {"read_ahead": {"ios": 1000, "read_ahead_ios": 900, "blocked_unknown_ios": 380}}},
     "lower bound: 38 % of the I/Os are read-ahead by threads without a blocked time"),
    ({"pace": {"read_ahead": {"ios": 1000, "read_ahead_ios": 900, "blocked_unknown_ios": 0, "in_time_ios": 380}},
      "source.duration_ns": 900_000_000},
     "lower bound: 38 % of the I/Os are read-ahead that was complete in time on the captured drive"),
    ({"pace": {"read_ahead": {"ios": 1000, "used_by_mapping_ios": 380}}, "source.duration_ns": 900_000_000},
     "too long: 38 % of the I/Os .limit 10 %. are reads of mapped files"),
    ({"pace": {"asleep_share": 0.817}, "source.duration_ns": 900_000_000},
     "latency and load time uncertain: threads slept 81.7 % of the time between their I/Os .limit 25 %"),
    ({"pace": {"waiting_share": 0.373}, "source.duration_ns": 900_000_000},
     "load time uncertain: threads waited 37.3 % of the time between their I/Os .limit 25 %. for a processor"),
    ({"pace": {"asleep_share": 0.5}, "source.duration_ns": 1_100_000_000},
     "threads slept 55 % .* for other threads, locks or timers, which keeps its length here"),
    ({"pace": {"waiting_share": 0.1}, "source.duration_ns": 4_000_000_000}, "threads waited 40 % of the time"),
    ({"pace": {"by_clock_ios": 2, "by_clock_ns": 21_000_000}},
     "^load time without the last 2 I/Os, 21.0 ms after all others because a thread slept by the clock; in the trace "
     "others come after. With them it is 1.00 s$"),
    ({"source.least_computed_ns": 1_100_000_000},
     "threads of the captured command computed for at least 1.10 s between its first and last I/O, and the replay took "
     "1.00 s"),
    ({"hazards": 1234}, "1,234 I/Os in flight together with others on the same blocks"),
    ({"idle.removed_ns": 10**9, "idle.cap_ns": 25_000_000}, "1.00 s of idle time above 25.0 ms removed"),
    ({"source.lost": {"total": 5}}, "5 events lost by the capture"),
    ({"source.uses_lost": 3}, "3 first uses of pages lost by the capture"),
    ({"source.missing_ios": ["loop2 is gone"]}, "the capture is not complete: loop2 is gone"),
    ({"source.commands_unseen": 3}, "3 commands that programs passed to the drive are not in the trace"),
    ({"source.times_step_ns": 10**9, "pace": {"name": "original"}}, "all submit times .* are multiples of 1.00 s"),
    ({"source.unfinished": 21, "source.rows": 1000}, "2.1 % of the trace's I/Os have no completion .limit 1 %"),
    ({"source.unfinished": 200, "source.ios": 200, "source.rows": 10**6}, "^100 % of the trace's I/Os have no"),
    ({"source.unfinished": 1000, "source.rows": 1000, "source.source_lacks": ["latency"]},
     "^the source of the trace records no completions: which I/Os were in flight together is unknown$"),
    ({"altered": {"fua": 2}}, "2 I/Os altered: fua"),
    ({"dropped": {"verify": 2}}, "2 I/Os omitted, because only --passthrough issues them: verify"),
    ({"dropped": {"compare": 2}}, "2 I/Os omitted, because only --passthrough issues them: compare"),
    ({"dropped": {"compare": 2}, "passthrough": True}, "2 .* omitted, because the drive has no such command: compare"),
    ({"compares": 1200, "compares_unequal": 3}, "^3 of 1,200 compares found other data than before the run$"),
    ({"arrays": [{"name": "md9", "action": "", "missing_drives": 1}]}, "^md9 lacked 1 drive$"),
    ({"foreign_ios": None}, "external I/O not counted: the kernel has no count"),
    ({"host_effect": host_effect(read_wait=0.03)}, r"effect of the host on read wait .3.0 % .limit 2 %"),
    ({"host_effect": host_effect(read_p99=0.3)}, r"read p99 withheld: effect of the host .30.0 % .limit 10 %"),
    ({"certificate.host.steal_ns": 90_000_000}, r"CPU stolen by the hypervisor 2.2 % of the run .limit 2 %"),
    ({"certificate.host.throttled": 3}, "thermal throttling of the processors: 3 times"),
]
INVALIDATES = [
    ({"error_ops": 1}, "1 I/O failed"),
    ({"error_ops": 3, "first_error": "read of 4,096 bytes at 0: EIO"}, "3 I/Os failed.*EIO"),
    ({"completed_ops": 990}, "10 of 1,000 planned I/Os missing"),
    ({"as_planned": False}, "differ from the plan"),
    ({"completed_ops": 998, "dropped": {"discard": 2}}, "2 I/Os not issued, .*: discard"),
    ({"unwritten_bytes": 4096}, "4.10 KB read that were never written.*: replay without --no-prefill"),
    ({"unwritten_bytes": 4096, "prefill": {"bytes": 8192}}, "never written.*: they are behind the capacity of their"),
    ({"foreign_ios": 7}, "7 external I/Os on the drive"),
    ({"arrays": [{"name": "md9", "action": "resync", "missing_drives": 0}]}, "^md9 copied data between its drives"),
    ({"host_effect": host_effect(read_wait=0.2, read_throughput=-0.17, read_response_p99=0.5)},
     r"effect of the host on every headline metric at least 17.0 % .limit 10 %"),
    ({"certificate.host.steal_ns": 210_000_000}, r"CPU stolen by the hypervisor 5.2 % of the run .limit 5 %"),
    ({"page_cache": True}, "page cache"),
    ({"dropped": {"verify": 2}, "passthrough": True}, "because this drive does not support them: verify"),
    ({"partial": "interrupted"}, "partial run: interrupted"),
    ({"certificate.host.suspended_ns": 10**10}, "suspended for 10.0 s"),
    ({"environment.link": {"speed_gts": 8.0, "best_speed_gts": 16.0, "width": 4, "best_width": 4}},
     "drive link at 8 GT/s; drive and slot support 16 GT/s"),
]


@pytest.mark.parametrize(("level", "changes", "text"), [*(("qualified", *case) for case in QUALIFIES),
                                                       *(("invalid", *case) for case in INVALIDATES)])
def test_what_qualifies_a_run_or_makes_it_invalid(level, changes, text):
    found, said = judged(changes)
    assert found == level
    assert re.search(text, said)


def test_a_part_of_a_plan_has_no_load_time():
    assert "load_time" in judge(GOOD | {"partial": "interrupted"})["withheld"]


@pytest.mark.parametrize(("captured", "here", "read_ahead_ios", "differs"), [
    (2560, 128, 900, True), (128, 128, 900, False), (2560, 128, 100, False), (None, 128, 900, False),
    (128, 0, 900, False)])
def test_another_length_of_read_ahead_is_said(captured, here, read_ahead_ios, differs):
    """0: the target is a file or simulated."""
    device = {} if captured is None else {"read_ahead_bytes": captured << 10}
    level, text = judged({"pace": {"read_ahead": READ_AHEAD | {"read_ahead_ios": read_ahead_ios}},
                          "source.devices": [device], "source.device": 0, "drive": {"read_ahead_bytes": here << 10}})
    assert (level == "qualified") == differs
    assert ("captured with 2,560 KiB of read-ahead, and this drive has 128 KiB" in text) == differs


@pytest.mark.parametrize("changes", [
    {},  # at the limits
    # On a virtual machine every run has late I/Os. Only what changes a result counts.
    {"lateness.host_p99_ns": 5_000_000, "lateness.host_max_ns": 50_000_000, "drift_ns": 5_000_000, "underruns": 3,
     "certificate.host.causes": {"preempted": STOPPED}, "host_effect": host_effect(read_wait=0.02, read_p50=-0.02)},
    {"certificate.host.steal_ns": 10**9, "engine": {"features": {"simulated": True, "clock": "virtual"}}},
    {"certificate": None},  # nobody watched
    {"lateness.max_ns": 10**10, "lateness.queue_full_ops": 900},  # the drive's doing
    {"hazards": 0, "pace": {"name": "dependent", "factor": None, "dependencies": "observed",
                            "read_ahead": READ_AHEAD | {"blocked_unknown_ios": 100}}},
    # Read-ahead in time, and threads that slept, on a drive that is not slower: the run took a second.
    *({"pace": {"read_ahead": READ_AHEAD | {"in_time_ios": in_time_ios}}, "source.duration_ns": duration_ns}
      for in_time_ios, duration_ns in ((100, 900_000_000), (900, 990_000_000), (900, None), (None, 900_000_000))),
    *({"pace": {"read_ahead": READ_AHEAD | {"used_by_mapping_ios": ios}}, "source.duration_ns": duration_ns}
      for ios, duration_ns in ((100, 900_000_000), (900, 990_000_000), (None, 900_000_000))),
    *({"pace": {name: share}, "source.duration_ns": duration_ns} for name in ("asleep_share", "waiting_share")
      for share, duration_ns in (
        (0.25, 900_000_000), (0.9, 990_000_000), (0.9, 1_010_000_000), (0.9, None), (None, 900_000_000))),
    {"pace": {"by_clock_ios": 2, "by_clock_ns": 19_000_000}},
    {"source.least_computed_ns": 1_010_000_000}])
def test_what_is_not_held_against_a_run(changes):
    assert judged(changes) == ("valid", "")


def test_a_simulated_drive_is_labeled_and_not_invalid():
    drive = {"model": "simulated drive", "kind": "nil"}
    assert judged({"simulated": True, "drive": drive, "foreign_ios": None}) == ("valid", "")
    level, text = judged({"drive": {"kind": "nil"}})
    assert level == "invalid" and "no drive" in text


@pytest.mark.parametrize("late_ops", [500, 1])  # at dependent pace a stop of any length delays one I/O
def test_an_effect_comes_with_the_cause_that_delayed_most(late_ops):
    level, said = judged({"host_effect": host_effect(read_wait=0.05),
                          "certificate.host.causes": {"kernel": SMALL, "stopped": {**STOPPED, "late_ops": late_ops}}})
    assert level == "qualified"
    assert said.endswith("+5.0 % (limit 2 %): process stopped (1 time, 50.0 ms)")


def test_a_withheld_metric_is_listed_whether_or_not_a_reason_names_it():
    run = {**GOOD, "host_effect": host_effect(read_response_p99=0.3, read_p99_99=5.0)}
    verdict = judge(run)
    assert verdict["withheld"] == ["read_p99_99", "read_response_p99"]
    (reason,) = verdict["reasons"]
    assert (reason["code"], reason["metric"], reason["value"], reason["limit"]) == \
        ("metric_withheld", "read_response_p99", 0.3, 0.1)


@pytest.mark.parametrize("changes", [
    {"pace": {}, "source": {"least_computed_ns": 1_100_000_000}},
    {"pace": {}, "source": {"least_computed_ns": 9_000_000_000}, "idle": {"removed_ns": 7_900_000_000}}])
def test_a_load_time_that_is_known_to_be_wrong_is_withheld_beyond_the_second_limit(changes):
    """The command computed for 1.1 s, and the run took 1 s."""
    within, beyond = (judge({**GOOD, **changes, "host_effect": {"limits": {"accepted": 0.02, "withheld": limit}}})
                      for limit in (0.101, 0.099))
    assert within["level"] == beyond["level"] == "qualified" and within["withheld"] == []
    assert beyond["withheld"] == ["added_by_drive", "compute_share", "largest_speedup", "load_time"]
    assert judge({**GOOD, **changes, "wall_ns": 950_000_000})["withheld"], "10 % without limits of the host's effect"


@pytest.mark.parametrize(("run_ns", "counted_ns", "steal_ns", "level"), [
    (2_000_000, 30_000_000, 110_000_000, "valid"),  # 1,397 % of a run of 2 ms: steps of the counter
    (2_000_000, 499_000_000, 100_000_000, "invalid"),  # also the time around the run, which has the steal too
    (10**9, 2 * 10**9, 210_000_000, "qualified"),  # 5.2 % of the run, 2.6 % of the period
])
def test_steal_is_a_share_of_the_period_of_its_counter(run_ns, counted_ns, steal_ns, level):
    assert judged({"wall_ns": run_ns, "certificate.host.counted_ns": counted_ns,
                   "certificate.host.steal_ns": steal_ns})[0] == level


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


def test_a_percentile_takes_no_memory_beside_a_replay():
    """Three of them are noted every 2 s. With 8 MB for each they delayed I/Os on one processor."""
    histogram = Histogram()
    histogram.add(np.array([5, 1 << 40]))
    tracemalloc.start()
    try:
        histogram.percentile_ns(990)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


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
def test_a_checksum_depends_on_every_row_and_no_order(rows, random):
    one, other, less = IoChecksum(), IoChecksum(), IoChecksum()
    one.add(columns(rows))
    random.shuffle(rows)
    for row in rows:
        other.add(columns([row]))
    assert one == other
    row, *rest = rows
    less.add(columns([(row[0], row[1] ^ 512, row[2], row[3]), *rest]))
    assert one != less
