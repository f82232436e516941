"""A plan on simulated drives and the virtual clock: no drive is used, and the result does not depend on the machine."""

from collections.abc import Callable
from dataclasses import replace

from blkreel.common.progress import Progress
from blkreel.replay.engine.engine import Batch, Engine, EngineOptions, run_engine
from blkreel.replay.plan.plan import Plan, PlannedCounts
from blkreel.replay.simulated.spec import SimulatedDrive


def simulate(plan: Plan, drive: SimulatedDrive, on_rows: Callable[[Batch], None], progress: Progress, title: str,
             engine: Engine = run_engine, counts: PlannedCounts | None = None) -> bool:
    """Run the plan with each of its targets replaced by a fresh drive of this description.

    on_rows: takes the engine's records in the order of completion. counts: as of Plan.lanes(). Returns False if nothing
    was issued, or the engine stopped before the end of the plan. Raises BlkreelError if the engine fails.
    """
    drive = replace(drive, clock="virtual", state="none")
    # One thread issues to simulated drives.
    lanes = [replace(lane, thread=0) for lane in plan.lanes(counts)]
    options = EngineOptions(nil_bytes=max(target.size_bytes for target in plan.targets),
                            nil_targets=len(plan.targets), simulated=(drive,) * len(plan.targets),
                            may_write=True)
    issued = 0
    with progress(title, plan.total_ios) as task:
        def take(rows: Batch) -> None:
            nonlocal issued
            on_rows(rows)
            issued += len(rows["op"])
            task.update(issued)

        totals = engine(options, lanes, take, lambda note: None)
    return bool(issued) and not totals.get("stopped")
