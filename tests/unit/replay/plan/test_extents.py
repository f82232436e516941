"""Ranges of bytes in arrays, held against the same done byte by byte."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.extents import Extents

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=40)


def of(ranges):
    start = np.array([r[0] for r in ranges], np.int64)
    return Extents.of(start, start + np.array([r[1] for r in ranges], np.int64))


@given(RANGES)
def test_extents_hold_what_the_ranges_cover(ranges):
    extents = of(ranges)
    wanted = {byte for start, length in ranges for byte in range(start, start + length)}
    assert {byte for start, end in zip(extents.start, extents.end, strict=True)
            for byte in range(start, end)} == wanted
    assert extents.bytes == len(wanted)


@given(RANGES)
def test_extents_are_ascending_and_apart(ranges):
    extents = of(ranges)
    assert (extents.end > extents.start).all()
    assert (extents.start[1:] > extents.end[:-1]).all()
