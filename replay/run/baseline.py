"""The baseline of a run: the same reads without the writes, on the same drive in the same state, run before it."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.safe_files import remove_directory
from blkreel.replay.engine.spans import ReadTimesAccount
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.plan.plan import Plan

from .directory import BASELINE, LAYOUT, RunDirectory

if TYPE_CHECKING:
    from .account import RunAccount
    from .run import Replay

WITHOUT = ("writes",)


class Slowdown(TypedDict):
    """Times of the reads beside the writes over their times in the baseline. load_time: only at dependent pace."""

    load_time: float | None
    read_wait: float | None


class BaselineAccount(TypedDict):
    """path: relative to the directory of the run. load_time_ns, read_wait_ns: as `reads` of the baseline's account."""

    path: str
    without: list[str]
    load_time_ns: int
    read_wait_ns: int
    verdict: str
    slowdown: Slowdown


def check_writes(plan: Plan, path: object) -> None:
    """Raises UsageError for a plan without writes. path: of the trace."""
    if not plan.changes_a_drive:
        raise UsageError(f"{path} holds no writes: a baseline without them is the same replay", "leave out --baseline")


def run_with_baseline(run: "Replay", plan: Plan, between: Callable[[], None] = lambda: None) -> "RunAccount":
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


def baseline_account(baseline: "RunAccount", reads: ReadTimesAccount | None,
                     is_dependent: bool) -> BaselineAccount | None:
    """The entry `baseline` of a run. reads: of the run. None if one of them completed no read."""
    before = baseline["reads"]
    if before is None or reads is None:
        return None
    slowdown: Slowdown = {"load_time": _ratio(reads["load_time_ns"], before["load_time_ns"]) if is_dependent else None,
                          "read_wait": _ratio(reads["wait_ns"], before["wait_ns"])}
    return {"path": BASELINE, "without": list(WITHOUT), "load_time_ns": before["load_time_ns"],
            "read_wait_ns": before["wait_ns"], "verdict": baseline["verdict"]["level"], "slowdown": slowdown}


def _ratio(with_writes_ns: int, without_ns: int) -> float | None:
    return with_writes_ns / without_ns if without_ns else None
