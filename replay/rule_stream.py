"""A recipe's stream as one of a run: with its pace, and what is known of it without going through it."""

from functools import partial

from . import generate
from .pace import Pace
from .recipe_steps import TestStep
from .stream_spec import StreamSpec
from .workload import Outline, Stream


def stream_of(spec: StreamSpec, *, stop_ns: int | None) -> Stream:
    """stop_ns: when the run ends at the latest."""
    pace = Pace("original" if spec.timed else "depth", spec.depth)
    return Stream(spec.number, pace, partial(generate.batches, spec, stop_ns), background=spec.background,
                  outline=outline_of(spec, stop_ns))


def outline_of(spec: StreamSpec, stop_ns: int | None) -> Outline:
    bound = generate.bound_bytes(spec, stop_ns)
    some = (0 if spec.read_percent == 100 or spec.op == "discard" else 1, 1 if spec.op == "discard" else 0)
    return Outline(generate.extent_of(spec), generate.row_count(spec, stop_ns), spec.read_percent > 0,
                   *(some if bound is None else bound), bounded=bound is not None, end_ns=_end_ns(spec, stop_ns))


def _end_ns(spec, stop_ns) -> int | None:
    """When the last I/O is due."""
    count = generate.row_count(spec, stop_ns)
    if not spec.timed or not count:
        return None
    if spec.bursts is not None:
        per_burst = -(-spec.bursts.bytes // spec.block_bytes)
        return spec.bursts.first_ns + (count - 1) // per_burst * spec.bursts.every_ns
    every_ns = spec.every_ns if spec.every_ns is not None else 1e9 / spec.rate_iops
    return spec.first_ns + round((count - 1) * every_ns)


def longest_ns(steps: list[TestStep]) -> tuple[int, int]:
    """(how long these steps take at most, how many there are of which nobody knows).

    A state takes what the drive takes to be filled, and so does a volume.
    """
    total = unknown = last = 0
    for step in steps:
        if step.do == "rest":
            took = last if step.time_ns is None else step.time_ns
        elif step.do == "measure":
            ends = [end for spec in step.streams if not spec.background and (end := _end_ns(spec, step.time_ns))]
            took = step.time_ns or (max(ends) if ends else None)
            last = took or 0
        else:
            took = None
        total += took or 0
        unknown += took is None
    return total, unknown
