"""What the charts of all recipes share: the drives and states of the page, rankings, and efficiency."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from blkreel.analysis.charts.dot_plot import TIED, Dot, dot_plot
from blkreel.analysis.charts.model import Chart, Column, Section, Table
from blkreel.analysis.charts.scatter import scatter
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Point, Spec
from blkreel.analysis.stats.ranking import ENOUGH_RUNS, best_first, pairs, places_by_value, ranked
from blkreel.benchmarks import metric
from blkreel.benchmarks.metric import BenchmarkMetric

from .drives import DriveResults, FigurePath, Value
from .tables import MetricRow, metric_table

MB_S = Axis("throughput", "MB/s", "auto")
PathOf = FigurePath | Callable[[DriveResults], FigurePath]


@dataclass(frozen=True)
class ChartContext:
    """drives: the drives of the page, in order. state: that of the charts; "" if they are of several or of none."""

    drives: tuple[DriveResults, ...]
    state: str = ""

    @property
    def several(self) -> bool:
        return len(self.drives) > 1

    def style(self, lines: Iterable[str] = ()) -> SeriesStyle:
        return SeriesStyle(tuple(drive.key for drive in self.drives),
                           {drive.key: drive.name for drive in self.drives}, tuple(lines))

    def states(self) -> list[str]:
        """Of all drives, in the order in which they were measured."""
        return list(dict.fromkeys(state for drive in self.drives for state in drive.states()))

    def by_state(self) -> "list[ChartContext]":
        return [replace(self, state=state) for state in self.states()]

    def at(self, *path: str) -> FigurePath:
        """The path of a figure of the state."""
        return "states", self.state, *path

    def titled(self, title: str) -> str:
        """With the state where there are several."""
        return f"{title}, state {self.state}" if self.state and len(self.states()) > 1 else title

    def chart(self, id_: str, title: str, table: Table, spec: Spec | None = None, better: str = "", text: str = "",
              notes: Sequence[str] = (), *, wide: bool = False, zooms: bool = False) -> Chart:
        """A chart whose id and title have the state where there are several."""
        id_ = f"{id_}-{slug(self.state)}" if self.state and len(self.states()) > 1 else id_
        return Chart(id_, self.titled(title), table, spec, better, text, tuple(notes), wide=wide, zooms=zooms)

    def table(self, caption: str, metrics: Sequence[BenchmarkMetric], pattern: FigurePath,
              names: Sequence[str | int] = (), label: Column | None = None) -> Table:
        """A row for each drive that has figures at `pattern`, or for each of `names` in place of its {KEY}. label: the
        column of the names, which is called KEY."""
        key = next((part[1:-1] for part in pattern if part.startswith("{")), "")
        paths = {name: tuple(part.replace(f"{{{key}}}", str(name)) for part in pattern) for name in names or ("",)}
        rows = [MetricRow(drive, path, {key: name} if key else {}) for drive in self.drives
                for name, path in paths.items() if drive.holds(*path)]
        return metric_table(caption, rows, metrics, pattern, (label or Column(key, key.capitalize()),) if key else ())

    def slopes(self, *paths: FigurePath) -> list[Point]:
        """Points of a slope chart, from one figure to the next: of the drives that have all of them."""
        points = []
        for drive in self.drives:
            values = [drive.value(*path).value for path in paths]
            if None not in values:
                points += [Point(drive.key, "", index, value) for index, value in enumerate(values)]
        return points

    def repetitions_note(self, values: Iterable[Value]) -> list[str]:
        """values: of the figure, for each drive."""
        present = [value for value in values if value.value is not None]
        if not present:
            return []
        several = any(value.n > 1 for value in present)
        if all(value.low is not None for value in present):
            return ["The whisker is the 95 % t interval on the logarithm, over repetitions."]
        if any(value.low is not None for value in present):
            return [f"Thick whiskers are 95 % intervals. With fewer than {ENOUGH_RUNS} repetitions there is none, and "
                    "a thin whisker is their range."]
        return [f"With fewer than {ENOUGH_RUNS} repetitions there is no interval, and the order is not statistically "
                "supported." + (" The thin line is the range of the repetitions." if several else "")]

    def missing_note(self, keys: set[str], what: str) -> list[str]:
        """A note that names the drives that are not among these keys; none if there are no keys."""
        missing = [drive.key for drive in self.drives if drive.key not in keys]
        return [f"Without {what}: {', '.join(missing)}."] if missing and keys else []


def ranks_of(values: dict[str, Value], higher: bool) -> dict[str, int]:
    """Key -> rank, from 1, of the drives that have a value. With an interval of each, drives without a significant
    difference share a rank (analysis/stats/ranking.py); else only those with equal values do."""
    present = {key: value for key, value in values.items() if value.value is not None}
    if len(present) > 1 and all(value.low is not None for value in present.values()):
        runs = {key: list(value.repeats) for key, value in present.items()}
        differ = {frozenset((pair.base, pair.other)) for pair in pairs({"figure": runs}) if pair.differ}
        return {key: place.rank for key, place in ranked(runs, differ, higher).items() if place.rank is not None}
    return places_by_value({key: value.value for key, value in present.items()}, higher)


def points_of(rows: Iterable[tuple[str, float, MetricRow]], key: str) -> list[Point]:
    """rows: (line, x, row). A point for each that has the figure."""
    return [Point(row.drive.key, line, x, value) for line, x, row in rows
            if (value := row.drive.value(*row.base, key).value) is not None]


def section(id_: str, title: str, charts: Iterable[Chart | None]) -> Section:
    """The charts that are not None. A page leaves out sections without charts."""
    return Section(id_, title, tuple(chart for chart in charts if chart))


def state_section(context: ChartContext, title: str, charts: Iterable[Chart | None]) -> Section:
    """title: of drives without a state."""
    return section(f"state-{context.state or 'any'}", f"State {context.state}" if context.state else title, charts)


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(words).lower()).strip("-") or "all"


def ranking(context: ChartContext, id_: str, title: str, axis: Axis, parts: Sequence[tuple[str, PathOf]],
            table: Table, figure: BenchmarkMetric, *, order_part: int = 0,
            order_path: Callable[[DriveResults], FigurePath] | None = None,
            text_of: Callable[[DriveResults], str] | None = None, text: str = "",
            notes: Sequence[str] = ()) -> Chart | None:
    """Drives by a figure, a dot for each part. parts: (name, path of the figure or a function of a drive that gives
    it). The value of part number `order_part` orders the drives, or that at order_path(drive). text_of: the text at the
    right of a drive; its values if None. Drives with an invalid test are the last, without a rank.

    None if no drive has any part and no row gives a reason.
    """
    by_drive: dict[str, list[tuple[str, Value]]] = {}
    orders: dict[str, Value] = {}
    for drive in context.drives:
        values = [drive.value(*(path(drive) if callable(path) else path)) for _, path in parts]
        present = [(name, value) for (name, _), value in zip(parts, values, strict=True) if value.value is not None]
        if present:
            by_drive[drive.key] = present
            orders[drive.key] = drive.value(*order_path(drive)) if order_path else values[order_part]
    is_higher_better = figure.better == "higher"
    invalid = {drive.key for drive in context.drives if drive.verdict["level"] == "invalid"}
    ranked_orders = {key: value for key, value in orders.items() if key not in invalid}
    ranks = ranks_of(ranked_orders, is_higher_better)
    by_value = best_first({key: value.value for key, value in orders.items()}, is_higher_better)
    order = sorted([*by_value, *(key for key in orders if key not in by_value)],
                   key=lambda key: ranks.get(key, len(orders) + 1))
    has_intervals = all(value.low is not None for value in ranked_orders.values())
    texts = {drive.key: text_of(drive) if text_of else _joined(
                 [figure.value_unit.text(value.value) for _, value in by_drive[drive.key]]) for drive in context.drives
             if drive.key in by_drive}
    dots = [Dot(key, value.value, place, name, *value.whisker, rank=ranks.get(key) if has_intervals else None,
                text=texts[key], spread="" if value.n < 2 else f"n={value.n}")
            for place, key in enumerate(order) for name, value in by_drive[key]]
    names = [name for name, _ in parts if any(dot.part == name for dot in dots)]
    spec = None
    if context.several or len(names) > 1:  # a single dot shows no more than its figure
        spec = dot_plot(f"{context.titled(title)}, by drive; {figure.better} is better", dots, context.style(), axis,
                        names or ("",))
    if not dots and not any(row.why for row in table.rows):
        return None
    is_tied = has_intervals and len(set(ranks.values())) < len(ranks)
    return context.chart(id_, title, table, spec, figure.better, text, (
        *notes, *([TIED] if is_tied and spec else []),
        *(context.repetitions_note(orders.values()) if context.several else ()),
        *context.missing_note(set(by_drive), "this figure")))


def _joined(texts: list[str]) -> str:
    """Values in a row. A common unit follows only the last one."""
    if len({text.partition(" ")[2] for text in texts}) == 1:
        texts[:-1] = [text.partition(" ")[0] for text in texts[:-1]]
    return " · ".join(texts)


def efficiency(context: ChartContext, id_: str, title: str,
               lines: Sequence[tuple[str, FigurePath, str]]) -> Chart | None:
    """MB/J against MB/s. lines: (name, base, key of the rate); the table also has power. None without power."""
    points, metric_rows = [], []
    for drive in context.drives:
        for name, base, key in lines:
            rate, mb_per_j = drive.value(*base, key), drive.value(*base, "mb_per_j")
            if rate.value is not None and mb_per_j.value is not None:
                points.append(Point(drive.key, name, rate.value, mb_per_j.value))
                metric_rows.append(MetricRow(drive, base, {"of": name, "key": ".".join(map(str, base))}))
    if not points:
        return None
    table = metric_table(context.titled(title), metric_rows, [metric.rate(lines[0][2], "Throughput", "bytes / time"),
                                              *reversed(metric.POWER)],
                         ("{key}",), (Column("of", "Of"), Column("key", "Figures below")))
    spec = scatter(f"{context.titled(title)}: megabytes per joule against megabytes per second", points,
                   context.style(dict.fromkeys(name for name, _, _ in lines)), MB_S, Axis("efficiency", "MB/J", "auto"))
    return context.chart(id_, title, table, spec, "higher",
                         "To the right is faster; further up takes less energy for the same bytes.",
                         context.missing_note({point.entry for point in points}, "power"))
