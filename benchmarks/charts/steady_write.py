"""Charts of steady-write: rounds until the steady state, and its throughput."""

from collections.abc import Iterator

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.metrics.definitions.metric import MB_S as MB_S_UNIT
from blkreel.benchmarks.results.steady_write import METRICS

from .chart_context import MB_S, ChartContext, ranking, section
from .drives import DriveResults, Value
from .tables import MetricRow, metric_table

headline_text = MB_S_UNIT.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return next((drive.value("of", of, "steady_mb_s") for of in drive.keys("of")), None), True


def sections(context: ChartContext) -> Iterator[Section]:
    of = list(dict.fromkeys(name for drive in context.drives for name in drive.keys("of")))
    yield section("rounds", "Rounds", (_steady(context, of), *_rounds(context, of)))


def _steady(context: ChartContext, of: list[str]) -> Chart | None:
    metric_rows = [MetricRow(drive, ("of", name), {"of": name}) for drive in context.drives for name in of
              if drive.holds("of", name)]
    table = metric_table("Steady state", metric_rows, METRICS, ("of", "{of}"), (Column("of", "Of"),))
    parts = [(f"{words}{f', {name}' if len(of) > 1 else ''}", ("of", name, key)) for name in of
             for key, words in (("steady_mb_s", "steady"), ("first_mb_s", "first round"))]
    unsteady = [row.values["drive"] for row in table.rows if row.values.get("steady") is False]
    return ranking(context, "steady", "Steady write throughput", MB_S, parts, table, better="higher", form="rate",
                   notes=(f"Not steady: {', '.join(dict.fromkeys(unsteady))}.",) if unsteady else ())


def _rounds(context: ChartContext, of: list[str]) -> Iterator[Chart]:
    for group in [[name] for name in of] if context.several else [of]:
        points = []
        for drive in context.drives:
            for series in drive.series("rounds"):
                for line in series["lines"]:
                    if line["name"] in group or (line["name"] == "rounds" and "" in group):
                        points += [Point(drive.key, line["name"], x, y)
                                   for x, y in zip(line["x"], line["y"], strict=True) if y is not None]
        if not points:
            continue
        several = context.several and len(of) > 1
        title = f"Throughput by round{f', {group[0]}' if several else ''}"
        table = Table(title, (Column("drive", "Drive"), Column("of", "Of"), Column("round", "Round", "count"),
                              Column("mb_s", "Throughput", "rate", formula="bytes / max(complete) − min(submit)",
                                     better="higher")),
                      tuple(Row({"drive": point.entry, "of": point.line, "round": point.x, "mb_s": point.y},
                                point.entry) for point in points))
        id_ = "rounds" if not several else f"rounds-{group[0]}".replace(" ", "-").replace("+", "-")
        yield Chart(id_, title, table, curves(title, points, context.style(dict.fromkeys(
            point.line for point in points)), Axis("round", kind="count"), MB_S), "higher")
