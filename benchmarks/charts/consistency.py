"""Charts of consistency: variation of IOPS over seconds, and temperature."""

from collections.abc import Iterator

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.over_time import MOST_POINTS, Panel, extremes, time_rows
from blkreel.analysis.metrics.definitions.metric import NUMBER
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.consistency import LAST, SCORES, WHOLE

from .chart_context import ChartContext, ranking, state_section
from .drives import DriveResults, Value
from .tables import metric_table, plain

headline_text = NUMBER.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return drive.of_state(0, "downside_score"), True


def sections(context: ChartContext) -> Iterator[Section]:
    for state in context.states():
        base = ("states", state)
        whole = metric_table(context.titled("The whole run", state), context.metric_rows(*base), WHOLE, base)
        charts = [
            _over_time(context, state, "whole", "iops-temperature", "IOPS and temperature"),
            _over_time(context, state, "last", "last-part", "IOPS and temperature, the last part"),
            _scores(context, state, "downside", "downside_score", "Evenness: dips only",
                    "Median / size of the dips below it: only slow seconds count."),
            _scores(context, state, "consistency", "score", "Consistency",
                    "The published score: fast seconds lower it as well."),
            _scores(context, state, "mean-iops", "mean_iops", "IOPS of the last part"),
            Chart(context.named("whole", state), context.titled("Steady state, stalls and the whole run", state),
                    whole)]
        yield state_section(state, "Evenness", charts)


def _scores(context: ChartContext, state: str, id_: str, key: str, title: str, text: str = "") -> Chart | None:
    base = ("states", state)
    table = metric_table(context.titled("The last part", state), context.metric_rows(*base), [
        *sorted(SCORES, key=lambda score: score.key != key), LAST, metric.REPEATS], base)
    return ranking(context, context.named(id_, state), context.titled(title, state),
                   Axis(title.lower() if key == "score" else "IOPS" if key == "mean_iops" else "median / dips",
                        "", "auto"), [("", (*base, key))], table, better="higher", form="number", text=text)


def _over_time(context: ChartContext, state: str, part: str, id_: str, title: str) -> Chart | None:
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
        mean, score = drive.value("states", state, "mean_iops"), drive.value("states", state, "downside_score")
        caption = "" if part == "whole" or mean.value is None else f"mean {plain(mean.value, 'number')}" + (
            f" · dips only {plain(score.value, 'number')}" if score.value is not None else "")
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
    return Chart(context.named(id_, state), context.titled(title, state), table,
                 time_rows(f"{title} over time, one row per drive", panels, "IOPS"),
                 text="IOPS of each second" + (", temperature dashed on the right" if is_warm else "") +
                      "; the strip at the bottom zooms.", notes=tuple(notes), wide=True, zooms=True)
