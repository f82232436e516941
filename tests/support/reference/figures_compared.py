"""Comparison of two measurements of one trace."""


def same_figures(first, second):
    """Asserts that all fields of two Measured are equal except the location."""
    assert first.rows == second.rows
    assert first.metadata == second.metadata
    assert first.partial == second.partial
