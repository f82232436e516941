"""Charts of trace-consistency and game-score: bandwidth, access time and score by pass, phase and trace."""

from collections.abc import Iterator
from functools import partial

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.metrics.definitions.metric import NUMBER
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.trace_passes import FORMULA, METRICS

from .chart_context import ChartContext, ranking, state_section
from .drives import DriveResults, FigurePath, Value
from .tables import MetricRow, metric_table, plain

headline_text = NUMBER.text  # of the figure of headline()
_SCORE_TEXT = f"Score = {FORMULA}, of geometric means over the replays."
# key of the metric, id and title of its charts, axis, format
_CHARTS = (("bandwidth_mb_s", "bandwidth", "Bandwidth", Axis("bandwidth", "MB/s", "auto"), "rate"),
           ("access_ns", "access", "Access time", Axis("access time", "ns", "auto"), "time"))


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return drive.of_state(-1, "score"), True


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
    table = metric_table(context.titled("Score", state), context.metric_rows(*base), [*METRICS, metric.REPEATS], base)
    return ranking(context, context.named("score", state), context.titled("Score", state), Axis("score", "", "auto"),
                   [(phase, (*path, "score")) for phase, path in parts], table, better="higher", form="number",
                   order_path=lambda drive: (*base, "score"), text=_SCORE_TEXT)


def _by_part(context: ChartContext, state: str, what: str,
             parts: list[tuple[str, FigurePath]]) -> Iterator[Chart | None]:
    """By phase or by trace: what is "phase" or "trace", the name of the groups below the state is its plural."""
    title = f"By {what}"
    table = metric_table(context.titled(title, state), [
        MetricRow(drive, path, {what: name}) for drive in context.drives for name, path in parts if drive.holds(*path)],
        METRICS, ("states", state, f"{what}s", f"{{{what}}}"), (Column(what, what.capitalize()),))
    for key, id_, words, axis, form in _CHARTS:
        metric_ = next(each for each in METRICS if each.key == key)
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
        better = next(each.better for each in METRICS if each.key == key)
        title = context.titled(f"{words} by pass", state)
        yield Chart(context.named(f"{id_}-by-pass", state), title, table,
                    curves(title, points, context.style(phases), across, axis), better,
                    "Geometric mean over the traces of the pass.")


def _keys(context: ChartContext, *path: str) -> list[str]:
    """Over all drives, in the order of the test."""
    return list(dict.fromkeys(key for drive in context.drives for key in drive.keys(*path)))
