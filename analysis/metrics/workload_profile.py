"""Profile of a workload: gaps between submits, idle gaps, sequential I/O.

The rest of the profile is elsewhere: sizes in ClassPartial, depth in Partial, offsets in the heat map.
"""

from dataclasses import dataclass

from .distributions import Distribution


@dataclass(eq=False)
class WorkloadProfile:
    """Of I/Os with a completion.

    submit_gaps: ns between consecutive submits. idle_gaps: ns without outstanding I/Os, between the first submit and
    the last completion. Sequential: begins at the byte where the previous I/O of its class, thread and drive ended.
    """

    submit_gaps: Distribution
    idle_gaps: Distribution
    sequential_read_ops: int = 0
    sequential_read_bytes: int = 0
    sequential_write_ops: int = 0
    sequential_write_bytes: int = 0

    def __add__(self, other: "WorkloadProfile") -> "WorkloadProfile":
        return WorkloadProfile(**{name: value + vars(other)[name] for name, value in vars(self).items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkloadProfile) and vars(self) == vars(other)
