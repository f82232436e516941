"""Put a drive into its remembered state again, so that each repetition of a replay starts from the same one."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import field_mismatch
from blkreel.common.progress import Progress
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.state import NOT_ERASED_AS_ASKED, DriveState
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.zones import zones_of
from blkreel.replay.engine.engine import Engine, Payload, run_engine
from blkreel.replay.plan.plan import DrivePlan, Plan

from .precondition import Preparation
from .states import State, state_for


@dataclass(frozen=True)
class StateRecipe:
    """How a drive was put into a state. erase: one of erase.KINDS. trace: of the state `trace`, as in DriveState."""

    name: str
    seed: int
    rest_ns: int
    erase: str
    erases: bool
    permuted: bool
    spans: list[list[int]] | None
    payload: dict[str, int]
    trace: dict[str, Any] | None

    @classmethod
    def of(cls, target: Target, state: DriveState) -> "StateRecipe | None":
        """None if the state of the drive is unknown. Raises BlkreelError if it cannot be brought about again."""
        if state.name is None:
            return None
        if state.identity is None:
            raise BlkreelError(f"{target.path}: the state {state.name} was prepared by an earlier version, which did "
                               "not record how", f"blkreel precondition {target.path} --state {state.name}")
        erase = "none" if NOT_ERASED_AS_ASKED in state.notes else state.erased_by or "discard"
        try:
            payload = Payload(**(state.payload or {}))
            recipe = cls(state.name, state.seed, state.idle_ns, erase, state.identity["erases"],
                         state.identity["permuted"], state.identity["spans"], payload.account(), state.trace)
            wrong = field_mismatch(asdict(recipe), cls)
        except (KeyError, TypeError) as error:
            wrong = str(error)
        if wrong:
            raise BlkreelError(f"{target.path}: the record of its state {state.name} is damaged: {wrong}",
                               f"blkreel precondition {target.path} --state {state.name}")
        return recipe

    def state_on(self, target: Target, plan: Plan, drive: DrivePlan, seed: int) -> State:
        """The steps to the state. Raises BlkreelError for the state `trace` of another trace than that of the plan."""
        of_trace: dict[str, Any] = {}
        if self.trace is not None:
            if self.trace != plan.prepared_as(drive):
                raise BlkreelError(f"{target.path}: its state was prepared for another trace, or another map of it",
                                   f"blkreel precondition {target.path} --state trace --trace TRACE")
            of_trace = {"prefill": drive.prefill, "trace": self.trace}
        spans = [(start, end) for start, end in self.spans] if self.spans is not None else None
        return state_for(self.name, target.size_bytes, target.block_bytes, seed=seed, rest_ns=self.rest_ns,
                         spans=spans, permuted=self.permuted, erase=self.erases, zones=zones_of(target), **of_trace)


def restore(plan: Plan, drive: DrivePlan, recipe: StateRecipe, repetition: int, progress: Progress, *,
            notify: Callable[[str], None] = lambda text: None, engine: Engine = run_engine) -> DriveState | None:
    """Put a drive into the state again, unless nothing was written to it since.

    Returns the new state, or None if the drive still had it. The target must have passed the safety checks. After an
    interruption, the same call resumes. repetition: gives the data another seed each time, because a drive may detect
    data that it already holds.
    """
    target, current = drive.target, drive_state.load(drive.target)
    state = recipe.state_on(target, plan, drive, recipe.seed + repetition)
    if (current.is_as_prepared(state.identity, recipe.payload if state.filled.bytes else None)
            and current.was_erased_by(recipe.erase) and not drive_state.written_by_others(target, current)):
        return None
    preparation = Preparation(target, state, recipe.seed + repetition, progress, Payload(**recipe.payload), engine,
                              recipe.erase, by="blkreel replay --repeat", notify=notify)
    return preparation.run()


def recipes_of(plan: Plan) -> list[StateRecipe | None]:
    """Of each drive of the plan, in its order."""
    return [StateRecipe.of(drive.target, drive_state.load(drive.target)) for drive in plan.drives]

