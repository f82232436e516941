"""Streams of a step as streams of a run, and the maximum duration of steps."""

from functools import partial

from blkreel.benchmarks.step import BenchmarkStep
from blkreel.replay.plan.pace import Pace
from blkreel.replay.streams import generate
from blkreel.replay.streams.spec import StreamSpec
from blkreel.replay.streams.workload import Stream, StreamSurvey

ASSUMED_IOPS = 50_000


def stream_of(spec: StreamSpec, *, stop_ns: int | None) -> Stream:
    """stop_ns: maximum duration of the run."""
    pace = Pace("original" if spec.timed else "depth", spec.depth)
    return Stream(spec.number, pace, partial(generate.batches, spec, stop_ns), survey_of(spec, stop_ns),
                  spec.background)


def survey_of(spec: StreamSpec, stop_ns: int | None) -> StreamSurvey:
    """What is known of a stream without generating its I/Os. Unbounded: 1 byte for each kind of write it has."""
    bound = generate.bound_bytes(spec, stop_ns)
    unbounded = (0 if spec.read_percent == 100 or spec.op == "discard" else 1, 1 if spec.op == "discard" else 0)
    written_bytes, discarded_bytes = unbounded if bound is None else bound
    return StreamSurvey(generate.extent_of(spec), generate.row_count(spec, stop_ns), spec.read_percent > 0,
                        written_bytes, discarded_bytes, bounded=bound is not None, end_ns=_last_due_ns(spec, stop_ns))


def _last_due_ns(spec: StreamSpec, stop_ns: int | None) -> int | None:
    """None if the stream is not timed, has no end or no I/Os."""
    count = generate.row_count(spec, stop_ns)
    if not spec.timed or not count:
        return None
    if spec.bursts is not None:
        ops_per_burst = -(-spec.bursts.bytes // spec.block_bytes)
        return spec.bursts.first_ns + (count - 1) // ops_per_burst * spec.bursts.every_ns
    every_ns = spec.every_ns if spec.rate_iops is None else 1e9 / spec.rate_iops
    return spec.first_ns + round((count - 1) * (every_ns or 0))


def estimated_ios(step: BenchmarkStep) -> float:
    """Of a measuring step without a replay. Streams that only a time ends count with ASSUMED_IOPS."""
    counts = [generate.row_count(spec, step.time_ns) for spec in step.streams]
    assumed = 0 if None not in counts else ASSUMED_IOPS * (step.time_ns or 0) / 1e9
    return sum(filter(None, counts)) + assumed


def longest_ns(steps: list[BenchmarkStep]) -> tuple[int, int]:
    """(maximum duration of the steps that have one, number of the other steps).

    States and streams that end with a volume have no maximum duration: it depends on the drive.
    """
    total = unknown = last = 0
    for step in steps:
        duration_ns = last if step.do == "rest" and step.time_ns is None else step.time_ns
        if step.do == "measure":
            ends = [end for spec in step.streams if not spec.background and (end := _last_due_ns(spec, step.time_ns))]
            duration_ns = step.time_ns or max(ends, default=None)
            last = duration_ns or 0
        elif step.do != "rest":
            duration_ns = None
        total += duration_ns or 0
        unknown += duration_ns is None
    return total, unknown
