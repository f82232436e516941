"""What a burst takes of memory: a harmless trace of a month with an I/O each second has 2.6 million."""

import numpy as np
import pytest

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.partials import distributions
from blkreel.analysis.metrics.partials.partial_file import dump, load
from blkreel.common import limits
from blkreel.common.errors import TraceError

MONTH_ROWS, MONTH_FILE_BYTES = 2_600_000, 27_000_000
COUNT = 5_000


def fed(file_bytes=0, files=1, **more):
    """An accumulator of lone reads, one each second, whose times and latencies differ."""
    random = np.random.default_rng(1)
    metrics = MetricsAccumulator(exact=True, file_bytes=file_bytes, files=files)
    zeros = dict.fromkeys(("queue_ns", "offset_bytes", "device", "status", "op", "tid"), np.zeros(COUNT, "i8"))
    columns = {**zeros, "submit_ns": np.arange(COUNT) * 10**9 + random.integers(0, 10**6, COUNT),
               "latency_ns": random.integers(50_000, 5_000_000, COUNT), "length_bytes": np.full(COUNT, 4096), **more}
    for begin in range(0, COUNT, 500):
        metrics.feed({name: values[begin:begin + 500] for name, values in columns.items()})
    return metrics


def test_bursts_of_a_run_keep_their_columns():
    """Idle time removed, labels, and starts that are equal or not in order."""
    idle_removed_ns = np.arange(COUNT) * 1000
    partial = fed(due_ns=np.arange(COUNT) * 10**9, idle_removed_ns=idle_removed_ns,
                  burst=np.where(np.arange(COUNT) % 2, -1, np.arange(COUNT) // 4)).finish()
    table = partial.read.planned
    assert (table.label >= 0).sum() == COUNT // 4 and (table.label < 0).sum() == COUNT // 2
    assert (table.uncut_start_ns - table.start_ns)[table.label < 0].tolist() == idle_removed_ns[1::2].tolist()
    assert np.array_equal(table.uncut_start_ns, table.opened_ns)
    assert load(dump(partial)) == partial


def test_a_month_with_an_io_each_second_is_reported(monkeypatch):
    """It was refused: 2.6 million bursts in 27 MB."""
    share = COUNT / MONTH_ROWS
    monkeypatch.setattr(distributions, "_COMPACT_ROWS", 1)  # as of more rows
    monkeypatch.setattr(limits, "_CONSTANT_BYTES", int(limits._CONSTANT_BYTES * share))
    monkeypatch.setattr(limits, "_LEAST_CONSTANT_BYTES", 0)
    file_bytes = int(MONTH_FILE_BYTES * share)
    assert len(fed(file_bytes).finish().read.bursts) == COUNT
    with pytest.raises(TraceError, match="the I/Os have too many bursts"):
        fed(file_bytes, files=8)
    with pytest.raises(TraceError, match="the I/Os have too many bursts"):
        fed(file_bytes // 2)
