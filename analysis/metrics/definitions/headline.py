"""Which metrics a comparison leads with: those that the drive decides at the pace of the runs.

What a plan fixes says nothing about a drive: at the times of a trace, eleven of twelve drives have the same bytes by
makespan. Such a metric is never a headline, never ranked, and refused by `--figure` and `--fail-if`.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from blkreel.common.printable import within_sentence

from .metric import ALL_PACES, OPEN_LOOP, TIMED, Metric, Value
from .registry import METRICS, value_at


@dataclass(frozen=True)
class PaceHeadline:
    """Keys of metrics. leading: what the first lines show and rank. secondary: shown beside them and ranked apart."""

    leading: tuple[str, ...]
    secondary: tuple[str, ...]


_OPEN = PaceHeadline(("read_wait", "read_throughput", "read_response_p99"),
                     ("slowdown_by_writes", "read_wait_alone", "background_reached", "read_service_time", "read_p50",
                      "read_latency_mean", "read_p99", "write_wait", "write_p99", "written_on_time"))
_FULL_SPEED = PaceHeadline(("throughput", "iops"), ("read_p50", "read_p99", "write_p99", "mean_busy_depth"))
_HEADLINES = {
    "captured": PaceHeadline(("read_wait", "read_throughput"),
                             ("read_service_time", "read_p50", "read_latency_mean", "read_p99", "write_wait",
                              "write_p99")),
    **dict.fromkeys(OPEN_LOOP, _OPEN),
    "dependent": PaceHeadline(("load_time", "added_by_drive"),
                              ("slowdown_by_writes", "load_time_alone", "background_reached", "read_share",
                               "compute_share", "read_p99", "write_p99")),
    "depth": _FULL_SPEED,
    "asap": _FULL_SPEED,
}

# Of all paces: what `headline` of a document holds.
HEADLINE = tuple(METRICS[key] for key in dict.fromkeys(
    key for keys in ([lead.leading for lead in _HEADLINES.values()], [lead.secondary for lead in _HEADLINES.values()])
    for metric_key in keys for key in metric_key))
LOAD_TIME = METRICS["load_time"]
SLOWDOWN_BY_WRITES, BACKGROUND_REACHED = METRICS["slowdown_by_writes"], METRICS["background_reached"]
READ_BYTES = METRICS["read_bytes"]
# The same of the baseline run.
ALONE = {"load_time": METRICS["load_time_alone"], "read_wait": METRICS["read_wait_alone"]}
READ_WAIT, READ_THROUGHPUT, WRITE_WAIT = METRICS["read_wait"], METRICS["read_throughput"], METRICS["write_wait"]
WRITE_AMPLIFICATION, MEDIA_WRITES_PER_DAY = METRICS["write_amplification"], METRICS["media_writes_per_day"]
READ_P50, READ_P99, READ_RESPONSE_P99 = METRICS["read_p50"], METRICS["read_p99"], METRICS["read_response_p99"]
THROUGHPUT, LATENESS_P99 = METRICS["throughput"], METRICS["lateness_p99"]
# Of a comparison of several workloads, not of a run: stats/relative.py. A key of --figure and --fail-if all the same.
RELATIVE_PERFORMANCE = "relative_performance"
# What a page explains: of the classes the reads, for the others the formulas are the same.
EXPLAINED = (*HEADLINE, *(metric for metric in METRICS.values()
                          if metric.recompute and metric.op in ("", "read") and metric not in HEADLINE))


def leading_metrics(paces: Iterable[str]) -> tuple[Metric, ...]:
    """What the first lines of a comparison show at these paces, the most important first."""
    return _of_keys(paces, lambda headline: headline.leading)


def headline_metrics(paces: Iterable[str]) -> tuple[Metric, ...]:
    """What a comparison shows of each drive at these paces: the leading metrics, then the others."""
    paces = tuple(paces)
    secondary = _of_keys(paces, lambda headline: headline.secondary)
    return tuple(dict.fromkeys((*leading_metrics(paces), *secondary)))


def ranked_families(paces: Iterable[str]) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Two families of questions for stats/ranking.py: the leading metrics, and the others.

    Of metrics of reads or writes with the same ranking one takes part: read throughput and read wait of one trace are
    one question. Metrics of the whole run with a same_rank have another ratio than that one.
    """
    paces = tuple(paces)
    leading = leading_metrics(paces)

    def questions(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
        return tuple(metric for metric in metrics if metric.better and not (metric.op and metric.same_rank))

    return questions(leading), questions(metric for metric in headline_metrics(paces) if metric not in leading)


def why_refused(metric: Metric, paces: Iterable[str]) -> str:
    """Why a metric has no meaning at these paces, with the key of the right one; empty if it has."""
    paces = tuple(paces)
    if metric.meaningful(paces):
        return ""
    of_paces = f"{' and '.join(paces)} pace"
    if metric.paces in (TIMED, OPEN_LOOP):
        needed = "due times" if metric.paces == TIMED else "fixed due times"
        why = f"needs {needed}, which {of_paces} does not have"
    elif any(pace in OPEN_LOOP for pace in paces):
        why = f"is set by the plan at {of_paces}"
    else:
        why = f"has no meaning at {of_paces}"
    use = METRICS.get(metric.use)
    if use is None or not use.meaningful(paces) or use not in headline_metrics(paces):
        use = next((leading_metric for leading_metric in leading_metrics(paces)
                    if leading_metric.op in ("", metric.op)), leading_metrics(paces)[0])
    return f"{within_sentence(metric.title)} {why}; use {use.key}"


def usable_keys(paces: Iterable[str]) -> str:
    """The keys of the headline metrics at these paces, for a message."""
    return ", ".join(metric.key for metric in headline_metrics(paces))


def headline(figures: dict[str, Any], paces: Iterable[str], withheld: Collection[str] = ()) -> dict[str, Value]:
    """Key -> value of HEADLINE. None where the I/Os are missing or the metric has no meaning at the pace, and of what
    the verdict withholds; `figures` has that too."""
    paces = tuple(paces)
    return {metric.key: value_at(figures, metric.path) if metric.key not in withheld and metric.meaningful(paces)
            and (not metric.op or figures[metric.op]["ops"]) else None for metric in HEADLINE}


def why_missing(figures: dict[str, Any], metric: Metric, paces: Iterable[str] = ALL_PACES) -> str:
    """Why a metric has no value."""
    if refused := why_refused(metric, paces):
        return refused
    if metric.op and not figures[metric.op]["ops"]:
        return "no reads" if metric.op == "read" else "no writes" if metric.op == "write" else "no other I/Os"
    branch, _, leaf = metric.path.rpartition(".")
    node = value_at(figures, branch)
    if leaf.removesuffix("_ns") in node.get("too_small", ()) and node["n"]:
        return f"n too small (n={node['n']:,})"
    return metric.missing


def _of_keys(paces: Iterable[str], keys_of: Callable[[PaceHeadline], tuple[str, ...]]) -> tuple[Metric, ...]:
    keys = dict.fromkeys(key for pace in paces for key in keys_of(_HEADLINES.get(pace, _OPEN)))
    return tuple(METRICS[key] for key in keys)
