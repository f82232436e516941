"""mixed-random and mixed-sequential: throughput and efficiency by percentage of reads, full and empty."""

from typing import Any

from blkreel.analysis.metrics.energy import SECOND_NS, mb_per_joule
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.step_metrics.step_stats import ClassStats, StepStats, energy_note, step_stats

from .directory import Runs, Test
from .document import (
    Content,
    Figures,
    by_state,
    figure_series,
    figure_table,
    over_repeats,
    ratio,
    steps_over_repeats,
    without,
)

ROLE = "mix"
FULL, EMPTY = "full", "data"


def report(test: Test, runs: Runs) -> Content:
    """Labels: state, mix (reads in percent), repeat."""
    groups: dict[str, dict[int, dict[int, StepStats]]] = {}
    for state, own in by_state(runs.measured(ROLE, step_stats, number="mix"), "mix").items():
        for step, stats in own:
            groups.setdefault(state, {}).setdefault(step.labels["mix"], {})[step.repeat] = stats
    wanted = sorted({mix for step in test.steps if step.role == ROLE
                     and isinstance(mix := step.labels.get("mix"), int)}, reverse=True)
    content = Content(method=[*METHOD, energy_note([stats for mixes in groups.values() for repeats in mixes.values()
                                                  for stats in repeats.values()])])
    figures: dict[str, Any] = {}
    for state, mixes in groups.items():
        rows = [_row(mix, list(mixes[mix].values())) for mix in wanted if mix in mixes]
        figures[state] = {"mixes": {str(row["mix"]): without(row, "mix") for row in rows}, "mean": _mean(mixes, wanted)}
        mean = figures[state]["mean"]
        rows.append({"mix": f"mean of {len(wanted)}", **mean})
        content.tables.append(figure_table(f"State {state}" if state else "Mixes", METRICS, rows))
    content.figures = {"states": figures, "full_over_empty": _full_over_empty(figures)}
    for full, pairs in content.figures["full_over_empty"].items():
        rows = [{"mix": int(mix), "ratio": value} for mix, value in pairs["mixes"].items()]
        rows.append({"mix": f"of the means of {len(wanted)}", "ratio": pairs["mean"]})
        content.tables.append(figure_table(f"Throughput, {full} / {pairs['empty']}",
                                  [_MIX, metric.number("ratio", "Ratio")], rows))
    for each in (metric.THROUGHPUT, *metric.POWER):
        lines = []
        for state, of_state in figures.items():
            points = sorted((int(mix), row[each.key]) for mix, row in of_state["mixes"].items()
                            if row[each.key] is not None)
            if points:
                lines.append((state or each.title, [x for x, _ in points], [y for _, y in points]))
        if lines:
            content.series.append(figure_series(
                f"{each.title} by share of reads", ("reads", "%"), (each.title, each.unit), lines))
    return content


def _row(mix: int, repeats: list[StepStats]) -> Figures:
    return {"mix": mix, **steps_over_repeats(repeats, "mb_s", "iops", "average_w", "mb_per_j"),
            "bytes": sum(stats.data.bytes for stats in repeats), "time_ns": sum(stats.makespan_ns for stats in repeats),
            "read_mean_ns": _pooled_mean([stats.reads for stats in repeats]),
            "write_mean_ns": _pooled_mean([stats.writes for stats in repeats])}


def _pooled_mean(stats: list[ClassStats]) -> float | None:
    return ratio(sum(each.service_ns for each in stats), sum(each.ops for each in stats))


def _mean(mixes: dict[int, dict[int, StepStats]], wanted: list[int]) -> Figures:
    """The mean over all mixes: of each repeat, then the geometric mean over repeats. None if one is missing."""
    per_repeat = []
    for repeat in sorted({repeat for repeats in mixes.values() for repeat in repeats}):
        steps = [mixes[mix][repeat] for mix in wanted if repeat in mixes.get(mix, {})]
        if len(steps) == len(wanted):
            per_repeat.append(steps)
    if not per_repeat:
        gone = [f"{mix} %" for mix in wanted if mix not in mixes]
        why = f"missing: {', '.join(gone)}" if gone else "no repeat has all mixes"
        return {"mb_s": None, "average_w": None, "mb_per_j": None, "n": 0,
                "why": dict.fromkeys(("mb_s", "average_w", "mb_per_j"), why)}
    rates = [[stats.mb_s for stats in steps] for steps in per_repeat]
    powers = [_power_of_all(steps) for steps in per_repeat]
    return {**over_repeats("mb_s", [_average(values) for values in rates]),
            **over_repeats("average_w", [power[0] for power in powers]),
            **over_repeats("mb_per_j", [power[1] for power in powers]), "n": len(per_repeat),
            **({} if all(None not in power for power in powers) else
               {"why": dict.fromkeys(("average_w", "mb_per_j"), "power not measured for each mix")})}


def _average(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _power_of_all(steps: list[StepStats]) -> tuple[float | None, float | None]:
    """(W over the active time of all mixes, MB/J = bytes of all / joules of all)."""
    used = [energy for stats in steps if (energy := stats.energy())]
    if len(used) < len(steps):
        return None, None
    joules, covered_ns = sum(each.joules for each in used), sum(each.covered_ns for each in used)
    return (ratio(joules * SECOND_NS, covered_ns), mb_per_joule(sum(stats.covered_bytes for stats in steps), joules))


def _full_over_empty(figures: dict[str, Any]) -> dict[str, Any]:
    """State full over state data, each with the same over-provisioning: {full: {"empty", "mixes", "mean"}}."""
    ratios = {}
    for full in figures:
        if not full.startswith(FULL):
            continue
        empty = EMPTY + full.removeprefix(FULL)
        if empty not in figures:
            continue
        ours, theirs = figures[full]["mixes"], figures[empty]["mixes"]
        ratios[full] = {
            "empty": empty,
            "mixes": {mix: ratio(ours[mix]["mb_s"], theirs[mix]["mb_s"]) for mix in ours if mix in theirs},
            "mean": ratio(figures[full]["mean"]["mb_s"], figures[empty]["mean"]["mb_s"]),
            "geometric_mean": geometric_mean([ratio(ours[mix]["mb_s"], theirs[mix]["mb_s"])
                                              for mix in ours if mix in theirs]),
        }
    return ratios


_MIX = metric.text("mix", "Reads", unit="%")
METRICS = [_MIX, *metric.with_spread([metric.THROUGHPUT, metric.IOPS]),
           metric.duration("read_mean_ns", "Read latency, mean", "Σ latency / n"),
           metric.duration("write_mean_ns", "Write latency, mean", "Σ latency / n"),
           *metric.with_spread(metric.POWER), metric.REPEATS]

METHOD = [
    ("Throughput of a mix", "bytes read and written / makespan of the step, max(complete) − min(submit): the stream "
     "keeps its depth outstanding throughout, so this is its active time. The rest after the step is not counted."),
    ("Mean of the mixes", "Arithmetic mean of the throughputs of all mixes of a repeat (D), of equal weight whatever "
     "their duration; given only if each mix of the test was measured. Its W is the energy / active time of all mixes, "
     "its MB/J the bytes / joules of all mixes."),
    ("Full / empty", "Throughput in the state `full` / throughput with only the test data on the drive, for each mix "
     "and for the means."),
    ("Repeats", "Geometric means over the repeats, with the smallest and the largest."),
]
