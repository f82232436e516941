"""Ranges of bytes in arrays, held against the same done byte by byte."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.extents import Extents

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=40)


@given(RANGES)
def test_extents_hold_what_the_ranges_cover_ascending_and_apart(ranges):
    start = np.array([r[0] for r in ranges], np.int64)
    extents = Extents.of(start, start + np.array([r[1] for r in ranges], np.int64))
    wanted = {byte for start, length in ranges for byte in range(start, start + length)}
    assert {byte for start, end in zip(extents.start, extents.end, strict=True)
            for byte in range(start, end)} == wanted
    assert extents.bytes == len(wanted)
    assert (extents.end > extents.start).all()
    assert (extents.start[1:] > extents.end[:-1]).all()
