"""What background writes cost the reads of a drive: the run with them over the baseline run without them.

A baseline (docs/replay.md) has the same reads on the same drive in the same state. So its ratios are the effect of the
writes. Reads of one run that met a write are not compared with its other reads: they differ in more than the writes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.run_times import why_no_slowdown
from blkreel.analysis.stats.intervals import Interval, geometric_mean, interval
from blkreel.common.errors import TraceError
from blkreel.common.files.safe_files import file_name
from blkreel.traces.format.reader import open_trace

from .paired import Document, paired


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
class SlowdownByWrites:
    """Of the runs of one drive on one trace at one pace. why: why there is none."""

    paired: PairedSlowdown | None = None
    why: str = ""


def slowdown_by_writes(runs: Sequence[Measured],
                       compare: Callable[[Measured, Measured], Document] | None = paired) -> SlowdownByWrites:
    """From the baselines, if all runs have one and none of them has a reason against it (why_no_slowdown()).

    compare: joins the baseline of the first run with the run, read by read, as paired() does; None to leave that out.
    Raises TraceError for a damaged file of a run.
    """
    baselines = [baseline for run in runs if (baseline := run.account.baseline)]
    if not baselines or len(baselines) < len(runs):
        which = f"of {len(runs) - len(baselines)} of {len(runs)} runs" if baselines else "without the writes"
        return SlowdownByWrites(why=f"no baseline {which}: replay with --baseline")
    if why := next((why for run in runs if (why := why_no_slowdown(run.metadata))), ""):
        return SlowdownByWrites(why=why)
    read_wait = _over_runs([baseline.slowdown.read_wait for baseline in baselines])
    if read_wait is None:
        return SlowdownByWrites(why="a run or its baseline completed no read")
    reads = _read_by_read(runs[0], baselines[0].path, compare) if compare else {"why": "left out"}
    load_time = _over_runs([baseline.slowdown.load_time for baseline in baselines])
    return SlowdownByWrites(PairedSlowdown(load_time, read_wait, reads))


def _read_by_read(run: Measured, name: str, compare: Callable[[Measured, Measured], Document]) -> Document:
    """name: of the folder of the baseline; a path elsewhere is not followed."""
    location = run.records
    if not isinstance(location, Path):
        return {"why": "the path of the baseline is not a folder of the run here"}
    try:
        trace = open_trace(location.parent / file_name(name))
    except ValueError:
        return {"why": "the path of the baseline is not a folder of the run here"}
    except (TraceError, OSError) as error:
        return {"why": f"the baseline cannot be read: {error}"}
    # The comparison reads rows and metadata, not the partial.
    alone = replace(run, path=location.parent / name, metadata=trace.metadata, rows=trace.rows, records=trace.path,
                    identity=trace.footer.identity)
    return compare(alone, run)


def _over_runs(values: Sequence[float | None]) -> Slowdown | None:
    """None if a run has no value."""
    factors = [value for value in values if value]
    value = geometric_mean(factors)
    if value is None or len(factors) < len(values):
        return None
    return Slowdown(value, interval(factors), tuple(factors))
