"""Idle time of the drive, and how much of it a replay keeps."""

from dataclasses import dataclass

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.units import format_ns, parse_time_ns

_CHOICES = "original (keep it), cap=25ms (shorten longer gaps), none (remove it)"


@dataclass(frozen=True)
class IdlePolicy:
    """cap_ns: gaps are shortened to this; None keeps them."""

    name: str
    cap_ns: int | None

    def __str__(self) -> str:
        return f"idle capped at {format_ns(self.cap_ns or 0)}" if self.name == "cap" else self.name


ORIGINAL = IdlePolicy("original", None)


def parse_idle(text: str) -> IdlePolicy:
    """`original`, `none` or `cap=TIME`. Raises UsageError."""
    if text == "original":
        return ORIGINAL
    if text == "none":
        return IdlePolicy("none", 0)
    if text.startswith("cap="):
        return IdlePolicy("cap", parse_time_ns(text.removeprefix("cap=")))
    raise UsageError(f"invalid --idle: {text!r}", f"use {_CHOICES}")


class IdleCompressor:
    """Moves I/Os earlier by the idle time before them that exceeds the cap.

    A gap is an interval with nothing in flight: the complement of the union of all [submit, submit + latency).
    It becomes min(gap, cap); order and distances within busy periods stay.
    An I/O without a captured completion counts as busy at its submission only: its latency is unknown, and a guess
    would delete or invent idle time.
    """

    def __init__(self, policy: IdlePolicy):
        self.removed_ns = 0
        self._cap_ns = policy.cap_ns
        self._busy_until_ns: int | None = None

    def move(self, submit_ns: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
        """New submission times of the next I/Os, which are in order of submission."""
        if self._cap_ns is None or not len(submit_ns):
            return submit_ns
        before = int(submit_ns[0]) if self._busy_until_ns is None else self._busy_until_ns
        complete_ns = submit_ns + np.maximum(latency_ns, 0)
        busy_until_ns = np.maximum.accumulate(np.concatenate([[before], complete_ns]))
        gap_ns = np.maximum(submit_ns - busy_until_ns[:-1], 0)
        removed_ns = self.removed_ns + np.cumsum(np.maximum(gap_ns - self._cap_ns, 0))
        self._busy_until_ns = int(busy_until_ns[-1])
        self.removed_ns = int(removed_ns[-1])
        return np.asarray(submit_ns - removed_ns)
