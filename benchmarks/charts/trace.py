"""Charts of trace: replays of a captured trace on an empty and a full drive."""

from collections.abc import Iterator
from dataclasses import replace

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import slope
from blkreel.analysis.charts.model import Chart, Column, Section
from blkreel.analysis.metrics.definitions.metric import MB_S as MB_S_UNIT
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.trace import LATENCIES, RATES, RATIOS

from .chart_context import MB_S, ChartContext, efficiency, ranking, section, slug
from .drives import DriveResults, Value
from .tables import MetricRow, metric_table

_KINDS = {"all": "all I/Os", "reads": "reads", "writes": "writes"}


headline_text = MB_S_UNIT.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return drive.of_state(-1, "data_rate_mb_s"), True


def sections(context: ChartContext) -> Iterator[Section]:
    states = context.states()
    metric_rows = [MetricRow(drive, ("states", state), {"state": state}) for drive in context.drives
                   for state in states if drive.holds("states", state)]
    table = metric_table("Data rate and energy", metric_rows, [*RATES, metric.REPEATS], ("states", "{state}"),
                         (Column("state", "State"),))
    parts = [(state or "all", state) for state in states]
    rates = [
        ranking(context, "trace-rate", "Average data rate", MB_S,
                [(name, ("states", state, "data_rate_mb_s")) for name, state in parts], table, better="higher",
                form="rate", order_part=len(parts) - 1, text="Bytes / time with at least one I/O in flight."),
        _full_empty(context),
        ranking(context, "trace-energy", "Energy of the trace", Axis("energy", "J", "auto"),
                [(name, ("states", state, "energy_j")) for name, state in parts], table, better="lower", form="number",
                unit="J", order_part=len(parts) - 1),
        efficiency(context, "efficiency", "Efficiency", [(state, ("states", state), "data_rate_mb_s")
                                                        for state in states])]
    yield section("rates", "Data rate and energy", (
        chart for chart in rates if chart and (chart.spec or chart.id != "trace-energy")))
    yield section("latency", "Latency", (_latency(context, kind, key, title) for kind in _KINDS for key, title in (
        ("mean_ns", "Mean latency"), ("p99_ns", "p99"))))


def _latency(context: ChartContext, kind: str, key: str, title: str) -> Chart | None:
    states = context.states()
    metric_rows = [MetricRow(drive, ("states", state, kind), {"state": state}) for drive in context.drives
              for state in states if drive.value("states", state, kind, "ops").value]
    if not metric_rows:
        return None
    table = metric_table(f"Latency of {_KINDS[kind]}", metric_rows, LATENCIES, ("states", "{state}", kind),
                         (Column("state", "State"),))
    return ranking(context, f"trace-{'mean' if key == 'mean_ns' else 'p99'}-{slug(kind)}", f"{title} of {_KINDS[kind]}",
                   Axis("latency", "ns", "auto"), [(state or "all", ("states", state, kind, key)) for state in states],
                   table, better="lower", form="time", order_part=len(states) - 1)


def _full_empty(context: ChartContext) -> Chart | None:
    base = ("full_over_empty",)
    metric_rows = [metric_row for metric_row in context.metric_rows(*base) if metric_row.drive.value(*base, "of").value]
    if not metric_rows:
        return None
    full, empty = metric_rows[0].drive.value(*base, "of").value.split(" / ")
    points = context.slopes(*(("states", state, "data_rate_mb_s") for state in (empty, full)))
    table = metric_table("Full / empty", metric_rows, [replace(each, formula=f"{full} / {empty}") for each in RATIOS],
                         base)
    return Chart("full-empty", f"From {empty} to {full}", table,
                 slope(f"Average data rate, {empty} and {full}", points, context.style(), (empty, full), MB_S),
                 "higher", "Data rate that remains once the drive is full.")
