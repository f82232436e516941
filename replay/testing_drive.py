"""Whether a drive is still as a test left it: a state that others wrote over is none of the test's any more."""

from datetime import UTC, datetime

from blkreel.traces.units import format_bytes

from . import drive_state
from .target import Target


def left_as(target: Target) -> dict:
    """What is known of the drive as of now, as test.json keeps it."""
    state = drive_state.load(target)
    return {"at": datetime.now(UTC).isoformat(timespec="microseconds"), "name": state.name,
            "prepared_at": state.prepared_at, "written_bytes": state.written_since_bytes,
            "discarded_bytes": state.discarded_since_bytes}


def used_by_others(target: Target, then: dict | None, by: str | None, *, counted: bool = False) -> str | None:
    """What anybody else did to the drive since `then`, of left_as(); None where nothing is known of.

    by: the name under which a step of the test itself wrote to it since; None where none did. counted: whether to ask
    the kernel's count, too, which sees whoever leaves no record.
    """
    if then is None or then["name"] is None:
        return None
    state = drive_state.load(target)
    if (state.name, state.prepared_at) != (then["name"], then["prepared_at"]):
        return f"its state is now {drive_state.words(state, datetime.now(UTC))}"
    mine = [run for run in state.since if by is not None and run["by"] == by and run["at"] >= then["at"]]
    expected = [then[key] + sum(run[key] or 0 for run in mine) for key in ("written_bytes", "discarded_bytes")]
    if [state.written_since_bytes, state.discarded_since_bytes] != expected:
        others = [run["by"] for run in state.since if run not in mine]
        return f"the last to write to it was {others[-1]!r}" if others else "what is remembered of it was changed"
    others_bytes = drive_state.written_by_others(target, state) if counted else 0
    return f"others wrote {format_bytes(others_bytes)} to it" if others_bytes else None
