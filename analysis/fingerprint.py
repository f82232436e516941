"""What a trace asks of a drive: gaps between submits, idle gaps, share of sequential I/O.

Sizes are in the classes, depth in the partial, places in the heat map: the rest of the fingerprint stands there.
"""

from dataclasses import dataclass

from .percentiles import Distribution


@dataclass(eq=False)
class Fingerprint:
    """Of I/Os whose completion was seen.

    submit_gaps: ns between neighbours in the order of submission. idle_gaps: ns in which nothing was outstanding,
    between the first submit and the last completion. Sequential: begins at the byte at which the I/O before of its
    class, by the same thread on the same drive, ended.
    """

    submit_gaps: Distribution
    idle_gaps: Distribution
    sequential_read_ops: int = 0
    sequential_read_bytes: int = 0
    sequential_write_ops: int = 0
    sequential_write_bytes: int = 0

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(**{name: mine + vars(other)[name] for name, mine in vars(self).items()})

    def __eq__(self, other) -> bool:
        return isinstance(other, Fingerprint) and vars(self) == vars(other)

    __hash__ = None
