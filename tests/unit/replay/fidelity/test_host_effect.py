"""The effect of the host on metrics, held against drives whose completions are computed here, without the host."""

import heapq

import numpy as np
import pytest

from blkreel.common.errors import UsageError
from blkreel.replay.fidelity.host_effect import EffectLimits, HostEffect, parse_limits
from blkreel.replay.fidelity.queue_metrics import QueueModel, fit
from blkreel.traces.format.schema import FLAGS

US, MS, S = 10**3, 10**6, 10**9
READ, WRITE = 0, 1
LATENCY_NS, CHANNELS, NS_PER_BYTE = {READ: 90 * US, WRITE: 30 * US}, 6, {READ: 0.4, WRITE: 0.9}
LARGEST = 10  # what an effect is capped at
TOTALS = {"stall_monitor": {"causes": {}}, "threads": 1}


def drive(arrive_ns, op, length_bytes):
    """Completions of a drive of CHANNELS channels and a bus for each direction, by plain lists."""
    channels, bus_ns, done = [0] * CHANNELS, {READ: 0, WRITE: 0}, []
    for at, kind, length in zip(arrive_ns.tolist(), op.tolist(), length_bytes.tolist(), strict=True):
        ready = max(at, channels[0]) + LATENCY_NS[kind]
        heapq.heapreplace(channels, ready)
        bus_ns[kind] = max(ready, bus_ns[kind]) + int(NS_PER_BYTE[kind] * length)
        done.append(bus_ns[kind])
    return np.array(done)


def plan(count=6000, seed=1):
    """Bursts of reads, and a write now and then."""
    random = np.random.default_rng(seed)
    due_ns = np.sort(np.repeat(random.integers(0, 2 * S, count // 20), 20) + random.integers(0, 200 * US, count))
    op = (random.random(count) < 0.2).astype(np.int8)
    return due_ns + MS, op, random.choice([4096, 16384, 131072], count)


def delayed(due_ns, stalls):
    """Times of issue: what was due during a stall is issued at its end, in its order."""
    submit_ns = due_ns.copy()
    for start_ns, end_ns in stalls:
        submit_ns[(due_ns >= start_ns) & (due_ns < end_ns)] = end_ns
    return submit_ns


def rows_of(due_ns, submit_ns, complete_ns, op, length_bytes, *, host_delay_ns=None, stall_ns=None, flags=None):
    count = len(submit_ns)
    rows = {"due_ns": due_ns, "submit_ns": submit_ns, "complete_ns": complete_ns, "op": op,
            "length_bytes": length_bytes, "flags": np.zeros(count, np.int32) if flags is None else flags,
            "host_delay_ns": np.maximum(submit_ns - due_ns, 0) if host_delay_ns is None else host_delay_ns,
            "stall_ns": np.zeros(count, np.int64) if stall_ns is None else stall_ns}
    order = np.argsort(complete_ns, kind="stable")
    return {name: column[order] for name, column in rows.items()}


def effect_of(*batches, wall_ns=2 * S, totals=TOTALS, zero_latency_ns=None, **kind):
    effect = HostEffect(EffectLimits(), **{"dependent": False, "open_loop": True, "saturating": False, **kind})
    for rows in batches:
        effect.take(rows)
    effect.end(totals)
    return effect.account(wall_ns, zero_latency_ns)


def percentile(values, share):
    return np.sort(values)[int(np.ceil(len(values) * share)) - 1]


def wait_ns(submit_ns, complete_ns):
    marks = np.zeros(int(complete_ns.max()) // US + 2, np.int64)
    np.add.at(marks, submit_ns // US, 1)
    np.add.at(marks, complete_ns // US, -1)
    return int((np.cumsum(marks) > 0).sum()) * US


def test_a_run_in_time_has_no_effect():
    due_ns, op, length_bytes = plan()
    account = effect_of(rows_of(due_ns, due_ns, drive(due_ns, op, length_bytes), op, length_bytes))
    assert {effect["effect"] for effect in account["metrics"].values()} == {0}
    assert account["headline"] == ["read_wait", "read_throughput", "read_response_p99"]
    assert {effect["level"] for effect in account["metrics"].values()} == {"accepted"}


@pytest.mark.parametrize("stalls", [[(S, S + 20 * MS)],
                                    [(at * 100 * MS, at * 100 * MS + 8 * MS) for at in range(1, 19)]])
def test_late_issue_has_the_effect_that_the_drive_shows(stalls):
    """The drive is computed twice: with the times of issue, and with the due times, which is the truth."""
    due_ns, op, length_bytes = plan()
    submit_ns = delayed(due_ns, stalls)
    complete_ns, undisturbed_ns = drive(submit_ns, op, length_bytes), drive(due_ns, op, length_bytes)
    account = effect_of(rows_of(due_ns, submit_ns, complete_ns, op, length_bytes))
    reads = op == READ
    truth = {
        "read_wait": wait_ns(submit_ns[reads], complete_ns[reads]) / wait_ns(due_ns[reads], undisturbed_ns[reads]),
        "read_service_time": (complete_ns - submit_ns)[reads].sum() / (undisturbed_ns - due_ns)[reads].sum()}
    truth["read_latency_mean"] = truth["read_service_time"]  # of as many reads
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        truth[f"read_{name}"] = (percentile((complete_ns - submit_ns)[reads], share)
                                 / percentile((undisturbed_ns - due_ns)[reads], share))
        truth[f"read_response_{name}"] = (percentile((complete_ns - due_ns)[reads], share)
                                          / percentile((undisturbed_ns - due_ns)[reads], share))
    for key, ratio in truth.items():
        true_effect = min(ratio - 1, LARGEST)
        estimate = account["metrics"][key]["schedule"]
        assert estimate == pytest.approx(true_effect, abs=0.01 + 0.15 * abs(true_effect)), key
    assert account["metrics"]["read_response_p99"]["level"] == "withheld"
    assert abs(account["metrics"]["read_throughput"]["schedule"]) == pytest.approx(
        abs(1 / (1 + account["metrics"]["read_wait"]["schedule"]) - 1), abs=1e-4)


def test_the_queue_is_fitted_to_the_drive():
    due_ns, op, length_bytes = plan()
    complete_ns = drive(due_ns, op, length_bytes)
    start = QueueModel((50_000.0, 50_000.0, 1.0, 1.0, 1.0), (0.3, 0.3), 32)
    model = fit(start, due_ns, op, length_bytes, complete_ns - due_ns, len(op))
    assert model.misfit < 0.05
    assert model.channels in range(5, 8)
    assert model.latency_ns[:2] == pytest.approx((90 * US, 30 * US), rel=0.05)
    assert model.ns_per_byte == pytest.approx((0.4, 0.9), rel=0.1)
    assert model.service_ns(np.array([READ]), np.array([1 << 20]))[0] == pytest.approx(90 * US + 0.4 * 2**20, rel=0.1)


def test_completions_seen_late_count_as_of_the_start_of_the_stall():
    due_ns, op, length_bytes = plan()
    done_ns = drive(due_ns, op, length_bytes)
    seen_ns = delayed(done_ns, [(at * 100 * MS, at * 100 * MS + 8 * MS) for at in range(1, 19)])
    at_stall_ns = np.minimum(done_ns, seen_ns // (100 * MS) * (100 * MS))
    stall_ns = np.where(seen_ns > done_ns, seen_ns - np.maximum(at_stall_ns, due_ns), 0)
    account = effect_of(rows_of(due_ns, due_ns, seen_ns, op, length_bytes, stall_ns=stall_ns))
    reads = op == READ
    truth = percentile((seen_ns - due_ns)[reads], 0.99) / percentile((done_ns - due_ns)[reads], 0.99) - 1
    assert truth > 0.1
    effect = account["metrics"]["read_p99"]
    assert effect["best_case"] == effect["effect"] >= min(truth * 0.95, LARGEST)
    assert effect["level"] == "withheld" and effect["schedule"] == 0


def test_for_medians_both_add_up():
    due_ns, op, length_bytes = plan(600)
    complete_ns = drive(due_ns, op, length_bytes) + 40 * US
    account = effect_of(rows_of(due_ns, due_ns + 20 * US, complete_ns, op, length_bytes,
                                stall_ns=np.full(len(op), 20 * US)))
    median = account["metrics"]["read_p50"]
    assert abs(median["effect"]) == pytest.approx(abs(median["schedule"]) + abs(median["best_case"]), abs=1e-4)
    tail = account["metrics"]["read_p90"]
    assert abs(tail["effect"]) == max(abs(tail["schedule"]), abs(tail["best_case"]))


def test_late_io_counts_from_its_submission_in_the_best_case():
    due_ns = np.arange(2000) * 200 * US + MS
    submit_ns = due_ns + np.where(np.arange(2000) % 25 == 0, 500 * US, 0)
    op, length_bytes = np.zeros(2000, np.int8), np.full(2000, 4096)
    account = effect_of(rows_of(due_ns, submit_ns, submit_ns + 100 * US, op, length_bytes))
    assert account["metrics"]["read_response_p99"]["best_case"] == pytest.approx(600 / 100 - 1, rel=0.01)
    assert account["metrics"]["read_p99"]["best_case"] == 0


def test_a_full_queue_is_the_drives_doing():
    due_ns = np.arange(2000) * 200 * US + MS
    submit_ns = due_ns + 500 * US
    flags = np.full(2000, FLAGS["queue_full"], np.int32)
    account = effect_of(rows_of(due_ns, submit_ns, submit_ns + 100 * US, np.zeros(2000, np.int8), np.full(2000, 4096),
                                host_delay_ns=np.zeros(2000, np.int64), flags=flags))
    assert {effect["effect"] for effect in account["metrics"].values()} == {0}


def test_load_time_at_dependent_pace_without_the_delays_that_rows_inherited():
    """A chain: each I/O is issued 1 ms after the one before it has completed; every tenth 2 ms late."""
    delays_ns = np.cumsum(np.where(np.arange(1000) % 10 == 9, 2 * MS, 0))
    submit_ns = MS + np.arange(1000) * 1100 * US + delays_ns
    due_ns = submit_ns - np.where(np.arange(1000) % 10 == 9, 2 * MS, 0)
    rows = rows_of(due_ns, submit_ns, submit_ns + 100 * US, np.zeros(1000, np.int8), np.full(1000, 4096),
                   host_delay_ns=delays_ns, flags=np.full(1000, FLAGS["own"], np.int32))
    account = effect_of(rows, dependent=True, open_loop=False, zero_latency_ns=999 * MS)
    assert account["headline"] == ["load_time", "added_by_drive"]
    assert account["metrics"]["added_by_drive"]["effect"] == pytest.approx(200 / 100.1, rel=0.01)
    assert account["metrics"]["load_time"]["effect"] == pytest.approx(200 * MS / (1100 * MS - MS), rel=0.01)


def test_stalls_at_a_fixed_depth_lower_throughput():
    submit_ns = np.arange(1000) * 100 * US
    rows = rows_of(np.full(1000, -1), submit_ns, submit_ns + 90 * US, np.ones(1000, np.int8), np.full(1000, 4096),
                   host_delay_ns=np.zeros(1000, np.int64))
    totals = {"stall_monitor": {"causes": {"preempted": {"total_ns": 5 * MS}}}, "threads": 1}
    account = effect_of(rows, wall_ns=100 * MS, totals=totals, open_loop=False, saturating=True)
    assert account["headline"] == ["throughput", "iops"]
    assert account["metrics"]["throughput"]["effect"] == pytest.approx(-0.05, abs=1e-4)
    assert account["metrics"]["iops"]["level"] == "qualified"
    assert "read_response_p99" not in account["metrics"]


def test_a_run_of_writes_is_judged_by_its_writes():
    due_ns, _, length_bytes = plan(600)
    op = np.ones(600, np.int8)
    account = effect_of(rows_of(due_ns, due_ns, drive(due_ns, op, length_bytes), op, length_bytes))
    assert account["headline"] == ["write_wait", "write_throughput", "write_response_p99"]


def test_batches_and_the_order_of_completion_do_not_matter():
    due_ns, op, length_bytes = plan()
    submit_ns = delayed(due_ns, [(S, S + 20 * MS)])
    rows = rows_of(due_ns, submit_ns, drive(submit_ns, op, length_bytes), op, length_bytes)
    parts = [{name: column[part] for name, column in rows.items()} for part in np.array_split(np.arange(6000), 7)]
    assert effect_of(*parts) == effect_of(rows)


def test_a_virtual_clock_has_no_host():
    due_ns, op, length_bytes = plan(600)
    rows = rows_of(due_ns, due_ns, drive(due_ns, op, length_bytes), op, length_bytes)
    assert effect_of(rows, clocked=False) is None


@pytest.mark.parametrize(("text", "limits"), [("2%:10%", (0.02, 0.1)), ("0%:0.5%", (0, 0.005)),
                                              ("5% : 5%", (0.05, 0.05))])
def test_limits(text, limits):
    parsed = parse_limits(text)
    assert (parsed.accepted, parsed.withheld) == pytest.approx(limits)
    assert [EffectLimits().level(effect) for effect in (0.02, -0.021, 0.1, -0.11)] == \
        ["accepted", "qualified", "qualified", "withheld"]


@pytest.mark.parametrize("text", ["", "2%", "10%:2%", "2:10", "a%:b%"])
def test_invalid_limits_are_refused_with_an_example(text):
    with pytest.raises(UsageError, match="--effect-limits") as error:
        parse_limits(text)
    assert "2%:10%" in error.value.remedy
