"""When a replay issues its I/Os."""

import math
import re
from dataclasses import dataclass

from blkreel.traces.errors import UsageError

MAX_DEPTH = 1024
_CHOICES = ("original (at the captured times), x2 or x0.5 (twice or half as fast), dependent (when what it waited for "
            "is done), asap (as fast as the drive takes them), or depth=N (N outstanding)")
_FACTORS = (0.001, 1000)


@dataclass(frozen=True)
class Pace:
    """depth: how many may be outstanding; where I/Os have times only a bound, far above what a drive queues.

    factor: of the pace `scaled`, by which all times are divided.
    """

    name: str
    depth: int = MAX_DEPTH
    factor: float = 1.0

    @property
    def timed(self) -> bool:
        """Whether each I/O has a time of its own, whatever the drive does."""
        return self.name in ("original", "scaled")

    @property
    def dependent(self) -> bool:
        """Whether I/Os wait for others."""
        return self.name == "dependent"

    @property
    def saturating(self) -> bool:
        """Whether the drive is never left without work: the issuing thread does not rest then."""
        return not (self.timed or self.dependent)

    def __str__(self) -> str:
        return {"depth": f"depth {self.depth}", "scaled": f"x{self.factor:g}"}.get(self.name, self.name)

    def account(self) -> dict:
        return {"name": self.name, "depth": self.depth if self.saturating else None,
                "factor": self.factor if self.name == "scaled" else None}


ORIGINAL = Pace("original")
DEPENDENT = Pace("dependent")


def parse_pace(text: str, drive) -> Pace:
    """`original`, `xN`, `dependent`, `asap` or `depth=N`. Raises UsageError.

    asap keeps as many outstanding as the drive's queue holds: more would only wait in front of it.
    """
    if text in ("original", "dependent"):
        return Pace(text)
    if text == "asap":
        return Pace("asap", min(drive.queue_depth or 128, MAX_DEPTH))
    if re.fullmatch(r"x(\d+(\.\d*)?|\.\d+)", text):
        return scaled(float(text[1:]))
    match = re.fullmatch(r"depth=(\d+)", text)
    if not match:
        raise UsageError(f"--pace {text!r} is none of the choices", f"use {_CHOICES}")
    if not 1 <= int(match[1]) <= MAX_DEPTH:
        raise UsageError(f"--pace {text} is out of range", f"use depth=1 to depth={MAX_DEPTH}")
    return Pace("depth", int(match[1]))


def scaled(factor: float) -> Pace:
    """All times divided by the factor. Raises UsageError."""
    if not (math.isfinite(factor) and _FACTORS[0] <= factor <= _FACTORS[1]):
        raise UsageError(f"--pace x{factor:g} is out of range", f"use x{_FACTORS[0]:g} to x{_FACTORS[1]:g}")
    return ORIGINAL if factor == 1 else Pace("scaled", factor=factor)


def parse_paces(texts, drive) -> tuple[Pace, dict[int, Pace]]:
    """The pace of a run, and those of streams that have their own, of words PACE or STREAM:PACE. Raises UsageError."""
    common, of_stream = [], {}
    for text in texts:
        match = re.fullmatch(r"(\d+):(.*)", text)
        if not match:
            common.append(text)
        elif int(match[1]) in of_stream:
            raise UsageError(f"--pace names stream {match[1]} twice", "give each stream one pace")
        else:
            of_stream[int(match[1])] = parse_pace(match[2], drive)
    if len(common) > 1:
        raise UsageError(f"--pace {' --pace '.join(common)}: only one can be the pace of the run",
                         "name the stream of the others: --pace 1:depth=4")
    return parse_pace(common[0], drive) if common else ORIGINAL, of_stream
