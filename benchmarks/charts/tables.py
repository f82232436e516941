"""The tables behind the charts of tests: a column per metric, with its formula and the command that prints it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blkreel.analysis.charts.model import Column, Row, Table
from blkreel.benchmarks.metric import BenchmarkMetric
from blkreel.common import units

from .drives import DriveResults, FigurePath, Value


@dataclass(frozen=True)
class MetricRow:
    """A row: of a drive, of the figures below `base`. labels: by key of the label columns. group: as of a Row."""

    drive: DriveResults
    base: FigurePath
    labels: dict[str, Any] = field(default_factory=dict)
    group: str = ""


def metric_table(caption: str, rows: Sequence[MetricRow], metrics: Sequence[BenchmarkMetric], pattern: FigurePath,
                 labels: tuple[Column, ...] = ()) -> Table:
    """pattern: the base of all rows, with {KEY} in place of the row's label of that key. A metric without any value or
    reason has no column."""
    cells = [{metric: row.drive.value(*row.base, *metric.relative_path) for metric in metrics} for row in rows]
    metrics = [metric for metric in metrics if any(
        values[metric].value is not None or values[metric].why for values in cells)]
    columns = [Column(metric.key, metric.title, metric.format, metric.page_unit, metric.formula,
                      f"blkreel report RUN --figure {quoted('.'.join((*pattern, *metric.relative_path)))}",
                      metric.better) for metric in metrics]
    return Table(caption, (Column("drive", "Drive"), *labels, *columns), tuple(
        Row({"drive": row.drive.key, **row.labels, **{metric.key: values[metric].value for metric in metrics}},
            row.drive.key,
            {metric.key: _why(values[metric], metric) for metric in metrics if values[metric].value is None},
            {metric.key: text for metric in metrics if (text := spread_text(values[metric], metric))},
            row.group, row.drive.path) for row, values in zip(rows, cells, strict=True)))


def _why(value: Value, metric: BenchmarkMetric) -> str:
    """The reason for a missing figure, with the range of the repetitions."""
    why = value.why or "not measured"
    if value.smallest is None:
        return why
    return f"{why}; {metric.value_unit.text(value.smallest)} to {metric.value_unit.text(value.largest)}"


def quoted(key: str) -> str:
    """The key as a word of a shell."""
    return f"'{key}'" if any(sign in key for sign in " +*&()'") else key


def spread_text(value: Value, metric: BenchmarkMetric) -> str:
    """The interval of a figure over repetitions, or their range; empty for one repetition."""
    if value.n < 2 or value.smallest is None or value.value is None:
        return ""
    low, high, words = ((value.low, value.high, "95 %") if value.low is not None else
                        (value.smallest, value.largest, f"n={value.n}"))
    text = units.digits if metric.format == "number" else metric.value_unit.text
    return f"{words}: {text(low)} to {text(high)}"
