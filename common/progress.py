"""What a long step reports while it runs. The command line shows it (cli/ui); everything else only calls it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


class ProgressTask:
    """Receives the progress of one step. This base class shows nothing."""

    def update(self, done: float, detail: str = "") -> None:
        """done: absolute, in the unit of the total. detail: rate, lateness, losses, as text."""

    def take_rows(self, rows: Mapping[str, np.ndarray]) -> None:
        """Completed rows of the replay engine, by column."""

    def take_note(self, note: Mapping[str, Any]) -> None:
        """A status message of the replay engine, about twice a second even if no I/O completes."""

    def take_telemetry(self, values: Mapping[str, float]) -> None:
        """The latest sensor values, by their names in the run's telemetry."""


class Progress(Protocol):
    """Starts a step, for example `with progress("filling", total_bytes) as task`."""

    def __call__(self, step: str, total: float | None = None) -> AbstractContextManager[ProgressTask]: ...


def unseen(step: str, total: float | None = None) -> AbstractContextManager[ProgressTask]:
    """A Progress that shows nothing."""
    return nullcontext(ProgressTask())
