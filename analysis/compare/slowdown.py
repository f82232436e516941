"""What background writes cost the reads of a drive: from a baseline without the writes, or from the reads of one run.

A baseline (docs/replay.md, "Without the writes") has the same reads on the same drive in the same state. So its ratios
are the effect of the writes. Without one, reads that met a write are compared with those that did not, within size
classes. That is a weaker statement: the reads differ in more than the writes, such as their place in the trace.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.stats.intervals import Interval, geometric_mean, interval
from blkreel.common.errors import TraceError
from blkreel.traces.format.reader import open_trace

from .interference import Interference, MetReads
from .paired import Document, paired

FEWEST_READS = 10  # of each kind in a size class; below that the class is left out
WEAKER = ("reads of the same runs: those that met a write against those that did not; not an effect of the writes "
          "alone (replay with --baseline)")


@dataclass(frozen=True)
class Slowdown:
    """A ratio over runs, with writes / without: the geometric mean, its interval (None of one run), and each run."""

    value: float
    interval: Interval | None
    runs: tuple[float, ...]


@dataclass(frozen=True)
class PairedSlowdown:
    """From baselines. load_time: None at other paces than dependent. reads: read by read, as paired() gives it, of the
    first run; {"why": reason} if its baseline cannot be read."""

    load_time: Slowdown | None
    read_wait: Slowdown
    reads: Document


@dataclass(frozen=True)
class SizeClass:
    """Reads of from_bytes up to to_bytes, exclusive. Means of latency; p50 within 1/256."""

    from_bytes: int
    to_bytes: int
    met: int
    met_mean_ns: float
    met_p50_ns: int
    unmet: int
    unmet_mean_ns: float
    unmet_p50_ns: int


@dataclass(frozen=True)
class MetSlowdown:
    """From reads that met a write: in flight at their submission, or submitted at most 10 ms before.

    latency: total latency of the reads that met a write over what the others of their size classes took on average.
    """

    latency: Slowdown
    met: int
    reads: int
    by_size: tuple[SizeClass, ...]
    note: str = WEAKER


@dataclass(frozen=True)
class SlowdownByWrites:
    """Of the runs of one drive on one trace at one pace. why: why there is neither."""

    paired: PairedSlowdown | None = None
    met: MetSlowdown | None = None
    why: str = ""


def slowdown_by_writes(runs: Sequence[Measured], interferences: Sequence[Interference],
                       compare: Callable[[Measured, Measured], Document] | None = paired) -> SlowdownByWrites:
    """Paired if all runs have a baseline, else by the reads that met a write.

    interferences: of the runs, in their order. compare: joins the baseline of the first run with the run, read by read,
    as paired() does; None to leave that out. Raises TraceError for a damaged file of a run.
    """
    baselines = [baseline for run in runs if (baseline := (run.run or {}).get("baseline"))]
    if baselines and len(baselines) == len(runs):
        read_wait = _over_runs([each["slowdown"]["read_wait"] for each in baselines])
        if read_wait is not None:
            reads = _read_by_read(runs[0], str(baselines[0]["path"]), compare) if compare else {"why": "left out"}
            load_time = _over_runs([each["slowdown"]["load_time"] for each in baselines])
            return SlowdownByWrites(PairedSlowdown(load_time, read_wait, reads))
    return _by_met(interferences)


def _read_by_read(run: Measured, name: str, compare: Callable[[Measured, Measured], Document]) -> Document:
    """name: of the folder of the baseline; a path elsewhere is not followed."""
    location = run.records
    if not isinstance(location, Path) or not re.fullmatch(r"[\w-]+", name):
        return {"why": "the path of the baseline is not a folder of the run here"}
    try:
        trace = open_trace(location.parent / name)
    except (TraceError, OSError) as error:
        return {"why": f"the baseline cannot be read: {error}"}
    # The comparison reads rows and metadata, not the partial.
    alone = replace(run, path=location.parent / name, metadata=trace.metadata, rows=trace.rows, records=trace.path,
                    identity=trace.footer.identity)
    return compare(alone, run)


def _over_runs(values: Sequence[float | None]) -> Slowdown | None:
    """None if a run has no value."""
    known = [value for value in values if value]
    value = geometric_mean(known)
    if value is None or len(known) < len(values):
        return None
    return Slowdown(value, interval(known), tuple(known))


def _by_met(interferences: Sequence[Interference]) -> SlowdownByWrites:
    pooled = sum((each.met for each in interferences), MetReads())
    classes = tuple(_classes(pooled))
    if not classes:
        return SlowdownByWrites(why=f"no baseline, and fewer than {FEWEST_READS} reads of one size that met a write or "
                                    "that did not")
    latency = _over_runs([_ratio(list(_classes(each.met))) for each in interferences])
    if latency is None:
        # A class may be large enough in all runs together only.
        value = _ratio(classes)
        assert value is not None
        latency = Slowdown(value, None, ())
    return SlowdownByWrites(met=MetSlowdown(latency, sum(each.met for each in classes),
                                            sum(values.count for values in pooled.values.values()), classes))


def _classes(met: MetReads) -> Iterator[SizeClass]:
    """Size classes with enough reads of both kinds."""
    for size in sorted({size for size, _ in met.values}):
        sides = [met.values.get((size, has_met)) for has_met in (True, False)]
        if any(side is None or side.count < FEWEST_READS for side in sides):
            continue
        numbers: list[Any] = []
        for has_met, side in zip((True, False), sides, strict=True):
            assert side is not None
            numbers += [side.count, met.totals_ns[size, has_met] / side.count, side.percentile((1, 2))]
        yield SizeClass(1 << size, 2 << size, *numbers)


def _ratio(classes: Sequence[SizeClass]) -> float | None:
    """Total latency of the reads that met a write / what as many others of their classes took on average."""
    expected_ns = sum(each.met * each.unmet_mean_ns for each in classes)
    return sum(each.met * each.met_mean_ns for each in classes) / expected_ns if expected_ns else None
