"""Speed of `blkreel export` by format, in I/Os per second of CPU time, beside pyarrow's CSV writer in the same run.

    .venv/bin/python -m measurements.analysis.export_formats [--rows 1000000] [FORMAT...]

pyarrow writes the required columns of the same trace as numbers, from the same batches. The last column is the peak of
the process's memory so far, in MB. CPU time, so that other work on the machine does not count.
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from blkreel.traces.exporters import FORMATS, export_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.writer import TraceWriter

BATCH_ROWS = 100_000


def write_trace(path: Path, rows: int) -> None:
    """I/Os of four CPUs and eight threads, eight in flight on average, each waiting for an earlier one."""
    generator = np.random.default_rng(1)
    with TraceWriter(path) as out:
        for first in range(0, rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows - first)
            row = np.arange(first, first + count)
            out.write({"submit_ns": row * 10_000 + generator.integers(0, 9_000, count),
                       "op": generator.integers(0, 2, count), "cpu": generator.integers(0, 4, count),
                       "offset_bytes": generator.integers(0, 1 << 20, count) * 4096,
                       "length_bytes": generator.integers(1, 32, count) * 4096, "tid": generator.integers(1, 9, count),
                       "latency_ns": generator.integers(1_000, 160_000, count), "waited_on": np.maximum(row - 20, -1),
                       "queue_ns": generator.integers(0, 5_000, count), "think_ns": np.where(row < 20, 0, 100)})
        out.close({"devices": [{"name": "sda", "major": 8, "minor": 0}], "epoch_ns": 10**9,
                   "threads": {str(tid): {"comm": f"thread{tid}", "pid": tid} for tid in range(1, 9)}})


def write_csv(trace: Trace, path: Path) -> None:
    with pyarrow.csv.CSVWriter(path, TRACE_SCHEMA) as writer:
        for batch in trace.batches(TRACE_SCHEMA.names):
            writer.write_batch(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", help="names of formats, default: all")
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as directory:
        write_trace(Path(directory) / "t.parquet", arguments.rows)
        trace = open_trace(Path(directory) / "t.parquet")
        started = time.process_time()
        write_csv(trace, Path(directory) / "peer.csv")
        peer = arguments.rows / (time.process_time() - started)
        print(f"{'format':<16} {'I/Os per s':>12} {'ratio':>6} {'MB':>6}\n{'pyarrow CSV':<16} {peer:>12,.0f} {1:>6.2f}")
        for name in arguments.formats or FORMATS:
            started = time.process_time()
            export_trace(trace, Path(directory) / "out", FORMATS[name], force=True)
            rate = arguments.rows / (time.process_time() - started)
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            print(f"{name:<16} {rate:>12,.0f} {rate / peer:>6.2f} {peak_mb:>6,.0f}", flush=True)


if __name__ == "__main__":
    main()
