"""Latency tails: the share of I/Os that took at least so long, both axes logarithmic."""

from ... import numbers
from ...percentiles import ENOUGH_BEYOND
from .drawing import MARKED, OWN_SCALES, Apart, Axis, finished, names, room_for, scaled, tooltip

MOST_POINTS = 3200
_LEAST_NS = 100  # a logarithmic axis has no zero: what is smaller is drawn there
_SHARES = {1: "100 %", 0.5: "50 %", 0.1: "10 %  p90", 0.01: "1 %  p99", 0.001: "0.1 %  p99.9", 1e-4: "0.01 %  p99.99",
           1e-5: "0.001 %", 1e-6: "0.0001 %", 1e-7: "0.00001 %"}


def tail(description: str, lines: list[dict], apart: Apart, what: str) -> dict | None:
    """lines: entry, line, n, and points (ns, share at least as slow). Faint where fewer than 10 I/Os lie beyond.

    None where there is nothing to draw.
    """
    most = max(8, MOST_POINTS // max(1, len(lines)))
    rows = []
    for line in lines:
        points = line["points"] if len(line["points"]) <= most else [
            line["points"][round(index * (len(line["points"]) - 1) / (most - 1))] for index in range(most)]
        near = [share for _, share in points if share * line["n"] >= ENOUGH_BEYOND - 1e-6]
        edge = min(near, default=None)
        for ns, share in points:
            told = {"entry": line["entry"], "line": line["line"], "ns": max(ns, _LEAST_NS), "share": share,
                    "is": numbers.duration(ns), "beyond": f"{numbers.digits(100 * share)} %"}
            if edge is not None and share >= edge:
                rows.append({**told, "part": "enough"})
            if edge is None or share <= edge:  # the faint part takes over where the other ends
                rows.append({**told, "part": "few"})
    if not rows:
        return None
    along = scaled(Axis(what, "ns", "log"), [row["ns"] for row in rows], x=True, room=room_for(apart))
    lowest = min(row["share"] for row in rows)
    shares = [share for share in _SHARES if share >= lowest]
    label = "{" + ", ".join(f"'{share:g}': '{text}'" for share, text in _SHARES.items()) + "}"
    values = apart.rows(rows)
    lasts = {(value["entry"], value["line"]): index for index, value in enumerate(values)}
    for index, value in enumerate(values):
        value["end"] = value["name"] if lasts[value["entry"], value["line"]] == index else ""
    encoding = {
        "x": {"field": "ns", **along.encoding},
        "y": {"field": "share", "type": "quantitative", "title": "share that took at least so long",
              "scale": {"type": "log", "domain": [min(lowest, shares[-1]), 1], "nice": False},
              "axis": {"values": shares, "labelExpr": f"({label})[format(datum.value, '~g')] || ''"}},
        "detail": [{"field": "entry"}, {"field": "line"}, {"field": "part"}]}
    line = {"type": "line", "interpolate": "step-before", "clip": True}
    shown, again = apart.encoding(), apart.encoding(legend=False)
    faint = {"test": "datum.part === 'few'", "value": 0.35}
    layers = [{"mark": {**line, "strokeWidth": 1.2 if apart.muted else 1.9},
               "encoding": {**shown, "opacity": {"condition": faint, "value": 1}}},
              {"mark": {**line, "strokeWidth": 3}, "encoding": {**again, "opacity": {"condition": [
                  {"test": f"{MARKED} && datum.part === 'enough'", "value": 1}], "value": 0}}},
              {"mark": {"type": "point", "filled": True, "opacity": 0, "size": 60}, "encoding": {"tooltip": tooltip(
                  ("name", "drive"), ("line", "of"), ("is", "at least"), ("beyond", "share"))}}]
    if apart.muted:
        layers += names(values, "share", "end")
    return finished(description, height=270, data={"values": values}, transform=apart.transform, encoding=encoding,
                    layer=layers, resolve=OWN_SCALES)
