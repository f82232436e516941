"""All figures of a trace or a part of it, as they go from worker to user and are kept."""

import pickle
from dataclasses import dataclass

from ..measure import VIEW_COLUMNS
from ..metrics import COLUMNS, RUN_COLUMNS, MetricsAccumulator, Partial
from ..threads import Threads
from ..timeline import Heat, Timeline

VERSION = 1
EXACT_ROWS = 4_000_000
CARRY_COLUMNS = ["submit_ns", "latency_ns", "op"]
Carry = object


@dataclass(frozen=True)
class Figures:
    partial: Partial
    timeline: Timeline
    heat: Heat
    threads: Threads

    def dump(self) -> bytes:
        return pickle.dumps(self)

    @classmethod
    def load(cls, content: bytes) -> "Figures":
        return pickle.loads(content)


def accumulate(trace, groups, carry, gap_ns, exact, on_rows) -> Figures:
    metrics, timeline, heat, threads = MetricsAccumulator(gap_ns), Timeline(), Heat(), Threads()
    columns = COLUMNS + VIEW_COLUMNS + [name for name in RUN_COLUMNS if name in trace.schema.names]
    done = 0
    for batch in trace.batches(columns, groups=groups):
        arrays = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns}
        for accumulator in (metrics, timeline, heat, threads):
            accumulator.feed(arrays)
        done += batch.num_rows
        on_rows(done)
    return Figures(metrics.finish(), timeline, heat, threads)


def join(earlier: Figures, later: Figures) -> Figures:
    raise NotImplementedError


def carry_after(batches):
    raise NotImplementedError
