"""The baseline of a run: the same reads without the writes, on the same drive in the same state, run before it."""

from collections.abc import Callable
from dataclasses import replace

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.safe_files import remove_directory
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.plan.plan import Plan

from .account import RunAccount
from .directory import BASELINE, LAYOUT, RunDirectory
from .run import Replay


def check_writes(plan: Plan, path: object) -> None:
    """Raises UsageError for a plan without writes. path: of the trace."""
    if not plan.changes_a_drive:
        raise UsageError(f"{path} holds no writes: a baseline without them is the same replay", "leave out --baseline")


def run_with_baseline(run: Replay, plan: Plan, between: Callable[[], None] = lambda: None) -> RunAccount:
    """Replay the plan without the writes into the folder `baseline` of the run's directory, then the run itself.

    between: puts the drives back into the state that the baseline started from. Raises Interrupted or BlkreelError if
    the baseline is not complete; then nothing of it remains.
    """
    directory = run.output
    directory.create()
    inner = RunDirectory(directory.path / BASELINE, force=True)
    try:
        inner.check()
        baseline = replace(run, plan=plan, output=inner, force=True)
        account = baseline.run()
        if account["partial"] or baseline.asked_to_stop:
            remove_directory(inner.path, LAYOUT)
            if account["partial"] in (None, "interrupted"):
                raise Interrupted("interrupted during the baseline without writes", "run the same command again")
            raise BlkreelError(f"the baseline without writes ended early: {account['partial']}",
                               "look at: dmesg | tail")
        between()
    except BaseException:
        directory.abandon()
        raise
    run.baseline = account
    return run.run()
