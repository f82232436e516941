"""When a replay issues its I/Os, and how much of the drive's idle time it keeps."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blkreel.common.device import Drive
from blkreel.common.errors import UsageError, choice_remedy
from blkreel.common.units import format_ns, parse_time_ns
from blkreel.traces.format.condition import NO_COMPUTING, compute_words

MAX_DEPTH = 1024
_CHOICES = ("original (at the captured times), x2 or x0.5 (twice or half as fast), paced (at the captured times, with "
            "at most as many in flight as captured), dependent (after the I/Os that it waited for), asap (as fast as "
            "the drive allows), or depth=N (N in flight)")
_IDLE_CHOICES = "original (keep it), cap=25ms (shorten longer gaps), none (remove it)"
_NAMES = ("original", "paced", "dependent", "asap")
_FACTOR = r"(\d+(?:\.\d*)?|\.\d+)"
_FACTORS = (0.001, 1000)


@dataclass(frozen=True)
class Pace:
    """depth: maximum in flight; for a pace with times only a bound far above a drive's queue.

    factor: divisor of all times, for the pace `scaled`. compute: divisor of the computing time between I/Os, for the
    pace `dependent`; infinite without computing.
    """

    name: str
    depth: int = MAX_DEPTH
    factor: float = 1.0
    compute: float = 1.0

    @property
    def timed(self) -> bool:
        """Whether each I/O has a due time that does not depend on the drive."""
        return self.name in ("original", "scaled", "paced")

    @property
    def paced(self) -> bool:
        """Whether each I/O also waits until at most as many are in flight as when it was captured."""
        return self.name == "paced"

    @property
    def dependent(self) -> bool:
        """Whether I/Os wait for other I/Os."""
        return self.name == "dependent"

    @property
    def saturating(self) -> bool:
        """Whether the drive always has work, so that the issuing thread never sleeps."""
        return not (self.timed or self.dependent)

    def __str__(self) -> str:
        name = {"depth": f"depth {self.depth}", "scaled": f"x{self.factor:g}"}.get(self.name, self.name)
        return name + compute_words(self.account().get("compute"))

    def account(self) -> dict[str, Any]:
        compute = self.compute if math.isfinite(self.compute) else NO_COMPUTING
        return {"name": self.name, "depth": self.depth if self.saturating else None,
                "factor": self.factor if self.name == "scaled" else None,
                **({} if self.compute == 1 else {"compute": compute})}


ORIGINAL = Pace("original")
DEPENDENT = Pace("dependent")


class InFlightLimits:
    """How many I/Os of a lane were in flight when each was submitted. Takes rows in order of submission."""

    def __init__(self) -> None:
        self._complete_ns = np.empty(0, np.int64)  # of rows that may still be in flight

    def of(self, submit_ns: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
        """The numbers of the next rows, with the row itself. latency_ns: -1 for unknown, which counts as none."""
        complete_ns = np.concatenate([self._complete_ns, submit_ns + np.maximum(latency_ns, 0)])
        done = np.searchsorted(np.sort(complete_ns), submit_ns, "right")
        # A row that completed at its own submission is among the `done`.
        before = len(self._complete_ns) + np.arange(len(submit_ns))
        if len(submit_ns):
            self._complete_ns = complete_ns[complete_ns > submit_ns[-1]]
        return np.asarray(np.maximum(before - done, 0).astype(np.int32) + 1)


def parse_pace(text: str, drive: Drive) -> Pace:
    """`original`, `xN` or `Nx`, `dependent`, `asap` or `depth=N`. Raises UsageError.

    asap keeps the drive's queue full: more I/Os would only wait in front of it.
    """
    if text in ("original", "paced", "dependent"):
        return Pace(text)
    if text == "asap":
        return Pace("asap", min(drive.queue_depth or 128, MAX_DEPTH))
    if match := re.fullmatch(rf"x{_FACTOR}|{_FACTOR}x", text):
        return scaled(float(match[1] or match[2]))
    match = re.fullmatch(r"depth=([0-9]{1,9})", text)
    if not match:
        raise UsageError(f"invalid --pace: {text!r}", choice_remedy(text, _NAMES, _CHOICES))
    if not 1 <= int(match[1]) <= MAX_DEPTH:
        raise UsageError(f"--pace {text}: out of range", f"use depth=1 to depth={MAX_DEPTH}")
    return Pace("depth", int(match[1]))


def scaled(factor: float) -> Pace:
    """All times divided by the factor. Raises UsageError."""
    if not (math.isfinite(factor) and _FACTORS[0] <= factor <= _FACTORS[1]):
        raise UsageError(f"--pace x{factor:g}: out of range", f"use x{_FACTORS[0]:g} to x{_FACTORS[1]:g}")
    return ORIGINAL if factor == 1 else Pace("scaled", factor=factor)


def with_compute(pace: Pace, text: str) -> Pace:
    """The pace with computing times divided by `xN`, or without them (`none`). Raises UsageError at another pace than
    dependent."""
    match = re.fullmatch(rf"x{_FACTOR}|{_FACTOR}x", text)
    factor = float(match[1] or match[2]) if match else 0.0
    if text == NO_COMPUTING:
        factor = math.inf
    elif not _FACTORS[0] <= factor <= _FACTORS[1]:
        raise UsageError(f"invalid --compute: {text!r}",
                         f"use x{_FACTORS[0]:g} to x{_FACTORS[1]:g}, or {NO_COMPUTING}: --compute x4")
    if not pace.dependent:
        raise UsageError(f"--compute {text}: {pace} pace has no computing time, its I/Os have times of their own",
                         "add --pace dependent")
    return replace(pace, compute=factor)


def parse_paces(texts: Iterable[str], drive: Drive) -> tuple[Pace, dict[int, Pace]]:
    """The pace of a run and the paces of single streams, from words PACE or STREAM:PACE. Raises UsageError."""
    common: list[str] = []
    of_stream: dict[int, Pace] = {}
    for text in texts:
        match = re.fullmatch(r"([0-9]{1,9}):(.*)", text)
        if not match:
            common.append(text)
        elif int(match[1]) in of_stream:
            raise UsageError(f"--pace names stream {match[1]} twice", "give each stream one pace")
        else:
            of_stream[int(match[1])] = parse_pace(match[2], drive)
    if len(common) > 1:
        raise UsageError(f"--pace {' --pace '.join(common)}: a run has one pace",
                         "give the others for a stream: --pace 1:depth=4")
    return parse_pace(common[0], drive) if common else ORIGINAL, of_stream


# ---- idle time ----


@dataclass(frozen=True)
class IdlePolicy:
    """cap_ns: gaps are shortened to this; None keeps them."""

    name: str
    cap_ns: int | None

    def __str__(self) -> str:
        return f"idle capped at {format_ns(self.cap_ns or 0)}" if self.name == "cap" else self.name


ALL_IDLE = IdlePolicy("original", None)


def parse_idle(text: str) -> IdlePolicy:
    """`original`, `none` or `cap=TIME`. Raises UsageError."""
    if text == "original":
        return ALL_IDLE
    if text == "none":
        return IdlePolicy("none", 0)
    if text.startswith("cap="):
        return IdlePolicy("cap", parse_time_ns(text.removeprefix("cap=")))
    raise UsageError(f"invalid --idle: {text!r}", f"use {_IDLE_CHOICES}")


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
