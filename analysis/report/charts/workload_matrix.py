"""Drives and workloads: performance in percent of one drive's, and the geometric mean over all workloads."""

from collections.abc import Sequence

from blkreel.analysis.charts.matrix import MatrixCell, matrix
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.report.workloads import Overview, interval_words, percent

_ALL = "all workloads"
_GRAY = "Gray: no difference shown to the drive that is 100 %, or too few runs for an interval."


def workload_matrix(overview: Overview, order: Sequence[str]) -> Chart | None:
    """order: labels of all drives of the page, as they are listed."""
    columns = [*(workload.title for workload in overview.workloads), _ALL]
    labels = [label for label in order if any(label in workload.drives for workload in overview.workloads)]
    cells = []
    for place, label in enumerate(labels):
        for workload in overview.workloads:
            own = workload.drives.get(label)
            if own:
                cells.append(MatrixCell(label, workload.title, place, own.share, not own.differ, percent(own.share),
                                        f"{workload.what} {own.text}"))
        if performance := overview.overall.get(label):
            sure = interval_words(performance)
            cells.append(MatrixCell(label, _ALL, place, performance.value, not performance.differs,
                                    percent(performance.value), f"95 % interval {sure}" if sure else "no interval"))
    spec = matrix(f"Performance of each drive on each workload in percent of {overview.reference}", cells, columns,
                  SeriesStyle(tuple(order), {}))
    metrics = "; ".join(f"{workload.title}: {workload.what}" for workload in overview.workloads)
    return Chart("workloads", f"Performance relative to {overview.reference}", _table(overview, labels), spec, "higher",
                 f"{overview.reference} is 100 %; 200 % is twice as fast. By {metrics}.",
                 (_GRAY, "The last column is the geometric mean over workloads, with its interval over runs in the "
                         "table."), wide=True)


def _table(overview: Overview, labels: Sequence[str]) -> Table:
    formula = f"value of {overview.reference} / value of the drive, inverse where higher is better"
    columns = (Column("drive", "Drive"),
               *(Column(f"workload_{index}", workload.title, "share", formula=formula, better="higher")
                 for index, workload in enumerate(overview.workloads)),
               Column("relative_performance", "All workloads", "share", better="higher",
                      formula="geometric mean over workloads"),
               Column("low", "Interval, low", "share", formula="95 % over runs, on ln"),
               Column("high", "Interval, high", "share", formula="95 % over runs, on ln"))
    rows = []
    for label in labels:
        values: dict[str, object] = {"drive": label}
        why, remarks = {}, {}
        for index, workload in enumerate(overview.workloads):
            own, key = workload.drives.get(label), f"workload_{index}"
            values[key] = own.share if own else None
            if own is None:
                why[key] = "no result"
            elif own.differ is False and label != overview.reference:
                remarks[key] = "no difference shown"
        performance = overview.overall.get(label)
        values |= {"relative_performance": performance and performance.value, "low": performance and performance.low,
                   "high": performance and performance.high}
        if performance is None:
            why["relative_performance"] = "not on every workload"
        elif performance.low is None:
            why |= dict.fromkeys(("low", "high"), "too few runs")
        rows.append(Row(values, label, why, remarks))
    return Table(f"Performance relative to {overview.reference}", columns, tuple(rows))
