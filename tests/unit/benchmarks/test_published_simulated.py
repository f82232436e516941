"""The published tests on simulated drives: what was put in must be found again.

Whole commands with the recipes that ship, on a clock of the drive's own; sizes and times are set so that each takes
seconds. What is expected is worked out here from the drive's description, not taken from the code that finds it.
"""

import json

import numpy as np
import pytest

from blkreel import write_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.telemetry.reader import read_telemetry

GB, GIB, MIB = 10**9, 1 << 30, 1 << 20


@pytest.fixture
def found(blkreel, tmp_path):
    """found(test, drive, NAME=VALUE...) is the document of that test's results on a simulated drive."""
    def carry_out(test, drive, *, size="16GiB", **sets):
        words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
        output = tmp_path / f"{test}-{len(list(tmp_path.iterdir()))}"
        result = blkreel("test", test, "--on", f"nil:{size},{drive},clock=virtual", "-o", output, "--json", *words,
                         code=0, timeout=300)
        document = json.loads(result.stdout)
        assert document["simulated"] and document["verdict"]["level"] in ("valid", "qualified")
        assert not document["missing"]
        document["steps"] = json.loads((output / "test.json").read_text())["steps"]
        document["output"] = output
        return document

    return carry_out


def of_state(document):
    """The figures of a test's only state."""
    (figures,) = document["figures"]["states"].values()
    return figures


def test_the_size_of_the_fast_cache(found):
    document = found("slc-cache", "cache=2.3GB,cache_bandwidth=1.2GB/s,write_bandwidth=900MB/s,cache_drain=10MB/s",
                     next_fill="10%", rest_1="20s", rest_2="40s", rest_3="1min")
    size = 2.3 * GB
    first, *again = of_state(document)["fills"].values()
    assert first["fast_bytes"] == pytest.approx(size, rel=0.02)
    # 10 MB/s are emptied while the drive rests, and nothing while it writes.
    for fill, rest_s in zip(again, (20, 40, 60), strict=True):
        assert fill["rest_ns"] == rest_s * 10**9
        room = min(size, rest_s * 10 * 10**6)
        # Within a write, below which nobody can tell.
        assert fill["fast_bytes"] == pytest.approx(room, rel=0.02, abs=MIB)


def test_the_stall_period(found):
    document = found("consistency", "write_latency=500us,channels=2,stall_every=700ms,stall_for=40ms", states="data",
                     span="1GiB", time="30s")
    figures = of_state(document)
    every_ns, for_ns = 700 * 10**6, 40 * 10**6
    assert figures["stall_period_ns"] == pytest.approx(every_ns, rel=0.02)
    assert figures["stall_ns"] == pytest.approx(for_ns, rel=0.1)
    # 2 channels of 500 us, but for the share of time in which it stalls; 4 KiB on the bus hardly count.
    assert figures["whole_iops"] == pytest.approx(4000 * (1 - for_ns / every_ns), rel=0.02)


def test_the_steady_state(found):
    # From 200 MB/s down to 40 by 1 - exp(-r / 200 MB): 62 % after 200 MB of random writes, 98 % after 800 MB.
    document = found("steady-write", "write_latency=20us,write_bandwidth=200MB/s,random_write_bandwidth=40MB/s,"
                     "random_write_decline=200MB", size="4GiB", time="2s", rounds=30)
    figures = document["figures"]["of"]["state full, repeat 1"]
    assert figures["steady"]
    assert figures["first_mb_s"] > 2 * 40
    assert figures["steady_mb_s"] == pytest.approx(40, rel=0.1)
    rates = document["series"][0]["lines"][0]["y"]
    last = np.array(rates[-5:])
    assert np.ptp(last) <= 0.2 * last.mean()
    skipped = [step for step in document["steps"] if step["status"] == "skipped"]
    assert len(skipped) == 30 - len(rates)


def test_the_slowdown_of_reads_under_writes(found):
    slowdown = 1.7
    # So slow a writer that a write is in flight whenever a read is submitted; latency is all there is to a read.
    document = found("mixed-burst", f"read_latency=200us,read_bandwidth=100GB/s,write_latency=1ms,channels=64,"
                     f"write_bandwidth=100GB/s,read_slowdown={slowdown}", states="data", reads=3, read_burst="16MiB",
                     write_burst="8MiB", write_every="100ms", lead="1s", read_every="1.3s", span="256MiB")
    assert of_state(document)["slowdown"] == pytest.approx(slowdown, rel=0.01)
    assert of_state(document)["writer"][0]["state"] == "fell behind"
    mixed = of_state(document)["mixed"]
    # Two outstanding: 256 blocks of 64 KiB take 128 latencies, three times; the wait is half the service.
    assert mixed["read_wait_ns"] == pytest.approx(3 * 128 * 200_000 * slowdown, rel=0.01)
    assert mixed["read_service_time_ns"] == pytest.approx(2 * mixed["read_wait_ns"], rel=0.01)


def test_a_writer_in_the_background_keeps_up_and_writes_what_is_asked_for(found):
    document = found("mixed-burst", "write_bandwidth=1GB/s,read_bandwidth=2GB/s", states="data", reads=3,
                     read_burst="64MiB", lead="4s", span="256MiB")
    writer = of_state(document)["writer"][0]
    assert writer["state"] == "kept up"
    step = next(step for step in document["steps"] if step["role"] == "mixed")
    rows = open_trace(document["output"] / step["directory"]).table().to_pandas()
    written = rows[rows.op == 1]
    per_burst = written.groupby("burst").length_bytes.sum()
    assert (per_burst == 40 * MIB).all()
    assert np.diff(written.groupby("burst").due_ns.min().to_numpy()).tolist() == [2 * 10**9] * (len(per_burst) - 1)
    assert rows[rows.op == 0].groupby("burst").length_bytes.sum().tolist() == [64 * MIB] * 3


def test_the_depth_that_is_worth_it(found):
    # Eight channels of 100 us, and a bus that is wider than they need.
    document = found("depth-sweep-read", "read_latency=100us,channels=8,read_bandwidth=100GB/s", states="data",
                     span="256MiB", time="300ms")
    figures = of_state(document)
    assert figures["lowest_depth_with_95_percent"] == 8
    for depth in (1, 2, 4, 8, 16, 32, 64, 128):
        iops = min(depth, 8) * 10_000
        assert figures["depths"][str(depth)]["iops"] == pytest.approx(iops, rel=0.01)
        assert figures["depths"][str(depth)]["mean_ns"] == pytest.approx(depth * 10**9 / iops, rel=0.01)


def test_what_a_discard_costs(found):
    document = found("trim", "discard_per_gb=40ms,discard_latency=1ms", states="data", span="128MiB",
                     sizes="64MiB,256MiB,512MiB,1GiB", times=2, every="2s")
    extents = next(iter(document["figures"]["extents"].values()))
    assert extents["own_s_per_gb"] == pytest.approx(0.040, rel=0.02)
    # A read that comes as the discard begins waits for all of it, a thousand reads a second.
    assert extents["added_s_per_gb"] == pytest.approx(0.040, rel=0.05)
    whole = document["figures"]["whole"]
    assert {state: one["s_per_gb"] for state, one in whole.items()} == {
        state: pytest.approx(0.040 + 0.001 / (16 * GIB / GB), rel=0.01) for state in whole}


def test_a_mix_on_a_drive_of_two_rates(found):
    # One outstanding: the mean of the two latencies, in the share of the mix; 50 % of the time at rest.
    document = found("mixed-random", "read_latency=300us,write_latency=100us,read_bandwidth=100GB/s,"
                     "write_bandwidth=100GB/s", states="data", span="128MiB", depth=1, time="4s", mixes="100,70,0")
    mixes = of_state(document)["mixes"]
    for share, latency_us in (("100", 300), ("70", 240), ("0", 100)):
        assert mixes[share]["mb_s"] == pytest.approx(4096 / latency_us, rel=0.01)
    rests = [step["result"]["rest_ns"] for step in document["steps"] if step["do"] == "rest"]
    active = [step["result"]["wall_ns"] for step in document["steps"] if step["do"] == "measure"]
    assert rests == active[:len(rests)]


def test_heat_that_slows_a_drive_down_is_seen_beside_its_rate(found):
    # 25 C + 6 C/W x 6 W = 61 C in the end; 45 C are reached after thermal_time x ln(36 / 16), from where it is slower.
    document = found("consistency", "write_latency=1ms,channels=4,throttle_at=45C,throttle_until=20C,"
                     "throttle_factor=50%,thermal_time=20s", states="data", span="256MiB", time="60s", depth=4)
    step = next(step for step in document["steps"] if step["role"] == "consistency")
    time_ns, temperature_c = read_telemetry(document["output"] / step["directory"]).series("temperature_c")
    throttled_ns = time_ns[np.argmax(temperature_c >= 45)]
    iops = np.array(next(s for s in document["series"] if s["of"]["what"] == "iops")["lines"][0]["y"])
    slow_from_s = int(np.argmax(iops < 3000))
    assert abs(slow_from_s - throttled_ns / 10**9) <= 2
    assert iops[:slow_from_s - 1].mean() == pytest.approx(4000, rel=0.02)
    assert iops[slow_from_s + 1:-1].mean() == pytest.approx(2000, rel=0.02)
    assert any("thermal throttling" in reason["text"] for reason in document["verdict"]["reasons"])


def test_energy_is_what_the_drive_takes(found):
    document = found("qd1", "read_latency=100us,read_power=4W,write_power=6W,write_latency=100us,"
                     "write_bandwidth=100GB/s,read_bandwidth=100GB/s", states="data", span="128MiB", time="1s",
                     blocks="4KiB", block_time="100ms", depths="1", depth_time="100ms")
    text = json.dumps(document["tables"])
    assert "mb_per_j" in text
    row = next(row for row in document["tables"][0]["rows"] if row["io"] == "random read 4K")
    # A read in flight all the time: 4 W, 10,000 I/Os of 4 KiB a second.
    assert row["mb_per_j"] == pytest.approx(40.96 / 4, rel=0.02)
    assert row["kiops_per_w"] == pytest.approx(10 / 4, rel=0.02)
    assert row["mean_ns"] == pytest.approx(100_000, rel=0.01)


@pytest.fixture(scope="module")
def steady_trace(tmp_path_factory):
    """40 reads of 64 KiB and 40 writes of 128 KiB, in turns, one each millisecond."""
    path = tmp_path_factory.mktemp("traces") / "steady.parquet"
    number = np.arange(80)
    write_trace(path, {"submit_ns": number * 10**6, "latency_ns": np.full(80, 10**5), "op": number % 2,
                       "offset_bytes": number * 128 * 1024, "length_bytes": np.where(number % 2, 131072, 65536)})
    return path


CONSTANT = "read_latency=200us,write_latency=400us,channels=64,read_bandwidth=100GB/s,write_bandwidth=100GB/s"


def span_bytes(document):
    """What the state step of a test wrote, and the blocks that its replays wrote first nevertheless."""
    states = [step["result"] for step in document["steps"] if step["do"] == "state"]
    prefilled = [open_trace(document["output"] / step["directory"]).metadata["run"]["prefill"]
                 for step in document["steps"] if step["do"] == "replay"]
    return [sum(end - start for start, end in state["identity"]["spans"]) for state in states], prefilled


def test_a_nearly_empty_drive_holds_what_the_traces_touch(found, steady_trace):
    """Each I/O of the trace has its own 128 KiB, of which a read covers the lower half."""
    written, prefilled = span_bytes(found("trace", CONSTANT, trace=steady_trace, states="data+op25,data"))
    assert written == [40 * (64 + 128) * 1024] * 2 and prefilled == [None] * 2
    document = found("game-score", CONSTANT, traces=steady_trace, states="data", passes=2, map="tile=2")
    written, prefilled = span_bytes(document)
    assert written == [2 * 40 * (64 + 128) * 1024] and prefilled == [None] * 2
    figures = of_state(document)
    assert figures["access_ns"] == pytest.approx(300_000, rel=0.01)
    assert list(figures["passes"]) == ["1", "2"] and list(figures["traces"]) == ["steady"]


def test_the_phases_of_trace_consistency(found, steady_trace):
    document = found("trace-consistency", CONSTANT, size="1GiB", traces=steady_trace, degrade_passes=2,
                     degrade_time="50ms", degrade_step="20ms", steady_passes=2, steady_time="80ms", recovery_passes=1,
                     recovery_idle="3s", write_depth=4)
    figures = of_state(document)
    assert list(figures["passes"]) == ["degrade-1", "degrade-2", "steady-1", "steady-2", "recovery-1"]
    # One at a time: busy for 40 x 200 us and 40 x 400 us. 7,864,320 bytes in 24 ms; a mean of 300 us.
    assert figures["bandwidth_mb_s"] == pytest.approx(327.68, rel=0.01)
    assert figures["access_ns"] == pytest.approx(300_000, rel=0.01)
    # The root of 327.68 / 300e-6.
    for phase in ("degrade", "steady", "recovery"):
        assert figures["phases"][phase]["score"] == pytest.approx(1045.1, rel=0.01)
    order = [(step["do"], step["role"], step["labels"].get("phase")) for step in document["steps"]]
    writes, trace = ("measure", "writes"), ("replay", "trace")
    assert order == [("state", "", None), ("measure", "fill", None),
                     *((*step, "degrade") for step in (writes, trace) * 2),
                     *((*step, "steady") for step in (writes, trace) * 2),
                     ("rest", "", "recovery"), (*trace, "recovery")]
    durations_ns = []
    for step in document["steps"]:
        if step["role"] == "writes":
            rows = open_trace(document["output"] / step["directory"]).table().to_pandas()
            durations_ns.append(rows.submit_ns.max())
            assert (rows.op == 1).all() and (rows.offset_bytes + rows.length_bytes).max() <= GIB
            assert rows.length_bytes.between(4096, MIB).all() and not (rows.length_bytes % 512).any()
            # Of sizes in 512 bytes, one in eight is whole 4 KiB.
            assert (rows.length_bytes % 4096 == 0).mean() < 0.3 > (rows.offset_bytes % 4096 == 0).mean()
    # The last write of a depth of 4 at 400 us is issued less than a millisecond before the end.
    assert durations_ns == [pytest.approx(ms * 10**6, abs=10**6) for ms in (50, 70, 80, 80)]
    (rest,) = [step["result"]["rest_ns"] for step in document["steps"] if step["do"] == "rest"]
    assert rest == 3 * 10**9
