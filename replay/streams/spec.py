"""A generated stream of I/Os, as a recipe describes it: in the target's bytes and in nanoseconds."""

from dataclasses import dataclass

ACCESSES = ("sequential", "random", "random-sizes", "permutation", "halves", "extents")


@dataclass(frozen=True)
class Bursts:
    """Open loop: `bytes` are due at once every every_ns, from first_ns on. count: number of bursts, None for no end."""

    bytes: int
    every_ns: int
    first_ns: int = 0
    count: int | None = None


@dataclass(frozen=True)
class StreamSpec:
    """One stream of a step.

    number: its number in the run. read_percent: share of reads, the other I/Os are `op`; 100 for reads only. access:
    `sequential` over its span and again from the start; `random` with replacement; `random-sizes`: each I/O of a
    random number of blocks, from lengths_bytes[0] to lengths_bytes[1], at a random block where it fits; `permutation`:
    each block once in random order, then again in another order; `halves`: reads sequential in the lower half of the
    span, other I/Os in the upper half; `extents`: one after another with the sizes lengths_bytes, once. span: whole
    blocks of start_bytes .. start_bytes + span_bytes. depth: maximum in flight. volume_bytes: size of the stream, None
    until the step ends. At most one of bursts, rate and every; without them all I/Os are due at once. rate_iops: one
    I/O every 1/rate s; every_ns: one I/O every every_ns; both from first_ns on. background: it ends when all other
    streams have ended.
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
        """Whether its I/Os have due times."""
        return self.bursts is not None or self.rate_iops is not None or self.every_ns is not None
