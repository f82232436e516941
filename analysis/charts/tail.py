"""Latency tails: the share of I/Os that took at least a time, both axes logarithmic."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from blkreel.common import units
from blkreel.common.verdict import ENOUGH_BEYOND

from .series_style import SeriesStyle
from .spec import HIGHLIGHTED, OWN_SCALES, TIMES, Axis, Datum, Spec, finish, labels_by_scale, scale_axis, tooltip

_MOST_POINTS = 3200  # of all lines of a chart
_LEAST_NS = 100  # shorter times are drawn here: a logarithmic axis has no zero
_SHARES = {1: "100 %", 0.5: "50 %", 0.1: "10 %  p90", 0.01: "1 %  p99", 0.001: "0.1 %  p99.9", 1e-4: "0.01 %  p99.99",
           1e-5: "0.001 %", 1e-6: "0.0001 %", 1e-7: "0.00001 %"}


@dataclass(frozen=True)
class Tail:
    """entry: key of its drive. line: what of the drive. n: I/Os. points: (ns, share of the I/Os that took at least so
    long), ascending in ns. percentiles: (name, share beyond, ns), marked on the line."""

    entry: str
    line: str
    n: int
    points: Sequence[tuple[float, float]]
    percentiles: Sequence[tuple[str, float, float]] = ()


def tail_chart(description: str, tails: Sequence[Tail], style: SeriesStyle, title: str,
               limits: Sequence[tuple[float, str]] = ()) -> Spec | None:
    """Faint where fewer than ENOUGH_BEYOND I/Os lie beyond. title: of the time axis. limits: (ns, text) of vertical
    lines. None without points."""
    most = max(8, _MOST_POINTS // max(1, len(tails)))
    rows = [row for tail in tails for row in _rows(tail, most)]
    if not rows:
        return None
    style = style.limited_to((tail.entry, tail.line) for tail in tails)
    across = scale_axis(Axis(title, "ns", "log"), [*(row["ns"] for row in rows), *(ns for ns, _ in limits)], is_x=True,
                        room=style.label_room())
    least = min(row["share"] for row in rows)
    shares = [share for share in _SHARES if share >= least]
    labels = json.dumps({f"{share:g}": text for share, text in _SHARES.items()}, ensure_ascii=False)
    x, y = across.encode("ns"), {
        "field": "share", "type": "quantitative", "title": "share of I/Os that took at least this long",
        "scale": {"type": "log", "domain": [min(least, shares[-1]), 1], "nice": False},
        "axis": {"values": shares, "labelExpr": f"({labels})[format(datum.value, '~g')] || ''"}}
    line: Spec = {"type": "line", "interpolate": "step-before", "clip": True}
    # Step lines end in the strong part, so that the faint one begins where it ends.
    faint = {"condition": {"test": "datum.part === 'few'", "value": 0.35}, "value": 1}
    strong = "datum.role !== 'other'" if style.is_muted else HIGHLIGHTED
    layers: list[Spec] = [
        {"mark": {**line, "strokeWidth": 1.2 if style.is_muted else 1.9},
         "encoding": {**style.line(), "opacity": faint}},
        {"mark": {**line, "strokeWidth": 3}, "encoding": {"color": style.color(), "opacity": {
            "condition": {"test": f"{strong} && datum.part === 'enough'", "value": 1}, "value": 0}}},
        {"mark": {"type": "point", "filled": True, "opacity": 0, "size": 60}, "encoding": {"tooltip": tooltip(
            ("name", "drive"), *((("line", "of"),) if len(style.lines) > 1 else ()), ("time", "at least"),
            ("share", "share of I/Os", ".3~%"))}}]
    marks = [{"entry": tail.entry, "line": tail.line, "ns": max(ns, _LEAST_NS), "share": share, "mark": name,
              "is": units.duration(ns)} for tail in tails for name, share, ns in tail.percentiles]
    if marks and not style.is_muted:
        layers.append({"data": {"values": marks}, "transform": style.transform,
                       "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1}, "encoding": {
                           **style.point(legend=False),
                           "tooltip": tooltip(("name", "drive"), ("mark", "percentile"), ("is", "value"))}})
    layers += style.end_labels(rows, "share")
    for ns, text in limits:
        values = {"data": {"values": [{"ns": ns, "text": text}]}}
        layers += [{**values, "mark": {"type": "rule", "strokeDash": [3, 3], "style": "limit"},
                    "encoding": {"y": {"value": 0}, "y2": {"value": "height"}}},
                   {**values, "mark": {"type": "text", "align": "right", "baseline": "top", "dx": -4, "dy": 2,
                                       "style": "limit-label"},
                    "encoding": {"y": {"value": 0}, "text": {"field": "text", "type": "nominal"}}}]
    return finish(description, height=270, data={"values": rows}, layer=layers, resolve=OWN_SCALES,
                  transform=[*style.transform, {"as": "time", "calculate": labels_by_scale("datum.ns", TIMES, ".3~r")}],
                  encoding={"x": x, "y": y, "detail": [{"field": "entry"}, {"field": "line"}, {"field": "part"}]})


def _rows(tail: Tail, most: int) -> list[Datum]:
    """Data of a tail, thinned to at most `most` points: part "enough" up to the edge, then "few"."""
    points = tail.points if len(tail.points) <= most else [
        tail.points[round(index * (len(tail.points) - 1) / (most - 1))] for index in range(most)]
    edge = min((share for _, share in points if share * tail.n >= ENOUGH_BEYOND - 1e-6), default=None)
    rows = []
    for ns, share in points:
        row = {"entry": tail.entry, "line": tail.line, "ns": max(ns, _LEAST_NS), "share": float(f"{share:.5g}")}
        if edge is not None and share >= edge:
            rows.append({**row, "part": "enough"})
        if edge is None or share <= edge:
            rows.append({**row, "part": "few"})
    if rows:
        last = [row for row in rows if row["part"] == "enough"] or rows
        last[-1]["end"] = True
    return rows
