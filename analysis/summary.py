"""The figures of a partial as a plain dictionary: what --json prints, what the page and the table show.

Names carry units. Times are integers in ns; rates are MB/s with MB = 10^6 bytes. A figure that cannot be
given is None: a percentile from too few I/Os is listed under `too_small`.
"""

import math

import numpy as np

from .metrics import ClassPartial, Partial
from .percentiles import PERCENTILES, Distribution, ValueCounts, enough

KEPT_UP_SHARE = (99, 100)  # of the offered bytes that a writer must have written


def figures(partial: Partial) -> dict:
    """All figures of one run, or of runs pooled I/O by I/O."""
    classes = {name: class_figures(part) for name, part in partial.classes().items()}
    data_bytes = partial.read.bytes + partial.write.bytes
    service_ns = sum(part.service_ns for part in partial.classes().values())
    return {
        "all": {
            "ops": sum(part.ops for part in partial.classes().values()),
            "unseen_ops": sum(part.unseen_ops for part in partial.classes().values()),
            "error_ops": sum(part.error_ops for part in partial.classes().values()),
            "data_bytes": data_bytes,
            "service_ns": service_ns,
            "busy_ns": partial.busy_ns,
            "makespan_ns": partial.makespan_ns,
            "mean_busy_depth": ratio(service_ns, partial.busy_ns),
            "data_rate_by_busy_mb_s": mb_per_s(data_bytes, partial.busy_ns),
            "data_rate_by_wall_mb_s": mb_per_s(data_bytes, partial.makespan_ns),
        },
        **classes,
        "writer": writer(partial.write),
        "lateness": {**distribution(partial.lateness), "host": distribution(partial.lateness_host),
                     "device": distribution(partial.lateness_device)},
    }


def class_figures(part: ClassPartial) -> dict:
    return {
        "ops": part.ops,
        "bytes": part.bytes,
        "error_ops": part.error_ops,
        "unseen_ops": part.unseen_ops,
        "service_ns": part.service_ns,
        "busy_ns": part.busy_ns,
        "makespan_ns": part.makespan_ns,
        "mean_busy_depth": ratio(part.service_ns, part.busy_ns),
        "throughput_by_busy_mb_s": mb_per_s(part.bytes, part.busy_ns),
        "bursts": burst_figures(part),
        "latency": distribution(part.latency),
        "waiting": waiting(part.latency),
        "response": distribution(part.response),
        "queue": distribution(part.queue),
        "consistency": evenness(part.seconds.whole()),
        "iops_1s": [bins.shown for bins in part.seconds.runs],
    }


def burst_figures(part: ClassPartial) -> dict:
    """Strays are in the sums and, so that they can be told apart, listed once more."""
    bursts = part.bursts
    strays = bursts.only(bursts.strays)
    return {
        "count": len(bursts),
        "makespan_ns": bursts.makespan_ns,
        "throughput_mb_s": mb_per_s(int(bursts.bytes.sum()), bursts.makespan_ns),
        "strays": {"count": len(strays), "ops": int(strays.ops.sum()), "bytes": int(strays.bytes.sum()),
                   "makespan_ns": strays.makespan_ns},
    }


def distribution(values: Distribution) -> dict:
    """Percentiles by nearest rank, with the mean and the largest value. error: how far a percentile may be off, as a
    part of it; 0 where every value was kept."""
    count = values.count
    shown = {name: enough(count, fraction) for name, fraction in PERCENTILES.items()}
    return {
        "n": count,
        "mean_ns": ratio(values.total, count),
        **{f"{name}_ns": values.percentile(PERCENTILES[name]) if shown[name] else None for name in PERCENTILES},
        "max_ns": values.maximum,
        "too_small": [name for name in PERCENTILES if not shown[name]],
        "error": values.error,
    }


def waiting(values: Distribution) -> dict:
    """Latency-weighted percentiles: the share of all waiting that was spent in I/Os up to this latency."""
    count = values.count
    return {f"{name}_ns": values.waiting_percentile(PERCENTILES[name]) if enough(count, PERCENTILES[name]) else None
            for name in ("p50", "p90", "p99")}


def writer(write: ClassPartial) -> dict:
    """Whether the background writer kept up with its plan; `state` is none, unplanned, kept up or fell behind."""
    offered_bytes = write.bytes + write.unseen_bytes
    numerator, denominator = KEPT_UP_SHARE
    if not offered_bytes:
        state = "none"
    elif not write.planned_bursts:
        state = "unplanned"
    elif write.late_bursts or write.bytes * denominator < offered_bytes * numerator:
        state = "fell behind"
    else:
        state = "kept up"
    return {"state": state, "offered_bytes": offered_bytes, "written_share": ratio(write.bytes, offered_bytes),
            "planned_bursts": write.planned_bursts, "late_bursts": write.late_bursts}


def consistency(seconds: np.ndarray) -> dict:
    """How even the IOPS of whole seconds are, from the completions in each."""
    return evenness(ValueCounts.of(*np.unique(seconds, return_counts=True)))


def evenness(seconds: ValueCounts) -> dict:
    """As consistency(), from how often each number of completions occurred. Scores are None where nothing deviates, or
    of under 2 seconds."""
    keys = ("mean_iops", "score", "downside_score", "first_percentile_over_median", "share_under_half_median")
    count = seconds.count
    if count < 2:
        return {"seconds": count, **dict.fromkeys(keys)}
    median = seconds.percentile((50, 100))
    # In Python's integers up to the root: no order of summation shows in a digit, and no sum is too large.
    ops = [(value, times) for value, times in zip(*(each.tolist() for each in seconds.items()), strict=True)]
    total = sum(value * times for value, times in ops)
    squares = sum(value * value * times for value, times in ops)
    deviation = math.sqrt(count * squares - total * total) / count
    downside = math.sqrt(sum((value - median)**2 * times for value, times in ops if value < median) / count)
    return {
        "seconds": count,
        "mean_iops": total / count,
        "score": ratio(total / count, deviation),
        "downside_score": ratio(median, downside),
        "first_percentile_over_median": ratio(seconds.percentile((1, 100)), median),
        "share_under_half_median": sum(times for value, times in ops if 2 * value < median) / count,
    }


def ratio(numerator, denominator) -> float | None:
    return numerator / denominator if denominator else None


def mb_per_s(count_bytes: int, duration_ns: int) -> float | None:
    return count_bytes * 1000 / duration_ns if duration_ns else None
