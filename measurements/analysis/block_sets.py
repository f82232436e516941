"""Block sets beside roaring bitmaps (pyroaring.BitMap64): time per I/O, memory, and time per packed offset.

    .venv/bin/pip install pyroaring && .venv/bin/python -m measurements.analysis.block_sets

Each input passes through FirstTouch once, and through the same steps with BitMap64 of 512-byte sectors. Both must find
the same bytes touched and read first. Roaring bitmaps are measured after run_optimize().
"""

import time

import numpy as np
from pyroaring import BitMap64

from blkreel.traces.blocksets.block_set import FirstTouch, PackedSet
from blkreel.traces.format.reader import open_trace
from blkreel.traces.samples import SAMPLES, sample_path

SECTOR_BYTES = 512
ROWS = 1_000_000
PACKED_OFFSETS, RANKED_OFFSETS = 100_000, 20


def inputs():
    """(name, first bytes, end bytes, whether each I/O is a read)."""
    for name in SAMPLES:
        table = open_trace(sample_path(name)).table(["offset_bytes", "length_bytes", "op"])
        start, length, op = (table[key].to_numpy()
                             for key in table.column_names)
        yield name, start, start + length, op == 0
    random = np.random.default_rng(1)
    for name, block_bytes, start in (
            ("random 4 KiB in 1 TiB", 4096, random.integers(0, 1 << 28, ROWS) * 4096),
            ("random 512 B in 1 TiB", 512, random.integers(0, 1 << 31, ROWS) * 512),
            ("sequential 128 KiB", 1 << 17, np.arange(ROWS) << 17)):
        yield name, start, start + block_bytes, random.random(ROWS) < 0.7


def timed(function):
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


def first_touch(start, end, is_read):
    blocks = FirstTouch()
    blocks.add(start, end, is_read)
    return blocks


def roaring_first_touch(start, end, is_read):
    touched, read_first = BitMap64(), BitMap64()
    for low, high, read in zip((start // SECTOR_BYTES).tolist(), (-(-end // SECTOR_BYTES)).tolist(), is_read.tolist(),
                               strict=True):
        if read and not touched.intersect(covered := BitMap64(range(low, high))):
            read_first.add_range(low, high)
        elif read:
            read_first.update(covered - touched)
        touched.add_range(low, high)
    return touched, read_first


def main():
    print(f"{'':24}{'first touch, ns per I/O':>26}{'memory, KiB':>22}{'rank, ns per offset':>24}")
    print(f"{'':24}" + f"{'blkreel':>14}{'roaring':>12}{'blkreel':>10}{'roaring':>12}{'blkreel':>12}{'roaring':>12}")
    for name, start, end, is_read in inputs():
        seconds, blocks = timed(lambda a=start, b=end, c=is_read: first_touch(a, b, c))
        peer_seconds, (touched, read_first) = timed(lambda a=start, b=end, c=is_read: roaring_first_touch(a, b, c))
        assert (blocks.touched.bytes, blocks.read_first.bytes) == (
            len(touched) * SECTOR_BYTES, len(read_first) * SECTOR_BYTES), name
        touched.run_optimize()
        read_first.run_optimize()
        peer_bytes = len(touched.serialize()) + len(read_first.serialize())
        packed, offsets = PackedSet(blocks.touched.grown(4096)), start[:PACKED_OFFSETS]
        rank_seconds, _ = timed(lambda packed=packed, offsets=offsets: packed.move(offsets))
        few = (offsets[:RANKED_OFFSETS] // SECTOR_BYTES).tolist()
        peer_rank_seconds, _ = timed(lambda few=few, touched=touched: [touched.rank(sector) for sector in few])
        print(f"{name:24}{1e9 * seconds / len(start):14.0f}{1e9 * peer_seconds / len(start):12.0f}"
              f"{blocks.memory_bytes / 1024:10.0f}{peer_bytes / 1024:12.0f}"
              f"{1e9 * rank_seconds / len(offsets):12.0f}{1e9 * peer_rank_seconds / len(few):12.0f}", flush=True)


if __name__ == "__main__":
    main()
