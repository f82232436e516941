"""Batches of a plan: columns of I/Os with their defaults."""

from typing import Any

import numpy as np

from blkreel.replay.engine.engine import (
    CAPTURED_COLUMNS,
    DEPENDENCY_COLUMNS,
    IN_FLIGHT_COLUMNS,
    OMITTED,
    PLAN_COLUMNS,
    TARGET_COLUMNS,
    Batch,
)

_COLUMNS = PLAN_COLUMNS + TARGET_COLUMNS + DEPENDENCY_COLUMNS + CAPTURED_COLUMNS + IN_FLIGHT_COLUMNS
_DEFAULTS = {"due_ns": -1, "flags": 0, "stream": 0, "burst": -1, "source_row": -1}


def plan_batch(offset_bytes: np.ndarray, length_bytes: np.ndarray | int, op: np.ndarray | int, **columns: Any) -> Batch:
    """One batch of the plan. columns: further columns of the plan; a single value applies to all rows.

    Missing columns of PLAN_COLUMNS get their defaults: due at once, no burst, no row of a trace.
    """
    values = {**_DEFAULTS, "offset_bytes": offset_bytes, "length_bytes": length_bytes, "op": op, **columns}
    return {name: np.ascontiguousarray(np.broadcast_to(np.asarray(values[name], code), len(offset_bytes)))
            for name, code in _COLUMNS if name in values}


def issued_rows(columns: Batch) -> Batch:
    """The rows of a plan that are issued: all but those with the flag OMITTED."""
    if "flags" not in columns:
        return columns
    mask = columns["flags"] & OMITTED == 0
    return columns if mask.all() else {name: column[mask] for name, column in columns.items()}
