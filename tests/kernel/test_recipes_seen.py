"""What each published test does to a drive, by the kernel's own trace: the method's numbers, written here by hand."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kernel_trace import CUT_NS, Seen, Watch, assert_one_after_another, assert_random, assert_random_places

from blkreel.replay.engine import EngineOptions, run_engine
from blkreel.replay.recipe import load_recipe
from blkreel.replay.recipe_steps import steps_of
from blkreel.replay.rule_stream import stream_of
from blkreel.replay.target import find_target
from blkreel.replay.workload import plan_workload

pytestmark = pytest.mark.kernel

KIB, MIB, MS = 1 << 10, 1 << 20, 10**6
DRIVE_BYTES = 512 * MIB


@dataclass(frozen=True)
class Step:
    """A measuring step, and what the kernel saw of it. start_ns: of its clock."""

    role: str
    labels: dict
    start_ns: int
    seen: Seen


@pytest.fixture
def carried_out(loop_drive, tracing_instance):
    """carried_out("mixed-random", depth=8) carries the test out on a scratch drive: its measuring steps in order."""
    def carry_out(name, size_bytes=DRIVE_BYTES, **sets):
        drive = loop_drive(size_bytes)
        # Else it would cut a write of 1 MiB into pieces.
        queue = Path("/sys/class/block") / Path(drive).name / "queue"
        (queue / "max_sectors_kb").write_text((queue / "max_hw_sectors_kb").read_text())
        watch = Watch(tracing_instance, drive)
        recipe = load_recipe(name)
        target = find_target(drive)
        found = []
        for step in steps_of(recipe, recipe.settle({key: str(value) for key, value in sets.items()}),
                             size_bytes=size_bytes, block_bytes=512, seed=1):
            if step.do != "measure":
                continue
            watch.seen()
            streams = [stream_of(spec, stop_ns=step.time_ns, unknown_bytes=size_bytes) for spec in step.streams]
            plan = plan_workload(streams, [target], about={}, prefill=False, stop_ns=step.time_ns)
            totals = run_engine(EngineOptions(drive, may_write=True, stop_ns=plan.stop_ns), plan.lanes(),
                                lambda rows: None, lambda note: None)
            found.append(Step(step.role, step.labels, totals["start_monotonic_ns"], watch.seen()))
        return found

    return carry_out


def assert_depth(seen: Seen, depth: int, block: int) -> None:
    """Never more outstanding, and not just once so many."""
    most, share = seen.outstanding()
    assert most == depth * block, f"{most / block} outstanding"
    assert share > 0.1, f"only {share:.2f} % of the I/Os made {depth} outstanding"


def assert_ended(step: Step, after_ns: int) -> None:
    """Nothing was asked for later, but for what was on its way; a millisecond passes before the first."""
    late = np.count_nonzero(step.seen.time_ns > step.start_ns + after_ns + MS)
    assert late <= step.labels.get("depth", 32)


def assert_bursts(step: Step, seen: Seen, *, burst: int, block: int, every_ns: int, first_ns: int) -> int:
    """So many bytes each period, none before its time, and mostly at it; how many bursts there were."""
    each = burst // block
    count = -(-len(seen) // each)
    due = step.start_ns + first_ns + np.arange(count) * every_ns
    late = seen.time_ns - np.repeat(due, each)[:len(seen)]
    assert late.min() >= -CUT_NS, "before its time"
    assert np.median(late[::each]) < every_ns / 4, "bursts do not begin when they are due"
    return count


def test_mixed_burst(carried_out):
    """The times of the method divided by ten, a burst of 4 MiB for 40 MiB, a read of 5 MiB for 400 MiB."""
    alone, mixed = carried_out("mixed-burst", span="16MiB", write_burst="4MiB", write_every="200ms", lead="1s", reads=4,
                               read_burst="5MiB", read_every="620ms")
    assert (alone.role, mixed.role) == ("baseline", "mixed")
    assert set(alone.seen.kind) == {"R"}
    for step, start in ((alone, 36 * MIB), (mixed, 16 * MIB)):
        reads = step.seen.of("R")
        # Four extents of their own, none read twice.
        assert_one_after_another(reads, 64 * KIB, start, start + 20 * MIB)
        assert len(reads) == 4 * 80
        assert assert_bursts(step, reads, burst=5 * MIB, block=64 * KIB, every_ns=620 * MS, first_ns=1000 * MS) == 4
        assert_depth(reads, 2, 64 * KIB)
    writes = mixed.seen.of("W")
    assert_random_places(writes, 16 * KIB, 0, 16 * MIB)
    assert_depth(writes, 2, 16 * KIB)
    bursts = assert_bursts(mixed, writes, burst=4 * MIB, block=16 * KIB, every_ns=200 * MS, first_ns=0)
    # It begins before the reads and ends with them: the last read begins at 2.86 s.
    assert bursts >= 15
    assert writes.time_ns.min() < mixed.seen.of("R").time_ns.min() - 900 * MS
    assert writes.time_ns.max() <= mixed.seen.of("R").done_ns.max() + 200 * MS
    # The volume of each period, but for the last one, which the end cuts short.
    period = (writes.time_ns - mixed.start_ns - MS // 2) // (200 * MS)
    assert np.median(np.bincount(period)[:-1]) * 16 * KIB == 4 * MIB


def test_mixed_burst_of_2016(carried_out):
    _, mixed = carried_out("mixed-burst-2016", span="16MiB", write_burst="20MiB", write_every="200ms", lead="300ms",
                           reads=1, read_burst="5MiB")
    writes = mixed.seen.of("W")
    assert_random_places(writes, 16 * KIB, 0, 16 * MIB)
    assert_depth(writes, 4, 16 * KIB)
    assert_depth(mixed.seen.of("R"), 2, 64 * KIB)
    assert assert_bursts(mixed, writes, burst=20 * MIB, block=16 * KIB, every_ns=200 * MS, first_ns=0) == 2


def test_mixed_random(carried_out):
    steps = carried_out("mixed-random", span="64MiB", volume="80MiB", states="data")
    assert [step.labels["mix"] for step in steps] == [100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0]
    for step in steps:
        reads = step.seen.kind == "R"
        assert len(reads) == 80 * MIB // (4 * KIB)
        # 20,480 of them: exact in the first 20,000, at most the 480 of the rest besides.
        assert np.count_nonzero(reads[:20_000]) == 200 * step.labels["mix"]
        assert_random_places(step.seen, 4 * KIB, 0, 64 * MIB)
        assert_depth(step.seen, 4, 4 * KIB)
        if step.labels["mix"] not in (0, 100):
            assert_random(reads, f"reads and writes, {step.labels['mix']} %")
            # Where it reads and where it writes is the same to look at.
            assert_random_places(step.seen.of("R"), 4 * KIB, 0, 64 * MIB)
            assert_random_places(step.seen.of("W"), 4 * KIB, 0, 64 * MIB)


def test_mixed_sequential(carried_out):
    steps = carried_out("mixed-sequential", span="64MiB", volume="640MiB", states="data", mixes="100,70,20,0")
    for step in steps:
        reads = step.seen.kind == "R"
        assert len(reads) == 5120
        assert abs(np.count_nonzero(reads) / 51.20 - step.labels["mix"]) < 3
        assert_depth(step.seen, 1, 128 * KIB)
        if step.labels["mix"]:
            assert_one_after_another(step.seen.of("R"), 128 * KIB, 0, 32 * MIB)
        if step.labels["mix"] < 100:
            assert_one_after_another(step.seen.of("W"), 128 * KIB, 32 * MIB, 64 * MIB)
        if step.labels["mix"] not in (0, 100):
            assert_random(reads, f"reads and writes, {step.labels['mix']} %")


def test_consistency(carried_out):
    (step,) = carried_out("consistency", time="500ms")
    assert set(step.seen.kind) == {"W"}
    assert_random_places(step.seen, 4 * KIB, 0, DRIVE_BYTES)
    assert_depth(step.seen, 32, 4 * KIB)
    assert_ended(step, 500 * MS)


@pytest.mark.parametrize(("op", "kind"), [("read", "R"), ("write", "W")])
def test_depth_sweep(carried_out, op, kind):
    steps = carried_out(f"depth-sweep-{op}", time="150ms")
    assert [step.labels["depth"] for step in steps] == [1, 2, 4, 8, 16, 32, 64, 128]
    for step in steps:
        assert set(step.seen.kind) == {kind}
        assert_random_places(step.seen, 4 * KIB, 0, DRIVE_BYTES)
        assert_depth(step.seen, step.labels["depth"], 4 * KIB)
        assert_ended(step, 150 * MS)


def test_qd1(carried_out):
    steps = carried_out("qd1", span="64MiB", time="150ms", block_time="60ms", depth_time="60ms", depths="1,8")
    kinds = {}
    for step in steps:
        seen, labels = step.seen, step.labels
        block = labels["block"]
        if step.role == "depth":
            assert set(seen.kind) == {"R"}
            assert_depth(seen, labels["depth"], block)
            continue
        kinds.setdefault(step.role, []).append((labels["access"], labels["op"], block))
        assert set(seen.kind) == {{"read": "R", "write": "W"}[labels["op"]]}
        assert_depth(seen, 1, block)
        if labels["access"] == "sequential":
            assert_one_after_another(seen, block, 64 * MIB, 128 * MIB)
        elif len(seen) >= 400:
            assert_random_places(seen, block, 0, 64 * MIB)
        else:
            assert set(seen.length.tolist()) == {block} and seen.end.max() <= 64 * MIB
            assert len(set(seen.offset.tolist())) > len(seen) / 4
    assert kinds["qd1"] == [("random", "read", 4 * KIB), ("random", "write", 4 * KIB),
                            ("sequential", "read", 128 * KIB), ("sequential", "write", 128 * KIB)]
    assert sorted(kinds["blocks"]) == sorted((access, op, 512 << n) for access in ("random", "sequential")
                                             for op in ("read", "write") for n in range(12))


def test_trim(carried_out):
    sizes = [4 * MIB, 16 * MIB, 32 * MIB] * 2
    discards, refill, full, empty = carried_out("trim", span="64MiB", sizes="4MiB,16MiB,32MiB", times=2, every="300ms")
    reads = discards.seen.of("R")
    assert_random_places(reads, 4 * KIB, 0, 64 * MIB)
    # A thousand a second: each at its own time, none before.
    late = reads.time_ns - discards.start_ns - np.arange(len(reads)) * MS
    assert late.min() >= -CUT_NS and np.median(late) < 100 * MS
    asked = discards.seen.of("D")
    assert asked.length.tolist() == sizes
    assert asked.offset.tolist() == (64 * MIB + np.cumsum([0, *sizes[:-1]])).tolist()
    assert (asked.time_ns >= discards.start_ns + np.arange(1, 7) * 300 * MS).all()
    assert discards.seen.of("D").outstanding()[0] <= max(sizes), "one at a time"
    # The background goes on until the last discard is done.
    assert len(discards.seen.of("R")) >= 1800
    assert_one_after_another(refill.seen, 128 * KIB, 64 * MIB, 168 * MIB)
    assert set(refill.seen.kind) == {"W"} and len(refill.seen) == 104 * MIB // (128 * KIB)
    for step, state in ((full, "full"), (empty, "empty")):
        assert (step.role, step.labels["state"]) == ("whole", state)
        assert set(step.seen.kind) == {"D"} and step.seen.offset.min() == 0
        assert int(step.seen.length.sum()) == DRIVE_BYTES == int(step.seen.done_length.sum())


def test_slc_cache(carried_out):
    steps = carried_out("slc-cache")
    assert [step.labels["rest_ns"] for step in steps] == [0, 30_000 * MS, 300_000 * MS, 1_800_000 * MS]
    # 40 % of the drive, then three times 20 %, in whole MiB.
    start = 0
    for step, size in zip(steps, [204 * MIB, 102 * MIB, 102 * MIB, 102 * MIB], strict=True):
        assert set(step.seen.kind) == {"W"}
        assert_one_after_another(step.seen, MIB, start, start + size)
        assert len(step.seen) == size // MIB, "each place once"
        assert_depth(step.seen, 1, MIB)
        start += size
