"""Tails of latency, response time and lateness, by drive."""

from collections.abc import Sequence

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import MOST_HUES, SeriesStyle
from blkreel.analysis.charts.spec import Datum
from blkreel.analysis.charts.tail import Tail, tail_chart
from blkreel.analysis.metrics.definitions.headline import LATENESS_P99, READ_P50, READ_RESPONSE_P99
from blkreel.analysis.metrics.definitions.metric import pace_names
from blkreel.analysis.metrics.definitions.registry import find
from blkreel.analysis.metrics.partials.distributions import PERCENTILES, Distribution
from blkreel.analysis.report.columns import WITHHELD, is_withheld
from blkreel.analysis.report.commands import command, path_of
from blkreel.analysis.report.document import Entry
from blkreel.common.printable import within_sentence
from blkreel.common.verdict import ENOUGH_BEYOND

_Measured = tuple[Datum, Distribution, Datum]  # entry of the document, values, their figures
_POINTS, _FEW_POINTS = 120, 44  # of a curve: fewer each of more than MOST_HUES drives
_MARKS = (("p50", 2), ("p90", 10), ("p99", 100), ("p99.9", 1000))
_FAINT = f"Faint where fewer than {ENOUGH_BEYOND} I/Os lie beyond: too few for a percentile."
_TAILS = (("read-tail", "read", "latency", "Read latency (from submit)", READ_P50),
          ("response-tail", "read", "response", "Read response (from due)", READ_RESPONSE_P99),
          ("write-tail", "write", "latency", "Write latency (from submit)", READ_P50))
_LATENESS = (("host", "Lateness caused by the host", ((100_000, "limit of p99"), (10_000_000, "limit")),
              "Time from due to submit, caused by this machine. The verdict depends on its effect on the metrics."),
             ("device", "Lateness caused by a full queue", (),
              "Time from due to submit while the drive's queue was full. It is part of the response time."))


def latency_tails(entries: Sequence[Entry], prefix: str, order: Sequence[str]) -> list[Chart]:
    """entries: of a report.document.Section. order: all labels of the page, as they are listed."""
    charts = [_tail(prefix + id_, title, [(entry.document, getattr(getattr(entry.partial, kind), measure),
                                           entry.document["figures"][kind][measure]) for entry in entries
                                          if metric.meaningful(pace_names(entry.document["pace"]))],
                    order, f"{kind}.{measure}", metric.formula)
              for id_, kind, measure, title, metric in _TAILS]
    return [chart for chart in charts if chart]


def lateness_tails(entries: Sequence[Entry], prefix: str, order: Sequence[str]) -> list[Chart]:
    """Parameters as of `latency_tails`. Empty for captured traces."""
    charts = [_tail(f"{prefix}lateness-{cause}", title, [
        (entry.document, getattr(entry.partial, f"lateness_{cause}"), entry.document["figures"]["lateness"][cause])
        for entry in entries], order, f"lateness.{cause}", LATENESS_P99.formula, limits, text)
        for cause, title, limits, text in _LATENESS]
    return [chart for chart in charts if chart]


def _tail(id_: str, title: str, measured: Sequence[_Measured], order: Sequence[str], key: str, formula: str,
          limits: Sequence[tuple[float, str]] = (), text: str = "") -> Chart | None:
    """measured: (entry of the document, counts of values, their figures). key: where the figures stand, for the
    command."""
    measured = [entry for entry in measured if entry[1].count]
    if not measured:
        return None
    points = _FEW_POINTS if len(order) > MOST_HUES else _POINTS
    hidden = [entry["label"] for entry, *_ in measured if _withheld(entry, key)]
    tails = [Tail(entry["label"], "", counts.count, _points(counts, points), _percentiles(counts))
             for entry, counts, _ in measured if entry["label"] not in hidden]
    notes = (f"Without a curve, because a value is withheld: {', '.join(hidden)}.",) if hidden else ()
    style = SeriesStyle.of_entries([entry for entry, *_ in measured], order)
    spec = tail_chart(f"Tail of {within_sentence(title)}, by drive", tails, style, within_sentence(title), limits)
    return Chart(id_, title, _table(title, measured, key, formula), spec, "" if limits else "lower", text,
                 (_FAINT, *notes))


def _points(counts: Distribution, most: int) -> list[tuple[float, float]]:
    """(ns, share). Of three or more equal times only the first and the last: the others are on the same step."""
    points: list[tuple[float, float]] = []
    for ns, beyond in counts.tail(most):
        point = (ns, beyond / counts.count)
        if beyond >= ENOUGH_BEYOND and len(points) > 1 and points[-1][0] == points[-2][0] == ns:
            points[-1] = point
        else:
            points.append(point)
    return points


def _percentiles(counts: Distribution) -> list[tuple[str, float, float]]:
    return [(name, 1 / share, ns) for name, share in _MARKS if counts.count >= ENOUGH_BEYOND * share
            and (ns := counts.percentile((share - 1, share))) is not None]


def _withheld(entry: Datum, key: str) -> list[str]:
    """The figures below `key` that the effect of the host forbids to show, such as `p99_ns`."""
    return [name for name in ("mean_ns", *(f"{name}_ns" for name in PERCENTILES), "max_ns")
            if (metric := find(f"{key}.{name}")) and is_withheld(entry, metric)]


def _table(title: str, measured: Sequence[_Measured], key: str, formula: str) -> Table:
    figures = [("n", "n", "count", "I/Os"), ("mean_ns", "Mean", "time", "Σ / n"),
               *((f"{name}_ns", name.replace("_", "."), "time", formula) for name in PERCENTILES),
               ("max_ns", "Max", "time", "the largest")]
    columns = (Column("drive", "Drive"), *(
        Column(name, heading, form, formula=words, recompute=command(f"{key}.{name}"))
        for name, heading, form, words in figures))
    rows = []
    for entry, _, values in measured:
        why = {f"{name}_ns": f"n too small (n={values['n']:,})" for name in values["too_small"]}
        why |= dict.fromkeys(_withheld(entry, key), WITHHELD)
        cells: Datum = {"drive": entry["label"],
                        **{name: None if why.get(name) == WITHHELD else values[name] for name, *_ in figures}}
        rows.append(Row(cells, entry["label"], why, path=path_of(entry)))
    return Table(f"{title}: percentiles by nearest rank", columns, tuple(rows))
