"""Progress of work in several steps: the states, rests and measurements of a benchmark, or a preparation."""

import time
from contextlib import AbstractContextManager

from blkreel.benchmarks.recipe.run_stream import longest_ns
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.common.progress import ProgressTask
from blkreel.replay.drive.target import Target

from .live_task import format_clock, live_progress


class StepProgress:
    """Implements common.progress.Progress for one drive; draws the current step above the live view.

    live: False for the one-line bar.
    """

    def __init__(self, drive: str, live: bool | None):
        self._drive, self._live = drive, live
        self._number, self._steps = 0, list[BenchmarkStep]()
        self._began = 0.0

    def begin(self, number: int, steps: list[BenchmarkStep]) -> None:
        """Begin a step. number: counted from 1."""
        self._number, self._steps, self._began = number, steps, time.monotonic()

    def __call__(self, step: str, total: float | None = None) -> AbstractContextManager[ProgressTask]:
        if step == "replaying" and self._live is not False and self._number \
                and self._steps[self._number - 1].do == "measure":
            step = "measuring"
        return live_progress(step, total, [self._drive], live=self._live,
                             heading=self._heading if self._number else None)

    def _heading(self) -> str:
        """`step 3 of 24: 100 % reads, at most 0:21:40 left`."""
        words = f"step {self._number} of {len(self._steps)}: {self._steps[self._number - 1].title}"
        return f"{words}, {left}" if (left := self._left()) else words

    def _left(self) -> str:
        """Time limits of this step and the following ones, minus what this step has used."""
        from_this_ns, unknown = longest_ns(self._steps[self._number - 1:])
        after_this_ns, _ = longest_ns(self._steps[self._number:])
        left_ns = max(after_this_ns, from_this_ns - int((time.monotonic() - self._began) * 1e9))
        if not left_ns:
            return ""
        besides = f", plus {unknown} without a time limit" if unknown else ""
        return f"at most {format_clock(left_ns / 1e9)} left in all{besides}"


def display_name(target: Target) -> str:
    """The drive's name in the live view; the parameters of a simulated drive would fill the line."""
    return "simulated drive" if target.is_simulated else "nil" if target.is_nil else str(target.drive.path)
