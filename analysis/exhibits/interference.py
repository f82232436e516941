"""What background writes do to reads: latency of a read against what was written just before it, and is in flight."""

from .. import numbers
from .model import Column, Exhibit, Row, Table
from .parts import (
    MARKED_THICK,
    MOST_HUES,
    ROLE_COLOUR,
    TIME_LABEL,
    by_role,
    finished,
    hue,
    name_of,
    role,
    shape,
    tooltip,
)

_DRAWN_NS = 100_000_000  # of the windows, the one that is drawn; the table holds them all
_TICKS_NS = [each * 10**power for power in range(2, 11) for each in (1, 2, 5)]
_MEASURES = (("p50_ns", "median", [2, 2]), ("p99_ns", "p99", [1, 0]))
_NO_CAUSE = ("Writes in flight go along with slow reads and are partly their result: a drive that stalls keeps both. "
             "What was written before is a cause where the plan decided it.")


def interference(entries: list[dict], id_: str, order: list[str]) -> Exhibit | None:
    """entries: of a document, with `interference` (analysis/interference.py). None where none has it."""
    told = [entry for entry in entries if (entry.get("interference") or {}).get("windows")]
    told = [entry for entry in told if entry["interference"]["reads"] and entry["interference"]["writes"]]
    if not told:
        return None
    window = _nearest(told[0])
    views = [_points(told, lambda entry: _of(entry, window), numbers.size, order),
             _points(told, lambda entry: entry["interference"]["in_flight"], "{:,}".format, order)]
    titles = (f"bytes written in the {numbers.setting(window)} before the read", "writes in flight as the read began")
    views = [(rows, title) for rows, title in zip(views, titles, strict=True) if rows]
    if not views:
        return None
    values = [row["ns"] for rows, _ in views for row in rows]
    domain = [min(values) / 1.2, max(values) * 1.2]
    spec = finished("Latency of reads against the writes before them and beside them, by drive", fills=False,
                    vconcat=[_view(rows, title, domain, order) for rows, title in views])
    why = sorted({entry["interference"]["why"] for entry in entries if (entry.get("interference") or {}).get("why")})
    return Exhibit(id_, "What writes do to reads", _table(told), spec, "",
                   "Median dotted, p99 whole.", (_NO_CAUSE, *why), wide=True)


def _nearest(entry):
    return min((one["window_ns"] for one in entry["interference"]["windows"]), key=lambda ns: abs(ns - _DRAWN_NS))


def _of(entry, window_ns):
    return next((one for one in entry["interference"]["windows"] if one["window_ns"] == window_ns), {"bins": []})


def _points(told, pick, words, order):
    """Rows of bins in which a percentile is known; none of a lone bin, which compares nothing."""
    rows = []
    for entry in told:
        for one in pick(entry)["bins"]:
            at = f"{words(one['from'])} to {words(one['to'])}" if one["from"] else "none"
            rows += [{"entry": entry["label"], "name": name_of(entry), "place": order.index(entry["label"]),
                      "bin": one["from"], "at": words(one["from"]) if one["from"] else "none", "range": at,
                      "measure": measure, "ns": one[key], "text": numbers.duration(one[key]), "n": one["n"]}
                     for key, measure, _ in _MEASURES if one[key]]
    return rows if len({row["bin"] for row in rows}) > 1 else []


def _view(rows, title, domain, order):
    muted = len(order) > MOST_HUES
    here = [row["entry"] for row in rows]
    colour = {"color": ROLE_COLOUR} if muted else {"color": hue(order, here)}
    shapes = {} if muted else {"shape": shape(order, here)}
    at = {
        "x": {"field": "at", "type": "ordinal", "title": f"{title}, from", "sort": {"field": "bin", "op": "min"},
              "axis": {"labelAngle": 0, "labelOverlap": True, "grid": False}},
        "y": {"field": "ns", "type": "quantitative", "title": "read latency",
              "scale": {"type": "log", "domain": domain, "nice": False},
              "axis": {"labelExpr": TIME_LABEL, "values": _TICKS_NS}},
        "detail": [{"field": "entry", "type": "nominal"}, {"field": "measure", "type": "nominal"}], **colour}
    dash = {"field": "measure", "type": "nominal", "legend": None,
            "scale": {"domain": [name for _, name, _ in _MEASURES], "range": [dash for *_, dash in _MEASURES]}}
    return {"height": 170, "data": {"values": rows}, **({"transform": [role(order)]} if muted else {}), "layer": [
        {"mark": "line", "encoding": {**at, "strokeDash": dash,
                                      "strokeWidth": by_role(2.6, 2, 1) if muted else MARKED_THICK}},
        {"mark": {"type": "point", "filled": True, "size": 34, "opacity": 1}, "encoding": {
            **at, **shapes, "tooltip": tooltip(("name", "drive"), ("range", title), ("measure", "percentile"),
                                     ("text", "latency"), ("n", "reads", ","))}}]}


def _table(told):
    columns = (Column("drive", "Drive"), Column("window_ns", "Written in the last", "time"),
               Column("from_bytes", "From", "size"), Column("to_bytes", "To, less than", "size"),
               Column("in_flight_from", "Writes in flight, from", "count"),
               Column("in_flight_to", "Less than", "count"),
               Column("n", "Reads", "count"), Column("mean_ns", "Mean", "time"), Column("p50_ns", "p50", "time"),
               Column("p99_ns", "p99", "time"))
    rows = []
    for entry in told:
        label = entry["label"]
        for one in entry["interference"]["windows"]:
            rows += [_row(label, one_bin, {"window_ns": one["window_ns"], "from_bytes": one_bin["from"],
                                           "to_bytes": one_bin["to"]}) for one_bin in one["bins"]]
        rows += [_row(label, one_bin, {"in_flight_from": one_bin["from"], "in_flight_to": one_bin["to"]})
                 for one_bin in entry["interference"]["in_flight"]["bins"]]
    return Table("Latency of reads by what was written just before them, and by the writes in flight", columns,
                 tuple(rows))


def _row(label, one, where):
    why = {key: f"n too small (n={one['n']:,})" for key in ("p50_ns", "p99_ns") if one[key] is None}
    return Row({"drive": label, **where, **{key: one[key] for key in ("n", "mean_ns", "p50_ns", "p99_ns")}}, label, why,
               group=label)
