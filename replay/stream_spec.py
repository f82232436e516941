"""A stream of I/Os as a recipe describes it: by a rule, in the target's bytes and in nanoseconds."""

from dataclasses import dataclass

ACCESSES = ("sequential", "random", "permutation", "halves", "extents")


@dataclass(frozen=True)
class Bursts:
    """Open loop: from first_ns on, every so often so many bytes are due at once. count: None for without end."""

    bytes: int
    every_ns: int
    first_ns: int = 0
    count: int | None = None


@dataclass(frozen=True)
class StreamSpec:
    """One stream of a step.

    number: its number in the run. read_percent: of its I/Os, so many are reads, the others `op`; 100 for a reader.
    access: `sequential` from the start of its span and around, `random` with replacement, `permutation` (each block
    once in random order, then again in another), `halves` (reads sequential in the lower half of the span, the others
    in the upper, each around), `extents` (one after another, as long as `lengths_bytes` says, gone through once). span:
    where it stays, whole blocks of start_bytes .. start_bytes + span_bytes. depth: how many are outstanding at most.
    volume_bytes: it ends there; None: it goes on until the step ends. At most one of bursts, rate and every: without,
    its I/Os are due at once. rate_iops: one I/O every 1/rate s. every_ns: one I/O each time so much has passed; both
    from first_ns on. background: it ends when all others have ended.
    """

    number: int
    name: str
    op: str
    access: str
    block_bytes: int
    start_bytes: int
    span_bytes: int
    depth: int
    seed: int
    read_percent: int = 0
    volume_bytes: int | None = None
    bursts: Bursts | None = None
    rate_iops: float | None = None
    first_ns: int = 0
    every_ns: int | None = None
    lengths_bytes: tuple[int, ...] = ()
    background: bool = False

    @property
    def timed(self) -> bool:
        """Whether its I/Os have times of their own."""
        return self.bursts is not None or self.rate_iops is not None or self.every_ns is not None
