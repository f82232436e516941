"""Log-linear bins, against plain integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.binning import LogLinearBins

BITS = (4, 5, 7, 8, 10)  # of the live view, gaps, interference, distributions, lateness


def bin_of(value, bits):
    """The definition, in unbounded integers."""
    octave = max(value.bit_length() - 1 - bits, 0)
    return octave * 2**bits + value // 2**octave


@given(st.lists(st.integers(0, 2**62 - 1), min_size=1), st.sampled_from(BITS))
def test_bins_follow_the_definition(values, bits):
    assert LogLinearBins(bits).of(np.array(values)).tolist() == [bin_of(value, bits) for value in values]


@given(st.integers(0, 2**62 - 1), st.sampled_from(BITS))
def test_a_bin_holds_its_values_and_is_narrow(value, bits):
    bins = LogLinearBins(bits)
    number = bins.of(np.array([value]))
    start, middle, after = bins.starts(number)[0], bins.middles(number)[0], bins.starts(number + 1)[0]
    assert start <= value < after and start <= middle < after
    assert after - start <= max(1, start >> bits)


@pytest.mark.parametrize("bits", BITS)
def test_powers_of_two_and_their_neighbors(bits):
    """Floats cannot tell numbers near 2^53 and above from the power of two."""
    values = [2**power + step for power in range(1, 62) for step in (-1, 0, 1)]
    found = LogLinearBins(bits).of(np.array(values))
    assert found.tolist() == [bin_of(value, bits) for value in values]
    assert (np.diff(found[np.argsort(values)]) >= 0).all()
