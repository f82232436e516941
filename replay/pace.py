"""When a replay issues its I/Os."""

import re
from dataclasses import dataclass

from blkreel.traces.errors import UsageError

MAX_DEPTH = 1024
_CHOICES = "original (at the captured times), asap (as fast as the drive takes them), or depth=N (N outstanding)"


@dataclass(frozen=True)
class Pace:
    """depth: how many may be outstanding; for the original pace only a bound, far above what a drive queues."""

    name: str
    depth: int = MAX_DEPTH

    @property
    def timed(self) -> bool:
        return self.name == "original"

    def __str__(self) -> str:
        return f"depth {self.depth}" if self.name == "depth" else self.name

    def account(self) -> dict:
        return {"name": self.name, "depth": None if self.timed else self.depth}


ORIGINAL = Pace("original")


def parse_pace(text: str, drive) -> Pace:
    """`original`, `asap` or `depth=N`. Raises UsageError.

    asap keeps as many outstanding as the drive's queue holds: more would only wait in front of it.
    """
    if text == "original":
        return ORIGINAL
    if text == "asap":
        return Pace("asap", min(drive.queue_depth or 128, MAX_DEPTH))
    match = re.fullmatch(r"depth=(\d+)", text)
    if not match:
        raise UsageError(f"--pace {text!r} is none of the choices", f"use {_CHOICES}")
    if not 1 <= int(match[1]) <= MAX_DEPTH:
        raise UsageError(f"--pace {text} is out of range", f"use depth=1 to depth={MAX_DEPTH}")
    return Pace("depth", int(match[1]))
