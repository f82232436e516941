"""The parameters of a workload model. docs/model.md describes the methods."""

from dataclasses import dataclass, field

# Bounds of the classes of gaps between submissions: two per power of ten from 1 us to 1000 s.
GAP_BOUNDS_NS = [round(10 ** (half / 2)) for half in range(6, 25)]
GAP_CLASSES = len(GAP_BOUNDS_NS) + 1
# Consecutive I/Os whose mean gap is the rate at which the workload runs: one class per power of ten.
RATE_IOS = 64
RATE_CLASSES = GAP_CLASSES // 2 + 1
# How many I/Os of the same operation back an I/O may continue, so that interleaved sequential streams count.
SEQUENTIAL_WINDOW = 16
# Latencies have one table for each of these lengths: up to 16 KiB, up to 128 KiB, longer.
LATENCY_LENGTHS_BYTES = (16_384, 131_072)
# Classes of a sequential run: by the length of its last I/O, up to each of these or longer, and by its number of I/Os.
RUN_LENGTHS_BYTES = (4096, 16_384, 65_536, 262_144)
RUN_IOS = (1, 3, 15, 127)
RUN_IOS_CLASSES = len(RUN_IOS) + 1
RUN_CLASSES = (len(RUN_LENGTHS_BYTES) + 1) * RUN_IOS_CLASSES
# Powers of two of the distance, in I/Os, to the earlier I/O at the same offset.
REUSE_CLASSES = 21
NO_OFFSET = ("flush",)
CLOCK_KEYS = ("clock_resolution_ns", "times_step_ns")

Counts = list[list[int]]  # pairs of a value and how often it occurs


@dataclass(frozen=True, order=True)
class State:
    """An I/O as the chain sees it. gap_class: of the time since the I/O before. rate_class: of the I/Os around it."""

    op: str
    sequential: bool
    gap_class: int
    rate_class: int


@dataclass
class OpModel:
    """One operation. sizes_*: lengths in bytes. open_ends: sequential I/Os by how many I/Os of this operation, later
    than the continued one, are not continued yet. continued_runs: for each class of the length of a sequential I/O,
    how many continue a run of each class.

    reuse_share: of I/Os that are neither sequential nor continued by a sequential one, begin at the offset of an
    earlier I/O; reuse_share_continued: of those that one continues. reuse_distances: by power of two of the I/Os in
    between. sequential_again_share, reused_again_share: of sequential I/Os, and of those at an earlier offset, at whose
    offset a later one begins. regions: the others as [region of region_bytes, accesses, offsets accessed again].
    latencies_ns: by length, equally likely values; empty if unknown.
    """

    sizes_random: Counts = field(default_factory=list)
    sizes_sequential: Counts = field(default_factory=list)
    open_ends: list[int] = field(default_factory=list)
    continued_runs: Counts = field(default_factory=list)
    reuse_share: float = 0.0
    reuse_share_continued: float = 0.0
    reuse_distances: list[int] = field(default_factory=list)
    sequential_again_share: float = 0.0
    reused_again_share: float = 0.0
    region_bytes: int = 1 << 20
    regions: Counts = field(default_factory=list)
    latencies_ns: list[list[int]] = field(default_factory=list)


@dataclass
class WorkloadModel:
    """ios: of the trace. capacity_bytes: the end of the highest I/O. alignment_bytes: of offsets.

    gaps_ns: for each class of gaps, equally likely values. states, transitions: [from, to, count] of a Markov chain,
    by position in states, that begins at states[first]; last_exits: the last transition out of each state, -1: none.
    properties: values measured on the trace, by key of PROPERTIES. clock: keys of its metadata about coarse times.
    """

    ios: int
    capacity_bytes: int
    alignment_bytes: int
    gaps_ns: list[list[int]]
    states: list[State]
    transitions: Counts
    last_exits: list[int]
    first: int
    ops: dict[str, OpModel]
    properties: dict[str, float]
    clock: dict[str, int] = field(default_factory=dict)

    def has_latency(self) -> bool:
        return any(table for op in self.ops.values() for table in op.latencies_ns)

