"""How many I/Os took at least so long: both axes logarithmic, so that the one in ten thousand is seen."""

import json

from .. import numbers
from ..definitions import HEADLINE
from ..percentiles import PERCENTILES
from ..theme import DASHES, SHAPES
from .commands import command, path_of
from .model import Column, Exhibit, Row, Table
from .parts import (
    MARKED_THICK,
    MARKED_THIN,
    MOST_HUES,
    ROLE_COLOUR,
    TIME_LABEL,
    by_role,
    finished,
    name_of,
    role,
    tooltip,
)

POINTS, FEW_POINTS = 120, 44  # of a curve: where there are more than MOST_HUES, fewer each
_ENOUGH = 10  # I/Os beyond a value, for the curve to be told
_MIN_NS = 100  # a logarithmic axis has no zero: what is smaller is drawn there
_SHARES = (1, 0.5, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6, 1e-7)
_SHARE_LABEL = ("format(datum.value * 100, '~r') + ' %' + (datum.value == 0.5 ? '' : datum.value == 0.1 ? '  p90' : "
                "datum.value == 0.01 ? '  p99' : datum.value == 0.001 ? '  p99.9' : '')")
_MARKS = (("p50", 2), ("p90", 10), ("p99", 100), ("p99.9", 1000))
TAILS = (("read-tail", "read", "latency", "Read latency (from submit)", "read_latency_p50_ns"),
         ("response-tail", "read", "response", "Read response (from due)", "read_response_p99_ns"),
         ("write-tail", "write", "latency", "Write latency (from submit)", "read_latency_p50_ns"))


def tails(entries, prefix: str, order: list[str]) -> list[Exhibit]:
    """The tails of an analysis.document.Section's entries. order: all labels of the page, as they are listed."""
    built = [tail(prefix + id_, title, [(entry.shown, getattr(getattr(entry.partial, kind), measure),
                                         entry.shown["figures"][kind][measure]) for entry in entries],
                  order, f"{kind}.{measure}", HEADLINE[defined].formula)
             for id_, kind, measure, title, defined in TAILS]
    return [one for one in built if one]


def tail(id_, title, told, order, key, formula, limits=(), text="") -> Exhibit | None:
    """told: (entry of the document, counts of values, their figures). key: where the figures stand, for the command.
    limits: (ns, words) that are drawn across."""
    told = [(shown, counts, figures) for shown, counts, figures in told if counts.count]
    if not told:
        return None
    better = "" if limits else "lower"
    return Exhibit(id_, title, _table(title, told, key, formula), curves(title, told, order, limits), better, text,
                   ("Faint where fewer than 10 I/Os lie beyond: too few to tell.",))


def curves(title, told, order, limits=()) -> dict:
    muted = len(order) > MOST_HUES
    points = FEW_POINTS if muted else POINTS
    lines, marks, ends = [], [], []
    for shown, counts, _ in told:
        own = {"entry": shown["label"], "place": order.index(shown["label"])}
        steps = [{**own, **step} for step in _steps(counts, points)]
        lines += steps
        if muted:
            ends.append({**_end(steps, own["place"]), "name": name_of(shown)})
        else:
            marks += [{**own, **mark} for mark in _percentiles(counts)]
    low, high = (pick(step["ns"] for step in lines) for pick in (min, max))
    high = max([high, *(ns for ns, _ in limits)])
    lowest = min(step["share"] for step in lines)
    shares = [share for share in _SHARES if share >= lowest / 3]
    x = {"field": "ns", "type": "quantitative", "title": title.lower(),
         "scale": {"type": "log", "nice": False, "domain": [low / 1.15, high * 1.15]},
         "axis": {"labelExpr": TIME_LABEL, "values": [10**power for power in range(2, 13)], "grid": True}}
    scale = {"type": "log", "domain": [min(lowest, shares[-1]), 1]}
    y = {"type": "quantitative", "title": "share that took at least so long", "scale": scale,
         "axis": {"labelExpr": _SHARE_LABEL, "values": shares}}
    line = {"type": "line", "interpolate": "step-before", "clip": True, "strokeCap": "butt"}
    told_apart = ({"detail": {"field": "entry", "type": "nominal"}, "color": ROLE_COLOUR} if muted
                  else _by_hue(told, order))
    thin, thick = (by_role(1.4, 1.1, 0.7), by_role(2.6, 2, 1)) if muted else (MARKED_THIN, MARKED_THICK)
    layers = [
        {"mark": {**line, "opacity": 0.4},
         "encoding": {"x": x, "y": {"field": "share", **y}, "strokeWidth": thin, **told_apart}},
        {"mark": {**line, "invalid": "break-paths-filter-domains"},
         "encoding": {"x": x, "y": {"field": "solid", **y}, "strokeWidth": thick, **told_apart}}]
    if muted:
        for behind in ({"stroke": {"expr": "page"}, "strokeWidth": 3}, {}):
            colour = {} if behind else {"color": ROLE_COLOUR}
            layers.append({"data": {"values": ends}, "transform": [role(order)], "mark": {
                "type": "text", "align": "right", "dx": -6, "dy": 3, "fontSize": 11, "fontWeight": 600, **behind},
                "encoding": {"x": x, "y": {"field": "share", **y}, "text": {"field": "name", "type": "nominal"},
                             "opacity": by_role(1, 1, 0), **colour}})
    elif marks:
        told_apart = {name: value for name, value in told_apart.items() if name != "strokeDash"}
        layers.append({"data": {"values": marks}, "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
                       "encoding": {"x": x, "y": {"field": "share", **y}, **told_apart, "shape": _shape(told, order),
                                    "tooltip": tooltip(("entry", "drive"), ("mark", "percentile"), ("text", "value"))}})
    for ns, words in limits:
        rule = {"data": {"values": [{"ns": ns, "text": words}]}}
        layers += [{**rule, "mark": {"type": "rule", "strokeDash": [3, 3], "style": "limit"}, "encoding": {"x": x}},
                   {**rule, "mark": {"type": "text", "align": "right", "baseline": "top", "dx": -4, "y": 2,
                                     "style": "limit-label"},
                    "encoding": {"x": x, "text": {"field": "text", "type": "nominal"}}}]
    return finished(f"Tail of {title.lower()}, by drive", height=250, data={"values": lines},
                    **({"transform": [role(order)]} if muted else {}), layer=layers)


def _by_hue(told, order):
    legend = _legend(told)
    return {"color": {"field": "entry", "type": "nominal", "title": None, "legend": legend, "scale": {"domain": order}},
            "strokeDash": {"field": "entry", "type": "nominal", "title": None, "legend": legend,
                           "scale": {"domain": order, "range": DASHES[:len(order)]}}}


def _shape(told, order):
    return {"field": "entry", "type": "nominal", "title": None, "legend": _legend(told),
            "scale": {"domain": order, "range": SHAPES[:len(order)]}}


def _legend(told):
    failed = [shown["label"] for shown, *_ in told if name_of(shown) != shown["label"]]
    long = sum(len(name_of(shown)) + 4 for shown, *_ in told) > 34
    return {"orient": "top", "columns": 1 if long else 0, "symbolStrokeWidth": 0, "symbolOpacity": 1,
            "values": [shown["label"] for shown, *_ in told],
            "labelExpr": f"datum.label + (indexof({json.dumps(failed, ensure_ascii=False)}, datum.label) >= 0 ? "
                         "' (invalid)' : '')"}


def _steps(counts, points):
    """Steps of the curve; `solid` is the share as far as it can be told, and null behind."""
    total, steps = counts.count, []
    for value, beyond in counts.tail(points):
        enough = beyond >= _ENOUGH
        step = {"ns": max(value, _MIN_NS), "share": _rounded(beyond / total),
                "solid": _rounded(beyond / total) if enough else None}
        # Between equal times only the first and the last step show.
        if len(steps) > 1 and steps[-1]["ns"] == steps[-2]["ns"] == step["ns"] and enough:
            steps[-1] = step
        else:
            steps.append(step)
    return steps


def _end(steps, place):
    """Where the name of a curve stands: neighbours in the order have it at other heights."""
    solid = [step for step in steps if step["solid"] is not None] or steps
    at = solid[max(0, len(solid) - 1 - (place % 3) * max(1, len(solid) // 6))]
    return {key: at[key] for key in ("entry", "place", "ns", "share")}


def _percentiles(counts):
    for name, share in _MARKS:
        if counts.count >= _ENOUGH * share:
            value = counts.percentile((share - 1, share))
            yield {"ns": max(value, _MIN_NS), "share": 1 / share, "mark": name, "text": numbers.duration(value)}


def _rounded(share):
    return float(f"{share:.5g}")


def _table(title, told, key, formula):
    percentiles = [("n", "n", "count", "I/Os"), ("mean_ns", "Mean", "time", "Σ / n"),
                   *((f"{name}_ns", name.replace("_", "."), "time", formula) for name in PERCENTILES),
                   ("max_ns", "Max", "time", "the largest")]
    columns = (Column("drive", "Drive"), *(
        Column(name, heading, form, formula=words, recompute=command(f"{key}.{name}"))
        for name, heading, form, words in percentiles))
    rows = []
    for shown, _, figures in told:
        why = {f"{name}_ns": f"n too small (n={figures['n']:,})" for name in figures["too_small"]}
        rows.append(Row({"drive": shown["label"], **{name: figures[name] for name, *_ in percentiles}},
                        shown["label"], why, path=path_of(shown)))
    return Table(f"{title}: percentiles by nearest rank", columns, tuple(rows))
