"""Chains of I/Os, each of which continues an earlier one."""

import numpy as np


def resolved(base: np.ndarray, parent: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The offset of each I/O, its own base or that of its parent plus a step, and the first I/O it follows from.

    Each pass halves the chains.
    """
    parent, offset, root = parent.copy(), base + step, np.arange(len(base))
    while (linked := np.flatnonzero(parent >= 0)).size:
        up = parent[linked]
        offset[linked] += offset[up]
        root[linked] = root[up]
        parent[linked] = parent[up]
    return offset, root
