"""Intervals of time or of bytes, as two arrays of their begins and ends."""

import numpy as np


def union(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(begins, ends) of the union of intervals [begin, end) in any order: ascending, with a gap between any two."""
    not_empty = end > begin
    begin, end = begin[not_empty], end[not_empty]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    has_gap = begin[1:] > end[:-1]
    edge = np.ones(min(len(begin), 1), bool)
    return begin[np.append(edge, has_gap)], end[np.append(has_gap, edge)]
