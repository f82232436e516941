"""What a published test of each kind does to a drive, by the kernel's own trace: the method's numbers by hand.

The streams of each recipe: tests/unit/benchmarks/recipe. How streams are issued: test_generate.py, and the tests of the
engine.
"""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from host_reasons import HOST_REASONS
from kernel_trace import CUT_NS, Seen, Watch, assert_one_after_another, assert_random, assert_random_places
from tree import COMPILE

pytestmark = pytest.mark.kernel

KIB, MIB, MS = 1 << 10, 1 << 20, 10**6
DRIVE_BYTES = 256 * MIB


@dataclass(frozen=True)
class Step:
    """A measuring step, and what the kernel saw of it. start_ns: of its clock. rest_ns: how long nothing came then.

    due_ns: when its reads (R), writes (W) and discards (D) should be issued, by the records of its run, in plan order.
    """

    role: str
    labels: dict
    start_ns: int
    seen: Seen
    rest_ns: int
    due_ns: dict[str, np.ndarray]


@pytest.fixture
def carried_out(blkreel, loop_drive, tracing_instance, tmp_path):
    """carried_out("mixed-random", depth=8) carries the test out on a scratch drive: its measuring steps in order."""
    def carry_out(name, **sets):
        drive, directory = loop_drive(DRIVE_BYTES), tmp_path / "out"
        watch = Watch(tracing_instance, drive)
        result = blkreel("test", name, "--fit", "--on", drive, "-o", directory,
                         *(word for key, value in sets.items() for word in ("--set", f"{key}={value}")), check=False)
        assert result.returncode in (0, 3), result.stderr
        seen = watch.seen()
        reasons = [reason for reason in json.loads((directory / "results.json").read_text())["verdict"]["reasons"]
                   if reason["level"] == "invalid"]
        assert {reason["code"] for reason in reasons} <= {*HOST_REASONS, "no_completed_ios"}, reasons
        told = json.loads((directory / "test.json").read_text())["steps"]
        assert {one["status"] for one in told} == {"done"}
        found = steps_of(told, [records(directory / one["directory"]) for one in measuring(told)], seen)
        assert_reads_find_what_was_written(seen, found)
        return found

    return carry_out


def measuring(told) -> list[dict]:
    return [one for one in told if one["directory"] and one["status"] == "done"]


def records(run) -> tuple[int, pd.DataFrame]:
    """Start of a run's clock, and its rows."""
    path = run / "records.parquet"
    return int(pq.read_metadata(path).metadata[b"blkreel.epoch_ns"]), pd.read_parquet(path, columns=[
        "submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op", "due_ns", "source_row"])


def steps_of(told, runs, seen) -> list[Step]:
    """Which I/Os belong to which step, by when its run began and ended; the run has recorded the very same."""
    chosen = measuring(told)
    found = []
    for index, (one, (start_ns, rows)) in enumerate(zip(chosen, runs, strict=True)):
        end_ns = start_ns + int((rows.submit_ns + rows.latency_ns).max())
        mine = seen.between(start_ns - CUT_NS, end_ns)
        assert len(mine) == np.count_nonzero(rows.length_bytes), one["title"]
        assert mine.length.sum() == rows.length_bytes.sum()
        after = seen.time_ns[seen.time_ns > end_ns]
        idle_ns = int(after.min()) - end_ns if len(after) else 0
        nothing_between = index + 1 < len(chosen) and "state" not in [
            step["do"] for step in told[told.index(one):told.index(chosen[index + 1])]]
        if nothing_between:
            assert not len(seen.between(end_ns + 1, runs[index + 1][0] - CUT_NS)), "I/O between two steps"
        planned = rows.sort_values("source_row")
        due_ns = {kind: planned.due_ns[planned.op == op].to_numpy() for op, kind in ((0, "R"), (1, "W"), (3, "D"))}
        found.append(Step(one["role"], one["labels"], start_ns, mine, idle_ns, due_ns))
    return found


def assert_reads_find_what_was_written(seen, steps) -> None:
    """No read of a step is of a place that nothing was written to since it was discarded.

    What a preparation reads to verify itself is looked for beyond what it wrote, too.
    """
    measured = np.zeros(len(seen), bool)
    for step in steps:
        measured |= (seen.time_ns >= step.start_ns) & (seen.time_ns <= step.seen.time_ns.max())
    written = np.zeros(DRIVE_BYTES // 512, bool)
    after = 0
    for bound in [*np.nonzero(seen.kind == "D")[0].tolist(), len(seen)]:
        part = np.arange(len(seen))
        part = part[(part >= after) & (part < bound)]
        writes, reads = (part[seen.kind[part] == kind] for kind in "WR")
        first = np.where(written, -1, len(seen))
        number, sector = sectors_of(seen, writes)
        np.minimum.at(first, sector, number)
        number, sector = sectors_of(seen, reads[measured[reads]])
        assert (first[sector] < number).all(), "a read of what nobody wrote"
        written = first < len(seen)
        if bound < len(seen):
            written[seen.offset[bound] // 512:seen.end[bound] // 512] = False
        after = bound + 1


def sectors_of(seen, chosen):
    """(which I/O, sector) of each sector of the chosen I/Os."""
    count = seen.length[chosen] // 512
    begins = np.cumsum(count) - count
    return np.repeat(chosen, count), np.repeat(seen.offset[chosen] // 512 - begins, count) + np.arange(count.sum())


def assert_depth(seen: Seen, depth: int, block: int) -> None:
    """So many outstanding, and never more. How often is a matter of the drive's speed."""
    most = seen.outstanding()
    assert most == depth * block, f"{most / block} outstanding"


def assert_duty_cycle(steps) -> None:
    """After each but the last it rests at least as long as the step was active: half of the time, or less."""
    for step in steps[:-1]:
        assert step.rest_ns >= step.seen.active_ns


def assert_bursts(step: Step, kind: str, *, burst: int, block: int, every_ns: int, first_ns: int) -> int:
    """So many bytes are due each period, a millisecond passes before the first, and none goes off before its time.

    How long after, is the machine's affair, of which the run's own verdict tells. Returns how many bursts there were.
    """
    seen, each = step.seen.of(kind), burst // block
    count = -(-len(seen) // each)
    due_ns = np.repeat(first_ns + np.arange(count) * every_ns, each)[:len(seen)]
    assert (step.due_ns[kind] == due_ns + MS).all(), "not due at its time"
    assert (seen.time_ns - step.start_ns - due_ns).min() >= -CUT_NS, "before its time"
    return count


def test_mixed_burst(carried_out):
    """The times of the method divided by ten, a burst of 4 MiB for 40 MiB, a read of 5 MiB for 400 MiB."""
    alone, mixed = carried_out("mixed-burst", span="8MiB", write_burst="4MiB", write_every="200ms", lead="1s", reads=4,
                               read_burst="5MiB", read_every="620ms")
    assert (alone.role, mixed.role) == ("baseline", "mixed")
    assert set(alone.seen.kind) == {"R"}
    for step, start in ((alone, 28 * MIB), (mixed, 8 * MIB)):
        reads = step.seen.of("R")
        # Four extents of their own, none read twice.
        assert_one_after_another(reads, 64 * KIB, start, start + 20 * MIB)
        assert len(reads) == 4 * 80
        assert assert_bursts(step, "R", burst=5 * MIB, block=64 * KIB, every_ns=620 * MS, first_ns=1000 * MS) == 4
        assert_depth(reads, 2, 64 * KIB)
    writes = mixed.seen.of("W")
    assert_random_places(writes, 16 * KIB, 0, 8 * MIB)
    assert_depth(writes, 2, 16 * KIB)
    assert_bursts(mixed, "W", burst=4 * MIB, block=16 * KIB, every_ns=200 * MS, first_ns=0)
    # It begins before the reads, and goes on beside them: as many bursts as the drive is fast enough for.
    assert writes.time_ns.min() < mixed.seen.of("R").time_ns.min()
    assert np.count_nonzero(writes.time_ns > mixed.seen.of("R").time_ns.min()) > 2
    # It ends with the reads, but for the writes that are under way, of which there are no more than its depth.
    assert np.count_nonzero(writes.time_ns > mixed.seen.of("R").done_ns.max()) <= 2


def test_mixed_random(carried_out):
    steps = carried_out("mixed-random", span="64MiB", volume="40MiB", states="data", mixes="100,70,20,0")
    assert_duty_cycle(steps)
    assert [step.labels["mix"] for step in steps] == [100, 70, 20, 0]
    for step in steps:
        reads = step.seen.kind == "R"
        assert len(reads) == 40 * MIB // (4 * KIB)
        # 10,240 of them: exact in the first 10,000, at most the 240 of the rest besides.
        assert np.count_nonzero(reads[:10_000]) == 100 * step.labels["mix"]
        assert_random_places(step.seen, 4 * KIB, 0, 64 * MIB)
        assert_depth(step.seen, 4, 4 * KIB)
        if step.labels["mix"] not in (0, 100):
            assert_random(reads, f"reads and writes, {step.labels['mix']} %")
            # Where it reads and where it writes is the same to look at.
            assert_random_places(step.seen.of("R"), 4 * KIB, 0, 64 * MIB)
            assert_random_places(step.seen.of("W"), 4 * KIB, 0, 64 * MIB)


def test_trim(carried_out):
    sizes = [4 * MIB, 16 * MIB, 32 * MIB] * 2
    discards, refill, full, empty = carried_out("trim", span="64MiB", sizes="4MiB,16MiB,32MiB", times=2, every="300ms")
    reads = discards.seen.of("R")
    assert_random_places(reads, 4 * KIB, 0, 64 * MIB)
    # A thousand a second: each due at its own time, after a millisecond, none issued before.
    assert (discards.due_ns["R"] == (1 + np.arange(len(reads))) * MS).all()
    assert (reads.time_ns - discards.start_ns - np.arange(len(reads)) * MS).min() >= -CUT_NS
    asked = discards.seen.of("D")
    assert asked.length.tolist() == sizes
    assert asked.offset.tolist() == (64 * MIB + np.cumsum([0, *sizes[:-1]])).tolist()
    assert (asked.time_ns >= discards.start_ns + np.arange(1, 7) * 300 * MS).all()
    assert discards.seen.of("D").outstanding() <= max(sizes), "one at a time"
    assert (discards.due_ns["D"] == np.arange(1, 7) * 300 * MS + MS).all()
    # The background goes on beside the discards, and ends with the last, but for reads that are under way.
    assert reads.time_ns.max() > asked.time_ns[-2]
    assert np.count_nonzero(reads.time_ns > asked.done_ns.max()) <= 32
    assert_one_after_another(refill.seen, 128 * KIB, 64 * MIB, 168 * MIB)
    assert set(refill.seen.kind) == {"W"} and len(refill.seen) == 104 * MIB // (128 * KIB)
    for step, state in ((full, "full"), (empty, "empty")):
        assert (step.role, step.labels["state"]) == ("whole", state)
        assert set(step.seen.kind) == {"D"} and step.seen.offset.min() == 0
        assert int(step.seen.length.sum()) == DRIVE_BYTES == int(step.seen.done_length.sum())


def data_of(path):
    """(sorted sizes of its reads, sorted sizes of its writes) of a trace."""
    trace = pd.read_parquet(path, columns=["op", "length_bytes"])
    return [sorted(trace.length_bytes[(trace.op == op) & (trace.length_bytes > 0)].tolist()) for op in (0, 1)]


def assert_replays(step: Step, trace: str) -> None:
    """The I/Os of the trace, each once, in whatever order."""
    assert [sorted(step.seen.of(kind).length.tolist()) for kind in "RW"] == data_of(trace)


def test_trace_consistency(carried_out):
    """The whole drive a second time, then three phases, each pass with its writes or idle time before the trace."""
    fill, *steps = carried_out("trace-consistency", degrade_passes=2, degrade_time="150ms", degrade_step="100ms",
                               steady_passes=1, steady_time="250ms", recovery_passes=1, recovery_idle="300ms",
                               traces=COMPILE, pace="depth=8")
    assert fill.role == "fill" and set(fill.seen.kind) == {"W"}
    assert_one_after_another(fill.seen, 128 * KIB, 0, DRIVE_BYTES)
    assert len(fill.seen) == DRIVE_BYTES // (128 * KIB)
    assert [(step.role, step.labels["phase"], step.labels["pass_number"]) for step in steps] == [
        ("writes", "degrade", 1), ("trace", "degrade", 1), ("writes", "degrade", 2), ("trace", "degrade", 2),
        ("writes", "steady", 1), ("trace", "steady", 1), ("trace", "recovery", 1)]
    writes = [step.seen for step in steps if step.role == "writes"]
    for seen in writes:
        assert set(seen.kind) == {"W"}
        assert not (seen.length % 512).any() and not (seen.offset % 512).any()
        assert seen.length.min() >= 8 * 512 and seen.length.max() <= 2048 * 512
        assert seen.offset.min() >= 0 and seen.end.max() <= DRIVE_BYTES
    # Of the first 32 of each, which are issued however late it is, one in eight has a size of whole 4 KiB.
    length, offset = (np.concatenate([getattr(seen, name) for seen in writes]) for name in ("length", "offset"))
    assert len(set(length.tolist())) > 8 and len(set(offset.tolist())) > 8
    assert (length % 4096 != 0).any() and (offset % 4096 != 0).any()
    for step in steps:
        if step.role == "trace":
            assert_replays(step, COMPILE)
    assert steps[-2].rest_ns >= 300 * MS, "idle before the pass of recovery"
