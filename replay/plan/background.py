"""Whether the reads of a trace run beside background writes, which a baseline without the writes can set apart."""

from collections.abc import Collection

import numpy as np

from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.format.trace import Trace

from . import survey_cache

# Fewer written bytes, compared with the bytes read, change nothing that a run could show.
LEAST_SHARE = 0.01


def has_background_writes(trace: Trace, devices: Collection[int]) -> bool:
    """Whether at least LEAST_SHARE as many bytes are written in the background as are read.

    In the background are the writes of other programs; all writes, if the trace marks no workload I/O.
    """
    key = f"background:{','.join(map(str, sorted(devices)))}"
    entry = survey_cache.load(trace, key)
    sums = entry.facts.get("bytes") if entry else None
    if not isinstance(sums, list) or len(sums) != 4 or not all(type(each) is int for each in sums):
        sums = _sums(trace, devices)
        survey_cache.store(trace, key, {"bytes": sums}, {})
    workload_read, other_read, workload_written, other_written = sums
    is_marked = bool(workload_read or workload_written)
    written = other_written if is_marked else other_written + workload_written
    read = workload_read if is_marked else workload_read + other_read
    return bool(read) and written >= LEAST_SHARE * read


def _sums(trace: Trace, devices: Collection[int]) -> list[int]:
    """Bytes read by the workload and by others, then bytes written by them."""
    sums = np.zeros(4, np.int64)
    for batch in trace.batches(["device", "op", "flags", "length_bytes"]):
        op, is_other = batch["op"].to_numpy(), (batch["flags"].to_numpy() & FLAGS["own"]) == 0
        moves = np.isin(op, [OPS["read"], OPS["write"]]) & np.isin(batch["device"].to_numpy(), list(devices))
        kind = 2 * (op == OPS["write"]) + is_other
        sums += np.bincount(kind[moves], batch["length_bytes"].to_numpy()[moves], 4).astype(np.int64)
    return sums.tolist()
