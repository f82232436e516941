"""mixed-random and mixed-sequential: throughput and efficiency by percentage of reads, full and empty."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from blkreel.analysis.charts.curves import curves, slope
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.metrics.definitions.metric import MB_S as MB_S_UNIT
from blkreel.analysis.metrics.energy import SECOND_NS, mb_per_joule
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, efficiency, points_of, ranking, section
from blkreel.benchmarks.charts.tables import MetricRow, metric_table
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    by_state,
    figure_series,
    figure_table,
    over_repeats,
    ratio,
    steps_over_repeats,
    withhold,
    without,
)
from blkreel.benchmarks.step_metrics.step_stats import ClassStats, StepStats, energy_note, step_stats

from .report import Report

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
    for figure in (metric.THROUGHPUT, *metric.POWER):
        lines = []
        for state, of_state in figures.items():
            points = sorted((int(mix), row[figure.key]) for mix, row in of_state["mixes"].items()
                            if row[figure.key] is not None)
            if points:
                lines.append((state or figure.title, [x for x, _ in points], [y for _, y in points]))
        if lines:
            content.series.append(figure_series(
                f"{figure.title} by share of reads", ("reads", "%"), (figure.title, figure.unit), lines))
    return content


def _row(mix: int, repeats: list[StepStats]) -> Figures:
    row = {"mix": mix, **steps_over_repeats(repeats, "mb_s", "iops", "average_w", "mb_per_j"),
           "bytes": sum(stats.data.bytes for stats in repeats), "time_ns": sum(stats.makespan_ns for stats in repeats),
           "read_mean_ns": _pooled_mean([stats.reads for stats in repeats]),
           "write_mean_ns": _pooled_mean([stats.writes for stats in repeats])}
    return withhold(row, {f"{op}_mean_ns": [f"{op}_service_time"] for op in ("read", "write")}, repeats)


def _pooled_mean(stats: list[ClassStats]) -> float | None:
    return ratio(sum(step.service_ns for step in stats), sum(step.ops for step in stats))


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
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(values) else None


def _power_of_all(steps: list[StepStats]) -> tuple[float | None, float | None]:
    """(W over the active time of all mixes, MB/J = bytes of all / joules of all)."""
    used = [energy for stats in steps if (energy := stats.energy())]
    if len(used) < len(steps):
        return None, None
    joules, covered_ns = sum(energy.joules for energy in used), sum(energy.covered_ns for energy in used)
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
        full_mixes, empty_mixes = figures[full]["mixes"], figures[empty]["mixes"]
        mixes = {mix: ratio(full_mixes[mix]["mb_s"], empty_mixes[mix]["mb_s"])
                 for mix in full_mixes if mix in empty_mixes}
        ratios[full] = {"empty": empty, "mixes": mixes,
                        "mean": ratio(figures[full]["mean"]["mb_s"], figures[empty]["mean"]["mb_s"]),
                        "geometric_mean": geometric_mean(list(mixes.values()))}
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


_READS = Axis("reads", "%")
_KEYS = ("mb_s", "iops", "read_mean_ns", "write_mean_ns", "average_w", "mb_per_j")


def sections(context: ChartContext) -> Iterator[Section]:
    yield section("means", "Over all mixes", (
        _means(context), *_full_empty(context), efficiency(
            context, "efficiency", "Efficiency over all mixes",
            [(state, ("states", state, "mean"), "mb_s") for state in context.states()])))
    power, mb_per_j = metric.POWER
    yield section("mixes", "By share of reads", (chart for figure, axis in (
        (metric.THROUGHPUT, MB_S), (mb_per_j, Axis("efficiency", "MB/J", "auto")), (power, Axis("power", "W")))
        for chart in _by_mix(context, figure, axis)))


def _means(context: ChartContext) -> Chart | None:
    states = context.states()
    table = context.table("Mean of the mixes", [
        metric.rate("mb_s", "Throughput", "arithmetic mean of the throughputs of all mixes"), *metric.POWER,
        metric.REPEATS], ("states", "{state}", "mean"), states)
    return ranking(context, "mean", "Mean of the mixes", MB_S,
                   [(state or "all", ("states", state, "mean", "mb_s")) for state in states], table,
                   metric.THROUGHPUT, order_part=len(states) - 1)


def _full_empty(context: ChartContext) -> Iterator[Chart]:
    pairs = list(dict.fromkeys((full, pair["empty"]) for drive in context.drives for test in drive.tests
                               for full, pair in test["figures"].get("full_over_empty", {}).items()))
    for full, empty in pairs:
        ends = [("states", empty, "mean", "mb_s"), ("states", full, "mean", "mb_s")]
        points = context.slopes(*ends)
        base = ("full_over_empty", full)
        table = context.table(f"Throughput, {full} / {empty}", [
            metric.number("mean", "Full / empty", "", "mean of the mixes, full / nearly empty", "higher"),
            metric.number("geometric_mean", "by mix", "", "geometric mean over mixes of full / nearly empty",
                          "higher")], base)
        mixes = sorted({mix for drive in context.drives for mix in drive.keys(*base, "mixes")}, key=int)
        yield Chart(_id("full-empty", full, pairs), f"From {empty} to {full}", table,
                    slope(f"Mean throughput of the mixes, {empty} and {full}", points, context.style(), (empty, full),
                          MB_S), "higher", "Throughput that remains once the drive is full.")
        points = [Point(drive.key, "", int(mix), ratio) for drive in context.drives for mix in mixes
                  if (ratio := drive.value(*base, "mixes", mix).value) is not None]
        table = context.table(f"{full} / {empty}, by mix", [
            metric.number(f"of_{mix}", f"{mix} % reads", "", "throughput full / nearly empty", "higher", (mix,))
            for mix in mixes], (*base, "mixes"))
        yield Chart(_id("full-empty-mix", full, pairs), f"{full} / {empty}, by share of reads", table,
                    curves(f"Throughput {full} over {empty}, by share of reads", points, context.style(), _READS,
                           Axis("full / empty")), "higher")


def _id(stem: str, full: str, pairs: list[tuple[str, str]]) -> str:
    return stem if len(pairs) == 1 else f"{stem}-{full.replace('+', '-')}"


def _by_mix(context: ChartContext, figure: metric.BenchmarkMetric, axis: Axis) -> Iterator[Chart]:
    key, title = figure.key, f"{figure.title} by share of reads"
    groups = [[state] for state in context.states()] if context.several else [context.states()]
    for states in groups:
        rows = [(state, int(mix), MetricRow(drive, ("states", state, "mixes", mix), {"state": state, "mix": int(mix)}))
                for drive in context.drives for state in states
                for mix in sorted(drive.keys("states", state, "mixes"), key=int, reverse=True)]
        points = points_of(rows, key)
        if not points:
            continue
        labels = (Column("state", "State"), Column("mix", "Reads", "number", "%"))
        table = metric_table(title, [row for _, _, row in rows],
                             metric.select(METRICS, *_KEYS) if key == "mb_s" else [figure],
                             ("states", "{state}", "mixes", "{mix}"), labels)
        stem = {"mb_s": "mix", "mb_per_j": "mix-efficiency", "average_w": "mix-power"}[key]
        state_context = replace(context, state=states[0]) if context.several else context
        spec = curves(state_context.titled(title), points, context.style(states), _READS, axis)
        yield state_context.chart(stem, title, table, spec, figure.better,
                                  _slowest_mix(context, points, states) if key == "mb_s" else "")


def _slowest_mix(context: ChartContext, points: Sequence[Point], states: Sequence[str]) -> str:
    """A sentence for a page of one drive; empty for several."""
    if context.several or not points:
        return ""
    least = min(points, key=lambda point: point.y)
    state = f" in state {least.line}" if len(states) > 1 else ""
    return f"Slowest at {least.x} % reads{state}: {MB_S_UNIT.text(least.y)}."


REPORT = Report(report, sections, lambda drive: drive.of_state(-1, "mean", "mb_s"), metric.THROUGHPUT)
