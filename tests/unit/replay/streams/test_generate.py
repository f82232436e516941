"""Streams by a rule: the same at every call, inside their region, mixed and spread as the method says."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from cases import cases
from columns import joined
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import UsageError
from blkreel.replay.engine.engine import PLAN_COLUMNS
from blkreel.replay.streams.generate import BATCH_ROWS, MIX_ROWS, batches, bound_bytes, extent_of, row_count
from blkreel.replay.streams.spec import Bursts, StreamSpec
from blkreel.traces.format.schema import OPS

MIB = 1 << 20
S = 10**9


def a_stream(**changes):
    return StreamSpec(**{"number": 3, "name": "one", "op": "write", "access": "random", "block_bytes": 4096,
                         "start_bytes": 5 * MIB, "span_bytes": 64 * MIB, "depth": 4, "seed": 11} | changes)


def whole(spec, *, stop_ns=None, first_batch=0, most=8):
    none = {name: np.empty(0, "i8") for name, _ in PLAN_COLUMNS}
    return joined(islice(batches(spec, stop_ns, first_batch), most)) or none


def blocks_of(spec, plan):
    return (plan["offset_bytes"] - spec.start_bytes) // spec.block_bytes


timings = st.one_of(
    st.just({}),
    st.builds(lambda size, every, first, count: {"bursts": Bursts(size, every, first, count)},
              st.integers(1, 2 * MIB), st.integers(1, 5 * S), st.integers(0, S), st.none() | st.integers(0, 50)),
    st.builds(lambda rate, first: {"rate_iops": rate, "first_ns": first},
              st.floats(0.01, 1e6), st.integers(0, S)),
    st.builds(lambda every, first: {"every_ns": every, "first_ns": first}, st.integers(1, S), st.integers(0, S)))
streams = st.builds(
    lambda access, op, share, block, blocks, start, volume, seed, timing: a_stream(
        access=access, op=op, read_percent=share, block_bytes=block, span_bytes=blocks * block + block // 2,
        start_bytes=start * MIB, volume_bytes=volume, seed=seed, **timing),
    st.sampled_from(["sequential", "random", "permutation", "halves"]), st.sampled_from(["read", "write", "discard"]),
    st.integers(0, 100), st.sampled_from([512, 4096, 65536, 12288]), st.integers(2, 200_000), st.integers(0, 9),
    st.none() | st.integers(1, 1 << 32), st.integers(0, 2**63), timings)


@cases(16)
@given(streams, st.none() | st.integers(0, 20 * S), st.integers(0, 3))
def test_any_stream_holds_its_rule_from_any_batch_on(spec, stop_ns, first_batch):
    plan = whole(spec, stop_ns=stop_ns, most=4)
    total = row_count(spec, stop_ns)
    count = len(plan["op"])
    if total is not None and total <= 4 * (BATCH_ROWS // 2):
        assert count == total
    assert np.array_equal(plan["source_row"], np.arange(count))
    low, high = extent_of(spec)
    assert low == spec.start_bytes
    assert high <= spec.start_bytes + spec.span_bytes
    assert (plan["offset_bytes"] >= low).all()
    assert (plan["offset_bytes"] + plan["length_bytes"] <= high).all()
    assert ((plan["offset_bytes"] - spec.start_bytes) % spec.block_bytes == 0).all()
    assert (plan["length_bytes"] == spec.block_bytes).all()
    assert (plan["stream"] == 3).all()
    assert np.isin(plan["op"], [OPS["read"], OPS[spec.op]]).all()
    if spec.timed:
        assert (np.diff(plan["due_ns"]) >= 0).all()
        assert stop_ns is None or not count or plan["due_ns"].max() < stop_ns
    else:
        assert (plan["due_ns"] == -1).all()
    if total is not None and count == total:
        written, discarded = bound_bytes(spec, stop_ns)
        for op, most in (("write", written), ("discard", discarded)):
            assert plan["length_bytes"][plan["op"] == OPS[op]].sum() <= most <= total * spec.block_bytes
    from_there = whole(spec, stop_ns=stop_ns, first_batch=first_batch, most=max(0, 4 - first_batch))
    for name, column in from_there.items():
        assert np.array_equal(column, plan[name][count - len(column):])
    again = whole(spec, stop_ns=stop_ns, most=4)
    assert all((again[name] == plan[name]).all() for name in plan)


@pytest.mark.parametrize("percent", [0, 10, 33, 50, 99, 100])
def test_the_share_of_reads_is_exact_in_every_ten_thousand(percent):
    plan = whole(a_stream(read_percent=percent), most=2)
    reads = plan["op"] == OPS["read"]
    assert (reads.reshape(-1, MIX_ROWS).sum(axis=1) == MIX_ROWS * percent // 100).all()


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_the_order_of_reads_and_writes_is_random(percent):
    """Runs test (Wald, Wolfowitz) over half a million I/Os, and no echo at distances up to two of the exact shares."""
    reads = whole(a_stream(read_percent=percent), most=8)["op"] == OPS["read"]
    assert abs(runs_z(reads)) < 4
    assert strongest_echo(reads, 2 * MIX_ROWS) < 7


def test_random_places_are_uniform_and_do_not_come_round():
    spec = a_stream(span_bytes=1000 * 4096)
    block = blocks_of(spec, whole(spec))
    expected = len(block) / 1000
    chi = ((np.bincount(block, minlength=1000) - expected) ** 2 / expected).sum()
    # 999 degrees of freedom: mean 999, standard deviation 44.7.
    assert abs(chi - 999) < 5 * 44.7
    assert abs(runs_z(block > np.median(block))) < 4
    assert strongest_echo(block, 2 * BATCH_ROWS) < 7


def test_random_places_reach_all_of_a_large_drive():
    spec = a_stream(start_bytes=0, span_bytes=16 << 40)
    offset = whole(spec, most=1)["offset_bytes"]
    assert offset.max() > 15.99 * (1 << 40)
    assert abs(offset.mean() / (8 << 40) - 1) < 0.02


@pytest.mark.parametrize(("name", "value"), [("seed", 12), ("number", 4)])
def test_another_seed_or_stream_goes_other_ways(name, value):
    spec = a_stream(read_percent=50)
    one, other = whole(spec, most=1), whole(replace(spec, **{name: value}), most=1)
    assert (one["offset_bytes"] == other["offset_bytes"]).mean() < 0.01
    assert 0.45 < (one["op"] == other["op"]).mean() < 0.55


@cases(10)
@given(st.integers(2, 70_000), st.integers(0, 1000))
def test_a_permutation_has_each_block_once_a_pass_and_another_order_in_the_next(count, seed):
    spec = a_stream(access="permutation", span_bytes=count * 4096, seed=seed, volume_bytes=3 * count * 4096)
    passes = blocks_of(spec, whole(spec)).reshape(3, count)
    assert (np.sort(passes, axis=1) == np.arange(count)).all()
    if count > 20:
        assert (passes[0] != passes[1]).any() and (passes[1] != passes[2]).any()


def test_a_permutation_of_few_blocks_goes_on_from_batch_to_batch():
    spec = a_stream(access="permutation", span_bytes=7 * 4096)
    passes = blocks_of(spec, whole(spec, most=2)).reshape(-1, 7)
    assert (np.sort(passes, axis=1) == np.arange(7)).all()
    # Of 5040 orders, each comes as often.
    assert len({tuple(one) for one in passes.tolist()}) > 4500


def test_sequential_goes_on_from_the_start_when_it_is_through():
    spec = a_stream(access="sequential", span_bytes=10 * 4096 + 100, volume_bytes=25 * 4096)
    assert blocks_of(spec, whole(spec)).tolist() == [*range(10), *range(10), *range(5)]


def test_a_sequential_stream_reaches_only_as_far_as_its_volume():
    assert extent_of(a_stream(access="sequential", volume_bytes=MIB)) == (5 * MIB, 6 * MIB)
    assert extent_of(a_stream(volume_bytes=MIB)) == (5 * MIB, 69 * MIB)


@pytest.mark.parametrize("percent", [0, 30, 100])
def test_halves_read_on_in_the_lower_and_write_on_in_the_upper(percent):
    spec = a_stream(access="halves", read_percent=percent, span_bytes=1001 * 4096, volume_bytes=70_000 * 4096)
    plan = whole(spec)
    block, reads = blocks_of(spec, plan), plan["op"] == OPS["read"]
    assert block[reads].tolist() == (np.arange(reads.sum()) % 500).tolist()
    assert block[~reads].tolist() == (500 + np.arange((~reads).sum()) % 501).tolist()


def test_a_burst_is_due_at_once_and_the_next_a_period_later():
    """The method's mixed burst: 40 MiB every 2 s in 16 KiB; a volume is 2,560 writes a burst."""
    spec = a_stream(block_bytes=16384, bursts=Bursts(40 * MIB, 2 * S))
    plan = whole(spec, stop_ns=7 * S)
    assert np.bincount(plan["burst"]).tolist() == [2560] * 4
    assert (plan["due_ns"] == plan["burst"].astype("i8") * 2 * S).all()


def test_a_burst_is_rounded_up_to_whole_blocks():
    plan = whole(a_stream(bursts=Bursts(4097, S, first_ns=30 * S, count=3)))
    assert plan["due_ns"].tolist() == [30 * S, 30 * S, 31 * S, 31 * S, 32 * S, 32 * S]
    assert plan["burst"].tolist() == [0, 0, 1, 1, 2, 2]


def test_what_is_due_at_the_end_is_left_out():
    assert whole(a_stream(bursts=Bursts(4096, S)), stop_ns=3 * S)["burst"].tolist() == [0, 1, 2]
    assert whole(a_stream(bursts=Bursts(4096, S)), stop_ns=3 * S + 1)["burst"].tolist() == [0, 1, 2, 3]
    assert not len(whole(a_stream(bursts=Bursts(4096, S, first_ns=S)), stop_ns=S)["op"])
    assert row_count(a_stream(rate_iops=1000), 2 * S) == 2000


@pytest.mark.parametrize("rate", [1000, 0.5, 333.333, 1e6])
def test_a_rate_spaces_evenly_and_never_drifts(rate):
    plan = whole(a_stream(rate_iops=rate, first_ns=7), most=3)
    expected = 7 + np.arange(3 * BATCH_ROWS) * (1e9 / rate)
    assert np.abs(plan["due_ns"] - expected).max() <= 1 + expected.max() * 1e-9


def test_times_and_places_of_a_long_run_do_not_overflow():
    """A year at 1,000 I/Os a second over 30 TB, looked at where it ends."""
    rows = 365 * 86400 * 1000
    spec = a_stream(rate_iops=1000, span_bytes=30 * 10**12, start_bytes=0, access="sequential", block_bytes=MIB)
    plan = whole(spec, first_batch=rows // BATCH_ROWS, most=1)
    row = rows // BATCH_ROWS * BATCH_ROWS
    assert plan["due_ns"][0] == row * 10**6
    assert plan["offset_bytes"][0] == row % (30 * 10**12 // MIB) * MIB


def test_what_is_due_in_centuries_is_left_out():
    """So far apart that a few thousand of them pass what 64 bits hold."""
    plan = whole(a_stream(every_ns=10**15), most=2)
    assert (np.diff(plan["due_ns"]) == 10**15).all()
    assert 4000 < len(plan["due_ns"]) < 5000


def test_extents_lie_behind_one_another_and_come_once():
    spec = a_stream(access="extents", op="discard", lengths_bytes=(MIB, 4 * MIB, MIB), every_ns=2 * S, first_ns=S)
    plan = whole(spec)
    assert plan["offset_bytes"].tolist() == [5 * MIB, 6 * MIB, 10 * MIB]
    assert plan["length_bytes"].tolist() == [MIB, 4 * MIB, MIB]
    assert plan["due_ns"].tolist() == [S, 3 * S, 5 * S]
    assert set(plan["op"]) == {OPS["discard"]}
    assert extent_of(spec) == (5 * MIB, 11 * MIB)
    assert bound_bytes(spec) == (0, 6 * MIB)
    assert bound_bytes(spec, 4 * S) == (0, 5 * MIB)


SIZES = {"access": "random-sizes", "block_bytes": 512, "lengths_bytes": (4096, MIB)}


@cases(10)
@given(st.integers(1, 8), st.integers(0, 40), st.integers(0, 40), st.sampled_from([512, 4096]), st.integers(0, 2**63))
def test_random_sizes_lie_inside_and_are_whole_blocks(smallest, more, room, block, seed):
    largest = smallest + more
    spec = a_stream(access="random-sizes", block_bytes=block, lengths_bytes=(smallest * block, largest * block),
                    span_bytes=(largest + room) * block, seed=seed)
    plan = whole(spec, most=2)
    offset, length = plan["offset_bytes"] - spec.start_bytes, plan["length_bytes"]
    assert (offset >= 0).all() and (offset + length <= spec.span_bytes).all()
    assert (offset % block == 0).all() and (length % block == 0).all()
    # 120,000 of them, at most 41 sizes and 81 offsets: none is left out.
    assert set(length // block) == set(range(smallest, largest + 1))
    assert offset.min() == 0 and (offset + length).max() == spec.span_bytes
    later = whole(spec, first_batch=1, most=1)
    assert all(np.array_equal(later[name], plan[name][BATCH_ROWS:]) for name in later)


def test_random_sizes_are_evenly_distributed_and_mostly_unaligned():
    """8 to 2048 times 512 bytes: a mean of 514 KiB, and one offset in eight at a multiple of 4 KiB."""
    plan = whole(a_stream(**SIZES), most=1)
    assert plan["length_bytes"].mean() == pytest.approx(1028 * 512, rel=0.01)
    parts = np.histogram(plan["length_bytes"] // 512, bins=4, range=(8, 2049))[0]
    assert parts.min() > 0.95 * parts.mean()
    assert (plan["offset_bytes"] % 4096 == 0).mean() == pytest.approx(1 / 8, rel=0.05)
    assert extent_of(a_stream(**SIZES)) == (5 * MIB, 69 * MIB)
    # As many as are due at once, each of the largest size at most.
    assert bound_bytes(a_stream(**SIZES, every_ns=S), 3 * S) == (3 * MIB, 0)
    assert bound_bytes(a_stream(**SIZES)) is None


def test_bounds_by_hand():
    assert bound_bytes(a_stream(read_percent=100)) == (0, 0)
    assert bound_bytes(a_stream(op="read")) == (0, 0)
    assert bound_bytes(a_stream()) is None
    assert bound_bytes(a_stream(), 60 * S) is None
    assert bound_bytes(a_stream(volume_bytes=32 * 10**9)) == (32 * 10**9, 0)
    # 32 GB in 4K are 7,812,500 I/Os: 3,000 writes in each 10,000, and the last 2,500 may all be some.
    assert bound_bytes(a_stream(volume_bytes=32 * 10**9, read_percent=70)) == ((781 * 3000 + 2500) * 4096, 0)
    assert bound_bytes(a_stream(bursts=Bursts(40 * MIB, 2 * S), block_bytes=16384), 92 * S) == (46 * 40 * MIB, 0)


def test_a_volume_is_not_exceeded():
    assert row_count(a_stream(volume_bytes=32 * 10**9, block_bytes=131072)) == 244_140
    assert row_count(a_stream(volume_bytes=100)) == 1


def test_a_rule_without_end_takes_no_more_memory_than_a_batch():
    endless = batches(a_stream(bursts=Bursts(MIB, 2 * S), background=True))
    assert all(len(next(endless)["op"]) == BATCH_ROWS for _ in range(50))


@pytest.mark.parametrize(("changes", "wanted"), [
    ({"access": "spiral"}, "sequential, random"),
    ({"op": "trim"}, "discard"),
    ({"read_percent": 101}, "0 to 100"),
    ({"span_bytes": 4095}, "larger"),
    ({"access": "halves", "span_bytes": 4096}, "larger"),
    ({"block_bytes": 0}, "512"),
    ({"depth": 0}, "1 or more"),
    ({"rate_iops": 0.0}, "0.001"),
    ({"rate_iops": 1e10}, "0.001"),
    ({"bursts": Bursts(1 << 63, 5)}, "smaller"),
    ({"every_ns": 1 << 63}, "shorter"),
    ({"rate_iops": 10.0, "every_ns": 5}, "one of them"),
    ({"every_ns": 0}, "every"),
    ({"bursts": Bursts(0, 5)}, "give them"),
    ({"bursts": Bursts(5, 0)}, "give them"),
    ({"access": "extents"}, "sizes"),
    ({"access": "extents", "lengths_bytes": (4096, 100)}, "sizes"),
    ({"access": "extents", "lengths_bytes": (64 * MIB, 4096)}, "fewer"),
    ({"access": "random-sizes"}, "sizes"),
    ({"access": "random-sizes", "lengths_bytes": (4096, 5000)}, "whole blocks"),
    ({"access": "random-sizes", "lengths_bytes": (4096, 8192, 12288)}, "two sizes"),
    ({"access": "random-sizes", "lengths_bytes": (8192, 4096)}, "two sizes"),
    ({"access": "random-sizes", "lengths_bytes": (4096, 65 * MIB)}, "region larger"),
    ({"access": "random-sizes", "lengths_bytes": (4096, 8192), "volume_bytes": MIB}, "a time"),
    ({"access": "random-sizes", "lengths_bytes": (4096, 8192), "bursts": Bursts(MIB, S)}, "a time"),
])
def test_a_rule_that_cannot_be_followed(changes, wanted):
    with pytest.raises(UsageError) as error:
        next(batches(a_stream(**changes)))
    assert str(error.value).startswith("stream one:")
    assert wanted in error.value.remedy


def runs_z(above):
    """Runs test (Wald, Wolfowitz): by how many standard deviations the number of runs is off that of a random order."""
    n, m = int(above.sum()), int((~above).sum())
    runs = 1 + np.count_nonzero(above[1:] != above[:-1])
    mean = 1 + 2 * n * m / (n + m)
    return (runs - mean) / np.sqrt((mean - 1) * (mean - 2) / (n + m - 1))


def strongest_echo(values, most):
    """The largest autocorrelation at the distances 1 to most, in standard deviations of a random order's."""
    centered = values - values.mean()
    spectrum = np.abs(np.fft.rfft(centered, 2 * len(centered))) ** 2
    return np.abs(np.fft.irfft(spectrum)[1:most + 1] / (centered**2).sum()).max() * np.sqrt(len(values))
