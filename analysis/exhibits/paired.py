"""Two drives I/O by I/O, and which of them differ over runs."""

from ..definitions import HEADLINE
from .model import Column, Exhibit, Row, Table
from .parts import MARKED_THICK, MOST_HUES, ROLE_COLOUR, by_role, dash, finished, hue, role
from .ranking import RANKINGS

_POINTS = 3000  # of all curves together
_LOSSES, _FEWEST_LOSSES = 40, 3  # listed of all drives together, and of each at least
_WELCH = "95 % Welch interval of the ratio − 1, on ln over runs"
_PERCENTILES = ("p1", "p5", "p25", "p50", "p75", "p95", "p99")


def paired(section: dict, prefix: str, order: list[str]) -> list[Exhibit]:
    """section: of a document; `paired` is a list of {"base", "other"} with what analysis/paired.py found of each."""
    pairs = section.get("paired")
    pairs = [pair for pair in pairs if pair.get("latency")] if isinstance(pairs, list) else []
    if not pairs:
        return []
    base = pairs[0]["base"]
    note = pairs[0].get("note", "")
    note = f"{note[:1].upper()}{note[1:]}." if note else ""
    text = f"Share of the I/Os that took at most so many times as long as on {base}. Left of 1 they were faster."
    chart = Exhibit(f"{prefix}paired", f"I/O by I/O, against {base}", _table(pairs), _spec(pairs, order), "lower", text,
                    (note,) if note else ())
    return [chart, _losses(pairs, prefix)] if any(pair["losses"] for pair in pairs) else [chart]


def _spec(pairs, order):
    rows, points = [], max(12, _POINTS // len(pairs))
    for pair in pairs:
        classes, total = pair["latency"]["classes"], pair["latency"]["n"]
        done, curve = 0, []
        for one in classes:
            curve.append({"ratio": one["from"], "share": done / total})
            done += one["n"]
        curve.append({"ratio": classes[-1]["to"], "share": 1.0})
        every = -(-len(curve) // points)
        rows += [{"entry": pair["other"], "place": order.index(pair["other"]), "ratio": float(f"{one['ratio']:.5g}"),
                  "share": round(one["share"], 6)} for index, one in enumerate(curve)
                 if index % every == 0 or index == len(curve) - 1]
    muted = len(order) > MOST_HUES
    here = [pair["other"] for pair in pairs]
    colour = {"color": ROLE_COLOUR} if muted else {"color": hue(order, here), "strokeDash": dash(order, here)}
    # The middle of all pairs, where they can be told apart, with 1 in it.
    low = min([1 / 1.5, *(pair["latency"]["p1"] or pair["latency"]["p50"] or 1 for pair in pairs)])
    high = max([1.5, *(pair["latency"]["p99"] or pair["latency"]["p50"] or 1 for pair in pairs)])
    x = {"type": "quantitative", "title": "latency here / latency there", "scale": {
        "type": "log", "domain": [low, high], "nice": False}, "axis": {
        "format": "~r", "values": [each * 10**power for power in range(-4, 5) for each in (1, 2, 5)]}}
    return finished("Distribution of the ratio of latencies, I/O by I/O, by drive", height=220, data={"values": rows},
                    **({"transform": [role(order)]} if muted else {}), layer=[
        {"mark": {"type": "line", "interpolate": "linear", "clip": True}, "encoding": {
            "strokeWidth": by_role(2.6, 2, 1) if muted else MARKED_THICK,
            "x": {"field": "ratio", **x}, "y": {"field": "share", "type": "quantitative", "title": "share of the I/Os",
                                                "scale": {"domain": [0, 1]}, "axis": {"format": ".0%", "tickCount": 5}},
            "detail": {"field": "entry", "type": "nominal"}, **colour}},
        {"data": {"values": [{"ratio": 1}]}, "mark": {"type": "rule", "style": "limit", "strokeDash": [3, 3]},
         "encoding": {"x": {"field": "ratio", **x}}}])


def _table(pairs):
    columns = (Column("drive", "Drive"), Column("base", "Against"), Column("measure", "Of"),
               Column("n", "I/Os", "count", formula="I/Os of the trace that are in all runs of both"),
               Column("geometric_mean", "Ratio", "number", "×", "exp(mean of ln(here / there))", better="lower"),
               Column("sum_ratio", "Ratio of sums", "number", "×", "Σ here / Σ there"),
               Column("faster_share", "Faster", "share"), Column("slower_share", "Slower", "share"),
               *(Column(name, name, "number", "×", "nearest rank of the ratios") for name in _PERCENTILES))
    rows = []
    for pair in pairs:
        for measure in ("latency", "response"):
            told = pair.get(measure)
            if told:
                why = {name: f"n too small (n={told['n']:,})" for name in _PERCENTILES if told[name] is None}
                keys = ("n", "geometric_mean", "sum_ratio", "faster_share", "slower_share", *_PERCENTILES)
                rows.append(Row({"drive": pair["other"], "base": pair["base"], "measure": measure,
                                 **{key: told[key] for key in keys}}, pair["other"], why))
    return Table("Each I/O of the trace on one drive by the same I/O on the other", columns, tuple(rows))


def _losses(pairs, prefix):
    columns = (Column("drive", "Drive"), Column("source_row", "Row of the trace", "count"), Column("op", "Operation"),
               Column("at_ns", "At", "time"), Column("offset_bytes", "Place", "size"),
               Column("length_bytes", "Size", "block"), Column("base_ns", "There", "time"),
               Column("other_ns", "Here", "time"))
    rows = tuple(Row({"drive": pair["other"], **{column.key: one.get(column.key) for column in columns[1:]}},
                     pair["other"], group=f"{pair['other']} against {pair['base']}")
                 for pair in pairs for one in pair["losses"][:max(_FEWEST_LOSSES, _LOSSES // len(pairs))])
    return Exhibit(f"{prefix}losses", "I/Os that lost the most", Table(
        f"The I/Os that took longest beyond what they took on {pairs[0]['base']}", columns, rows), wide=True)


def ratios(section: dict, prefix: str, marked: str | None) -> Exhibit | None:
    """Which drives differ over runs: pairs with enough runs for an interval. marked: the drive under test, which the
    others stand against; with more than a few drives only its pairs stand here, or those of the first."""
    told = [_against(one, marked) for one in section.get("ratios") or [] if one["differ"] is not None
            and one["figure"] in {name for _, name, _ in RANKINGS}]
    if len(section["entries"]) > 4:
        base = marked or section["entries"][0]["label"]
        told = [one for one in told if base == one["base"]]
    if not told:
        return None
    columns = (Column("other", "Drive"), Column("base", "Against"),
               Column("change", "Difference", "change", formula="ratio of the geometric means over runs − 1"),
               Column("low", "Interval, low", "change", formula=_WELCH),
               Column("high", "Interval, high", "change", formula=_WELCH),
               Column("p", "p", "number", formula="Welch, adjusted for all comparisons of the section (Holm)"),
               Column("verdict", "They", formula="differ where the interval excludes no difference, by more than 2 %"))
    rows = [Row({"other": one["other"], "base": one["base"], "change": one["value"] - 1, "low": one["low"] - 1,
                 "high": one["high"] - 1, "p": one["p"], "verdict": "differ" if one["differ"] else "tie"}, one["other"],
                {}, {"verdict": one["why"]} if one["why"] else {}, HEADLINE[one["figure"]].title) for one in told]
    return Exhibit(f"{prefix}ratios", "Which drives differ", Table(
        "Ratios of the geometric means over runs; the unit of repetition is a whole run", columns, tuple(rows)),
        wide=True)


def _against(one, marked):
    """The pair with the marked drive as its base, whichever way round it was compared."""
    if one["other"] != marked:
        return one
    return {**one, "base": one["other"], "other": one["base"], "value": 1 / one["value"], "low": 1 / one["high"],
            "high": 1 / one["low"]}
