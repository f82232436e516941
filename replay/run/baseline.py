"""The baseline of a run: the same reads without the writes, or without the background, on the same drive in the same
state."""

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.safe_files import remove_directory
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.plan import survey_cache
from blkreel.replay.plan.plan import Plan
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.overrides import amend
from blkreel.traces.format.reader import BASELINE, open_trace
from blkreel.traces.format.schema import FLAGS, OPS, WRITE_CODES
from blkreel.traces.format.trace import Trace

from .account import RunAccount, baseline_account
from .directory import LAYOUT, RunDirectory
from .run import Outcome, Replay

# Fewer written bytes, compared with the bytes read, change nothing that a run could show.
LEAST_SHARE = 0.01


def check_writes(plan: Plan, path: object) -> None:
    """Raises UsageError for a plan without writes. path: of the trace."""
    if not plan.changes_a_drive:
        raise UsageError(f"{path} holds no writes: a baseline without them is the same replay", "leave out --baseline")


def run_with_baseline(run: Replay, plan: Plan, between: Callable[[], None] = lambda: None, *,
                      baseline_last: bool = False) -> Outcome:
    """Replay the baseline's plan into the folder `baseline` of the run's directory, then the run itself.

    between: puts the drives back into the state that the first of them started from. baseline_last: the run comes
    first, and the baseline is added to its account. Raises Interrupted or BlkreelError if the baseline is not
    complete; then nothing of it remains.
    """
    directory = run.output
    if baseline_last:
        outcome = replace(run, last_use=False).issue()
        account = outcome.account
        if account["partial"]:
            return outcome
        directory.create()
        try:
            between()
            baseline = _run_baseline(run, plan, RunDirectory(directory.path / BASELINE, force=True), last_use=True)
            is_dependent = any(pace.dependent for pace in plan.paces)
            added = baseline_account(baseline, account["reads"], is_dependent,
                                     Run.of({"run": account}).load_time_ns if account["background"] else None,
                                     account["other_phases"] or ())
            amend(open_trace(directory.path), {"baseline": added}, "the baseline was replayed after the run")
        finally:
            directory.release()
        return outcome._replace(account={**account, "baseline": added})
    directory.create()
    inner = RunDirectory(directory.path / BASELINE, force=True)
    try:
        # The run needs the blocks that both read.
        baseline = _run_baseline(run, plan, inner, last_use=False)
        between()
    except BaseException:
        directory.abandon()
        raise
    return replace(run, baseline=baseline).issue()


def _run_baseline(run: Replay, plan: Plan, inner: RunDirectory, last_use: bool) -> RunAccount:
    inner.check()
    account, asked_to_stop = replace(run, plan=plan, output=inner, force=True, last_use=last_use).issue()
    if account["partial"] or asked_to_stop:
        remove_directory(inner.path, LAYOUT)
        if account["partial"] in (None, "interrupted"):
            raise Interrupted("interrupted during the baseline", "run the same command again")
        raise BlkreelError(f"the baseline ended early: {account['partial']}", "look at: dmesg | tail")
    return account


def has_background_writes(trace: Trace, devices: Collection[int]) -> bool:
    """Whether at least LEAST_SHARE as many bytes are written in the background as are read.

    In the background are the writes of other programs; all writes, if the trace marks no workload I/O.
    """
    key = f"background:{','.join(map(str, sorted(devices)))}"
    entry = survey_cache.load(trace, key)
    sums = entry.facts.get("bytes") if entry else None
    if not isinstance(sums, list) or len(sums) != 4 or not all(type(value) is int for value in sums):
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
        is_write, is_on_devices = np.isin(op, WRITE_CODES), np.isin(batch["device"].to_numpy(), list(devices))
        moves = (is_write | (op == OPS["read"])) & is_on_devices
        kind = 2 * is_write + is_other
        sums += np.bincount(kind[moves], batch["length_bytes"].to_numpy()[moves], 4).astype(np.int64)
    return sums.tolist()
