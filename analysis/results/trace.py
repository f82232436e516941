"""trace: what a drive makes of a captured trace, empty and full."""

from ..metrics import COLUMNS as METRIC_COLUMNS
from ..metrics import RUN_COLUMNS, MetricsAccumulator, Partial
from ..percentiles import ValueCounts, enough
from ..summary import figures
from .directory import Runs, Test, arrays
from .parts import Content, over_repeats, ratio, table, with_spread
from .sensors import sensors_of
from .tally import COLUMNS, POWER_COLUMNS, Tally, energy_note

ROLE = "trace"
FULL, EMPTY = "full", ("empty", "fresh")
P99 = (99, 100)


def _measure(step, trace):
    sums, metrics = Tally(sensors_of(step.directory)), MetricsAccumulator()
    for columns in arrays(trace, METRIC_COLUMNS + RUN_COLUMNS):
        sums.feed({name: columns[name] for name in COLUMNS})
        metrics.feed(columns)
    run = trace.metadata.get("run") or {}
    return sums, metrics.finish(), run.get("idle") or {}, (run.get("source") or {}).get("sha256")


def content(test: Test, runs: Runs) -> Content:
    """Labels: state, repeat."""
    groups, idles, everything, sources = {}, {}, [], {}
    for step, (sums, partial, idle, sha256) in runs.measured(ROLE, _measure):
        others = tuple((name, value) for name, value in step.labels.items() if name not in ("state", "repeat"))
        sources.setdefault(others, set()).update({sha256} - {None})
        state = str(step.labels.get("state", ""))
        groups.setdefault(state, []).append((sums, partial))
        idles.setdefault(state, idle)
        everything.append(sums)
    shown = Content(method=[*METHOD, energy_note(everything)])
    if any(len(own) > 1 for own in sources.values()):
        shown.reasons.append({"level": "invalid", "text": "its runs are of different traces: the file was another one "
                                                          "when the test went on"})
    states = {state: _of_state(own) for state, own in groups.items()}
    shown.figures = {"states": states, "full_over_empty": _full_over_empty(states)}
    rows = [{"state": state, **own} for state, own in states.items()]
    latencies = [{"state": state, "of": kind, **own[kind]} for state, own in states.items()
                 for kind in ("all", "reads", "writes") if own[kind]["ops"]]
    shown.tables = [table("Data rate", _RATES, rows), table("Latency", _LATENCY, latencies)]
    if shown.figures["full_over_empty"]:
        shown.tables.append(table("Full / empty", _RATIOS, [shown.figures["full_over_empty"]]))
    if idles:
        shown.method.append(("Idle time", "; ".join(f"{state or 'the run'}: {_idle_words(idle)}"
                                                    for state, idle in idles.items())))
    return shown


def _idle_words(idle):
    if idle.get("cap_ns"):
        return f"capped at {idle['cap_ns'] / 1e6:g} ms, {(idle.get('removed_ns') or 0) / 1e9:.4g} s taken out"
    return {"none": "taken out"}.get(idle.get("name"), "as in the trace")


def _of_state(repeats: list[tuple[Tally, Partial]]):
    pooled = repeats[0][1]
    for _, partial in repeats[1:]:
        pooled = pooled + partial
    each = [figures(partial)["all"] for _, partial in repeats]
    powers = [sums.power_figures() for sums, _ in repeats]
    return {
        **over_repeats("data_rate_mb_s", [one["data_rate_by_busy_mb_s"] for one in each]),
        **over_repeats("wall_rate_mb_s", [one["data_rate_by_wall_mb_s"] for one in each]),
        **over_repeats("busy_ns", [one["busy_ns"] or None for one in each]),
        **over_repeats("energy_j", [power["energy_j"] for power in powers]),
        **over_repeats("average_w", [power["average_w"] for power in powers]),
        **over_repeats("mb_per_j", [power["mb_per_j"] for power in powers]),
        "all": _latency(pooled.read.latency + pooled.write.latency), "reads": _latency(pooled.read.latency),
        "writes": _latency(pooled.write.latency), "n": len(repeats),
        "why": next((power["why"] for power in powers if "why" in power), {})}


def _latency(values: ValueCounts):
    count = values.count
    p99_ns = values.percentile(P99) if enough(count, P99) else None
    return {"ops": count, "mean_ns": ratio(values.total, count), "p99_ns": p99_ns, "max_ns": values.maximum,
            **({"why": {"p99_ns": f"n too small (n={count:,})"}} if p99_ns is None else {})}


def _full_over_empty(states):
    pair = next(((full, empty) for full in states for empty in states
                 for other in EMPTY if full.startswith(FULL) and empty == other + full.removeprefix(FULL)), None)
    if pair is None:
        return {}
    full, empty = states[pair[0]], states[pair[1]]
    return {"of": f"{pair[0]} / {pair[1]}",
            "data_rate": ratio(full["data_rate_mb_s"], empty["data_rate_mb_s"]),
            **{f"{kind}_mean": ratio(full[kind]["mean_ns"], empty[kind]["mean_ns"])
               for kind in ("all", "reads", "writes")}}


_RATES = [("state", "State", ""), *with_spread([
    ("data_rate_mb_s", "Average data rate", "MB/s"), ("wall_rate_mb_s", "by wall time", "MB/s"),
    ("busy_ns", "Busy", "ns"), ("energy_j", "Energy", "J"), *POWER_COLUMNS]), ("n", "n", "")]
_LATENCY = [("state", "State", ""), ("of", "Of", ""), ("mean_ns", "Latency, mean", "ns"), ("p99_ns", "p99", "ns"),
            ("max_ns", "maximum", "ns"), ("ops", "I/Os", "")]
_RATIOS = [("of", "States", ""), ("data_rate", "Average data rate", ""), ("all_mean", "Mean latency, all", ""),
           ("reads_mean", "of reads", ""), ("writes_mean", "of writes", "")]

METHOD = [
    ("Average data rate", "bytes read and written / busy time, the time with at least one I/O outstanding; beside it "
     "the same bytes by wall time, max(complete) − min(submit)."),
    ("Latency", "complete − submit: of reads, of writes, and of both together (all). p99 is the nearest rank, shown "
     "only where at least 10 I/Os lie beyond it; repeats are pooled I/O by I/O."),
    ("Repeats", "Rates and energies are geometric means over the repeats; the smallest and largest stand beside them."),
]
