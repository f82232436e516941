"""The command that gives a number of a page again, and the runs that it is of."""

from dataclasses import replace

from blkreel.traces.units import parse_time_ns

from .. import numbers
from ..bursts import DEFAULT_GAP_NS
from .model import Section

_REPORT = "blkreel report RUN"


def command(key: str) -> str:
    """What prints one figure of a run, unrounded. Of several runs of a drive `blkreel compare RUN RUN …` does."""
    return f"{_REPORT} --figure {key}"


def table_command(chart: str) -> str:
    """What prints the table behind a chart of one run, unrounded."""
    return f"{_REPORT} --format csv --chart {chart}"


def path_of(entry: dict) -> str | tuple[str, ...]:
    """The run of an entry of a document, or its runs: what RUN stands for."""
    paths = tuple(run["path"] for run in entry["runs"])
    return paths[0] if len(paths) == 1 else paths


def with_gap(sections: list[Section], document: dict) -> tuple[Section, ...]:
    """The sections with commands that find the same bursts: with --gap, where it is not what commands take without."""
    gap_ns = document["parameters"]["burst_gap_ns"]
    if gap_ns == DEFAULT_GAP_NS:
        return tuple(sections)
    text = numbers.setting(gap_ns).replace(" ", "").replace("µ", "u")
    option = f" --gap {text if parse_time_ns(text) == gap_ns else f'{gap_ns}ns'}"

    def told(column):
        return replace(column, recompute=column.recompute + option) if column.recompute.startswith(_REPORT) else column

    return tuple(replace(section, exhibits=tuple(
        replace(one, table=replace(one.table, columns=tuple(map(told, one.table.columns))))
        for one in section.exhibits)) for section in sections)
