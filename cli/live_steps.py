"""The live view of what has several parts: the states, rests and measuring steps of a test, a preparation."""

import time

from blkreel.cli.live_task import clock_words, live_progress
from blkreel.replay.rule_stream import longest_ns

_MEASURING = {"replaying": "measuring"}


class LiveSteps:
    """In place of progress.progress, for one drive: each part of a step is drawn with the step that it belongs to.

    live: False where no view is wanted.
    """

    def __init__(self, drive: str, live: bool | None):
        self._drive, self._live = drive, live
        self._number, self._steps = 0, []
        self._began = 0.0

    def begin(self, number: int, steps: list) -> None:
        """Which step is carried out from now on, from 1, of which."""
        self._number, self._steps, self._began = number, steps, time.monotonic()

    def __call__(self, step: str, total: float | None = None):
        """As progress.progress."""
        if self._number and self._steps[self._number - 1].do == "measure":
            step = _MEASURING.get(step, step) if self._live is not False else step
        return live_progress(step, total, [self._drive], live=self._live, heading=self._words if self._number else None)

    def _words(self) -> str:
        """`step 3 of 24: 100 % reads, at most 0:21:40 left`."""
        words = f"step {self._number} of {len(self._steps)}: {self._steps[self._number - 1].title}"
        return f"{words}, {left}" if (left := self._left()) else words

    def _left(self):
        """All that has a time, from here on: of this step, what it has not used up."""
        with_this, unknown = longest_ns(self._steps[self._number - 1:])
        behind_it, _ = longest_ns(self._steps[self._number:])
        left_ns = max(behind_it, with_this - int((time.monotonic() - self._began) * 1e9))
        if not left_ns:
            return ""
        besides = f", besides {unknown} without a time" if unknown else ""
        return f"at most {clock_words(left_ns / 1e9)} left in all{besides}"


def shown_name(target) -> str:
    """What the view calls a drive; of a simulated one its parameters would fill the line."""
    return "simulated drive" if target.is_simulated else "nil" if target.is_nil else target.drive.path
