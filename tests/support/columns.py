"""Rows in columns: batches of plans and of records."""

from itertools import cycle

import numpy as np


def joined(batches):
    """The batches as one; without columns if there are none."""
    batches = list(batches)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} if batches else {}


def in_plan_order(records):
    order = np.argsort(records["source_row"], kind="stable")
    return {name: column[order] for name, column in records.items()}


def in_batches(rows, sizes=(None,)):
    """The numbers of rows in batches of these sizes in turn; None: all that are left."""
    rows, turn = np.asarray(rows), cycle(sizes)
    while len(rows):
        size = next(turn) or len(rows)
        yield rows[:size]
        rows = rows[size:]
