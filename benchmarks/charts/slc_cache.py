"""Charts of slc-cache: size of the fast part, throughput before and after its end, and what a rest recovers."""

from collections.abc import Callable, Iterator

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.over_time import MOST_POINTS, extremes
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.metrics.definitions.metric import BYTES
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.slc_cache import METRICS
from blkreel.common import units

from .chart_context import MB_S, ChartContext, efficiency, ranking, state_section
from .drives import DriveResults, FigurePath, Value
from .tables import MetricRow, metric_table, plain

Fills = dict[int, dict[str, str]]  # rest in ns -> key of a drive -> key of the fill in its figures
_METRICS = metric.select(METRICS, "fast_bytes", "before_mb_s", "after_mb_s", "of_first", "mean_mb_s", "written_bytes",
                         "average_w", "mb_per_j", "n")


headline_text = BYTES.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    return drive.of_state(0, "fast_bytes"), True


def sections(context: ChartContext) -> Iterator[Section]:
    for state in context.states():
        fills = _fills(context, state)
        first = next(iter(fills), None)
        charts = [_rate(context, state, rest_ns, where) for rest_ns, where in fills.items()]
        if first is not None:
            charts = [_split(context, state, first, fills[first]), charts[0], _sizes(context, state, fills),
                        *charts[1:], *(_split(context, state, rest_ns, where) for rest_ns, where in fills.items()
                                         if rest_ns != first and context.several),
                        efficiency(context, context.named("efficiency", state),
                                   context.titled("Efficiency of the first fill", state),
                                   [("first fill", ("states", state, "fills", "first"), "mean_mb_s")])]
        yield state_section(state, "Fast part", charts)


def _fills(context: ChartContext, state: str) -> Fills:
    fills: Fills = {}
    for drive in context.drives:
        for index in drive.keys("states", state, "fills"):
            rest_ns = drive.value("states", state, "fills", index, "rest_ns").value
            if rest_ns is not None:
                fills.setdefault(rest_ns, {})[drive.key] = index
    return dict(sorted(fills.items()))


def _name(rest_ns: int) -> str:
    return "first fill" if rest_ns == 0 else f"after {units.setting(rest_ns)} of rest"


def _suffix(rest_ns: int) -> str:
    return "" if rest_ns == 0 else f"-after-{units.setting(rest_ns).replace(' ', '').replace('.', '-')}"


def _table(context: ChartContext, state: str, fills: Fills, caption: str) -> Table:
    metric_rows = [MetricRow(drive, ("states", state, "fills", keys[drive.key]),
                             {"fill": keys[drive.key], "rest_ns": rest_ns})
                   for drive in context.drives for rest_ns, keys in fills.items() if drive.key in keys]
    return metric_table(caption, metric_rows, _METRICS, ("states", state, "fills", "{fill}"),
                        (Column("fill", "Fill"), Column("rest_ns", "Rest before", "time")))


def _split(context: ChartContext, state: str, rest_ns: int, fill_keys: dict[str, str]) -> Chart | None:
    """Each drive with free and with exhausted cache; a drive without a change has one speed."""
    def at(key: str) -> Callable[[DriveResults], FigurePath]:
        return lambda drive: ("states", state, "fills", fill_keys.get(drive.key, "none"), key)

    def text_of(drive: DriveResults) -> str:
        fast, slow, whole = (drive.value(*at(key)(drive)).value
                             for key in ("before_mb_s", "after_mb_s", "mean_mb_s"))
        if fast is None:
            return f"{plain(whole, 'rate')} throughout" if whole is not None else ""
        size = drive.value(*at("fast_bytes")(drive)).value
        return f"{plain(size, 'size')} at {plain(fast, 'rate')}, then {plain(slow, 'rate')}"

    def throughout(drive: DriveResults) -> FigurePath:
        return at("mean_mb_s" if drive.value(*at("before_mb_s")(drive)).value is None else "none")(drive)

    title = f"Cached and exhausted, {_name(rest_ns)}"
    return ranking(context, context.named(f"cache-split{_suffix(rest_ns)}", state), context.titled(title, state),
                   Axis("write throughput", "MB/s", "auto"),
                   [("exhausted", at("after_mb_s")), ("cached", at("before_mb_s")), ("no change found", throughout)],
                   _table(context, state, {rest_ns: fill_keys}, title), better="higher", form="rate", text_of=text_of,
                   order_path=lambda drive: at("after_mb_s" if drive.value(*at("after_mb_s")(drive)).value is not None
                                            else "mean_mb_s")(drive),
                   text="Write throughput before and after the fast part is full.")


def _rate(context: ChartContext, state: str, rest_ns: int, fill_keys: dict[str, str]) -> Chart | None:
    drawn = [(drive, series) for drive in context.drives
             for series in drive.series("rate", state=state, rest_ns=rest_ns)[:1]]
    if not drawn:
        return None
    most = min(1000, MOST_POINTS // len(drawn))
    points: list[Point] = []
    for drive, series in drawn:
        written, steps = 0.0, []
        for rate in series["lines"][0]["y"]:
            steps.append((written, rate))
            written += rate * series["of"]["width_ns"] / 1e3
        steps += [(written, steps[-1][1])] if steps else []  # the last step is as long as the others
        thinned = extremes([at for at, _ in steps], [rate for _, rate in steps], most)
        line = [Point(drive.key, "", at, rate) for at, rate in thinned]
        fast = drive.value("states", state, "fills", fill_keys.get(drive.key, "none"), "fast_bytes").value
        if fast is not None and line:
            index = max((index for index, point in enumerate(line) if point.x <= fast), default=0)
            line.insert(index + 1, Point(drive.key, "", float(fast), line[index].y, plain(fast, "size")))
        points += line
    title = f"Write rate by bytes written, {_name(rest_ns)}"
    table = Table(title, (Column("drive", "Drive"), Column("written_bytes", "Written before", "size"),
                          Column("mb_s", "Rate", "rate", better="higher")),
                  tuple(Row({"drive": point.entry, "written_bytes": point.x, "mb_s": point.y}, point.entry)
                        for point in points if point.ring is None))
    spec = curves(title, points, context.style(), Axis("written", "bytes"), MB_S, is_stepped=True, dots=False)
    return Chart(context.named(f"cache{_suffix(rest_ns)}", state), context.titled(title, state), table, spec, "higher",
                 "The ring is the end of the fast part." if any(point.ring for point in points) else
                 "No change of speed was found.", wide=True)


def _sizes(context: ChartContext, state: str, fills: Fills) -> Chart:
    table = _table(context, state, fills, "Fast part, by the rest before it")
    points = []
    for drive in context.drives:
        for index, fill_keys in enumerate(fills.values()):
            fast = drive.value("states", state, "fills", fill_keys.get(drive.key, "none"), "fast_bytes").value
            if fast is not None:
                points.append(Point(drive.key, "", index, float(fast)))
    notes = {row.why["fast_bytes"] for row in table.rows if "fast_bytes" in row.why}
    title = context.titled("Size of the fast part, by the rest before it", state)
    spec = curves(title, points, context.style(), Axis("", kind="names", names=tuple(map(_name, fills))),
                  Axis("fast part", "bytes"))
    return Chart(context.named("cache-size", state), title, table, spec, "higher",
                 "How much of the cache a rest recovers.", tuple(sorted(notes))[:3])
