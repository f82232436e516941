"""trace-consistency, game-score: traces replayed in passes, with the bandwidth, access time and score of each pass."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Axis
from blkreel.analysis.metrics.accumulator import SECOND_NS
from blkreel.analysis.metrics.partials.formulas import mb_per_s
from blkreel.analysis.report.columns import WITHHELD
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import ChartContext, points_of, ranking, state_section
from blkreel.benchmarks.charts.drives import DriveResults, FigurePath
from blkreel.benchmarks.charts.tables import MetricRow, metric_table
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import Content, Figures, by_state, figure_table, over_repeats
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, BusyTime, StepStats, arrays, energy_note
from blkreel.common.binning import grouped
from blkreel.common.verdict import step_reason
from blkreel.traces.format.trace import Trace
from blkreel.traces.samples import PREFIX

from .report import Report

ROLE = "trace"


@dataclass(frozen=True)
class Playback:
    """One replay of a trace. sha256: of the trace. bandwidth_mb_s, access_ns: None without reads and writes, and where
    a metric of them is withheld."""

    stats: StepStats
    busy_ns: int
    sha256: str | None

    @property
    def bandwidth_mb_s(self) -> float | None:
        withheld = self.stats.withheld & {"read_wait", "write_wait"}
        return None if withheld else mb_per_s(self.stats.data.bytes, self.busy_ns)

    @property
    def access_ns(self) -> float | None:
        withheld = self.stats.withheld & {"read_service_time", "write_service_time"}
        return None if withheld else self.stats.data.mean_ns


def _measure(directory: Path, trace: Trace) -> Playback:
    stats, busy = StepStats.of(directory, trace), BusyTime()
    for columns in arrays(trace, COLUMNS):
        stats.feed(columns)
        busy.feed(columns)
    return Playback(stats, busy.busy_ns, trace.account.source.sha256)


def score(bandwidth_mb_s: float | None, access_ns: float | None) -> float | None:
    """The geometric mean of the bandwidth in MB/s and of 1 / access time in 1/s (UL, 3DMark Storage Benchmark)."""
    if bandwidth_mb_s is None or not access_ns:
        return None
    return math.sqrt(bandwidth_mb_s * SECOND_NS / access_ns)


def report(test: Test, runs: Runs) -> Content:
    """Labels: state, phase (optional), pass_number, trace, repeat."""
    playbacks = {step.id: playback for step, playback in runs.measured(ROLE, _measure)}
    steps = [step for step in test.steps if step.role == ROLE]
    content = Content(method=[*METHOD, energy_note([playback.stats for playback in playbacks.values()])])
    sources: dict[str, set[str | None]] = {}
    for step in steps:
        if step.id in playbacks:
            sources.setdefault(_trace(step), set()).add(playbacks[step.id].sha256)
    if any(len(own) > 1 for own in sources.values()):
        content.reasons.append(step_reason("different_traces", "invalid", "its runs are of different traces: a file "
                                           "changed before the test was resumed"))
    names = trace_names(_trace(step) for step in steps)

    def name_of(step: BenchmarkStep) -> str:
        return names[_trace(step)]

    def rows_by(own: Iterable[BenchmarkStep], key: Callable[[BenchmarkStep], str]) -> dict[str, Figures]:
        return {name: _summary(group, playbacks) for name, group in grouped((key(step), step) for step in own).items()}

    states: dict[str, Figures] = {}
    by_phase, by_pass, by_trace = [], [], []
    by_label = by_state([(step, step) for step in steps], "phase", "pass_number", "trace")
    for state, pairs in by_label.items():
        own = [step for step, _ in pairs]
        phases = {phase: (group, rows_by(group, name_of))
                  for phase, group in grouped((_phase(step), step) for step in own).items() if phase}
        passes = {key: {"phase": _phase(group[0]), "pass_number": _pass(group[0]), **_summary(group, playbacks)}
                  for key, group in grouped(
                      (f"{_phase(step)}-{_pass(step)}".removeprefix("-"), step) for step in own).items()}
        states[state] = {**_summary(own, playbacks), "passes": passes, "traces": rows_by(own, name_of)}
        if phases:
            states[state]["phases"] = {phase: {**_summary(group, playbacks), "traces": traces}
                                       for phase, (group, traces) in phases.items()}
        by_phase += [{"state": state, "phase": phase, **row}
                     for phase, row in states[state].get("phases", {}).items()]
        by_pass += [{"state": state, **row, "phase": row["phase"] or None} for row in passes.values()]
        by_trace += [{"state": state, "trace": trace, "phase": "all" if phases else None, **row}
                     for trace, row in states[state]["traces"].items()]
        by_trace += [{"state": state, "trace": trace, "phase": phase, **row}
                     for phase, (_, traces) in phases.items() for trace, row in traces.items()]
    content.figures = {"states": states}
    content.tables = [
        figure_table(f"Score = {FORMULA}", [metric.STATE, *metric.with_spread(METRICS), metric.REPEATS],
              [{"state": state, **row} for state, row in states.items()]),
        figure_table("By phase", [metric.STATE, PHASE, *metric.with_spread(METRICS)], by_phase),
        figure_table("By pass", [metric.STATE, PHASE, PASS, *METRICS], by_pass),
        figure_table("By trace", [metric.STATE, TRACE, PHASE, *METRICS], by_trace)]
    return content


def _summary(steps: Iterable[BenchmarkStep], playbacks: Mapping[str, Playback]) -> Figures:
    """The metrics over the replays of the steps: geometric means, and over the repeats of these.

    A mean without one of its replays is of other traces or passes, so it has no value.
    """
    repeats = list(grouped((step.repeat, step) for step in steps).values())
    bandwidths, accesses = [], []
    for own in repeats:
        own_playbacks = [playbacks.get(step.id) for step in own]
        bandwidths.append(geometric_mean([playback.bandwidth_mb_s if playback else None for playback in own_playbacks]))
        accesses.append(geometric_mean([playback.access_ns if playback else None for playback in own_playbacks]))
    row: Figures = {"n": len(repeats), **over_repeats("score", list(map(score, bandwidths, accesses))),
                **over_repeats("bandwidth_mb_s", bandwidths), **over_repeats("access_ns", accesses)}
    missing = [step.title for own in repeats for step in own if step.id not in playbacks]
    if missing or row["score"] is None:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        withheld = any(playbacks[step.id].stats.withheld for own in repeats for step in own if step.id in playbacks)
        why = f"missing: {missing[0]}{more}" if missing else WITHHELD if withheld else (
            "a replay without reads and writes")
        row["why"] = dict.fromkeys(("score", "bandwidth_mb_s", "access_ns"), why)
    return row


def _phase(step: BenchmarkStep) -> str:
    return str(step.labels.get("phase", ""))


def _pass(step: BenchmarkStep) -> int | str:
    number = step.labels.get("pass_number", 1)
    return number if isinstance(number, int) else str(number)


def _trace(step: BenchmarkStep) -> str:
    return str(step.labels.get("trace", ""))


def trace_names(traces: Iterable[str]) -> dict[str, str]:
    """Names of traces that can stand in the key of a figure: without sample: and directories if that is unique."""
    labels = list(dict.fromkeys(traces))
    short = [label.removeprefix(PREFIX) if label.startswith(PREFIX) else Path(label).stem for label in labels]
    names = short if len(set(short)) == len(short) else labels
    return {label: name.replace(".", "_") for label, name in zip(labels, names, strict=True)}


FORMULA = "√(bandwidth in MB/s × 1 / access time in s)"
PHASE, TRACE = metric.text("phase", "Phase"), metric.text("trace", "Trace")
PASS = metric.count("pass_number", "Pass")
METRICS = [
    metric.number("score", "Score", "", FORMULA, "higher"),
    metric.rate("bandwidth_mb_s", "Bandwidth", "bytes read and written / time with at least one read or write in "
                "flight; geometric mean over replays"),
    metric.duration("access_ns", "Access time", "mean of complete − submit over reads and writes; geometric mean over "
                    "replays")]

METHOD = [
    ("Bandwidth", "Of a replay: bytes read and written / time with at least one read or write in flight."),
    ("Access time", "Of a replay: arithmetic mean of complete − submit over all reads and writes; flushes and discards "
     "do not count."),
    ("Score", f"{FORMULA}: the geometric mean of bandwidth and 1 / access time, as "
     "published for the 3DMark Storage Benchmark. The publication gives no units: MB and seconds are (D)."),
    ("Passes, phases, traces", "Geometric means of bandwidth and of access time over the replays; the score is "
     "computed from these (D). A mean without one of its replays has no value."),
    ("Comparability", "The traces are those of this project. No figure is comparable with one of PCMark or 3DMark."),
]
_SCORE_TEXT = f"Score = {FORMULA}, of geometric means over the replays."
# metric, id and title of its charts, axis
_CHARTS = ((METRICS[1], "bandwidth", "Bandwidth", Axis("bandwidth", "MB/s", "auto")),
           (METRICS[2], "access", "Access time", Axis("access time", "ns", "auto")))


def sections(context: ChartContext) -> Iterator[Section]:
    for state_context in context.by_state():
        yield state_section(state_context, "Passes of traces", _charts(state_context))


def _charts(context: ChartContext) -> Iterator[Chart | None]:
    phases = _keys(context, "phases")
    if phases:
        yield from _passes(context, phases)
    yield _score(context, phases)
    if phases:
        yield from _by_part(context, "phase", phases)
    else:
        yield from _passes(context, phases)
    yield from _by_part(context, "trace", _keys(context, "traces"))


def _score(context: ChartContext, phases: list[str]) -> Chart | None:
    parts = [(phase, context.at("phases", phase, "score")) for phase in phases] or [("", context.at("score"))]
    table = context.table(context.titled("Score"), [*METRICS, metric.REPEATS], context.at())
    return ranking(context, "score", "Score", Axis("score", "", "auto"), parts, table, METRICS[0],
                   order_path=lambda drive: context.at("score"), text=_SCORE_TEXT)


def _by_part(context: ChartContext, what: str, parts: list[str]) -> Iterator[Chart | None]:
    """By phase or by trace: what is "phase" or "trace", the name of the groups below the state is its plural."""
    table = context.table(context.titled(f"By {what}"), METRICS, context.at(f"{what}s", f"{{{what}}}"), parts)
    for figure, id_, words, axis in _CHARTS:
        def path_of_all(drive: DriveResults, key: str = figure.key) -> FigurePath:
            return context.at(key)

        def mean_text(drive: DriveResults, figure: metric.BenchmarkMetric = figure) -> str:
            value = drive.value(*context.at(figure.key)).value
            return "" if value is None else figure.value_unit.text(value)

        yield ranking(context, f"{id_}-by-{what}", f"{words} by {what}", axis,
                      [(name, context.at(f"{what}s", name, figure.key)) for name in parts], table, figure,
                      order_path=path_of_all,
                      # The values of many traces do not fit into a row.
                      text_of=mean_text if what == "trace" else None,
                      text="At the right the geometric mean over all replays." if what == "trace" else "")


def _passes(context: ChartContext, phases: list[str]) -> Iterator[Chart]:
    keys = _keys(context, "passes")
    if len(keys) < 2:
        return
    rows = [(key.rpartition("-")[0], keys.index(key), MetricRow(drive, context.at("passes", key), {"pass": key}))
            for drive in context.drives for key in keys if drive.holds(*context.at("passes", key))]
    table = metric_table(context.titled("By pass"), [row for _, _, row in rows], METRICS,
                         context.at("passes", "{pass}"), (Column("pass", "Pass"),))
    initials = ", ".join(f"{phase[:1].upper()} {phase}" for phase in phases)
    across = Axis(f"pass: {initials}" if phases else "pass", kind="names", names=tuple(
        f"{key[:1].upper()}{key.rpartition('-')[2]}" if phases else key for key in keys))
    for figure, id_, words, axis in _CHARTS:
        title = f"{words} by pass"
        yield context.chart(f"{id_}-by-pass", title, table, curves(
            context.titled(title), points_of(rows, figure.key), context.style(phases), across, axis), figure.better,
            "Geometric mean over the traces of the pass.")


def _keys(context: ChartContext, groups: str) -> list[str]:
    """Over all drives, in the order of the test."""
    return list(dict.fromkeys(key for drive in context.drives for key in drive.keys(*context.at(groups))))


REPORT = Report(report, sections, lambda drive: drive.of_state(-1, "score"), METRICS[0])
