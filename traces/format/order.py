"""Whether the rows of a trace are in the order of their submission, on which replays and metrics rely."""

import numpy as np

from blkreel.common.errors import UsageError

from .integrity import KEY
from .reader import how_to_repair
from .trace import Trace
from .trace_survey import survey_in


def check_order(trace: Trace) -> None:
    """Raises UsageError if submit times step back. Reads the column submit_ns, unless blkreel wrote the file.

    The writer refuses such rows; its checksums, which open_trace() has compared, or its survey, which has the offsets
    of the row groups, show that the rows are those that it wrote.
    """
    if KEY in trace.metadata or survey_in(trace.metadata, trace.row_groups_at) is not None:
        return
    last_ns, row, first_row, steps = np.iinfo(np.int64).min, 0, None, 0
    for batch in trace.batches(["submit_ns"]):
        submit_ns = batch["submit_ns"].to_numpy()
        if not len(submit_ns):
            continue
        back = np.flatnonzero(submit_ns < np.concatenate([[last_ns], submit_ns[:-1]]))
        if len(back) and first_row is None:
            first_row = row + int(back[0])
        steps += len(back)
        last_ns, row = int(submit_ns[-1]), row + len(submit_ns)
    if first_row is not None:
        raise UsageError(f"{trace.name}: submit times step back {steps:,} times, first at row {first_row:,}",
                         how_to_repair(trace))
