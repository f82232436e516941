"""Putting a drive into a state, and remembering it."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_ns

from . import drive_state
from .drive_state import DriveState
from .effect import carry_out
from .engine import run_engine
from .safety import held
from .states import State
from .target import Target
from .termination import terminated_like_interrupted

_REST_TICK_S = 0.2


@dataclass
class Preparation:
    """Carries the steps of a state out. The target was found safe before run() is called."""

    target: Target
    state: State
    seed: int
    progress: object
    engine: object = run_engine

    def run(self) -> DriveState:
        """The new state, which is remembered for replays. Raises BlkreelError where an I/O fails.

        From the first write to the last the drive's state is unknown, and stays so after a failure.
        """
        notes: list[str] = []
        if self.state.name == "fresh" and not self.target.can_discard:
            raise BlkreelError(f"{self.target.path} has no discard, so it cannot be made fresh",
                               "erase it with its maker's tool, or choose --state full")
        drive_state.save(self.target, DriveState(notes=[f"preparing {self.state.name} did not end"]))
        with held(self.target), terminated_like_interrupted():
            for step in self.state.steps:
                if step.plan is None:
                    self._rest(step)
                elif step.erases and not self.target.can_discard:
                    notes.append("not erased: the drive has no discard")
                else:
                    effect = carry_out(self.target, step.plan(), what=step.what, total_bytes=step.total_bytes,
                                       depth=step.depth, seed=self.seed, progress=self.progress, engine=self.engine)
                    if effect.refused_discards:
                        notes.append(f"not erased: the drive refused {effect.refused_discards} discards")
        prepared = DriveState(
            name=self.state.name, prepared_at=datetime.now(UTC).isoformat(timespec="seconds"), scale=self.state.scale,
            seed=self.seed, idle_ns=self.state.rest_ns, filled_bytes=self.state.filled_bytes, notes=notes)
        drive_state.save(self.target, prepared)
        return prepared

    def _rest(self, step) -> None:
        """Time for the drive to tidy up. The clock, not a count of ticks: a suspended machine has rested too."""
        start = time.monotonic()
        with self.progress(step.what, max(step.rest_ns / 1e9, 1e-3)) as task:
            while (elapsed := time.monotonic() - start) < step.rest_ns / 1e9:
                task.update(elapsed, f"for {format_ns(step.rest_ns)}")
                time.sleep(min(_REST_TICK_S, max(0.0, step.rest_ns / 1e9 - elapsed)))
