"""Simulated drives against a second model of them, and against what holds of any drive."""

import time

import numpy as np
import pytest
from cases import cases
from drive_reference import Reference
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import Lane
from blkreel.replay.simulated.spec import typical_drives
from blkreel.traces.format.schema import CHECKS, OPS

S, MS, US = 10**9, 10**6, 10**3
OPS_OF_A_PLAN = [OPS[name] for name in ("read", "write", "flush", "discard", "write_zeroes", *CHECKS)]


def latencies(rows):
    return rows["complete_ns"] - rows["submit_ns"]


def slowdown(on_drive, a_plan, drive):
    """Time of reads of 2 GiB in pieces of 512 KiB, two at a time, beside writes at 110 MB/s over their time alone.

    The writes have been going on for ten seconds, and are within 2 GiB elsewhere."""
    lead_ns, reads, writes = 10 * S, 4096, 60_000
    read = a_plan(np.arange(reads) * (512 << 10), length_bytes=512 << 10, due_ns=lead_ns)
    written = a_plan((8 << 30) + np.arange(writes) % 16384 * 131072, op=OPS["write"], length_bytes=131072,
                     due_ns=np.round(np.arange(writes) * 131072 / 110e6 * S).astype("i8"), stream=1)
    times = []
    for lanes in ([Lane([read], 2)], [Lane([read], 2), Lane([written], 32, background=True)]):
        _, rows = on_drive(drive, *lanes, fresh=True)
        times.append(rows["complete_ns"][rows["stream"] == 0].max() - lead_ns)
    return times[1] / times[0]


def test_background_writes_slow_each_typical_drive_by_its_kind(on_drive, a_plan):
    """The order of magnitude of published measurements of drives in use (docs/replay.md, "Simulated drive")."""
    ratios = {name: slowdown(on_drive, a_plan, f"nil:{name}") for name in typical_drives()}
    for name in ("optane", "enterprise", "nvme-high", "nvme-mid"):
        assert 0.99 <= ratios[name] < 1.3, ratios
    assert 1.1 < ratios["sata-tlc"] < 2 and 1.2 < ratios["emmc"] < 3, ratios
    assert 2 < ratios["sata-qlc"] < 10 and 2 < ratios["nvme-dramless"] < 10, ratios
    assert ratios["usb"] > 3, ratios


def drives():
    """Specs of small drives with all that the reference knows of."""
    return st.fixed_dictionaries({}, optional={
        "read_latency": st.sampled_from(["1us", "80us", "3ms"]), "write_latency": st.sampled_from(["500ns", "20us"]),
        "flush_latency": st.sampled_from(["1us", "1ms"]), "discard_latency": st.sampled_from(["1us", "100us"]),
        "discard_per_gb": st.sampled_from(["0ns", "5s"]), "read_bandwidth": st.sampled_from(["10MB/s", "3.5GB/s"]),
        "write_bandwidth": st.sampled_from(["10MB/s", "1GB/s"]), "channels": st.sampled_from(["1", "3", "32"]),
        "cache": st.sampled_from(["10K", "50000", "1MiB"]), "cache_bandwidth": st.sampled_from(["50MB/s", "7GB/s"]),
        "cache_drain": st.sampled_from(["0/s", "1MB/s", "1GB/s"]), "random_write_bandwidth": st.just("3MB/s"),
        "link": st.sampled_from(["20MB/s", "4GB/s"]), "commands": st.sampled_from(["1", "2", "32"]),
        "iops_limit": st.sampled_from(["200", "30000IOPS"]), "iops_credit": st.sampled_from(["3", "1000"]),
        "rate_limit": st.sampled_from(["2MB/s", "300MB/s"]), "rate_credit": st.sampled_from(["64K", "5MB"]),
        "flush_blocks": st.just("yes"), "program": st.sampled_from(["2us", "700us", "3ms"]),
        "cache_program": st.sampled_from(["1us", "200us"]), "cache_fold": st.sampled_from(["1MB/s", "1GB/s"]),
        "random_write_decline": st.sampled_from(["10K", "1MiB"]), "read_slowdown": st.sampled_from(["1", "2", "3.7"]),
        # Two keys, which need each other.
        "stall_every": st.sampled_from(["1ms,stall_for=200us", "100us,stall_for=99us"])}).map(
            lambda keys: "".join(f",{key}={value}" for key, value in keys.items()))


@cases(20)
@given(data=st.data(), keys=drives())
def test_it_is_what_a_second_model_says(on_drive, a_plan, data, keys):
    spec = f"nil:1MiB,clock=virtual{keys}"
    count = data.draw(st.integers(1, 60))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    timed = data.draw(st.booleans())
    gaps = random.choice([0, 10, 5_000, 300_000, 5_000_000], count)
    offsets = np.where(random.random(count) < 0.5, np.arange(count) % 200 * 4096, random.integers(0, 200, count) * 4096)
    plan = a_plan(offsets, due_ns=np.cumsum(gaps) if timed else -1, op=random.choice(OPS_OF_A_PLAN, count),
                  length_bytes=random.choice([512, 4096, 65536, 196608], count),
                  flags=random.choice([0, 0, 8, 16, 24], count))
    depth = data.draw(st.integers(1, 12))
    totals, rows = on_drive(spec, plan, depth=depth, fresh=True)
    expected = np.array(Reference(find_target(spec).simulated).run(plan, depth))
    assert np.array_equal(rows["submit_ns"], expected[:, 0])
    assert np.array_equal(rows["complete_ns"], expected[:, 1])
    assert totals["wall_ns"] == expected[:, 1].max()


@cases(8)
@given(data=st.data(), keys=drives())
def test_what_holds_of_any_drive(on_drive, a_plan, data, keys):
    """With jitter and heat too: nothing completes before it was submitted, nothing is early, and it comes out again."""
    spec = f"nil:1MiB,clock=virtual,jitter=50%,thermal_time=1s,throttle_at=30C{keys}"
    count = data.draw(st.integers(1, 80))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    plan = a_plan(random.integers(0, 200, count) * 4096, due_ns=np.cumsum(random.integers(0, 3_000_000, count)),
                  op=random.choice(OPS_OF_A_PLAN, count))
    depth = data.draw(st.integers(1, 12))
    totals, rows = on_drive(spec, plan, depth=depth, fresh=True)
    assert (rows["complete_ns"] >= rows["submit_ns"]).all()
    assert (rows["submit_ns"] >= plan["due_ns"]).all()
    assert totals["stopped"] is None and totals["issued_ops"] == count
    assert totals["max_outstanding"] <= depth
    late = rows["submit_ns"] > plan["due_ns"]
    assert not late.any() or totals["max_outstanding"] == depth, "late only where the depth was used up"
    assert totals["max_host_lateness_ns"] <= 0
    _, again = on_drive(spec, plan, depth=depth, fresh=True)
    assert np.array_equal(again["complete_ns"], rows["complete_ns"])


def test_the_real_clock_has_the_same_latencies_and_takes_its_time(on_drive, a_plan):
    plan = a_plan(np.zeros(20, "i8"), due_ns=np.arange(20) * 5 * MS)
    totals, rows = on_drive("nil:64GiB,read_latency=2ms", plan, depth=4)
    assert (latencies(rows) >= 2 * MS).all(), "a completion is never seen before it is there"
    assert totals["wall_ns"] >= 97 * MS
    assert totals["features"]["clock"] == "real"


def test_a_slow_feeder_takes_none_of_the_drives_time(on_drive, a_plan):
    """The virtual clock stands while a plan is not there, so nothing is late by it."""
    def plan():
        for block in range(12):
            time.sleep(0.02)
            rows = a_plan(np.zeros(10, "i8"), due_ns=np.arange(block * 10, block * 10 + 10) * MS)
            rows["source_row"] = np.arange(block * 10, block * 10 + 10)
            yield rows

    totals, rows = on_drive("nil:1GiB,clock=virtual", Lane(plan(), 32))
    assert totals["underruns"] == totals["max_lateness_ns"] == totals["record_stalls"] == 0
    assert totals["stall_monitor"]["causes"] == {}
    assert len(rows["op"]) == 120


def test_lanes_keep_the_order_of_the_drives_time(on_drive, a_plan):
    """A timed lane beside an endless one in the background, on the virtual clock: every time is exact."""
    def endless():
        for number in range(10**9):
            rows = a_plan(np.full(5000, 4096), stream=1)
            rows["source_row"] = np.arange(number * 5000, number * 5000 + 5000)
            yield rows

    due_ns = np.arange(300) * 10 * MS
    timed = a_plan(np.zeros(300, "i8"), due_ns=due_ns)
    totals, rows = on_drive("nil:1GiB,clock=virtual,channels=8", Lane([timed], 4), Lane(endless(), 3, background=True))
    front = rows["stream"] == 0
    assert np.array_equal(np.sort(rows["submit_ns"][front]), due_ns)
    assert totals["lane_issued"][1] == (~front).sum()
    # Three at a time until the timed lane's last is done.
    assert totals["lane_issued"][1] / 3 * 81_171 == pytest.approx(due_ns[-1], rel=0.01)


def test_a_spread_is_the_distribution_of_the_latencies(on_drive, a_plan):
    spec = "nil:64GiB,clock=virtual,read_latency=100us,read_bandwidth=1000GB/s,read_spread=0.5/0.8/1/1.5/3/10/20"
    _, rows = on_drive(spec, a_plan(np.zeros(200_000, "i8")))
    quantiles_us = np.quantile(latencies(rows), [0, 0.1, 0.3, 0.5, 0.9, 0.99, 0.999, 1]) / US
    assert quantiles_us == pytest.approx([50, 80, 90, 100, 150, 300, 1000, 2000], rel=0.05)


def test_a_slow_io_of_a_spread_delays_no_other(on_drive, a_plan):
    spec = "nil:64GiB,clock=virtual,read_latency=100us,channels=4,read_bandwidth=1000GB/s,read_spread=1/1/1/1/1/1/1000"
    _, rows = on_drive(spec, a_plan(np.zeros(100_000, "i8")), depth=4)
    slow = latencies(rows) > 150 * US
    assert 0 < slow.sum() <= 130  # a thousandth of the I/Os; the others take their 100 us
