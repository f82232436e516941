"""Whether two measurements of one trace have the same figures, to the digit."""


def same_figures(mine, theirs):
    """Asserts it, of all that a Measured holds but where it was found."""
    assert mine.rows == theirs.rows
    assert mine.metadata == theirs.metadata
    assert mine.partial == theirs.partial
