"""Throughput of reads over that of writes, a row each drive on one scale and one axis of time."""

import json

import numpy as np

from .. import numbers
from .model import Column, Exhibit, Row, Table
from .parts import finished, name_of

_MOST_BINS, _BINS_IN_ALL = 400, 3200
_ROOMY = 4  # so many drives get high rows and a line of figures each
_TEXT = ("Reads (orange, outlined) in front, writes (blue) behind them. On the page, drag over the strip at the bottom "
         "to zoom all rows; double click to reset.")


def timeline(entries, id_: str, order: list[str]) -> Exhibit | None:
    """entries: of an analysis.document.Section; each is drawn by its first run. order: of the labels, from the top."""
    drawn = sorted((entry for entry in entries if entry.measured[0].timeline.used),
                   key=lambda entry: order.index(entry.shown["label"]))
    if not drawn:
        return None
    width_ns, moved = reduced([entry.measured[0].timeline for entry in drawn])
    told = [steps(each, width_ns) for each in moved]
    bin_ = numbers.setting(width_ns)
    notes = (f"MB/s completed in bins of {bin_}; one scale for all rows.",)
    if any(entry.shown["n"] > 1 for entry in drawn):
        notes += ("Of several runs of a drive the first is drawn.",)
    return Exhibit(id_, "Reads over writes", _table(drawn, told, bin_), _spec(drawn, told, moved, width_ns), text=_TEXT,
                   notes=notes, wide=True, zooms=True)


def reduced(lines) -> tuple[int, list[np.ndarray]]:
    """(width in ns of all bins, bytes of reads and writes in them, (2, bins) each): as wide as the widest, and wider
    until all of them together are at most _BINS_IN_ALL."""
    width_ns = max(line.width_ns for line in lines)
    longest = max(line.used * line.width_ns for line in lines)
    while longest / width_ns > min(_MOST_BINS, _BINS_IN_ALL // len(lines)):
        width_ns *= 2
    moved = []
    for line in lines:
        together = width_ns // line.width_ns
        bins = np.asarray(line.bytes)[:2, :line.used]
        bins = np.pad(bins, ((0, 0), (0, -bins.shape[1] % together)))
        moved.append(bins.reshape(2, -1, together).sum(axis=2))
    return width_ns, moved


def steps(moved: np.ndarray, width_ns: int) -> list[dict]:
    """MB/s from the start of each bin on, equal neighbours left out; the last row is the end."""
    rows, before = [], None
    for index in range(moved.shape[1]):
        value = tuple(int(count) for count in moved[:, index])
        if value != before:
            read, write = (count * 1000 / width_ns for count in value)
            rows.append({"t_ns": index * width_ns, "read": read, "write": write})
        before = value
    rows.append({**rows[-1], "t_ns": moved.shape[1] * width_ns})
    return rows


def _spec(drawn, told, moved, width_ns):
    length = max(each.shape[1] for each in moved) * width_ns / 1e9
    top = max((row[key] for rows in told for row in rows for key in ("read", "write")), default=0) or 1
    roomy = len(drawn) <= _ROOMY
    height, views = 116 if roomy else 46, []
    for entry, rows in zip(drawn, told, strict=True):
        views.append({"title": _title(entry.shown, roomy), "height": height,
                      "data": {"values": [{"entry": entry.shown["label"], **_drawn(row)} for row in rows]},
                      "layer": _lanes(top, _x(length, None), axis=True, roomy=roomy)})
    # The axis below the last row, whichever rows are left; and the whole run, to choose from.
    views.append({"height": 1, "data": {"values": [{"t": 0}, {"t": length}]}, "mark": {"type": "point", "opacity": 0},
                  "encoding": {"x": _x(length, "seconds since the first I/O")}})
    whole = max(told, key=len)
    strip = {"field": "t", "type": "quantitative", "title": None, "scale": {"domain": [0, length], "nice": False},
             "axis": {"grid": False}}
    lanes = _lanes(top, strip, axis=False)
    lanes[0]["params"] = [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"],
                                                      "mark": {"fillOpacity": 0.15}}}]
    views.append({"height": 34, "data": {"values": [_drawn(row) for row in whole]}, "layer": lanes})
    return finished("Throughput of reads over writes, by drive, over time", fills=False, spacing=10 if roomy else 4,
                    vconcat=views)


def _drawn(row):
    return {"t": round(row["t_ns"] / 1e9, 6), "read": round(row["read"], 3), "write": round(row["write"], 3)}


def _x(length, title):
    """Follows the strip. Until something is chosen there, all rows show the whole length."""
    axis = {"grid": False, "title": title} if title else {"grid": False, "labels": False, "ticks": False, "title": None}
    return {"field": "t", "type": "quantitative", "axis": axis,
            "scale": {"nice": False, "domainMax": {"expr": f"isValid(zoom.t) ? zoom.t[1] : {length}"},
                      "domainMin": {"expr": "isValid(zoom.t) ? zoom.t[0] : 0"}}}


def _lanes(top, x, axis, roomy=True):
    own = {"tickCount": 3 if roomy else 1, "minExtent": 46, "maxExtent": 46, "format": ",~r"} if axis else None

    def y(name):
        return {"field": name, "type": "quantitative", "axis": own, "title": "MB/s" if axis and roomy else None,
                "scale": {"domain": [0, top * 1.04], "nice": False}}

    area = {"type": "area", "interpolate": "step-after", "clip": True}
    return [{"mark": {**area, "style": "writes", "opacity": 0.55}, "encoding": {"x": x, "y": y("write")}},
            {"mark": {**area, "style": "reads", "opacity": 0.35}, "encoding": {"x": x, "y": y("read")}},
            {"mark": {"type": "line", "interpolate": "step-after", "clip": True, "style": "reads", "strokeWidth": 1.2},
             "encoding": {"x": x, "y": y("read")}}]


def _title(shown, roomy):
    marked = f"highlight === {json.dumps(shown['label'], ensure_ascii=False)}"
    words = json.dumps(name_of(shown), ensure_ascii=False)
    title = {"text": {"expr": f"{words} + ({marked} ? ', highlighted' : '')"}, "anchor": "start",
             "color": {"expr": f"{marked} ? accent : text"}}
    return title | ({"subtitle": _caption(shown)} if roomy else {"fontSize": 11.5, "offset": 2})


def _caption(shown):
    parts = [f"{name} {numbers.digits(shown['headline'][key]['value'])} MB/s"
             for name, key in (("reads", "read_throughput_mb_s"), ("writes", "write_throughput_mb_s"))
             if shown["headline"][key]["value"] is not None]
    if shown["headline"]["wait_ns"]["value"] is not None:
        parts.append(f"wait {numbers.duration(shown['headline']['wait_ns']['value'])}")
    return " · ".join(parts)


def _table(drawn, told, bin_):
    columns = (Column("from_ns", "From", "time", formula="start of the bin, since the first I/O"),
               Column("read_mb_s", "Reads", "rate", formula=f"bytes read that completed in the bin / {bin_}"),
               Column("write_mb_s", "Writes", "rate", formula=f"bytes written that completed in the bin / {bin_}"))
    rows = tuple(Row({"from_ns": row["t_ns"], "read_mb_s": row["read"], "write_mb_s": row["write"]},
                     entry.shown["label"], group=entry.shown["label"])
                 for entry, rows in zip(drawn, told, strict=True) for row in rows[:-1])
    return Table("Throughput from this time on, until the next row", columns, rows)
