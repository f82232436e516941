"""Putting a drive into a state, and remembering it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from . import drive_state
from .drive_state import DriveState
from .effect import carry_out
from .engine import run_engine
from .payload import Payload
from .rest import rest
from .safety import held
from .states import State
from .steady import ROUNDS, is_steady
from .target import Target
from .termination import terminated_like_interrupted


@dataclass
class Preparation:
    """Carries the steps of a state out. The target was found safe before run() is called."""

    target: Target
    state: State
    seed: int
    progress: object
    payload: Payload = Payload()
    engine: object = run_engine
    written_bytes: int = 0

    def __post_init__(self):
        self._used_seeds = 0

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
                    rest(self.target, step.rest_ns, what=step.what, progress=self.progress)
                elif step.erases and not self.target.can_discard:
                    notes.append("not erased: the drive has no discard")
                else:
                    notes += self._issue(step)
        prepared = DriveState(
            name=self.state.name, prepared_at=datetime.now(UTC).isoformat(timespec="seconds"), scale=self.state.scale,
            seed=self.seed, idle_ns=self.state.rest_ns, filled_bytes=self.state.filled_bytes, notes=notes,
            payload=self.payload.account() if self.state.filled_bytes else None)
        drive_state.save(self.target, prepared)
        return prepared

    def _issue(self, step) -> list[str]:
        """The step, or its rounds until they are steady. What there is to note about it."""
        rates: list[float] = []
        while len(rates) < step.rounds and not is_steady(rates):
            number = len(rates)
            what = step.what if step.rounds == 1 else f"{step.what}, round {number + 1}"
            # Another seed each time: the same data again could be found to be there already.
            effect = carry_out(self.target, step.plan(number), what=what, total_bytes=step.total_bytes,
                               depth=step.depth, seed=self.seed + self._used_seeds, payload=self.payload,
                               progress=self.progress, engine=self.engine)
            self._used_seeds += 1
            self.written_bytes += effect.written_bytes
            rates.append(effect.bytes_per_s)
            if effect.refused_discards:
                return ["not erased: the drive refused its discards"]
        if step.rounds == 1:
            return []
        last = ", ".join(format_bytes(rate) for rate in rates[-ROUNDS:])
        return [f"{'steady' if is_steady(rates) else 'not steady'} after {len(rates)} rounds (last ones: {last} per s)"]
