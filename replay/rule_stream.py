"""A recipe's stream as one of a run: with its pace, and what is known of it without going through it."""

from functools import partial

from . import generate
from .pace import Pace
from .stream_spec import StreamSpec
from .workload import Outline, Stream


def stream_of(spec: StreamSpec, *, stop_ns: int | None, unknown_bytes: int) -> Stream:
    """stop_ns: when the run ends at the latest. unknown_bytes: what it writes at most, where nothing bounds it."""
    pace = Pace("original" if spec.timed else "depth", spec.depth)
    return Stream(spec.number, pace, partial(generate.batches, spec, stop_ns), background=spec.background,
                  outline=outline_of(spec, stop_ns, unknown_bytes))


def outline_of(spec: StreamSpec, stop_ns: int | None, unknown_bytes: int) -> Outline:
    bound = generate.bound_bytes(spec, stop_ns)
    if bound is None:
        bound = (0 if spec.read_percent == 100 or spec.op == "discard" else unknown_bytes,
                 unknown_bytes if spec.op == "discard" else 0)
    return Outline(generate.extent_of(spec), _ios(spec), spec.read_percent > 0, *bound, end_ns=_end_ns(spec))


def _ios(spec) -> int | None:
    if spec.access == "extents":
        return len(spec.lengths_bytes)
    if spec.bursts is not None and spec.bursts.count is not None:
        return spec.bursts.count * -(-spec.bursts.bytes // spec.block_bytes)
    return None if spec.volume_bytes is None else -(-spec.volume_bytes // spec.block_bytes)


def _end_ns(spec) -> int | None:
    """When the last I/O is due."""
    if spec.bursts is not None and spec.bursts.count is not None:
        return spec.bursts.first_ns + max(0, spec.bursts.count - 1) * spec.bursts.every_ns
    if spec.access == "extents" and spec.every_ns is not None:
        return spec.first_ns + max(0, len(spec.lengths_bytes) - 1) * spec.every_ns
    if spec.rate_iops is not None and spec.volume_bytes is not None:
        return spec.first_ns + round((_ios(spec) - 1) * 1e9 / spec.rate_iops)
    return None
