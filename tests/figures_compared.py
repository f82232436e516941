"""Whether two measurements of one trace have the same figures, to the digit."""

import numpy as np


def same_figures(mine, theirs):
    """Asserts it, of all that a Measured holds but where it was found."""
    assert mine.rows == theirs.rows
    assert mine.partial == theirs.partial
    for name in ("timeline", "heat"):
        _same(getattr(mine, name), getattr(theirs, name), name)
    assert mine.threads.sums == theirs.threads.sums


def _same(mine, theirs, name):
    for key, value in vars(theirs).items():
        assert np.array_equal(getattr(mine, key), value), f"{name}.{key}"
