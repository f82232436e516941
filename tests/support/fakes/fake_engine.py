"""A replay in this process, and an engine that completes I/Os without a helper process or a drive."""

import numpy as np
from quiet import progress

from blkreel.replay.engine.engine import run_engine
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.run import Replay, ReplayOptions


class FakeEngine:
    """Completes the I/Os of each batch of the first lane in reverse order.

    calls: options and batches of each run. spoil(call, rows) changes a batch of results, or raises. stopped, error: how
    the run number `at` ends, which is that of the trace if there is a prefill.
    """

    def __init__(self, spoil=None, stopped=None, error=None, at=2):
        self.calls = []
        self._spoil, self._stopped, self._error, self._at = spoil, stopped, error, at

    def __call__(self, options, lanes, on_rows, on_note):
        seen = []
        self.calls.append((options, seen))
        for batch in lanes[0].batches:
            seen.append(batch)
            count = len(batch["op"])
            due_ns = batch["due_ns"]
            submit_ns = np.where(due_ns < 0, np.arange(count) * 1000, due_ns + 200)
            rows = {"tid": np.full(count, -1), **batch, "submit_ns": submit_ns, "complete_ns": submit_ns + 5000,
                    "cpu": np.zeros(count, np.int16), "status": np.zeros(count, np.int16),
                    "target": batch.get("target", np.zeros(count, np.int16)),
                    "host_delay_ns": np.maximum(submit_ns - due_ns, 0) * (due_ns >= 0),
                    "stall_ns": np.zeros(count, np.int64)}
            rows = {name: values[::-1].copy() for name, values in rows.items()}
            if self._spoil:
                rows = self._spoil(len(self.calls), rows) or rows
            on_rows(rows)
        is_last = len(self.calls) == self._at
        if is_last and self._error:
            raise self._error
        return {"stopped": self._stopped if is_last else None, "start_monotonic_ns": 1000, "start_realtime_ns": 2000,
                "underruns": 0, "record_stalls": 0, "altered": {}, "dropped": {}}


def replay(plan, path, engine=run_engine, *, force=False, last_use=False, **options):
    """The account of a run of the plan in the directory `path`."""
    output = RunDirectory(path, force)
    output.check()
    return Replay(plan, output, ReplayOptions("label", 1, engine=engine, **options), progress, force, last_use).run()
