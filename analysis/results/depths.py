"""depth-sweep-read and depth-sweep-write: what each queue depth gains, and what it costs."""

from .directory import Runs, Test
from .parts import Content, by_state, in_state, over_repeats, ratio, series, table, with_spread
from .tally import POWER_COLUMNS, Tally, energy_note, tally

ROLE = "depth"
APART = (32, 128)
ENOUGH_PERCENT = 95
LITTLE_LIMIT = 0.01


def content(test: Test, runs: Runs) -> Content:
    """Labels: state, depth, repeat."""
    found = runs.measured(ROLE, tally, number="depth")
    shown, off = Content(figures={"states": {}}), set()
    for state, own in by_state(found).items():
        rows, figures = sweep(test, state, own)
        shown.figures["states"][state] = figures
        shown.tables += sweep_tables(state, rows, figures)
        shown.series += sweep_series(state, rows)
        for row in rows:
            if row["little"] is not None and abs(row["little"] - 1) > LITTLE_LIMIT:
                off.add(row["depth"])
    little = "It is within 1 % of that at each depth here."
    if off:
        little = (f"It is off by more than 1 % at depth {', '.join(map(str, sorted(off)))}: the queue was not kept "
                  "full, or the step was too short for it.")
    shown.method = [*METHOD, energy_note([sums for _, sums in found]), ("Little's law", _LITTLE + little)]
    return shown


def sweep(test: Test, state: str, found: list) -> tuple[list[dict], dict]:
    """(a row for each depth, the figures) of the steps of one state."""
    groups = {}
    for step, sums in found:
        groups.setdefault(step.labels["depth"], []).append(sums)
    rows = [_row(depth, groups[depth]) for depth in sorted(groups)]
    wanted = {step.labels.get("depth") for step in test.steps
              if step.role == ROLE and str(step.labels.get("state", "")) == state}
    maxima = [row["max_ns"] for row in rows if row["max_ns"] is not None]
    return rows, {
        "depths": {str(row["depth"]): {key: value for key, value in row.items() if key not in ("depth", "why")}
                   for row in rows},
        "mean_of_maxima_ns": sum(maxima) / len(maxima) if maxima else None,
        "best_mb_s": max((row["mb_s"] for row in rows if row["mb_s"] is not None), default=None),
        # Of a sweep that lacks a depth, the best may be the missing one.
        "lowest_depth_with_95_percent":
            lowest_enough([(row["depth"], row["mb_s"]) for row in rows]) if wanted == set(groups) else None,
    }


def sweep_tables(state: str, rows: list[dict], figures: dict):
    """What sweep() gave, as tables of the document."""
    yield table(in_state("By queue depth", state), _COLUMNS, rows)
    apart = [row for row in rows if row["depth"] in APART]
    if apart:
        yield table(in_state("Depth " + " and ".join(str(row["depth"]) for row in apart), state),
                    [column for column in _COLUMNS if column[0] in _APART_COLUMNS], apart)
    lowest = figures["lowest_depth_with_95_percent"]
    yield table(in_state("Of the sweep", state), [
        ("lowest_depth", f"Lowest depth with {ENOUGH_PERCENT} % of the best throughput", ""),
        ("best_mb_s", "Best throughput", "MB/s"), ("mean_of_maxima_ns", "Mean of the maxima", "ns")],
        [{"lowest_depth": lowest, "best_mb_s": figures["best_mb_s"], "mean_of_maxima_ns": figures["mean_of_maxima_ns"],
          "why": {} if lowest is not None else {"lowest_depth": "depths are missing"}}])


def sweep_series(state: str, rows: list[dict]):
    """The rows of sweep(), as series of the document."""
    depths = [row["depth"] for row in rows]
    yield series(in_state("Throughput by queue depth", state), ("queue depth", ""), ("Throughput", "MB/s"),
                 [("throughput", depths, [row["mb_s"] for row in rows])])
    yield series(in_state("Latency by queue depth", state), ("queue depth", ""), ("Latency", "ns"),
                 [("mean", depths, [row["mean_ns"] for row in rows]),
                  ("maximum", depths, [row["max_ns"] for row in rows])])


def _row(depth, repeats: list[Tally]):
    powers = [sums.power_figures() for sums in repeats]
    pooled = repeats[0].data
    for sums in repeats[1:]:
        pooled = pooled + sums.data
    iops = over_repeats("iops", [sums.iops for sums in repeats])
    service_ns, span_ns = pooled.service_ns, sum(sums.makespan_ns for sums in repeats)
    return {"depth": depth, **over_repeats("mb_s", [sums.mb_s for sums in repeats]), **iops,
            "mean_ns": pooled.mean_ns, "max_ns": pooled.longest_ns, "little": ratio(ratio(service_ns, span_ns), depth),
            **over_repeats("average_w", [power["average_w"] for power in powers]),
            **over_repeats("mb_per_j", [power["mb_per_j"] for power in powers]), "n": len(repeats),
            "why": next((power["why"] for power in powers if "why" in power), {})}


def lowest_enough(points: list[tuple[int, float | None]]) -> int | None:
    """The lowest depth whose throughput is at least 95 % of the best one's."""
    known = [(depth, rate) for depth, rate in points if rate is not None]
    if not known:
        return None
    best = max(rate for _, rate in known)
    return min(depth for depth, rate in known if 100 * rate >= ENOUGH_PERCENT * best)


_COLUMNS = [("depth", "Depth", ""), *with_spread([("mb_s", "Throughput", "MB/s"), ("iops", "IOPS", "1/s")]),
            ("mean_ns", "Latency, mean", "ns"), ("max_ns", "Latency, maximum", "ns"),
            ("little", "IOPS × latency / depth", ""), *with_spread(POWER_COLUMNS), ("n", "n", "")]
_APART_COLUMNS = ("depth", "mb_s", "iops", "mean_ns", "max_ns", "mb_per_j")

_LITTLE = "IOPS × mean latency / depth is 1 where the depth was outstanding throughout. "

METHOD = [
    ("Throughput of a depth", "bytes / makespan of the step, max(complete) − min(submit): the depth is kept "
     "outstanding throughout."),
    ("Latency", "complete − submit of each I/O; mean over all I/Os of the depth, and the longest single one."),
    ("Mean of the maxima", "The arithmetic mean, over depths, of the longest latency of each depth. It is an average "
     "of single I/Os and says little: the maxima themselves stand in the table."),
    ("Lowest depth with 95 %", "The lowest measured depth whose throughput is at least 95 % of that of the best "
     "depth; given only where every depth of the test was measured."),
    ("Repeats", "Rates are geometric means over the repeats; latencies are pooled I/O by I/O, and the maximum is that "
     "of all repeats."),
]
