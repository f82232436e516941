"""Alignment of writes to blocks of 4 to 64 KiB, on rows of which each share is known."""

import numpy as np
import pytest

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.partials.alignment import BLOCK_BYTES

KIB = 1024
# (offset, length) in KiB; the shares of writes that are not aligned, and that begin in the block of the one before.
GOLDEN = {
    "sequential 4 KiB": ([(4 * at, 4) for at in range(16)], [0, 16, 16, 16, 16], [0, 8, 12, 14, 15]),
    "sequential 64 KiB": ([(64 * at, 64) for at in range(16)], [0] * 5, [0] * 5),
    "512 bytes in one place": ([(0, 0.5)] * 10, [10] * 5, [9] * 5),
    "aligned, but 20 KiB long": ([(64 * at, 20) for at in range(10)], [0, 10, 10, 10, 10], [0] * 5),
    "long, from 8 KiB on": ([(8 + 64 * at, 64) for at in range(10)], [0, 0, 10, 10, 10], [0, 0, 9, 9, 9]),
    "two places in turn": ([(1024 * (at % 2), 4) for at in range(10)], [0, 10, 10, 10, 10], [0] * 5),
}


def columns_of(writes, device=0, op=1):
    count = len(writes)
    return {"submit_ns": np.arange(count) * 1000, "latency_ns": np.full(count, 500),
            "offset_bytes": np.array([int(offset * KIB) for offset, _ in writes], np.int64),
            "length_bytes": np.array([int(length * KIB) for _, length in writes], np.int64),
            "op": np.full(count, op), "tid": np.ones(count), "device": np.full(count, device)}


def shares(partial):
    tree = figures(partial)["write"]["alignment"]
    return [[tree[f"{kind}_{size // KIB}k"] for size in BLOCK_BYTES] for kind in ("unaligned", "repeated")]


def measured(columns, **options):
    metrics = MetricsAccumulator(**options)
    metrics.feed(columns)
    return metrics.finish()


@pytest.mark.parametrize("name", GOLDEN)
def test_shares_by_hand(name):
    writes, unaligned, repeated = GOLDEN[name]
    expected = [[count / len(writes) for count in counts] for counts in (unaligned, repeated)]
    partial = measured(columns_of(writes))
    assert shares(partial) == expected
    # Repetitions are pooled.
    assert shares(partial + partial) == expected


def test_each_drive_has_its_own_previous_write():
    one, other = columns_of([(0, 4), (4, 4)]), columns_of([(8, 4), (12, 4)], device=1)
    mixed = {name: np.stack([one[name], other[name]], axis=1).ravel() for name in one}
    mixed["submit_ns"] = np.arange(4) * 1000
    assert shares(measured(mixed))[1] == [0, 0.5, 0.5, 0.5, 0.5]


def test_reads_have_no_share():
    assert shares(measured(columns_of([(1, 4)] * 3, op=0))) == [[None] * 5] * 2
