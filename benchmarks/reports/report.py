"""What one kind of report of a benchmark declares."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from blkreel.analysis.charts.model import Section
from blkreel.benchmarks.charts.chart_context import ChartContext
from blkreel.benchmarks.charts.drives import DriveResults, Value
from blkreel.benchmarks.metric import BenchmarkMetric
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import Content


@dataclass(frozen=True)
class Report:
    """content: the figures, tables and series of a test. sections: of a page of several drives.

    headline: the value of `metric` that ranks the drives; None if a drive has none.
    """

    content: Callable[[Test, Runs], Content]
    sections: Callable[[ChartContext], Iterable[Section]]
    headline: Callable[[DriveResults], Value | None]
    metric: BenchmarkMetric
