"""The charts of each section, in display order."""

from blkreel.analysis.charts.model import Chart
from blkreel.analysis.report.charts.burst_bars import burst_bars
from blkreel.analysis.report.charts.efficiency import efficiency, endurance, value
from blkreel.analysis.report.charts.over_time import iops, latency_over_time
from blkreel.analysis.report.charts.paired import paired, ratios
from blkreel.analysis.report.charts.slowdown import interference
from blkreel.analysis.report.charts.tails import latency_tails, lateness_tails
from blkreel.analysis.report.charts.timeline import timeline
from blkreel.analysis.report.charts.workload_profile import alignment, workload_profile
from blkreel.analysis.report.document import Section
from blkreel.analysis.report.drives_file import DrivesFile


def section_charts(section: Section, prefix: str, order: list[str], drives_file: DrivesFile | None = None,
                   highlight: str | None = None) -> list[Chart]:
    """The charts of a section of a comparison after its rankings. order: all labels of the page, as listed."""
    entries = section.entries
    return _present([
        ratios(section.document, prefix, highlight), latency_over_time(entries, f"{prefix}latency-over-time", order),
        timeline(entries, f"{prefix}timeline", order), burst_bars(entries, f"{prefix}bursts", order),
        *latency_tails(entries, prefix, order),
        interference(section.document["entries"], f"{prefix}interference", order),
        *paired(section.document, prefix, order), *lateness_tails(entries, prefix, order),
        efficiency(entries, f"{prefix}efficiency", order), endurance(entries, f"{prefix}endurance", drives_file),
        value(entries, f"{prefix}value", order, drives_file),
        *workload_profile(entries, prefix), alignment(entries, f"{prefix}alignment")])


def over_time_charts(section: Section, order: list[str]) -> list[Chart]:
    """The charts over time of one run or trace."""
    entry = section.entries[0]
    return _present([latency_over_time([entry], "latency-over-time", order), timeline([entry], "timeline", order),
                     burst_bars([entry], "bursts", order), iops(entry, "iops"),
                     efficiency([entry], "efficiency", order), endurance([entry], "endurance")])


def latency_charts(section: Section, order: list[str]) -> list[Chart]:
    """The latency charts of one run or trace."""
    return _present([*latency_tails(section.entries, "", order),
                     interference(section.document["entries"], "interference", order)])


def _present(charts: list[Chart | None]) -> list[Chart]:
    return [chart for chart in charts if chart]
