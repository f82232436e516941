"""A metric in order of time, and where it stepped."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal

from blkreel.analysis.charts.model import Column
from blkreel.analysis.charts.spec import Axis
from blkreel.analysis.metrics.definitions.metric import Metric, Value, column_name
from blkreel.analysis.stats.change_points import ChangePoint, change_points
from blkreel.analysis.stats.intervals import Interval, geometric_mean, interval
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common.binning import grouped

from .selection import Row

By = Literal["date", "firmware", "kernel"]
AXES: tuple[By, ...] = ("date", "firmware", "kernel")
FEWEST_VALUES = 12  # with fewer, no order of the values is rare enough to be significant
_DATED_SPREADS = 2.9  # a step of so many standard deviations is dated to within one value in 95 of 100 series


def axis_of(metric: Metric) -> Axis:
    return Axis(metric.title, "share" if metric.unit.symbol == "%" else metric.unit.symbol)


def columns_of(metric: Metric) -> tuple[Column, Column, Column]:
    """Of a value, and of the smallest and the largest of those that it is the mean of."""
    symbol = metric.unit.symbol if metric.unit.format == "number" else ""
    value = Column(column_name(metric.key.replace("/", "_"), metric.unit), metric.title, metric.unit.format, symbol,
                   metric.formula, better=metric.better)
    smallest, largest = (replace(value, key=f"{title.lower()}_{value.key}", title=title, formula="", better="")
                         for title in ("Smallest", "Largest"))
    return value, smallest, largest


@dataclass(frozen=True)
class Point:
    """A night or a version. name: its date, firmware or kernel. value: geometric mean of `runs` values, from smallest
    to largest. rows: its results."""

    name: str
    value: float
    smallest: float
    largest: float
    rows: tuple[Row, ...]

    @property
    def runs(self) -> int:
        return len(self.rows)

    @property
    def date(self) -> str:
        return date_of(self.rows[0])


@dataclass(frozen=True)
class Level:
    """Points between two change points, first to last. value: their geometric mean."""

    first: int
    last: int
    runs: int
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Change:
    """A step before the point `index`; first, last: the points that it may have been before. worse: None if the metric
    has no direction. matters: whether it is larger than 2 %."""

    index: int
    first: int
    last: int
    point: ChangePoint
    worse: bool | None

    @property
    def matters(self) -> bool:
        return self.point.ratio.matters


@dataclass(frozen=True)
class History:
    """points: in order of time. levels: one more than changes. values: what was searched, nights by date and runs by
    version. unusable: runs without a positive value, left out. spread: standard deviation of the logarithms of the
    values within their levels; None of fewer than two."""

    metric: Metric
    by: By
    points: tuple[Point, ...]
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]
    values: int
    unusable: int
    spread: float | None

    @property
    def is_searched(self) -> bool:
        return self.values >= FEWEST_VALUES

    @property
    def dated_from(self) -> float | None:
        """The smallest ratio − 1 of a step that is dated to within one value in 95 of 100 series."""
        return math.expm1(_DATED_SPREADS * self.spread) if self.spread is not None else None


def date_of(row: Row) -> str:
    """The date of a result in UTC."""
    text: str = row["started_at"][:10] if isinstance(row["started_at"], str) else row["started_at"].strftime("%Y-%m-%d")
    return text


def history_of(rows: Sequence[Row], values: Mapping[str, Value], metric: Metric, by: By) -> History:
    """rows: of selected(). values: id -> the metric. A result without a positive value is left out.

    By date a point is a day in UTC, and these are searched. By firmware or kernel a point is a version, in the order of
    their first results; runs are searched for changes between versions. Raises ValueError without any value.
    """
    results = [(row, float(value)) for row in rows
               if isinstance(value := values.get(row["id"]), int | float) and 0 < value < math.inf]
    if not results:
        raise ValueError(f"no result has a positive {metric.key}")
    groups = _grouped(results, by)
    points = [_point(name, group) for name, group in groups]
    if by == "date":
        searched, ends = [point.value for point in points], list(range(1, len(points) + 1))
    else:
        searched = [value for _, group in groups for _, value in group]
        ends = [sum(point.runs for point in points[:number + 1]) for number in range(len(points))]
    breaks = change_points(searched, ends[:-1]) if len(searched) >= FEWEST_VALUES else []
    changes = tuple(Change(ends.index(point.index) + 1, ends.index(point.first) + 1, ends.index(point.last) + 1, point,
                           _is_worse(metric, point)) for point in breaks)
    bounds = [0, *(change.index for change in changes), len(points)]
    levels = [_level(points, searched, ends, begin, end) for begin, end in pairwise(bounds)]
    return History(metric, by, tuple(points), tuple(levels), changes, len(searched), len(rows) - len(results),
                   _spread(searched, [0, *(point.index for point in breaks), len(searched)]))


def _grouped(results: list[tuple[Row, float]], by: By) -> list[tuple[str, list[tuple[Row, float]]]]:
    if by == "date":
        return [(name, list(group)) for name, group in groupby(results, key=lambda pair: date_of(pair[0]))]
    return list(grouped((row[by] or "unknown", (row, value)) for row, value in results).items())


def _point(name: str, group: list[tuple[Row, float]]) -> Point:
    values = [value for _, value in group]
    return Point(name, _mean(values), min(values), max(values), tuple(row for row, _ in group))


def _level(points: Sequence[Point], searched: Sequence[float], ends: Sequence[int], begin: int, end: int) -> Level:
    values = searched[ends[begin - 1] if begin else 0:ends[end - 1]]
    return Level(begin, end - 1, sum(point.runs for point in points[begin:end]), _mean(values),
                 interval(values) if len(values) >= ENOUGH_RUNS else None)


def _mean(values: Sequence[float]) -> float:
    mean = geometric_mean(values)
    assert mean is not None  # positive values
    return mean


def _spread(values: Sequence[float], bounds: Sequence[int]) -> float | None:
    """Pooled over the levels."""
    logs = [[math.log(value) for value in values[begin:end]] for begin, end in pairwise(bounds)]
    freedom = sum(len(level) - 1 for level in logs)
    squares = sum(statistics.variance(level) * (len(level) - 1) for level in logs if len(level) > 1)
    return math.sqrt(squares / freedom) if freedom else None


def _is_worse(metric: Metric, change: ChangePoint) -> bool | None:
    return (change.ratio.value > 1) == (metric.better == "lower") if metric.better else None


def as_percent(ratio: float) -> str:
    """A ratio as a change, with its sign: +5.1 %."""
    return f"{100 * (ratio - 1):+,.1f} %".replace("-", "−")
