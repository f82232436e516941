"""What sets of blocks refuse and keep. The sets themselves: tests/native/block_set.c, sector by sector."""

import numpy as np
import pytest

from blkreel.common.errors import BlkreelError
from blkreel.traces.blocksets.block_set import BlockSet, PackedSet

SECTOR = 512


def test_parts_of_a_sector_count_as_all_of_it():
    assert BlockSet.of(np.array([511]), np.array([513])).bytes == 2 * SECTOR


@pytest.mark.parametrize(("start", "end"), [(-1, 512), (0, (1 << 62) + 1), (0, 1 << 61)])
def test_a_range_out_of_all_bounds_is_refused(start, end):
    with pytest.raises(BlkreelError, match="TiB|drive") as error:
        BlockSet.of(np.array([start]), np.array([end]))
    assert "blkreel check" in error.value.remedy


def test_packing_parts_of_blocks_is_refused():
    with pytest.raises(ValueError, match="whole blocks"):
        PackedSet(BlockSet.of(np.array([0]), np.array([512])))


def test_a_freed_set_keeps_only_its_size():
    blocks = BlockSet.of(np.array([0, 100]) * SECTOR, np.array([8, 103]) * SECTOR)
    blocks.forget()
    blocks.forget()
    assert (len(blocks), blocks.bytes, blocks.limit_bytes) == (2, 11 * SECTOR, 103 * SECTOR)
    with pytest.raises(RuntimeError, match="freed"):
        list(blocks.ranges())
