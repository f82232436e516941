"""Two drives I/O by I/O, and which drives differ over runs."""

from collections.abc import Sequence

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Datum, Point, Spec
from blkreel.analysis.metrics.definitions.headline import leading_metrics
from blkreel.analysis.metrics.definitions.metric import pace_names
from blkreel.analysis.metrics.definitions.registry import METRICS

from .changes import WELCH

_POINTS = 3000  # of all curves together
_LOSSES, _FEWEST_LOSSES = 40, 3  # listed of all drives together, and of each at least
_PERCENTILES = ("p1", "p5", "p25", "p50", "p75", "p95", "p99")


def paired(section: Datum, prefix: str, order: Sequence[str]) -> list[Chart]:
    """section: of a document; `paired` is a list of {"base", "other"} with what compare/paired.py found of each."""
    pairs = section.get("paired")
    pairs = [pair for pair in pairs if pair.get("latency")] if isinstance(pairs, list) else []
    if not pairs:
        return []
    base = pairs[0]["base"]
    note = pairs[0].get("note", "")
    note = f"{note[:1].upper()}{note[1:]}." if note else ""
    text = f"Share of the I/Os whose latency is at most this multiple of that on {base}. Left of 1 they were faster."
    chart = Chart(f"{prefix}paired", f"I/O by I/O, against {base}", _table(pairs), _spec(pairs, order), "lower", text,
                    (note,) if note else ())
    return [chart, _losses(pairs, prefix)] if any(pair["losses"] for pair in pairs) else [chart]


def _spec(pairs: Sequence[Datum], order: Sequence[str]) -> Spec | None:
    points, most = [], max(12, _POINTS // len(pairs))
    for pair in pairs:
        classes, total = pair["latency"]["classes"], pair["latency"]["n"]
        done, curve = 0, []
        for class_ in classes:
            curve.append((class_["from"], done / total))
            done += class_["n"]
        curve.append((classes[-1]["to"], 1.0))
        every = -(-len(curve) // most)
        points += [Point(pair["other"], "", float(f"{ratio:.5g}"), round(share, 6))
                   for index, (ratio, share) in enumerate(curve) if index % every == 0 or index == len(curve) - 1]
    # From the lowest p1 to the highest p99 of all pairs, with 1 in it.
    low = min([1 / 1.5, *(pair["latency"]["p1"] or pair["latency"]["p50"] or 1 for pair in pairs)])
    high = max([1.5, *(pair["latency"]["p99"] or pair["latency"]["p50"] or 1 for pair in pairs)])
    return curves("Distribution of the ratio of latencies, I/O by I/O, by drive", points, SeriesStyle(tuple(order), {}),
                  Axis(f"latency / latency on {pairs[0]['base']}", kind="log", domain=(low, high)),
                  Axis("share of the I/Os", "share", domain=(0, 1)), dots=False, x_rule=1)


def _table(pairs: Sequence[Datum]) -> Table:
    columns = (Column("drive", "Drive"), Column("base", "Against"), Column("measure", "Of"),
               Column("n", "I/Os", "count", formula="I/Os of the trace that are in all runs of both"),
               Column("geometric_mean", "Ratio", "number", "×", "exp(mean of ln(latency / latency of the other))",
                      better="lower"),
               Column("sum_ratio", "Ratio of sums", "number", "×", "Σ latency / Σ latency of the other"),
               Column("faster_share", "Faster", "share"), Column("slower_share", "Slower", "share"),
               *(Column(name, name, "number", "×", "nearest rank of the ratios") for name in _PERCENTILES))
    rows = []
    for pair in pairs:
        for measure in ("latency", "response"):
            ratio = pair.get(measure)
            if ratio:
                why = {name: f"n too small (n={ratio['n']:,})" for name in _PERCENTILES if ratio[name] is None}
                keys = ("n", "geometric_mean", "sum_ratio", "faster_share", "slower_share", *_PERCENTILES)
                rows.append(Row({"drive": pair["other"], "base": pair["base"], "measure": measure,
                                 **{key: ratio[key] for key in keys}}, pair["other"], why))
    return Table("Each I/O of the trace on one drive by the same I/O on the other", columns, tuple(rows))


def _losses(pairs: Sequence[Datum], prefix: str) -> Chart:
    columns = (Column("drive", "Drive"), Column("source_row", "Row of the trace", "count"), Column("op", "Operation"),
               Column("at_ns", "At", "time"), Column("offset_bytes", "Offset", "size"),
               Column("length_bytes", "Size", "block"), Column("base_ns", "Other drive", "time"),
               Column("other_ns", "This drive", "time"))
    rows = tuple(Row({"drive": pair["other"], **{column.key: loss.get(column.key) for column in columns[1:]}},
                     pair["other"], group=f"{pair['other']} against {pair['base']}")
                 for pair in pairs for loss in pair["losses"][:max(_FEWEST_LOSSES, _LOSSES // len(pairs))])
    return Chart(f"{prefix}losses", "I/Os with the largest increase of latency", Table(
        f"The I/Os with the largest increase of latency over {pairs[0]['base']}", columns, rows), wide=True)


def ratios(section: Datum, prefix: str, marked: str | None) -> Chart | None:
    """Which drives differ over runs: pairs with enough runs for an interval. marked: the drive under test, the
    base of its pairs. With more than four drives, only its pairs or those of the first drive are listed."""
    leading = leading_metrics(pace_names(section["pace"]))
    tested = [_against(ratio, marked) for ratio in section.get("ratios") or [] if ratio["differ"] is not None
              and METRICS[ratio["figure"]] in leading]
    if len(section["entries"]) > 4:
        base = marked or section["entries"][0]["label"]
        tested = [ratio for ratio in tested if base == ratio["base"]]
    if not tested:
        return None
    columns = (Column("other", "Drive"), Column("base", "Against"),
               Column("change", "Difference", "change", formula="ratio of the geometric means over runs − 1"),
               Column("low", "Interval, low", "change", formula=WELCH),
               Column("high", "Interval, high", "change", formula=WELCH),
               Column("p", "p", "p", formula="Welch, adjusted for all comparisons of the section (Holm)"),
               Column("verdict", "They", formula="differ where the interval excludes no difference, by more than 2 %"))
    rows = [Row({"other": ratio["other"], "base": ratio["base"], "change": ratio["value"] - 1, "low": ratio["low"] - 1,
                 "high": ratio["high"] - 1, "p": ratio["p"], "verdict": "differ" if ratio["differ"] else "tie"},
                ratio["other"], {}, {"verdict": ratio["why"]} if ratio["why"] else {}, METRICS[ratio["figure"]].title)
            for ratio in tested]
    return Chart(f"{prefix}ratios", "Which drives differ", Table(
        "Ratios of the geometric means over runs; the unit of repetition is a whole run", columns, tuple(rows)),
        wide=True)


def _against(ratio: Datum, marked: str | None) -> Datum:
    """The pair with the marked drive as its base."""
    if ratio["other"] != marked:
        return ratio
    return {**ratio, "base": ratio["other"], "other": ratio["base"], "value": 1 / ratio["value"],
            "low": 1 / ratio["high"], "high": 1 / ratio["low"]}
