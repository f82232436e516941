"""consistency: variation of the IOPS of a drive without free blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.over_time import MOST_POINTS, Panel, extremes, time_rows
from blkreel.analysis.charts.spec import Axis
from blkreel.analysis.metrics.accumulator import SECOND_NS
from blkreel.analysis.metrics.partials.formulas import consistency
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import ChartContext, ranking, state_section
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    FigureSeries,
    by_state,
    figure_series,
    figure_table,
    over_repeats,
    without,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics import Array
from blkreel.benchmarks.step_metrics.fine_bins import FineBins
from blkreel.benchmarks.step_metrics.stalls import Stalls, find
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, Sensors, StepStats, arrays, energy_note
from blkreel.common import units
from blkreel.common.verdict import step_reason
from blkreel.replay.prepare.steady_state import ROUNDS, is_steady
from blkreel.traces.format.trace import Trace

from .report import Report

ROUNDS_PER_RUN = 60
MAX_DEVIATION = 0.10
MAX_END_DEVIATION = 0.20


@dataclass(frozen=True)
class Steady:
    """at_ns: start of the first steady round, from the start of the run. iops: the mean from there on."""

    at_ns: int
    iops: float


def became_steady(rates: Sequence[float] | Array) -> int | None:
    """The first of the first five steady rounds whose mean is within 10 % of that of all rounds from there on, and
    within 20 % of that of the last five: a fast beginning may be steady too, but it does not last."""
    rounds = np.asarray(rates, float)
    for first in range(len(rounds) - ROUNDS + 1):
        mean, tail_mean = rounds[first:first + ROUNDS].mean(), rounds[first:].mean()
        if (is_steady(rounds[first:first + ROUNDS].tolist()) and abs(mean - tail_mean) <= MAX_DEVIATION * tail_mean
                and abs(mean - rounds[-ROUNDS:].mean()) <= MAX_END_DEVIATION * mean):
            return first
    return None


def round_length_ns(span_ns: int, stall_period_ns: int | None) -> int:
    """A sixtieth of the run, rounded up to whole stall periods, so that each round has as many stalls."""
    length_ns = max(1, span_ns // ROUNDS_PER_RUN)
    return -(-length_ns // stall_period_ns) * stall_period_ns if stall_period_ns else length_ns


def steady(bins: FineBins, span_ns: int, stall_period_ns: int | None) -> tuple[Steady | None, int, int]:
    """(the steady state or None, the length of a round in ns, the number of rounds)."""
    wanted_ns = round_length_ns(span_ns, stall_period_ns)
    together = max(1, round(wanted_ns / bins.width_ns))
    length_ns = together * bins.width_ns
    rounds = bins.grouped(length_ns)[:span_ns // length_ns] * (10**9 / length_ns)
    first = became_steady(rounds)
    if first is None:
        return None, length_ns, len(rounds)
    return Steady(first * length_ns, float(rounds[first:].mean())), length_ns, len(rounds)

ROLE = "consistency"
LAST_S, WHOLE_S = 400, 3600


@dataclass(frozen=True)
class Measured:
    """seconds: completions in each whole second since the first submit."""

    stats: StepStats
    seconds: Array
    stalls: Stalls | None
    steady: Steady | None
    round_ns: int
    rounds: int

    @property
    def last_s(self) -> int:
        """How many seconds are the last part: 400, of a run shorter than an hour the same share of it."""
        return min(len(self.seconds), LAST_S, max(2, round(len(self.seconds) * LAST_S / WHOLE_S)))

    @property
    def sensors(self) -> Sensors:
        return self.stats.sensors


def _measure(directory: Path, trace: Trace) -> Measured:
    stats = StepStats.of(directory, trace)
    bins: FineBins | None = None
    per_second: Array = np.zeros(0, np.int64)
    for columns in arrays(trace, COLUMNS):
        data = columns["op"] < 2
        complete_ns = stats.feed({name: column[data] for name, column in columns.items()})
        if not len(complete_ns):
            continue
        bins = bins or FineBins(stats.begin_ns)
        bins.add(complete_ns)
        counts = np.bincount((complete_ns - stats.begin_ns) // SECOND_NS)
        longer, shorter = sorted((per_second, counts), key=len, reverse=True)
        longer[:len(shorter)] += shorter
        per_second = longer
    whole = stats.makespan_ns // SECOND_NS
    seconds = np.pad(per_second, (0, max(0, whole - len(per_second))))[:whole]
    if bins is None:
        return Measured(stats, seconds, None, None, 0, 0)
    stalls = find(bins)
    return Measured(stats, seconds, stalls, *steady(bins, stats.makespan_ns, stalls.period_ns if stalls else None))


def report(test: Test, runs: Runs) -> Content:
    """Labels: state, repeat."""
    measured = runs.measured(ROLE, _measure)
    content = Content(method=[*METHOD, energy_note([run.stats for _, run in measured])])
    states = by_state(measured)
    state_of = {step.id: state for state, own in states.items() for step, _ in own}
    row_of = {step.id: _row(step, run, state_of[step.id]) for step, run in measured}
    rows = list(row_of.values())
    content.figures = {"states": {state: _of_state([row_of[step.id] for step, _ in own])
                                  for state, own in states.items()}}
    content.tables = [figure_table("The last part", LAST_PART, rows), figure_table("The whole run", WHOLE_RUN, rows)]
    short = [run for _, run in measured if len(run.seconds) and run.last_s < LAST_S]
    if short:
        run = short[0]
        content.method.append(("Shorter than an hour", f"A run of {len(run.seconds)} s: its last part is the last "
                             f"{run.last_s} s, which is the share that 400 s are of an hour."))
    for step, run in measured:
        if run.steady is None:
            content.reasons.append(step_reason("not_steady", "qualified", f"not steady: {step.title}" + (
                "" if run.rounds >= 5 else ", too short to tell"), [step.id]))
    several = len({step.repeat for step, _ in measured}) > 1
    names = [f"{state_of[step.id] or step.title}{f', repeat {step.repeat}' if several else ''}"
             for step, _ in measured]
    content.series = list(_series(names, measured, state_of))
    return content


def _row(step: BenchmarkStep, run: Measured, state: str) -> Figures:
    last = consistency(run.seconds[len(run.seconds) - run.last_s:])
    metrics = run.stats.metrics()
    why = dict(metrics["why"])
    if run.stalls is None:
        why |= dict.fromkeys(("stall_period_ns", "stall_ns"), "none found")
    if last.score is None:
        why["score"] = "no second differs from another"
    if last.downside_score is None:
        why["downside_score"] = "no second under the upper quartile"
    if run.steady is None:
        why |= dict.fromkeys(("steady_iops", "steady_at_ns"), "not steady")
    warm = run.sensors.temperature[1]
    return {"state": state or None, "repeat": step.repeat, "last_s": run.last_s,
            **{score.key: getattr(last, score.key) for score in SCORES},
            "whole_iops": run.stats.iops, "whole_mb_s": run.stats.mb_s,
            "stall_period_ns": run.stalls and run.stalls.period_ns, "stall_ns": run.stalls and run.stalls.length_ns,
            "stalls": run.stalls and run.stalls.count, "stall_complete": run.stalls and run.stalls.complete,
            "steady_iops": run.steady and run.steady.iops, "steady_at_ns": run.steady and run.steady.at_ns,
            "round_ns": run.round_ns, "max_ns": run.stats.data.max_ns,
            "max_temperature_c": float(warm.max()) if len(warm) else None,
            "average_w": metrics["average_w"], "mb_per_j": metrics["mb_per_j"], "why": why}


def _of_state(rows: list[Figures]) -> Figures:
    """The figures of one state: of its only run, or of several the geometric means, and each run."""
    if len(rows) == 1:
        return {**without(rows[0], "state", "repeat"), "n": 1}
    figures: Figures = {"n": len(rows), "runs": [without(row, "state", "why") for row in rows]}
    for key in ("mean_iops", "score", "downside_score", "whole_iops", "whole_mb_s", "steady_iops", *_POWER):
        figures |= over_repeats(key, [row[key] for row in rows])
    return {**figures, "why": {key: why for row in rows for key, why in row["why"].items()}}


def _series(names: list[str], measured: list[tuple[BenchmarkStep, Measured]],
            state_of: Mapping[str, str]) -> Iterator[FigureSeries]:
    """Each run's IOPS and temperature, whole and over its last part."""
    for name, (step, run) in zip(names, measured, strict=True):
        state, begin = state_of[step.id], len(run.seconds) - run.last_s
        of = {"state": state, "repeat": step.repeat}
        for part, from_s in (("whole", 0), ("last", begin)):
            words = "" if part == "whole" else f" over the last {run.last_s} s"
            seconds = list(range(from_s, len(run.seconds)))
            if seconds:
                yield figure_series(f"IOPS{words}, {name}", ("time", "s"), ("IOPS", "1/s"),
                             [(name, seconds, run.seconds[from_s:].tolist())], what="iops", part=part, **of)
            time_ns, degrees = run.sensors.temperature
            if not len(time_ns) or run.stats.begin_ns is None:
                continue
            at_s = (time_ns - run.stats.begin_ns) / SECOND_NS
            inside = (at_s >= from_s) & (at_s <= run.stats.makespan_ns / SECOND_NS)
            if inside.any():
                yield figure_series(f"Temperature{words}, {name}", ("time", "s"), ("Temperature", "°C"),
                             [(name, at_s[inside].tolist(), degrees[inside].tolist())], what="temperature", part=part,
                             **of)


SCORES = [
    metric.number("mean_iops", "IOPS, mean", "1/s", "mean of the 1 s bins of the last part", "higher"),
    metric.number("score", "Consistency", "", "mean / population standard deviation of the bins", "higher"),
    metric.number("downside_score", "Dips only", "", "q / √(mean(min(0, x − q)²)), q: upper quartile", "higher"),
    metric.share("first_percentile_over_upper_quartile", "Slowest 1 % of seconds / upper quartile", "nearest rank"),
    metric.share("share_under_half_upper_quartile", "Seconds under half the upper quartile", "share", "lower")]
WHOLE = [
    metric.number("whole_iops", "IOPS, mean", "1/s", "I/Os / time, of the whole run", "higher"),
    metric.rate("whole_mb_s", "Throughput", "bytes / time, of the whole run"),
    metric.number("steady_iops", "IOPS, steady", "1/s", "mean from the first five steady rounds on", "higher"),
    metric.duration("steady_at_ns", "Steady after", "start of the first of these rounds"),
    metric.duration("stall_period_ns", "Stalls every", "mean interval of periodic pauses", ""),
    metric.duration("stall_ns", "Stall", "median pause, less the usual time between completions"), metric.MAX_LATENCY,
    metric.number("max_temperature_c", "Hottest", "°C", "highest sample", "lower"), *metric.POWER]
_POWER = [power.key for power in metric.POWER]
LAST = metric.number("last_s", "Last", "s")
LAST_PART = [metric.STATE, metric.REPEAT, LAST, *SCORES]
WHOLE_RUN = [metric.STATE, metric.REPEAT, *(figure for figure in WHOLE if figure.key != "whole_mb_s")]

METHOD = [
    ("IOPS over time", "Completions in bins of 1 s since the first submit; empty bins are zeros, and a last, cut-off "
     "second is left out."),
    ("Consistency", "Of the last 400 s: mean / population standard deviation of the bins. Fast seconds lower it "
     "too, so also, with the upper quartile q: dips only = q / √(mean(min(0, x − q)²)), the slowest 1 % of seconds / "
     "q, and the share of seconds under half of q. Quantiles are by nearest rank."),
    ("Stalls", "Pauses between two completions, longer than 2 ms and than 5 times the mean time between completions, "
     "at regular intervals: at least four, whose intervals vary by 8 % at most (seven 4 %, six 3 %, five 2 %, "
     "four 1 %); of eight or more, one in five may be irregular and one in five missing (D). If pauses have no "
     "period, dips are searched in the same way: times under half of the upper quartile of the rate in the same tenth "
     "of the run. Period and length are the mean interval and the median pause, less the usual time between "
     "two completions; bins of 1 ms, with the first and last completion to the nanosecond."),
    ("Steady state", "Rounds of a sixtieth of the run, of whole periods if the drive stalls periodically (D). "
     "Steady from the first five rounds on with max − min ≤ 0.20 mean and 4 |least-squares slope per round| ≤ 0.10 "
     "mean, whose mean is within 10 % of that of all later rounds and within 20 % of that of the last five (D): a "
     "fast beginning may be steady too, but does not last. Otherwise “not steady”."),
]


def sections(context: ChartContext) -> Iterator[Section]:
    mean_iops, score, downside_score = SCORES[:3]
    for state_context in context.by_state():
        charts = [
            _over_time(state_context, "whole", "iops-temperature", "IOPS and temperature"),
            _over_time(state_context, "last", "last-part", "IOPS and temperature, the last part"),
            _scores(state_context, "downside", downside_score, "median / dips", "Evenness: dips only",
                    "Upper quartile / size of the dips below it: only slow seconds count."),
            _scores(state_context, "consistency", score, "consistency", "Consistency",
                    "The published score: fast seconds lower it as well."),
            _scores(state_context, "mean-iops", mean_iops, "IOPS", "IOPS of the last part"),
            state_context.chart("whole", "Steady state, stalls and the whole run",
                                state_context.table(state_context.titled("The whole run"), WHOLE, state_context.at()))]
        yield state_section(state_context, "Evenness", charts)


def _scores(context: ChartContext, id_: str, figure: metric.BenchmarkMetric, axis: str, title: str,
            text: str = "") -> Chart | None:
    table = context.table(context.titled("The last part"), [
        *sorted(SCORES, key=lambda score: score is not figure), LAST, metric.REPEATS], context.at())
    return ranking(context, id_, title, Axis(axis, "", "auto"), [("", context.at(figure.key))], table, figure,
                   text=text)


def _over_time(context: ChartContext, part: str, id_: str, title: str) -> Chart | None:
    state = context.state
    drawn = [(drive, repeats[0]) for drive in context.drives
             if (repeats := drive.series("iops", state=state, part=part))]
    if not drawn:
        return None
    most = min(1100, MOST_POINTS * 4 // 5 // (len(drawn) + 1))
    panels = []
    for drive, series in drawn:
        (line,) = series["lines"]
        sensors = drive.series("temperature", state=state, part=part, repeat=series["of"]["repeat"])
        degrees = sensors[0]["lines"][0] if sensors else {"x": [], "y": []}
        mean, score = (drive.value(*context.at(key)).value for key in ("mean_iops", "downside_score"))
        caption = "" if part == "whole" or mean is None else f"mean {units.digits(mean)}" + (
            f" · dips only {units.digits(score)}" if score is not None else "")
        panels.append(Panel(
            drive.key, drive.name, [{"t": t, "rate": rate} for t, rate in extremes(line["x"], line["y"], most)],
            line["x"][-1] + 1, line["x"][0], caption,
            [(t, round(value, 1)) for t, value in extremes(degrees["x"], degrees["y"], max(20, most // 4))]))
    if part == "last" and all(panel.begin == 0 for panel in panels):
        return None
    rows = tuple(Row({"drive": panel.entry, "at_s": step["t"], "iops": step["rate"]}, panel.entry, group=panel.title)
                 for panel in panels for step in panel.steps)
    table = Table("Completions in each second", (
        Column("drive", "Drive"), Column("at_s", "From", "number", "s"),
        Column("iops", "IOPS", "number", better="higher")), rows)
    is_warm = any(panel.temperature for panel in panels)
    is_thinned = any(len(series["lines"][0]["x"]) > most for _, series in drawn)
    is_repeated = any(len(drive.series("iops", state=state, part=part)) > 1 or len(drive.tests) > 1
                      for drive, _ in drawn)
    notes = [*([] if is_warm else ["No temperature was recorded."]),
             *(["The lowest and the highest second of each interval are drawn."] if is_thinned else []),
             *(["The first repetition is drawn."] if is_repeated else [])]
    return context.chart(id_, title, table, time_rows(f"{title} over time, one row per drive", panels, "IOPS"),
                         text="IOPS of each second" + (", temperature dashed on the right" if is_warm else "") +
                         "; the strip at the bottom zooms.", notes=notes, wide=True, zooms=True)


REPORT = Report(report, sections, lambda drive: drive.of_state(0, "downside_score"), SCORES[2])
