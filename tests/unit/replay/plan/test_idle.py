"""Idle time: what is taken out, what stays, and that the sum reported is the sum removed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import UsageError
from blkreel.replay.plan.pace import ALL_IDLE, IdleCompressor, IdlePolicy, parse_idle

MOMENTS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(-1, 5_000)), min_size=1, max_size=60)


def arrays(moments):
    moments = sorted(moments, key=lambda one: one[0])
    return np.array([m[0] for m in moments]), np.array([m[1] for m in moments])


def cap(cap_ns):
    return IdlePolicy("cap", cap_ns)


def gaps(submit_ns, latency_ns):
    """By definition: the holes in the union of the busy intervals, found one by one."""
    busy_until, found = submit_ns[0], []
    for start, latency in zip(submit_ns, latency_ns, strict=True):
        if start > busy_until:
            found.append(start - busy_until)
        busy_until = max(busy_until, start + max(latency, 0))
    return found


def test_the_hand_case_of_the_method():
    submit_ns, latency_ns = np.array([0, 5, 12, 30]) * 1000, np.array([10, 10, 8, 10]) * 1000
    compressor = IdleCompressor(parse_idle("cap=4us"))
    assert compressor.move(submit_ns, latency_ns).tolist() == [0, 5_000, 12_000, 24_000]
    assert compressor.removed_ns == 6_000


@given(MOMENTS, st.integers(0, 3_000))
def test_gaps_become_at_most_the_cap_and_nothing_else_changes(moments, cap_ns):
    submit_ns, latency_ns = arrays(moments)
    compressor = IdleCompressor(cap(cap_ns))
    moved_ns = compressor.move(submit_ns, latency_ns)
    assert gaps(moved_ns, latency_ns) == [min(g, cap_ns) for g in gaps(submit_ns, latency_ns) if min(g, cap_ns)]
    assert compressor.removed_ns == sum(max(0, g - cap_ns) for g in gaps(submit_ns, latency_ns))
    assert moved_ns[-1] == submit_ns[-1] - compressor.removed_ns
    assert moved_ns[0] == submit_ns[0]


@given(MOMENTS, st.integers(0, 3_000), st.integers(1, 10))
def test_batches_do_not_show(moments, cap_ns, size):
    submit_ns, latency_ns = arrays(moments)
    whole, parts = IdleCompressor(cap(cap_ns)), IdleCompressor(cap(cap_ns))
    pieces = [parts.move(submit_ns[i:i + size], latency_ns[i:i + size]) for i in range(0, len(submit_ns), size)]
    assert np.concatenate(pieces).tolist() == whole.move(submit_ns, latency_ns).tolist()
    assert parts.removed_ns == whole.removed_ns


@pytest.mark.parametrize("text", ["", "cap", "25ms", "cap=25", "cap=25 parsec", "cap=-3ms", "off"])
def test_words_that_are_no_policy(text):
    with pytest.raises(UsageError) as error:
        parse_idle(text)
    assert error.value.remedy


def test_the_words_of_the_command():
    assert parse_idle("original") == ALL_IDLE
    assert parse_idle("none").cap_ns == 0
    assert parse_idle("cap=25ms").cap_ns == 25_000_000
