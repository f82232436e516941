"""Commands that print the figures of a page, and the runs of each figure."""

from dataclasses import replace

from blkreel.analysis.charts.model import Column, Section
from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.common import units
from blkreel.common.units import parse_time_ns

from .verdict import Document

_REPORT = "blkreel report RUN"


def command(key: str) -> str:
    """The command that prints one figure of a run, unrounded. For several runs: `blkreel compare RUN RUN …`."""
    return f"{_REPORT} --figure {key}"


def column_of(metric: Metric, title: str = "") -> Column:
    """The column of a metric, with its formula and the command that prints it."""
    return Column(metric.column, title or metric.title, metric.unit.format,
                  metric.unit.symbol if metric.unit.format == "number" else "", metric.formula, command(metric.key),
                  metric.better)


def path_of(entry: Document) -> str | tuple[str, ...]:
    """The run of an entry of a document, or its runs: what RUN stands for."""
    paths = tuple(run["path"] for run in entry["runs"])
    return paths[0] if len(paths) == 1 else paths


def with_gap(sections: list[Section], document: Document) -> tuple[Section, ...]:
    """The sections with --gap added to their commands if the burst gap is not the default."""
    gap_ns = document["parameters"]["burst_gap_ns"]
    if gap_ns == DEFAULT_GAP_NS:
        return tuple(sections)
    text = units.setting(gap_ns).replace(" ", "").replace("µ", "u")
    option = f" --gap {text if parse_time_ns(text) == gap_ns else f'{gap_ns}ns'}"

    def adjusted(column: Column) -> Column:
        return replace(column, recompute=column.recompute + option) if column.recompute.startswith(_REPORT) else column

    return tuple(replace(section, charts=tuple(
        replace(chart, table=replace(chart.table, columns=tuple(map(adjusted, chart.table.columns))))
        for chart in section.charts)) for section in sections)
