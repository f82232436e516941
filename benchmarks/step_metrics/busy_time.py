"""Time with at least one read or write in flight, in one pass and constant memory."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from blkreel.benchmarks.step_metrics import Array
from blkreel.traces.format.schema import OPS


@dataclass
class BusyTime:
    """Takes batches with submit_ns, latency_ns and op, in the order of submit_ns. busy_ns: measure of the union of
    [submit, complete) over completed reads and writes. end_ns: last completion."""

    busy_ns: int = 0
    end_ns: int = 0

    def feed(self, columns: Mapping[str, Array]) -> None:
        data = (columns["latency_ns"] >= 0) & np.isin(columns["op"], (OPS["read"], OPS["write"]))
        submit_ns = columns["submit_ns"][data]
        if not len(submit_ns):
            return
        end_ns = np.maximum.accumulate(np.concatenate(([self.end_ns], submit_ns + columns["latency_ns"][data])))
        self.busy_ns += int((end_ns[1:] - np.maximum(end_ns[:-1], submit_ns)).clip(min=0).sum())
        self.end_ns = int(end_ns[-1])
