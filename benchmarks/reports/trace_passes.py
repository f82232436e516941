"""trace-consistency, game-score: traces replayed in passes, with the bandwidth, access time and score of each pass."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.metrics.accumulator import SECOND_NS
from blkreel.analysis.metrics.definitions.metric import NUMBER
from blkreel.analysis.metrics.partials.formulas import mb_per_s
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import ChartContext, ranking, state_section
from blkreel.benchmarks.charts.drives import DriveResults, FigurePath
from blkreel.benchmarks.charts.tables import MetricRow, metric_table, plain
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import Content, Figures, by_state, figure_table, over_repeats
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics.step_stats import COLUMNS, BusyTime, StepStats, arrays, energy_note, sensors_of
from blkreel.common.binning import grouped
from blkreel.common.verdict import step_reason
from blkreel.traces.format.trace import Trace
from blkreel.traces.samples import PREFIX

from .report import Report

ROLE = "trace"


@dataclass(frozen=True)
class Playback:
    """One replay of a trace. sha256: of the trace. bandwidth_mb_s, access_ns: None without reads and writes."""

    stats: StepStats
    busy_ns: int
    sha256: str | None

    @property
    def bandwidth_mb_s(self) -> float | None:
        return mb_per_s(self.stats.data.bytes, self.busy_ns)

    @property
    def access_ns(self) -> float | None:
        return self.stats.data.mean_ns


def _measure(directory: Path, trace: Trace) -> Playback:
    stats, busy = StepStats(sensors_of(directory)), BusyTime()
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
        why = f"missing: {missing[0]}{more}" if missing else "a replay without reads and writes"
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
# key of the metric, id and title of its charts, axis, format
_CHARTS = (("bandwidth_mb_s", "bandwidth", "Bandwidth", Axis("bandwidth", "MB/s", "auto"), "rate"),
           ("access_ns", "access", "Access time", Axis("access time", "ns", "auto"), "time"))


def sections(context: ChartContext) -> Iterator[Section]:
    for state in context.states():
        yield state_section(state, "Passes of traces", _charts(context, state))


def _charts(context: ChartContext, state: str) -> Iterator[Chart | None]:
    base = ("states", state)
    phases = _keys(context, *base, "phases")
    if phases:
        yield from _passes(context, state, phases)
    yield _score(context, state, phases)
    if phases:
        yield from _by_part(context, state, "phase", [(phase, (*base, "phases", phase)) for phase in phases])
    else:
        yield from _passes(context, state, phases)
    yield from _by_part(context, state, "trace",
                        [(trace, (*base, "traces", trace)) for trace in _keys(context, *base, "traces")])


def _score(context: ChartContext, state: str, phases: list[str]) -> Chart | None:
    base = ("states", state)
    parts: list[tuple[str, FigurePath]] = [(phase, (*base, "phases", phase)) for phase in phases] or [("", base)]
    table = context.table(context.titled("Score", state), [*METRICS, metric.REPEATS], base)
    return ranking(context, context.named("score", state), context.titled("Score", state), Axis("score", "", "auto"),
                   [(phase, (*path, "score")) for phase, path in parts], table, better="higher", form="number",
                   order_path=lambda drive: (*base, "score"), text=_SCORE_TEXT)


def _by_part(context: ChartContext, state: str, what: str,
             parts: list[tuple[str, FigurePath]]) -> Iterator[Chart | None]:
    """By phase or by trace: what is "phase" or "trace", the name of the groups below the state is its plural."""
    title = f"By {what}"
    table = context.table(context.titled(title, state), METRICS, ("states", state, f"{what}s", f"{{{what}}}"),
                          [name for name, _ in parts])
    for key, id_, words, axis, form in _CHARTS:
        metric_ = next(metric for metric in METRICS if metric.key == key)
        yield ranking(context, context.named(f"{id_}-by-{what}", state), context.titled(f"{words} by {what}", state),
                      axis, [(name, (*path, key)) for name, path in parts], table, better=metric_.better, form=form,
                      order_path=partial(_path_of_all, state, key),
                      # The values of many traces do not fit into a row.
                      text_of=partial(_mean_text, state, key, form) if what == "trace" else None,
                      text="At the right the geometric mean over all replays." if what == "trace" else "")


def _path_of_all(state: str, key: str, drive: DriveResults) -> FigurePath:
    return "states", state, key


def _mean_text(state: str, key: str, form: str, drive: DriveResults) -> str:
    value = drive.value("states", state, key).value
    return "" if value is None else plain(value, form)


def _passes(context: ChartContext, state: str, phases: list[str]) -> Iterator[Chart]:
    keys = _keys(context, "states", state, "passes")
    if len(keys) < 2:
        return
    rows = [MetricRow(drive, ("states", state, "passes", key), {"pass": key})
            for drive in context.drives for key in keys if drive.holds("states", state, "passes", key)]
    table = metric_table(context.titled("By pass", state), rows, METRICS, ("states", state, "passes", "{pass}"),
                         (Column("pass", "Pass"),))
    initials = ", ".join(f"{phase[:1].upper()} {phase}" for phase in phases)
    across = Axis(f"pass: {initials}" if phases else "pass", kind="names", names=tuple(
        f"{key[:1].upper()}{key.rpartition('-')[2]}" if phases else key for key in keys))
    for key, id_, words, axis, _ in _CHARTS:
        points = [Point(row.drive.key, row.labels["pass"].rpartition("-")[0], keys.index(row.labels["pass"]), value)
                  for row in rows if (value := row.drive.value(*row.base, key).value) is not None]
        better = next(metric.better for metric in METRICS if metric.key == key)
        title = context.titled(f"{words} by pass", state)
        yield Chart(context.named(f"{id_}-by-pass", state), title, table,
                    curves(title, points, context.style(phases), across, axis), better,
                    "Geometric mean over the traces of the pass.")


def _keys(context: ChartContext, *path: str) -> list[str]:
    """Over all drives, in the order of the test."""
    return list(dict.fromkeys(key for drive in context.drives for key in drive.keys(*path)))


REPORT = Report(report, sections, lambda drive: drive.of_state(-1, "score"), "higher", NUMBER)
