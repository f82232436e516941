"""Was the replay honest? How late it issued, and through whose doing."""

from ..definitions import HEADLINE
from .tails import tail

LIMITS = ((100_000, "limit of p99"), (10_000_000, "limit"))  # of methodology.md, section 3
SIDES = (("host", "Lateness caused by the host", LIMITS,
          "How long after its due time this machine issued an I/O; a run with much of that is invalid."),
         ("device", "Lateness caused by a full queue", (),
          "The drive's queue was full: the drive made these I/Os late, and their response says so."))


def lateness(entries, prefix: str, order: list[str]) -> list:
    built = [tail(f"{prefix}lateness-{side}", title, [
        (entry.shown, getattr(entry.partial, f"lateness_{side}"), entry.shown["figures"]["lateness"][side])
        for entry in entries], order, f"lateness.{side}", HEADLINE["lateness_p99_ns"].formula, limits, text)
        for side, title, limits, text in SIDES]
    return [one for one in built if one]
