"""A step of a benchmark: what its recipe says, and its progress as test.json holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Required, TypedDict, cast

if TYPE_CHECKING:
    from blkreel.benchmarks.recipe.values import Value
    from blkreel.replay.streams.spec import StreamSpec

WAITING, DONE, FAILED, SKIPPED = "waiting", "done", "failed", "skipped"
_PROGRESS = ("status", "started_at", "ended_at", "result", "error", "interrupted")
_STORED = ("id", "do", "title", "role", "labels", "directory", *_PROGRESS)
Span = tuple[int, int]  # start and end in bytes


class StepDocument(TypedDict, total=False):
    """A step in test.json. An interrupted or an older test may lack keys."""

    id: Required[str]
    do: Required[str]
    status: Required[str]
    title: str
    role: str | None
    labels: dict[str, str | int | float | bool]
    directory: str | None
    started_at: str | None
    ended_at: str | None
    result: dict[str, Any] | None
    error: str | None
    interrupted: int


@dataclass
class BenchmarkStep:
    """One step of a benchmark on a drive. `do` is state, rest, measure or replay.

    labels: the values of the loops around the step. directory: of the run of a measuring step, relative to the
    directory of the test.

    Of the recipe, not stored: time_ns: of a rest, its duration, or None for the duration of the measuring step before
    it; of a measuring step, its maximum duration. spans: what the state `data` writes, beside the blocks of the traces
    that `replays` replay. baseline: of a replay, `auto`: first without the writes, if the trace has background writes;
    or `none`. resume_from: where an interrupted step starts again, at the `step` or at its `state`. until_steady: the
    loop whose remaining turns are skipped once the rates are steady.

    Progress: result: of a measuring step, totals of its run; of a state step, the state of the drive; of a rest, its
    duration. interrupted: number of interrupted attempts.
    """

    id: str
    do: str
    title: str
    role: str = ""
    labels: dict[str, Value] = field(default_factory=dict)
    directory: str | None = None
    state: str = ""
    spans: tuple[Span, ...] = ()
    replays: tuple[BenchmarkStep, ...] = ()
    time_ns: int | None = None
    streams: tuple[StreamSpec, ...] = ()
    trace: str = ""
    idle: str = "original"
    pace: str = "original"
    map: str | None = None
    baseline: str = "none"
    resume_from: str = "step"
    until_steady: str = ""
    status: str = WAITING
    started_at: str | None = None
    ended_at: str | None = None
    result: dict[str, Any] | None = None
    error: str | None = None
    interrupted: int = 0

    @classmethod
    def stored(cls, document: StepDocument) -> BenchmarkStep:
        """A step of test.json, without what only its recipe has."""
        step = cls(document["id"], document["do"], document.get("title") or document["id"],
                   document.get("role") or "", cast(dict[str, Any], document.get("labels") or {}),
                   document.get("directory"))
        step.restore(document)
        return step

    @property
    def measures(self) -> bool:
        return self.do in ("measure", "replay")

    @property
    def is_measured(self) -> bool:
        """Whether the step has a finished run."""
        return self.status == DONE and self.directory is not None

    @property
    def repeat(self) -> int:
        return int(cast(int, self.labels.get("repeat", 1)))

    def document(self) -> StepDocument:
        return cast(StepDocument, {key: getattr(self, key) for key in _STORED})

    def restore(self, document: StepDocument) -> None:
        """Take over the progress of a stored step."""
        for key in _PROGRESS:
            setattr(self, key, document.get(key, 0 if key == "interrupted" else None))

    def reset(self) -> None:
        self.status, self.started_at, self.ended_at, self.result, self.error = WAITING, None, None, None, None
